"""What the questions of a training step teach: prompts, and losses of their scores. Needs torch."""

import dataclasses
import math
from collections.abc import Callable

import judge
import network
import questions


class TrainingError(Exception):
    """A training that cannot go on."""


@dataclasses.dataclass(frozen=True)
class Exercise:
    """What one question teaches: the prompts whose scores its loss needs, and the loss, a function of them."""

    sequences: list
    loss: Callable


def exercise_of(data, options, pair, draw):
    """The exercise of one question, or None where it teaches nothing. `draw` chooses orders and the relevant passage."""
    if not questions.teaches(data, options, pair):
        return None
    teacher, student = pair
    relevant = data.relevant(student)
    joint = False
    if options.objective == "contrastive":
        others = [index for index in range(len(student.passages)) if index not in relevant]
        if student.query_after_passage:
            others.sort(key=lambda index: -student.query_after_passage[index])
        positive = draw.choice(relevant)
        orders = [[index] for index in [positive, *others[: options.negatives]]]
        known = {positive: 0}

        def learnt(scores):
            return judge.contrast(scores, 0, float(options.temperature))

    else:
        wanted = questions.teacher_scores(data, options, teacher)
        # Of every score: the deviation of two is half of their difference, whatever it is.
        temperature = judge.temperature_of(wanted, options.temperature)
        if data.on == "passages":
            orders = [[index] for index in range(len(student.passages))]
            known = {index: index for index in range(len(student.passages))}
        else:
            chosen = draw.sample(range(len(teacher.orders)), min(options.orders_per_step, len(teacher.orders)))
            orders, wanted = [teacher.orders[index] for index in chosen], [wanted[index] for index in chosen]
            known, joint = {}, options.part == "joint"

        def learnt(scores):
            return judge.divergence(wanted, scores, temperature)

    sequences = [network.prompt(data.student, student, order, with_passages=joint) for order in orders]
    # Where the likelihood of the query behind each relevant passage stands among the scores.
    places = []
    if options.query_nll > 0 and relevant:
        if not all(index in known for index in relevant):
            known |= {index: len(orders) + at for at, index in enumerate(relevant)}
            sequences += [network.prompt(data.student, student, [index]) for index in relevant]
        places = [known[index] for index in relevant]

    def loss(scores):
        value = learnt(scores[: len(orders)])
        if places:
            likelihood = sum(scores[place] for place in places) / len(places) / len(student.query)
            value = value - options.query_nll * likelihood
        if not math.isfinite(value.item()):
            raise TrainingError(f"question {student.id!r}: the loss is {value.item()}; a smaller --rate may help")
        return value

    return Exercise(sequences, loss)


def joined(exercises, tokens):
    """The exercises in groups, in their order. Those whose prompts, padded, are at most so many tokens together are one group, unless
    the padding of one to the length of another would add a quarter to them."""
    groups, longest, count, alone = [], 0, 0, 0
    for exercise in exercises:
        own, prompts = max(len(sequence.ids) for sequence in exercise.sequences), len(exercise.sequences)
        longest, count, alone = max(longest, own), count + prompts, alone + own * prompts
        if not groups or longest * count > min(tokens, 1.25 * alone):
            groups.append([])
            longest, count, alone = own, prompts, own * prompts
        groups[-1].append(exercise)
    return groups


def losses(model, exercises, tokens):
    """The losses of each group of exercises that are evaluated together; one group after the other."""
    for group in joined(exercises, tokens):
        query, passages = network.log_probabilities(model, [one for exercise in group for one in exercise.sequences], tokens)
        parts = (query + passages).split([len(exercise.sequences) for exercise in group])
        yield [exercise.loss(part) for exercise, part in zip(group, parts, strict=True)]


def of(data, options, pairs, draw):
    """The exercises of the pairs that teach anything, in their order."""
    exercises = [exercise_of(data, options, pair, draw) for pair in pairs]
    return [exercise for exercise in exercises if exercise is not None]
