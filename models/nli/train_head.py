#!/usr/bin/env python3
"""Trains the three-class head of the default entailment network and prints how good it is.

    python3 -m venv /tmp/nli && /tmp/nli/bin/pip install numpy==2.* onnx==1.* onnxruntime==1.31.1 tokenizers==0.22.*
    /tmp/nli/bin/python models/nli/train_head.py --network policy_nli_int8.onnx --tokenizer tokenizer.json \
        --data FOLDER --out models/nli/head.json

FOLDER holds nli/snli-train-40k.tsv.gz, nli/snli-dev.tsv.gz (label, premise, hypothesis), qa/*.jsonl.gz (question, answers,
passages {text, supporting}) and equivalence/evouna-nq-1000.jsonl.gz (question, golden_answer, five systems' answers with
verdicts). Equal input and seed give equal weights. Only weights leave this script, no text.

The body is a DeBERTa-v3-xsmall whose own head answers another question. Its pooled output (384 numbers) is standardised and
goes through one hidden layer. It learns from sentence pairs (SNLI) and, because answers conditioned on a question are what it
will see, from pairs made of questions: an answer against itself in other words, against its alias, against the sentence that
holds it, and against another name of the same passages. Questions that EVOUNA asks too are left out of training.
"""

import argparse
import gzip
import hashlib
import json
import random
import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from tokenizers import Tokenizer

POOLED = "/m/pooler/Mul_1_output_0"
LABELS = ["entailment", "neutral", "contradiction"]
HIDDEN = 32
MAX_TOKENS = 160


def ask(question):
    question = question.strip()
    return question if question.endswith("?") else question + "?"


class Body:
    def __init__(self, network, tokenizer):
        model = onnx.load(network)
        for value in model.graph.input:
            value.type.tensor_type.shape.dim[1].dim_param = "tokens"
        del model.graph.output[:]
        model.graph.output.append(onnx.helper.make_tensor_value_info(POOLED, onnx.TensorProto.FLOAT, ["batch", 384]))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 2
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.tokenizer = Tokenizer.from_file(tokenizer)
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(MAX_TOKENS, strategy="only_first")

    def features(self, pairs, what):
        # One pair at a time: the network quantises activations over the whole batch, so a batch would change them.
        rows = np.zeros((len(pairs), 384), np.float32)
        for index, (premise, hypothesis) in enumerate(pairs):
            ids = np.array([self.tokenizer.encode(premise, hypothesis).ids], np.int64)
            rows[index] = self.session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})[0][0]
            if index % 2000 == 1999:
                print(f"  {what}: {index + 1} of {len(pairs)}", flush=True)
        return rows


def lines(path):
    with gzip.open(path, "rt", encoding="utf-8") as handle:
        yield from handle


def snli(path, most, seed):
    rows = [line.rstrip("\n").split("\t")[:3] for line in lines(path)]
    rows = [row for row in rows if row[0] in LABELS]
    random.Random(seed).shuffle(rows)
    return [(LABELS.index(label), a.strip(), b.strip()) for label, a, b in rows[:most]]


def names(text):
    """Capitalised runs and numbers: what could be taken for an answer."""
    return [m.strip() for m in re.findall(r"(?:[A-Z][\w'.-]+(?:\s+(?:of|the|de|and)?\s*[A-Z][\w'.-]+)*|\b\d[\d,.]*\b)", text)]


def sentences(text):
    return [part.strip() for part in re.split(r"(?<=[.!?])\s+", text) if len(part.split()) > 3]


