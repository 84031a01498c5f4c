"""How near a student is to its teacher, and how good its rankings are. Needs torch."""

import measures
import network
import torch


def scores_of(model, export, question, orders, part, tokens=network.TOKENS):
    """The student's scores of each passage alone, and of these orders; in nats."""
    count = len(question.passages)
    sequences = [network.prompt(export, question, [index]) for index in range(count)]
    sequences += [network.prompt(export, question, order, with_passages=part == "joint") for order in orders]
    query, passages = network.scored(model, sequences, tokens)
    return query[:count], [a + b for a, b in zip(query[count:], passages[count:])]


def judge(model, export, pairs, *, part="query", most_orders=None, tokens=network.TOKENS):
    """One row a question. `pairs` are (teacher's question or None, student's question).

    `tau_passages` and `tau_orders` are Kendall's tau with the teacher's scores of the passages alone, and of the orders; `ndcg` is that
    of the ranking by the passages' scores, `ndcg_teacher` the teacher's.
    """
    model.eval()
    rows = []
    for teacher, student in pairs:
        orders = [] if teacher is None else teacher.orders[:most_orders]
        passages, together = scores_of(model, export, student, orders, part, tokens)
        row = {"id": student.id, "ndcg": measures.ndcg(passages, student.labels), "passages": passages, "orders": together}
        if teacher is not None and teacher.query_after_passage:
            row["tau_passages"] = measures.kendall_tau(teacher.query_after_passage, passages)
            row["ndcg_teacher"] = measures.ndcg(teacher.query_after_passage, student.labels)
        if orders:
            row["tau_orders"] = measures.kendall_tau(teacher.order_scores(part)[:most_orders], together)
        rows.append(row)
    return rows


MEASURES = ("tau_passages", "tau_orders", "ndcg", "ndcg_teacher")


def report(before, after):
    """Means over questions, before and after, and of the differences."""
    told = {}
    for name in MEASURES:
        old, new = ([row.get(name) for row in rows] for rows in (before, after))
        if any(value is not None for value in new):
            told[name] = {
                "before": measures.summary(old),
                "after": measures.summary(new),
                "difference": measures.difference(old, new),
            }
    return told


def temperature_of(scores, temperature):
    """`sd`: the standard deviation of the teacher's scores of the question, None where that is 0; otherwise the number itself."""
    if temperature != "sd":
        return float(temperature)
    value = measures.standard_deviation(scores)
    return value if value > 1e-6 else None


def divergence(teacher, student, temperature):
    """KL(teacher || student) of the softmax of both at one temperature (Lee et al., section 3.3.2). `student` is a tensor."""
    target = torch.tensor(measures.softmax(teacher, temperature), device=student.device)
    known = torch.where(target > 0, target.log(), 0.0)
    return (target * (known - torch.log_softmax(student / temperature, 0))).sum()


def contrast(student, positive, temperature):
    """-log of the share of the relevant passage at index `positive` in the softmax over the passages' scores."""
    return -torch.log_softmax(student / temperature, 0)[positive]
