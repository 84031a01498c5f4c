"""Writes tiny random ONNX models that score passages, and the scores they must give.

    pip install numpy==2.4.6 onnx==1.23.2 onnxruntime==1.31.1
    python onnx_models.py

Folders: `one` has one label and token types, `two` two labels and no token types, `three` three labels (must be
refused), `embedding` one vector per token. The word "broken" has NaN weights. Tokens, padding and truncation are
computed here without a tokenizer library; a numpy forward must agree with ONNX Runtime within 1e-6 before anything is
written.
"""

import json
import pathlib

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).parent
WIDTH = 8
POSITIONS = 24
WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "a", "moon", "sea", "tide", "rises", "with", "the", "bread", "salt", "yeast",
         "oven", "who", "what", "makes", "broken", "far"]
PAIRS = [
    ["what makes the tide", "the moon makes the tide"],
    ["what makes the tide", "bread with salt"],
    ["what makes the tide", "the yeast rises far"],
    ["what makes the tide", "moon"],
    # Cut to the room in 24 positions.
    ["what makes the tide", " ".join(["sea"] * 10 + ["moon"] * 20)],
]


def tokens(text):
    return [WORDS.index(word) if word in WORDS else WORDS.index("[UNK]") for word in text.split()]


def pair(query, passage):
    """[CLS] query [SEP] passage [SEP], the passage cut; types 0 and 1."""
    query, passage = tokens(query), tokens(passage)
    cut = max(0, len(query) + len(passage) + 3 - POSITIONS)
    passage = passage[: len(passage) - cut]
    ids = [1, *query, 2, *passage, 2]
    return ids, [0] * (len(query) + 2) + [1] * (len(passage) + 1), cut


def single(text):
    words = tokens(text)
    cut = max(0, len(words) + 2 - POSITIONS)
    return [1, *words[: len(words) - cut], 2], cut


def weights(random, rows):
    return random.normal(0, 1, (rows, WIDTH)).astype(np.float32)


def vectors(ids, types, words, kinds):
    """The vector of each token."""
    total = words[ids] if kinds is None else words[ids] + kinds[types]
    return np.tanh(total)


def build(folder, labels, words, kinds, head):
    """A graph of the same computation: Gather, Add, Tanh, masked mean, MatMul. Without labels the tanh is the output."""
    shape = ["batch", "sequence"]
    integers = ["input_ids", "attention_mask"] + (["token_type_ids"] if kinds is not None else [])
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in integers]
    initial = [numpy_helper.from_array(words, "words")]
    nodes = [helper.make_node("Gather", ["words", "input_ids"], ["word"])]
    last = "word"
    if kinds is not None:
        initial.append(numpy_helper.from_array(kinds, "kinds"))
        nodes += [helper.make_node("Gather", ["kinds", "token_type_ids"], ["kind"]),
                  helper.make_node("Add", ["word", "kind"], ["sum"])]
        last = "sum"
    if labels is None:
        # The mask is an input of every encoder; here it hides nothing.
        nodes += [helper.make_node("Tanh", [last], ["last_hidden_state"])]
        outputs = [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*shape, WIDTH])]
    else:
        initial += [numpy_helper.from_array(head, "head"), numpy_helper.from_array(np.array([2], np.int64), "axis2"),
                    numpy_helper.from_array(np.array([1], np.int64), "axis1")]
        nodes += [
            helper.make_node("Tanh", [last], ["tanh"]),
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["mask", "axis2"], ["column"]),
            helper.make_node("Mul", ["tanh", "column"], ["masked"]),
            helper.make_node("ReduceSum", ["masked", "axis1"], ["total"], keepdims=0),
            helper.make_node("ReduceSum", ["mask", "axis1"], ["count"], keepdims=1),
            helper.make_node("Div", ["total", "count"], ["mean"]),
            helper.make_node("MatMul", ["mean", "head"], ["logits"]),
        ]
        outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", len(labels)])]
    graph = helper.make_graph(nodes, folder, inputs, outputs, initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="rerankd")
    # The runtime refuses the version that the library stamps.
    model.ir_version = 8
    onnx.checker.check_model(model)
    target = HERE / folder
    target.mkdir(exist_ok=True)
    (target / "model.onnx").write_bytes(model.SerializeToString())
    if folder == "three":
        # A copy with its weights in a separate file. Numbers that shape the graph stay in it.
        onnx.save(model, target / "external.onnx", save_as_external_data=True, location="external.onnx_data", size_threshold=64)
    config = {"model_type": "bert", "max_position_embeddings": POSITIONS, "pad_token_id": 0}
    if labels is not None:
        config["id2label"] = {str(index): label for index, label in enumerate(labels)}
    (target / "config.json").write_text(json.dumps(config) + "\n")
    (target / "tokenizer.json").write_text(json.dumps(tokenizer()) + "\n")
    return onnxruntime.InferenceSession(str(target / "model.onnx"))


