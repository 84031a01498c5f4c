"""Targets and measures of distillation. Needs nothing but Python."""

import math


def softmax(scores, temperature):
    """exp(score / temperature), normalised."""
    most = max(scores)
    weights = [math.exp((score - most) / temperature) for score in scores]
    total = sum(weights)
    return [weight / total for weight in weights]


def mean(values):
    return sum(values) / len(values)


def standard_deviation(values):
    """Of the population (divides by n)."""
    centre = mean(values)
    return math.sqrt(mean([(value - centre) ** 2 for value in values]))


def kendall_tau(left, right):
    """Kendall's tau-b; None where either side is constant."""
    concordant, ties_left, ties_right, pairs = 0, 0, 0, 0
    for i in range(len(left)):
        for j in range(i):
            a = (left[i] > left[j]) - (left[i] < left[j])
            b = (right[i] > right[j]) - (right[i] < right[j])
            pairs += 1
            concordant += a * b
            ties_left += a == 0
            ties_right += b == 0
    scale = math.sqrt((pairs - ties_left) * (pairs - ties_right))
    return concordant / scale if scale > 0 else None


def ndcg(scores, labels, cutoff=10):
    """nDCG of the order by descending score (ties keep the given order); None without a relevant passage.

    Gains are the labels, as in trec_eval.
    """
    def gain(order):
        return sum(labels[index] / math.log2(place + 2) for place, index in enumerate(order[:cutoff]))

    best = gain(sorted(range(len(labels)), key=lambda index: -labels[index]))
    return gain(sorted(range(len(scores)), key=lambda index: -scores[index])) / best if best > 0 else None


def summary(values):
    """Mean and its standard error over questions; values of None are left out. One value has no standard error."""
    values = [value for value in values if value is not None]
    if not values:
        return {"questions": 0}
    error = round(standard_deviation(values) / math.sqrt(len(values) - 1), 4) if len(values) > 1 else None
    return {"mean": round(mean(values), 4), "standard_error": error, "questions": len(values)}


def difference(before, after):
    """Summary of the differences, question by question."""
    both = zip(before, after)
    return summary([new - old for old, new in both if old is not None and new is not None])
