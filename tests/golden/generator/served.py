"""The default ranking with the default embedding model, by numpy, onnxruntime and tokenizers, for tests/golden/methods.rs.

Utilities are those of query-generation in methods.json, which methods.py computes from the generator's file. Cosines
are of means of the last layer's states, as in sentence-transformers. The fusion is that of docs/explanation/ranking.md,
stages 1 and 2. `margin` is the smallest difference of two neighbours' f. If it is below the rounding of 8-bit kernels,
the order proves nothing.

  pip install numpy onnxruntime==1.31.1 tokenizers
  python served.py ~/.cache/rerankd/models/all-minilm-l6-v2 < methods.json > served.json
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

GENERATOR, COSINE = 0.35, 0.6
UTILITY, COSINES, OTHER, RETRIEVER = 0.55, 0.165, 0.94, 0.3
SCORES = [12.0, 5.0, 6.5, 9.0, 3.0]

folder = Path(sys.argv[1]).expanduser()
golden = json.load(sys.stdin)
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer.no_padding()
tokenizer.enable_truncation(512)
session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
wanted = {one.name for one in session.get_inputs()}


def embed(text):
    encoding = tokenizer.encode(text)
    inputs = {"input_ids": encoding.ids, "attention_mask": encoding.attention_mask, "token_type_ids": encoding.type_ids}
    feed = {name: np.array([ids], np.int64) for name, ids in inputs.items() if name in wanted}
    mean = session.run(["last_hidden_state"], feed)[0][0].astype(np.float64).mean(axis=0)
    return mean / np.linalg.norm(mean)


def standardised(values, usual):
    values, n = np.array(values), len(values)
    weight = 2 / n**2
    deviation = np.sqrt((n * values.var() + weight * usual**2) / (n + weight))
    return (values - values.mean()) / deviation, deviation


query = embed(golden["query"])
cosines = [float(embed(f"{one['title']} {one['text']}".strip()) @ query) for one in golden["passages"]]
embedding = COSINE * standardised(cosines, COSINES)[0]
source = (1 - COSINE) * standardised(SCORES, RETRIEVER * max(SCORES))[0]
deviation = standardised(embedding + source, OTHER)[1]
utilities = golden["utilities"]["query-generation"]
model = GENERATOR * standardised(utilities, UTILITY * len(golden["tokens"]["query"]))[0]
embedding, source = (1 - GENERATOR) * embedding / deviation, (1 - GENERATOR) * source / deviation
f = model + embedding + source
order = np.argsort(-f, kind="stable")
json.dump(
    {
        "retriever_scores": SCORES,
        "cosines": [round(cosine, 6) for cosine in cosines],
        "signals": {name: np.round(part, 6).tolist() for name, part in [("model", model), ("embedding", embedding), ("source", source)]},
        "order": order.tolist(),
        "margin": round(float(np.diff(f[order[::-1]]).min()), 6),
    },
    sys.stdout,
    indent=1,
)
print()