def tokenizer():
    special = lambda token: {"SpecialToken": {"id": token, "type_id": 0}}
    text = lambda name, kind: {"Sequence": {"id": name, "type_id": kind}}
    end = {"SpecialToken": {"id": "[SEP]", "type_id": 1}}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": index, "content": WORDS[index], "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True} for index in range(4)],
        "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [special("[CLS]"), text("A", 0), special("[SEP]")],
            "pair": [special("[CLS]"), text("A", 0), special("[SEP]"), text("B", 1), end],
            "special_tokens": {name: {"id": name, "ids": [WORDS.index(name)], "tokens": [name]}
                               for name in ["[CLS]", "[SEP]"]},
        },
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {word: index for index, word in enumerate(WORDS)}, "unk_token": "[UNK]"},
    }


def check(mine, theirs):
    assert np.allclose(mine, theirs, atol=1e-6), (mine, theirs)
    return [float(value) for value in np.ravel(mine)]


def main():
    random = np.random.default_rng(7)
    words, kinds = weights(random, len(WORDS)), weights(random, 2)
    words[WORDS.index("broken")] = np.nan
    cases = {"pairs": [], "texts": []}
    heads = {"one": ["LABEL_0"], "two": ["relevant", "irrelevant"], "three": ["entailment", "neutral", "contradiction"]}
    sessions = {}
    for folder, labels in heads.items():
        head = random.normal(0, 2, (WIDTH, len(labels))).astype(np.float32)
        own_kinds = kinds if folder == "one" else None
        sessions[folder] = (build(folder, labels, words, own_kinds, head), own_kinds, head)
    for query, passage in PAIRS:
        ids, types, cut = pair(query, passage)
        case = {"query": query, "passage": passage, "tokens": len(ids), "cut": cut}
        for folder in ["one", "two"]:
            session, own_kinds, head = sessions[folder]
            mine = vectors(np.array(ids), np.array(types), words, own_kinds).mean(axis=0) @ head
            feed = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
            if own_kinds is not None:
                feed["token_type_ids"] = np.array([types])
            case[folder] = check(mine, session.run(None, feed)[0][0])
        cases["pairs"].append(case)
    session = build("embedding", None, words, kinds, None)
    (HERE / "embedding" / "1_Pooling").mkdir(exist_ok=True)
    pooling = {"word_embedding_dimension": WIDTH, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
    (HERE / "embedding" / "1_Pooling" / "config.json").write_text(json.dumps(pooling) + "\n")

    def embed(text):
        ids, cut = single(text)
        mine = vectors(np.array(ids), np.zeros(len(ids), int), words, kinds)
        feed = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64),
                "token_type_ids": np.zeros((1, len(ids)), np.int64)}
        check(mine, session.run(None, feed)[0][0])
        mean = mine.astype(np.float64).mean(axis=0)
        return mean / np.linalg.norm(mean), mine[0].astype(np.float64) / np.linalg.norm(mine[0]), cut

    for query, passage in PAIRS:
        (asked, asked_first, _), (mean, first, cut) = embed(query), embed(passage)
        prefixed = embed("who " + query)[0] @ embed("far " + passage)[0]
        cases["texts"].append({"query": query, "passage": passage, "cut": cut, "mean": float(asked @ mean),
                               "first": float(asked_first @ first), "prefixed": float(prefixed)})
    (HERE / "onnx.json").write_text(json.dumps(cases, indent=1) + "\n")


main()
