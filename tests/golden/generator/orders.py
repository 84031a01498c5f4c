"""Orders of methods that rank without utilities, under a llama-architecture GGUF file, naively and without rerankd.

Prompts and forward passes come from methods.py: one prompt at a time, numpy in 32 bits. The sorts are
textbook sorts, one comparison after the other. `margin` is the smallest difference, in nats, on which a decision of the
method rests. If it is below the rounding of 4-bit or 16-bit kernels, the order proves nothing.

  pip install gguf numpy tokenizers
  python orders.py MODEL.gguf < methods.json > orders.json
"""

import itertools
import json
import re
import sys

import numpy as np
from methods import Model, Prompts

NUMBERS = (
    "I will provide you with passages, each indicated by a numerical identifier []. Rank the passages based on their relevance to the "
    "search query that follows them.\n\n"
)
ASK = (
    "\nRank the passages above based on their relevance to the search query. All the passages should be included and listed using "
    "identifiers, in descending order of relevance. The output format should be [] > [], e.g., [2] > [1]. Only respond with the ranking "
    "results, do not say any word or explain.\n"
)


class Margin:
    """Remembers the smallest difference between what was taken and what was not."""

    def __init__(self):
        self.least = np.inf

    def best(self, values):
        first, second = sorted(values, reverse=True)[:2]
        self.least = min(self.least, first - second)
        return int(np.argmax(values))

    def above(self, value, other):
        self.least = min(self.least, abs(value - other))
        return value > other


def pairwise_sliding(p, n, margin):
    """Bubble sort, ten passes from the bottom. Neighbours are swapped if both prompts prefer the lower one."""
    order = list(range(n))

    def wins(lower, upper):
        under, over = p.comparison([lower, upper]), p.comparison([upper, lower])
        return margin.above(under[0], under[1]) and margin.above(over[1], over[0])

    for done in range(min(10, n - 1)):
        for place in range(n - 1, done, -1):
            if wins(order[place], order[place - 1]):
                order[place - 1], order[place] = order[place], order[place - 1]
    return order


def setwise(p, n, margin):
    """Heap sort with three children per node, of the first ten places."""
    heap, taken = list(range(n)), []

    def heapify(size, node):
        places = [node, *range(3 * node + 1, min(3 * node + 4, size))]
        if len(places) > 1:
            best = places[margin.best(p.comparison([heap[place] for place in places]))]
            if best != node:
                heap[node], heap[best] = heap[best], heap[node]
                heapify(size, best)

    for node in reversed(range(n)):
        heapify(n, node)
    for size in reversed(range(n)):
        if len(taken) == 10:
            break
        taken.append(heap[0])
        heap[0] = heap[size]
        heapify(size, 0)
    return taken + [i for i in range(n) if i not in taken]


def listwise(p, n, margin):
    """Greedy, of the numbers that are not listed yet; the separator is fixed."""
    text = p.model.text
    prompt = p.before + text(NUMBERS)
    for place in range(n):
        prompt += text(f"[{place + 1}] ") + p.passages[place]
    prompt += text("Search Query:") + p.query + text(ASK) + p.after + text("[")
    order, left = [], list(range(n))
    while len(left) > 1:
        row = p.model.rows(prompt)[-1]
        chosen = left[margin.best([row[text(str(place + 1))[0]] for place in left])]
        order.append(chosen)
        left.remove(chosen)
        prompt = prompt + text(str(chosen + 1)) + text("] > [")
    return order + left


def cascade(p, n, retriever, margin):
    """Its second step: utilities and the retriever's scores, each from its floor, 0, to its maximum; 0.6 and 0.4."""
    none = p.likelihood([])
    utility = np.array([p.likelihood([i]) - none for i in range(n)])
    fused = 0.6 * utility / utility.max() + 0.4 * np.array(retriever) / max(retriever)
    for one, other in itertools.combinations(fused, 2):
        margin.above(one * utility.max() / 0.6, other * utility.max() / 0.6)
    return [int(i) for i in np.argsort(-fused, kind="stable")]


def self_consistency(p, margin):
    """All orders of the first three passages are answered with, greedily, up to 32 tokens or the end of the line."""

    def answer(order):
        prompt, drawn = p.answering(list(order)), []
        while len(drawn) < 32:
            row = p.model.rows(prompt + drawn)[-1]
            token = margin.best(row)
            if token in p.model.control.values() or "\n" in p.model.tokenizer.decode(drawn + [token]).lstrip(" "):
                break
            drawn.append(token)
        return p.model.tokenizer.decode(drawn)

    orders = list(itertools.permutations(range(3)))
    # As SQuAD compares answers: lower case, no punctuation, no articles.
    plain = lambda text: re.sub(r"\b(a|an|the)\b", " ", re.sub(r"[^\w\s]", "", text.lower())).split()
    answers = [plain(answer(order)) for order in orders]
    counts = [answers.count(text) for text in answers]
    consensus = answers[int(np.argmax(counts))]
    return {"consensus": " ".join(consensus), "share": max(counts) / len(orders)}


def main():
    asked = json.load(sys.stdin)
    p = Prompts(Model(sys.argv[1]), asked["query"], asked["passages"])
    n, retriever = len(p.passages), [12.0, 5.0, 6.5, 9.0, 3.0]
    orders = {}
    for method in (pairwise_sliding, setwise, listwise):
        margin = Margin()
        order = method(p, n, margin)
        orders[method.__name__.replace("_", "-")] = {"order": order, "margin": round(float(margin.least), 6)}
    margin = Margin()
    order = cascade(p, n, retriever, margin)
    orders["cascade"] = {"order": order, "margin": round(float(margin.least), 6), "retriever_scores": retriever}
    margin = Margin()
    consistency = self_consistency(p, margin) | {"margin": round(float(margin.least), 6)}
    json.dump({"orders": orders, "self_consistency": consistency}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
