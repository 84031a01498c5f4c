"""Pairs per second of onnxruntime's Python binding. Arguments: network, tokenizer, pairs per step, threads. Reads pairs as
JSON from standard input. Needs numpy, onnxruntime and tokenizers."""

import json
import sys
import time

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

network, tokenizer, batch, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
pairs = json.load(sys.stdin)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
session = onnxruntime.InferenceSession(network, options, providers=["CPUExecutionProvider"])
tokenizer = Tokenizer.from_file(tokenizer)
tokenizer.no_padding()
tokenizer.enable_truncation(512, strategy="only_first")


def judge(rows):
    rows = sorted((tokenizer.encode(*row).ids for row in rows), key=len)
    for start in range(0, len(rows), batch):
        part = rows[start : start + batch]
        ids = np.zeros((len(part), len(part[-1])), np.int64)
        mask = np.zeros_like(ids)
        for row, tokens in enumerate(part):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = 1
        session.run(None, {"input_ids": ids, "attention_mask": mask})


judge(pairs[:1])
started = time.perf_counter()
judge(pairs)
print(len(pairs) / (time.perf_counter() - started))