def from_questions(folder, known, seed):
    draw = random.Random(seed)
    pairs = []
    frames = ["{a}", "{a}.", "It is {a}.", "The answer is {a}.", "It was {a}.", "I think it is {a}.", "That would be {a}."]
    unsure = ["I don't know.", "It is not stated.", "There is no information about it.", "Nobody knows."]
    for path in sorted(folder.glob("*.jsonl.gz")):
        for line in lines(path):
            row = json.loads(line)
            if row["question"].strip().lower().rstrip("?") in known or not row["answers"]:
                continue
            q = ask(row["question"])
            answers = [a for a in row["answers"] if a.strip()][:4]
            gold = answers[0]
            if gold.lower() in ("yes", "no"):
                other = "no" if gold.lower() == "yes" else "yes"
                for a, b, label in [(gold, gold, 0), (gold, other, 2), (other, gold, 2), (f"{other}, it is not", gold, 2)]:
                    pairs.append((label, f"{q} {a}", f"{q} {b}"))
                continue
            text = [p["text"] for p in row["passages"]]
            held = [s for p in row["passages"] if p["supporting"] for s in sentences(p["text"]) if gold.lower() in s.lower()]
            without = [s for p in row["passages"] if p["supporting"] for s in sentences(p["text"]) if gold.lower() not in s.lower()]
            wrong = [n for t in text for n in names(t) if gold.lower() not in n.lower() and n.lower() not in gold.lower() and len(n) > 2]
            number = bool(re.search(r"\d", gold))
            alike = [n for n in wrong if bool(re.search(r"\d", n)) == number] or wrong
            draw.shuffle(alike)
            for _ in range(2):
                frame = draw.choice(frames)
                pairs.append((0, f"{q} {frame.format(a=draw.choice(answers))}", f"{q} {draw.choice(answers)}"))
                pairs.append((0, f"{q} {draw.choice(answers)}", f"{q} {frame.format(a=draw.choice(answers))}"))
            for s in held[:2]:
                pairs.append((0, f"{q} {s}", f"{q} {gold}"))
                pairs.append((1, f"{q} {gold}", f"{q} {s}"))
            for n in alike[:6]:
                a = draw.choice(frames).format(a=n)
                pairs.append((2, f"{q} {a}", f"{q} {gold}"))
                pairs.append((2, f"{q} {gold}", f"{q} {a}"))
            for s in without[:1]:
                pairs.append((1, f"{q} {s}", f"{q} {gold}"))
            pairs.append((1, f"{q} {draw.choice(unsure)}", f"{q} {gold}"))
    draw.shuffle(pairs)
    return pairs


SYSTEMS = ["fid", "gpt35", "chatgpt", "gpt4", "newbing"]


def evouna(path):
    """(verdict, question, answer, aliases)"""
    rows = []
    for line in lines(path):
        row = json.loads(line)
        if row.get("improper"):
            continue
        for system in SYSTEMS:
            answer, verdict = row.get(f"answer_{system}"), row.get(f"judge_{system}")
            if isinstance(verdict, bool) and answer:
                rows.append((verdict, row["question"], answer, row["golden_answer"].split("/")))
    return rows


