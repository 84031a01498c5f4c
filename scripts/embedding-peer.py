#!/usr/bin/env python3
"""Compares the speed of the embedding method with that of onnxruntime's Python binding, in turn, on the same passages.

  pip install onnxruntime==1.31.1 tokenizers numpy
  scripts/embedding-peer.py LISTS FOLDER COMMAND...

LISTS holds lists of passages (`rerankd rerank --lists`), FOLDER the network model.onnx with its tokenizer.json. A COMMAND is a
rerankd program, perhaps with options in one word ("rerankd --set generator.threads=1"). Prints JSON lines: passages and tokens
per second, tokenising included, for the passages as they are and cut to 110 tokens; the median of ROUNDS, and all rounds.
rerankd ranks one list at a time. The binding gets all passages at once, sorted by length.
"""

import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

ROUNDS = int(os.environ.get("ROUNDS", "5"))
BATCHES = [1, 4, 8, 16, 32]
SHORT = 110


def read(path, tokenizer):
    """The lists as they are, and those passages that have 110 tokens or more, cut."""
    lists = [json.loads(line) for line in open(path, encoding="utf-8")]
    whole, cut = [], []
    for one in lists:
        passages = [f"{passage.get('title') or ''} {passage['text']}".strip() for passage in one["passages"]]
        ids = [encoding.ids for encoding in tokenizer.encode_batch(passages)]
        whole.append((one["question"], passages))
        cut.append((one["question"], [text for text, tokens in zip(passages, ids) if len(tokens) >= SHORT]))
    return [("mixed", whole, 512), (str(SHORT), [one for one in cut if one[1]], SHORT)]


def by_program(command, lists, tokens):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for question, passages in lists:
            file.write(json.dumps({"question": question, "passages": [{"text": text} for text in passages]}) + "\n")
        file.flush()
        options = ["--method", "embedding", "--concurrency", "1", "--passage-tokens", str(tokens - 2), "--format", "json"]
        options += ["--set", "embedding.cache_entries=off", "--lists", file.name]
        program, *own = shlex.split(command)
        output = subprocess.run([program, "rerank", *options, *own], check=True, capture_output=True, text=True).stdout
    usage = [json.loads(line)["usage"] for line in output.splitlines()]
    # The first list waits for the model.
    seconds = sum(one["score_ms"] for one in usage[1:]) / 1000
    return sum(one["pairs"] for one in usage[1:]) / seconds, sum(one["tokens"] for one in usage[1:]) / seconds


def by_binding(session, tokenizer, lists, tokens, batch):
    texts = [text for _, passages in lists for text in passages]
    started = time.perf_counter()
    tokenizer.enable_truncation(tokens)
    rows = sorted((encoding.ids for encoding in tokenizer.encode_batch(texts)), key=len)
    for start in range(0, len(rows), batch):
        part = rows[start : start + batch]
        ids = np.zeros((len(part), len(part[-1])), np.int64)
        mask = np.zeros_like(ids)
        for row, own in enumerate(part):
            ids[row, : len(own)] = own
            mask[row, : len(own)] = 1
        states = session.run(None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})[0]
        vectors = (states * mask[..., None]).sum(1)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    seconds = time.perf_counter() - started
    return len(rows) / seconds, sum(map(len, rows)) / seconds


def main(lists, folder, *commands):
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    session = onnxruntime.InferenceSession(os.path.join(folder, "model.onnx"), providers=["CPUExecutionProvider"])
    cases = read(lists, tokenizer)
    runs = {command: lambda *case, command=command: by_program(command, *case) for command in commands}
    for batch in BATCHES:
        runs[f"binding, {batch} per step"] = lambda *case, batch=batch: by_binding(session, tokenizer, *case, batch)
    for name, chosen, tokens in cases:
        found = {run: [] for run in runs}
        for _ in range(ROUNDS):
            for run, measure in runs.items():
                found[run].append(measure(chosen, tokens))
        for run, speeds in found.items():
            passages, rates = zip(*speeds)
            line = {"passages": name, "run": run, "per_second": round(statistics.median(passages), 1)}
            print(json.dumps(line | {"tokens": round(statistics.median(rates)), "rounds": [round(rate) for rate in rates]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
