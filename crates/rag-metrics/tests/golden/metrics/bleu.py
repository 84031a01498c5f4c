"""Sentence BLEU of sacrebleu for tests/golden/metrics.rs.

    pip install sacrebleu==2.6.0
    python tests/golden/metrics/bleu.py tests/golden/metrics

Writes bleu.json. Texts are normalised as in the SQuAD evaluation before sacrebleu reads them without a tokenizer of its own.
Answers without words are left out: sacrebleu gives 0, and crates/rag-metrics/src/bleu.rs says what is given here. Seeded: a second run
writes the same.
"""

import json
import random
import re
import string
import sys
from pathlib import Path

from sacrebleu.metrics import BLEU

out = Path(sys.argv[1])
rng = random.Random(11)
bleu = BLEU(tokenize="none", smooth_method="exp", effective_order=True)

WORDS = """the a an Harbour harbour pilot pilot's ferry ferries left at dawn dusk, in heavy fog and rain (cold) 1871 granite lighthouse-keeper
keeper Arden was built of by Moira Kell; "north" shore over-night slowly twice waited for tide""".split()

WRITTEN = [
    ("Moira Kell", ["Moira Kell"]),
    ("moira kell.", ["Moira Kell", "the engineer Moira Kell"]),
    ("Kell", ["Moira Kell", "the engineer Moira Kell"]),
    ("The lighthouse was built by Moira Kell in 1871.", ["Moira Kell built the lighthouse in 1871."]),
    ("In 1871, the lighthouse of Arden was built.", ["The lighthouse of Arden was built in 1871.", "It was built in 1871"]),
    ("ferries wait for the tide", ["The ferry waits for a tide"]),
    ("cold cold cold cold cold", ["cold rain", "cold cold fog"]),
    ("a dog barked", ["ferries wait"]),
    ("fog", ["the", "fog over the harbour"]),
]


def normalised(text):
    """SQuAD's normalisation of answers: lower case, no punctuation, no articles, single spaces."""
    text = "".join(char for char in text.lower() if char not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def sentence(least, most):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(least, most)))


def changed(text):
    """The text with words dropped, replaced and swapped."""
    words = [word for word in text.split() if rng.random() > 0.1]
    words = [rng.choice(WORDS) if rng.random() < 0.15 else word for word in words]
    if len(words) > 2 and rng.random() < 0.5:
        at = rng.randrange(len(words) - 1)
        words[at], words[at + 1] = words[at + 1], words[at]
    return " ".join(words)


def random_case():
    references = [sentence(1, 14) for _ in range(rng.randint(1, 4))]
    text = changed(rng.choice(references)) if rng.random() < 0.8 else sentence(1, 14)
    return text, references


cases = []
for text, references in WRITTEN + [random_case() for _ in range(300)]:
    plain = [normalised(reference) for reference in references]
    if not normalised(text) or not any(plain):
        continue
    score = bleu.sentence_score(normalised(text), [reference for reference in plain if reference]).score / 100
    cases.append({"text": text, "references": references, "bleu": score})
(out / "bleu.json").write_text("[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]\n")
zero = sum(case["bleu"] == 0 for case in cases)
whole = sum(abs(case["bleu"] - 1) < 1e-9 for case in cases)
print(f"{len(cases)} cases, {zero} of them 0, {whole} of them 1")
