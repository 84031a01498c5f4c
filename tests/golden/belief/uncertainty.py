"""Perplexity and lexical similarity of made-up answers, for tests/golden/belief.rs.

    pip install numpy rouge-score==0.1.2
    python tests/golden/belief/uncertainty.py

Writes uncertainty.json to this folder. ROUGE-L comes from Google's rouge_score without stemming, on texts normalised as
in the SQuAD evaluation. Answers without words are left out: rouge_score gives two of them 0, here they are alike. The
output is deterministic.
"""

import itertools
import json
import random
import re
import string
from pathlib import Path

import numpy as np
from rouge_score import rouge_scorer

rng = random.Random(23)
scorer = rouge_scorer.RougeScorer(["rougeL"], use_stemmer=False)
WORDS = "the an Arden ferry pilot's harbour, in 1931 (twice) sank left at dawn fog Marta Lind bridge closed".split()


def normalised(text):
    text = "".join(char for char in text.lower() if char not in set(string.punctuation))
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def case():
    pool = [" ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 9))) for _ in range(rng.randint(1, 6))]
    pool = [text for text in pool if normalised(text)] or ["Marta Lind"]
    answers = [rng.choice(pool) for _ in range(rng.randint(2, 12))]
    tokens = [[round(-rng.expovariate(0.8), 4) for _ in range(rng.randint(1, 12))] for _ in answers]
    alike = [scorer.score(normalised(a), normalised(b))["rougeL"].fmeasure for a, b in itertools.combinations(answers, 2)]
    each = [np.exp(-np.mean(one)) for one in tokens]
    left_out = [np.mean(each[:i] + each[i + 1:]) for i in range(len(each))]
    error = np.sqrt((len(each) - 1) / len(each) * np.sum((left_out - np.mean(left_out)) ** 2))
    return {
        "answers": [{"text": text, "token_log_probabilities": one} for text, one in zip(answers, tokens)],
        "perplexity": float(np.mean(each)), "perplexity_error": float(error), "lexical_similarity": float(np.mean(alike)),
    }


cases = [case() for _ in range(40)]
Path(__file__).with_name("uncertainty.json").write_text("[\n" + ",\n".join(json.dumps(one) for one in cases) + "\n]\n")
