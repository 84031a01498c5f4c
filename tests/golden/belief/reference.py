#!/usr/bin/env python3
"""An independent computation of entailment probabilities and belief measures, for tests/golden/belief.rs.

    python3 -m venv /tmp/nli && /tmp/nli/bin/pip install numpy onnx onnxruntime==1.31.1 tokenizers
    /tmp/nli/bin/python tests/golden/belief/reference.py --network policy_nli_int8.onnx --tokenizer tokenizer.json

Shares no code with the program: the network is run by onnxruntime's Python binding up to its pooled output, the head of
models/nli is applied here, and the measures are written from the paper's formulas. The questions and answers are made up.
"""

import argparse
import json
import math
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from tokenizers import Tokenizer

HERE = Path(__file__).parent
HEAD = HERE / "../../../models/nli/head.json"

CASES = [
    {"question": "who repaired the tower clock", "reference": "Marta Lind",
     "answers": [("Marta Lind", [-0.2, -0.4]), ("It was Marta Lind.", [-0.9, -0.1, -0.3, -0.2, -0.1]), ("Jonas Falk", [-1.7, -0.8]),
                 ("Marta Lind", [-0.2, -0.4]), ("", [-2.3]), ("the smith's daughter Marta Lind", [-1.1, -0.4, -0.9, -0.2, -0.1]), ("nobody", [-3.0])]},
    {"question": "In which year did the ferry sink?", "reference": "1931",
     "answers": [("1931", [-0.5, -0.6]), ("in 1931", [-1.0, -0.3, -0.4]), ("1913", [-1.5, -1.2]), ("The ferry sank in 1931.", [-0.7, -0.5, -0.2, -0.1, -0.3, -0.4]),
                 ("It did not sink.", [-1.9, -0.8, -0.2, -0.1])]},
    {"question": "what do the bakers of Senn put into their bread", "reference": "caraway seeds",
     "answers": [("salt", [-1.2]), ("caraway", [-0.8, -0.5]), ("caraway seeds and salt", [-0.8, -0.5, -0.4, -0.3, -0.6]), ("They use rye flour.", [-1.4, -0.9, -0.5, -0.4, -0.2])]},
    {"question": "is the bridge open in winter", "reference": "no", "answers": [("no", [-0.3])]},
]


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


class Judge:
    def __init__(self, network, tokenizer):
        head = json.loads(HEAD.read_text())
        self.width, self.hidden = head["width"], head["hidden"]
        numbers = np.frombuffer(HEAD.with_suffix(".f32").read_bytes(), np.float32).astype(np.float64)
        cut = np.cumsum([self.width * self.hidden, self.hidden, self.hidden * 3])
        w1, b1, w2, self.b2 = np.split(numbers, cut)
        self.w1, self.b1, self.w2 = w1.reshape(self.width, self.hidden), b1, w2.reshape(self.hidden, 3)
        model = onnx.load(network)
        for value in model.graph.input:
            value.type.tensor_type.shape.dim[1].dim_param = "tokens"
        del model.graph.output[:]
        model.graph.output.append(onnx.helper.make_tensor_value_info(head["input"], onnx.TensorProto.FLOAT, ["batch", self.width]))
        settings = onnxruntime.SessionOptions()
        # As in the server, because the fast 8-bit kernels of CPUs without VNNI overflow.
        settings.add_session_config_entry("session.x64quantprecision", "1")
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(tokenizer)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()

    def __call__(self, premise, hypothesis):
        ids = np.array([self.tokenizer.encode(premise, hypothesis).ids], np.int64)
        pooled = self.session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0].astype(np.float64)
        return softmax(np.maximum(pooled @ self.w1 + self.b1, 0) @ self.w2 + self.b2)


def strict(p, q):
    return p.argmax() == 0 and q.argmax() == 0


def loose(p, q):
    return p.argmax() != 2 and q.argmax() != 2 and not (p.argmax() == 1 and q.argmax() == 1)


def clusters(texts, verdict, same):
    founders, of = [], []
    for i, text in enumerate(texts):
        for number, founder in enumerate(founders):
            if text == texts[founder] or same(verdict(text, texts[founder]), verdict(texts[founder], text)):
                of.append(number)
                break
        else:
            of.append(len(founders))
            founders.append(i)
    return of, founders


def entropy(masses):
    return float(-sum(m * math.log(m) for m in masses if m > 0))


def jackknife(values):
    n = len(values)
    return None if n < 2 else math.sqrt((n - 1) / n * sum((v - sum(values) / n) ** 2 for v in values))


def measures(case, verdict, weighting):
    texts = [text for text, _ in case["answers"]]
    tokens = [np.array(l) for _, l in case["answers"]]
    logs = np.array([{"mean": l.mean(), "sum": l.sum(), "frequency": 0.0}[weighting] for l in tokens])
    weights = softmax(logs)
    of, founders = clusters(texts, verdict, strict)
    masses = [sum(weights[i] for i in range(len(texts)) if of[i] == c) for c in range(len(founders))]
    kernel = np.array([verdict(text, case["reference"])[0] for text in texts])
    both = np.array([max(verdict(t, case["reference"])[0], verdict(case["reference"], t)[0]) for t in texts])
    member = np.array([float(loose(verdict(texts[founders[c]], case["reference"]), verdict(case["reference"], texts[founders[c]]))) for c in of])
    out = [np.delete(np.arange(len(texts)), i) for i in range(len(texts))]
    leave = lambda k: jackknife([float(weights[o] @ k[o] / weights[o].sum()) for o in out]) if len(texts) > 1 else None
    by = "mean" if weighting == "frequency" else weighting
    return {
        "weights": weights.tolist(), "cluster_of": of, "founders": founders,
        "seper_soft": float(weights @ kernel), "seper_soft_error": leave(kernel),
        "seper_soft_either": float(weights @ both),
        "seper_hard": float(weights @ member), "seper_hard_error": leave(member),
        "semantic_entropy": entropy(masses),
        "semantic_entropy_count": entropy([of.count(c) / len(of) for c in range(len(founders))]),
        "predictive_entropy": float(-np.mean([l.mean() if by == "mean" else l.sum() for l in tokens])),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", required=True)
    parser.add_argument("--tokenizer", required=True)
    options = parser.parse_args()
    judge = Judge(options.network, options.tokenizer)
    cases = []
    for case in CASES:
        question = case["question"] if case["question"].endswith("?") else case["question"] + "?"
        known = {}

        def verdict(premise, hypothesis):
            # An answer without a word entails nothing and follows from nothing.
            if not premise or not hypothesis:
                return np.array([0.0, 1.0, 0.0])
            if (premise, hypothesis) not in known:
                known[premise, hypothesis] = judge(f"{question} {premise}".rstrip(), f"{question} {hypothesis}".rstrip())
            return known[premise, hypothesis]

        # Every ordered pair, so that a test may need any of them.
        texts = sorted({text for text, _ in case["answers"]} | {case["reference"]})
        for one in texts:
            for other in texts:
                verdict(one, other)
        found = {weighting: measures(case, verdict, weighting) for weighting in ["mean", "sum", "frequency"]}
        rows = [{"premise": p, "hypothesis": h, "probabilities": v.tolist()} for (p, h), v in known.items()]
        answers = [{"text": text, "token_log_probabilities": logs} for text, logs in case["answers"]]
        cases.append({"question": case["question"], "reference": case["reference"], "answers": answers, "verdicts": rows, "measures": found})
    (HERE / "cases.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