def auc(labels, scores):
    order = np.argsort(scores, kind="stable")
    ranks = np.empty(len(scores))
    values, inverse, counts = np.unique(np.asarray(scores), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[inverse]
    labels = np.asarray(labels, bool)
    good, bad = labels.sum(), (~labels).sum()
    return (ranks[labels].sum() - good * (good + 1) / 2) / (good * bad)


def forward(parameters, x):
    w1, b1, w2, b2 = parameters
    hidden = np.maximum(x @ w1 + b1, 0.0)
    return hidden, hidden @ w2 + b2


def softmax(z):
    z = z - z.max(1, keepdims=True)
    e = np.exp(z)
    return e / e.sum(1, keepdims=True)


def train(x, y, weight, seed, epochs=60, decay=1e-3, rate=2e-3):
    """Adam on weighted cross-entropy, cosine rate, full determinism."""
    source = np.random.default_rng(seed)
    p = [source.normal(0, (2 / x.shape[1]) ** 0.5, (x.shape[1], HIDDEN)), np.zeros(HIDDEN),
         source.normal(0, (2 / HIDDEN) ** 0.5, (HIDDEN, 3)), np.zeros(3)]
    m, v = [np.zeros_like(a) for a in p], [np.zeros_like(a) for a in p]
    steps, batch, t = epochs * (len(x) // 256), 256, 0
    for _ in range(epochs):
        order = source.permutation(len(x))
        for start in range(0, len(x) - batch + 1, batch):
            rows = order[start:start + batch]
            keep = (source.random((batch, x.shape[1])) > 0.1) / 0.9
            a = x[rows] * keep
            hidden, z = forward(p, a)
            d = softmax(z)
            d[np.arange(batch), y[rows]] -= 1
            d *= (weight[rows] / weight[rows].sum())[:, None]
            back = (d @ p[2].T) * (hidden > 0)
            grads = [a.T @ back, back.sum(0), hidden.T @ d, d.sum(0)]
            t += 1
            lr = rate * 0.5 * (1 + np.cos(np.pi * t / steps))
            for i, g in enumerate(grads):
                if i % 2 == 0:
                    p[i] *= 1 - lr * decay * 10
                m[i] = 0.9 * m[i] + 0.1 * g
                v[i] = 0.999 * v[i] + 0.001 * g * g
                p[i] -= lr * (m[i] / (1 - 0.9 ** t)) / (np.sqrt(v[i] / (1 - 0.999 ** t)) + 1e-8)
    return p


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ["network", "tokenizer", "data", "out"]:
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--snli", type=int, default=16000, help="SNLI pairs to train on")
    parser.add_argument("--cache", help="keep the network's outputs in this .npz between runs")
    options = parser.parse_args()
    data = Path(options.data)
    judged = evouna(data / "equivalence/evouna-nq-1000.jsonl.gz")
    known = {question.strip().lower().rstrip("?") for _, question, _, _ in judged}
    general = snli(data / "nli/snli-train-40k.tsv.gz", options.snli, options.seed)
    asked = from_questions(data / "qa", known, options.seed)
    dev = snli(data / "nli/snli-dev.tsv.gz", 10**6, options.seed)
    dev = dev[:4000]
    first = [(f"{ask(q)} {a}", f"{ask(q)} {g[0].strip()}") for _, q, a, g in judged]
    every = [(f"{ask(q)} {a}", f"{ask(q)} {alias.strip()}") for _, q, a, g in judged for alias in g[1:]]
    parts = {"general": [r[1:] for r in general], "asked": [r[1:] for r in asked], "dev": [r[1:] for r in dev], "first": first, "every": every}
    if options.cache and Path(options.cache).exists():
        features = dict(np.load(options.cache))
    else:
        body = Body(options.network, options.tokenizer)
        features = {name: body.features(pairs, name) for name, pairs in parts.items()}
        if options.cache:
            np.savez(options.cache, **features)
    assert all(len(features[name]) == len(pairs) for name, pairs in parts.items())
    x = np.concatenate([features["general"], features["asked"]]).astype(np.float64)
    y = np.array([r[0] for r in general] + [r[0] for r in asked])
    weight = np.array([1.0] * len(general) + [2.0] * len(asked))
    centre, scale = x.mean(0), x.std(0) + 1e-3
    parameters = train((x - centre) / scale, y, weight, options.seed)
    # The standardisation goes into the first layer, so that the network is two products and a rectifier.
    w1, b1, w2, b2 = parameters
    w1, b1 = w1 / scale[:, None], b1 - (centre / scale) @ w1
    parameters = [a.astype(np.float32) for a in (w1, b1, w2, b2)]
    probability = {name: softmax(forward(parameters, rows)[1]) for name, rows in features.items()}
    right = np.array([r[0] for r in dev])
    verdicts = [row[0] for row in judged]
    best, at = probability["first"][:, 0].copy(), 0
    for index, (_, _, _, aliases) in enumerate(judged):
        for _ in aliases[1:]:
            best[index] = max(best[index], probability["every"][at, 0])
            at += 1
    report = {
        "training pairs": {"snli": len(general), "questions": len(asked)},
        "snli dev accuracy": round(float((probability["dev"].argmax(1) == right).mean()), 4),
        "snli dev pairs": len(dev),
        "snli dev entailment auc": round(float(auc(right == 0, probability["dev"][:, 0])), 4),
        "evouna auc, first alias": round(float(auc(verdicts, probability["first"][:, 0])), 4),
        "evouna auc, best alias": round(float(auc(verdicts, best)), 4),
        "evouna answers": len(judged),
    }
    print(json.dumps(report, indent=1))
    blob = b"".join(np.ascontiguousarray(a, np.float32).tobytes() for a in parameters)
    head = {"input": POOLED, "width": 384, "hidden": HIDDEN, "labels": LABELS,
            "network_sha256": hashlib.sha256(Path(options.network).read_bytes()).hexdigest(),
            "weights_sha256": hashlib.sha256(blob).hexdigest(), "report": report}
    out = Path(options.out)
    out.write_text(json.dumps(head, indent=1) + "\n")
    out.with_suffix(".f32").write_bytes(blob)


if __name__ == "__main__":
    main()
