"""BERTScore by onnxruntime, tokenizers and numpy, for tests/rpc/bert_score.rs.

    pip install numpy onnxruntime==1.31.1 tokenizers
    python tests/golden/metrics/bert_score.py --model ~/.cache/rerankd/models/all-minilm-l6-v2

Writes bert_score.json beside this file: precision, recall and F1 with the tiny random network of tests/golden/rerankers/embedding and
with the model of that folder. The states are those of the last layer, special tokens are left out, there are no idf weights.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer

HERE = Path(__file__).parent
TINY = [
    ("the moon makes the tide", "the tide rises with the moon"), ("moon", "moon"), ("moon", "the sea"), ("salt yeast bread", "bread with salt"),
    ("broth", "soup"), ("the the the tide", "tide"), (" ".join(["sea"] * 20 + ["moon"] * 20), "sea"), ("", "moon"), ("moon", ""), ("", ""),
]
SENTENCES = [
    ("Moira Kell", "Moira Kell"), ("The engineer Moira Kell built it.", "Moira Kell"), ("Nobody knows who built it.", "Moira Kell"),
    ("in 1871", "1871"), ("1817", "1871"), ("The ferry sank at dawn.", "At dawn the ferry went down."),
    ("The ferry sank at dawn.", "Caraway seeds are put into the bread."), ("rye flour", "flour of rye and wheat"),
    ("They close the bridge in winter because of ice on the planks.", "no"), ("", "no"),
]


def states(folder, text):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    most = json.loads((folder / "config.json").read_text())["max_position_embeddings"] if (folder / "config.json").exists() else 512
    tokenizer.enable_truncation(most)
    encoding = tokenizer.encode(text)
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    inputs = {"input_ids": encoding.ids, "attention_mask": encoding.attention_mask, "token_type_ids": encoding.type_ids}
    wanted = {one.name for one in session.get_inputs()}
    feed = {name: np.array([ids], np.int64) for name, ids in inputs.items() if name in wanted}
    own = np.array(encoding.special_tokens_mask) == 0
    return session.run(["last_hidden_state"], feed)[0][0][own].astype(np.float64)


def case(folder, answer, reference):
    c, r = states(folder, answer), states(folder, reference)
    if len(c) == 0 or len(r) == 0:
        precision = recall = f1 = float(len(c) == len(r))
    else:
        cosines = (c / np.linalg.norm(c, axis=1, keepdims=True)) @ (r / np.linalg.norm(r, axis=1, keepdims=True)).T
        precision, recall = cosines.max(axis=1).mean(), cosines.max(axis=0).mean()
        f1 = 2 * precision * recall / (precision + recall) if min(precision, recall) > 0 else 0.0
    return {"answer": answer, "reference": reference, "precision": float(precision), "recall": float(recall), "f1": float(f1)}


parser = argparse.ArgumentParser()
parser.add_argument("--model", type=Path, required=True)
model = parser.parse_args().model.expanduser()
written = {
    "tiny": [case(HERE / "../rerankers/embedding", *pair) for pair in TINY],
    "all-minilm-l6-v2": [case(model, *pair) for pair in SENTENCES],
}
lines = [f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(one) for one in cases) + "\n]" for name, cases in written.items()]
(HERE / "bert_score.json").write_text("{" + ",\n".join(lines) + "}\n")
