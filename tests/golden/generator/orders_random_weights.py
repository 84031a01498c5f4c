"""Orders of methods that rank without utilities, under the tiny random generator of golden/adapters, naively and without rerankd.

The default generator keeps the input order in listwise and bubble sort, so a method without effect would agree with
orders.json. Random weights move passages: bubble sort swaps one or two pairs in five of seven lists, the others change
every list. Sorts, prompts and forward passes come from orders.py and methods.py. The model has no chat template, so a
prompt begins with the beginning of sequence and has no turns. A ranking with a decision below LEAST_MARGIN is left out.

  pip install gguf numpy tokenizers
  python orders_random_weights.py ../adapters/merged.gguf > orders_random_weights.json
"""

import json
import sys

from methods import Model, Prompts
from orders import Margin, listwise, pairwise_sliding, setwise

# Found by search: with most queries the labels' own bias decides every comparison of two passages.
LISTS = [
    ("engine!", ["engine", "weir", "clock", "slate", "bread"]),
    ("river!", ["bishop", "steam", "rye", "lamp", "weir"]),
    ("rye", ["inn", "orbit", "bishop", "slate", "clock"]),
    ("rye", ["moon", "bishop", "inn", "salmon", "weir"]),
    ("rye", ["bishop", "slate", "orbit", "inn", "clock"]),
    ("inn.", ["lamp", "mill", "knight", "clock", "bishop"]),
    ("river!", ["engine", "mill", "oil", "rye", "heather"]),
]
# Cache cells hold 16 bits in the server.
LEAST_MARGIN = 0.06


def passage(word):
    """A word said so often that it moves the weights of attention, in some sixty letters."""
    return " ".join([word] * (60 // (len(word) + 1)))


def main():
    model = Model(sys.argv[1])
    (start,) = (i for word, i in model.control.items() if word == "<|endoftext|>")
    told = []
    for query, words in LISTS:
        passages = [passage(word) for word in words]
        for method in (pairwise_sliding, setwise, listwise):
            p = Prompts(model, query, [{"title": "", "text": text} for text in passages])
            p.before, p.after = [start], []
            margin = Margin()
            order = method(p, len(passages), margin)
            ranking = {"method": method.__name__.replace("_", "-"), "query": query, "passages": passages, "order": order}
            if margin.least >= LEAST_MARGIN:
                told.append(ranking | {"margin": round(float(margin.least), 6)})
    json.dump(told, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
