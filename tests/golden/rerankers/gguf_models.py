"""Writes tiny random rerankers as GGUF files, and the scores they must give by numpy alone.

    pip install numpy==2.4.6 gguf==0.19.0
    python gguf_models.py

`bert` has one token type, a tanh head and one logit, like an XLM-RoBERTa reranker; `qwen3` has the two rows of yes and
no and a template. `bert-two-types` and `qwen3-headless` must be refused. Tokens are computed here without llama.cpp:
words for bert, bytes and one merge for qwen3. The forward passes are written out and share no code with llama.cpp,
which computes GELU from a table and keeps keys and values in 16 bits: scores agree within 2e-2.
"""

import json
import pathlib
import re

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
WIDTH, HEADS, HIDDEN, LAYERS, CONTEXT = 16, 2, 32, 2, 128
SIZE = WIDTH // HEADS
EPSILON = 1e-5
BASE = 10000.0

SPECIALS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
WORDS = ["a", "moon", "sea", "tide", "rises", "with", "the", "bread", "salt", "yeast", "oven", "who", "what", "makes", "far"]
TEMPLATE = "<|im_start|>query: {query}\ndocument: {document}<|im_end|>\nanswer:"
CASES = [
    ["what makes the tide", "the moon makes the tide"],
    ["what makes the tide", "bread with salt"],
    ["what makes the tide", "the yeast rises far"],
    ["what makes the tide", "moon"],
    # Text that spells a control token, or a placeholder of the template, is text.
    ["what makes {document}", "<|im_end|>"],
    # Cut to the room in 128 positions.
    ["what makes the tide", " ".join(["sea"] * 60 + ["moon"] * 90)],
]


def normalise(x, weight, bias):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPSILON) * weight + bias


def root_mean_square(x, weight):
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + EPSILON) * weight


def softmax(x):
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attention(query, key, value, causal):
    """Arrays are [tokens, heads, size]."""
    scores = np.einsum("ihd,jhd->hij", query, key) / np.sqrt(SIZE)
    if causal:
        scores += np.triu(np.full(scores.shape[1:], -np.inf), 1)
    return np.einsum("hij,jhd->ihd", softmax(scores), value).reshape(len(query), -1)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def rotate(x):
    """Rotary position embedding of halves."""
    angles = np.arange(len(x))[:, None] * BASE ** (-np.arange(0, SIZE, 2) / SIZE)[None, :]
    cosine, sine = np.cos(angles)[:, None, :], np.sin(angles)[:, None, :]
    first, second = x[..., : SIZE // 2], x[..., SIZE // 2 :]
    return np.concatenate([first * cosine - second * sine, first * sine + second * cosine], axis=-1)


def bert_forward(t, ids):
    linear = lambda x, name: x @ t[name + ".weight"].T + t[name + ".bias"]
    norm = lambda x, name: normalise(x, t[name + ".weight"], t[name + ".bias"])
    x = t["token_embd.weight"][ids] + t["token_types.weight"][0] + t["position_embd.weight"][: len(ids)]
    x = norm(x, "token_embd_norm")
    for layer in range(LAYERS):
        name = lambda part: f"blk.{layer}.{part}"
        split = lambda part: linear(x, name(part)).reshape(len(ids), HEADS, SIZE)
        mixed = attention(split("attn_q"), split("attn_k"), split("attn_v"), causal=False)
        x = norm(x + linear(mixed, name("attn_output")), name("attn_output_norm"))
        x = norm(x + linear(gelu(linear(x, name("ffn_up"))), name("ffn_down")), name("layer_output_norm"))
    return float(linear(np.tanh(linear(x[0], "cls")), "cls.output")[0])


def qwen3_hidden(t, ids):
    """The input of a causal model's output head after the last token."""
    x = t["token_embd.weight"][ids]
    for layer in range(LAYERS):
        weight = lambda part: t[f"blk.{layer}.{part}.weight"]
        h = root_mean_square(x, weight("attn_norm"))
        split = lambda part: (h @ weight(part).T).reshape(len(ids), -1, SIZE)
        query = rotate(root_mean_square(split("attn_q"), weight("attn_q_norm")))
        key = rotate(root_mean_square(split("attn_k"), weight("attn_k_norm")))
        repeat = lambda part: np.repeat(part, HEADS, axis=1)
        x = x + attention(query, repeat(key), repeat(split("attn_v")), causal=True) @ weight("attn_output").T
        h = root_mean_square(x, weight("ffn_norm"))
        gate = h @ weight("ffn_gate").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ weight("ffn_up").T)) @ weight("ffn_down").T
    return root_mean_square(x[-1], t["output_norm.weight"])


def qwen3_forward(t, ids):
    return softmax(qwen3_hidden(t, ids) @ t["cls.output.weight"].T)


def common(writer):
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)


def finish(writer, tensors):
    for name, tensor in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(tensor, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_bert(name, tensors, types):
    writer = gguf.GGUFWriter(str(HERE / f"{name}.gguf"), "bert")
    common(writer)
    writer.add_layer_norm_eps(EPSILON)
    writer.add_causal_attention(False)
    writer.add_token_type_count(types)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(SPECIALS + ["\u2581" + word for word in WORDS])
    writer.add_token_types([gguf.TokenType.CONTROL] * len(SPECIALS) + [gguf.TokenType.NORMAL] * len(WORDS))
    for add, token in [(writer.add_pad_token_id, 0), (writer.add_bos_token_id, 1), (writer.add_eos_token_id, 2),
                       (writer.add_sep_token_id, 2), (writer.add_unk_token_id, 3), (writer.add_mask_token_id, 4)]:
        add(token)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)
    writer.add_add_sep_token(True)
    finish(writer, {**tensors, "token_types.weight": np.repeat(tensors["token_types.weight"], types, axis=0)})


def byte_letters():
    """The letters by which byte-level vocabularies write bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain}
    letters.update({byte: chr(256 + index) for index, byte in enumerate(others)})
    return [letters[byte] for byte in range(256)]


def write_qwen3(name, tensors, head):
    writer = gguf.GGUFWriter(str(HERE / f"{name}.gguf"), "qwen3")
    common(writer)
    writer.add_head_count_kv(1)
    writer.add_key_length(SIZE)
    writer.add_value_length(SIZE)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(BASE)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(byte_letters() + ["th", "<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    writer.add_token_types([gguf.TokenType.NORMAL] * 257 + [gguf.TokenType.CONTROL] * 3)
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(257)
    writer.add_eos_token_id(259)
    writer.add_pad_token_id(257)
    writer.add_add_bos_token(False)
    writer.add_chat_template([{"name": "rerank", "template": TEMPLATE}])
    if head:
        writer.add_pooling_type(gguf.PoolingType.RANK)
        writer.add_classifier_output_labels(["yes", "no"])
    finish(writer, {name: tensor for name, tensor in tensors.items() if head or name != "cls.output.weight"})


def bert_tokens(text):
    """Words, and each character of punctuation."""
    words = re.findall(r"[A-Za-z0-9]+|[^\sA-Za-z0-9]", text)
    return [len(SPECIALS) + WORDS.index(word) if word in WORDS else 3 for word in words]


def bert_pair(query, passage):
    query, passage = bert_tokens(query), bert_tokens(passage)
    cut = max(0, len(query) + len(passage) + 4 - CONTEXT)
    return [1, *query, 2, 2, *passage[: len(passage) - cut], 2], cut


def qwen3_tokens(text):
    ids = []
    for byte in text.encode():
        if ids and ids[-1] == ord("t") and byte == ord("h"):
            ids[-1] = 256
        else:
            ids.append(byte)
    return ids


def qwen3_pair(query, passage):
    start = [258, *qwen3_tokens("query:"), *qwen3_tokens(f" {query}\n"), *qwen3_tokens("document:")]
    end = [259, *qwen3_tokens("\nanswer:")]
    passage = qwen3_tokens(f" {passage}")
    cut = max(0, len(start) + len(passage) + len(end) - CONTEXT)
    return start + passage[: len(passage) - cut] + end, cut


def qwen3_body(matrix, vector, vocabulary):
    """Random weights without the head."""
    t = {"token_embd.weight": matrix(vocabulary, WIDTH, 4), "output_norm.weight": vector(WIDTH, 1)}
    for layer in range(LAYERS):
        for part in ["attn_norm", "ffn_norm"]:
            t[f"blk.{layer}.{part}.weight"] = vector(WIDTH, 1)
        for part in ["attn_q_norm", "attn_k_norm"]:
            t[f"blk.{layer}.{part}.weight"] = vector(SIZE, 1)
        for part, rows, columns in [("attn_q", WIDTH, WIDTH), ("attn_k", SIZE, WIDTH), ("attn_v", SIZE, WIDTH),
                                    ("attn_output", WIDTH, WIDTH), ("ffn_gate", HIDDEN, WIDTH), ("ffn_up", HIDDEN, WIDTH),
                                    ("ffn_down", WIDTH, HIDDEN)]:
            t[f"blk.{layer}.{part}.weight"] = matrix(rows, columns, 2)
    return t


def main():
    random = np.random.default_rng(11)
    matrix = lambda rows, columns, scale=1.0: (random.normal(0, scale / np.sqrt(columns), (rows, columns))).astype(np.float32)
    vector = lambda size, mean=0.0: (mean + random.normal(0, 0.1, size)).astype(np.float32)
    vocabulary = len(SPECIALS) + len(WORDS)
    bert = {"token_embd.weight": matrix(vocabulary, WIDTH, 4), "token_types.weight": matrix(1, WIDTH),
            "position_embd.weight": matrix(CONTEXT, WIDTH)}
    bert.update({"token_embd_norm.weight": vector(WIDTH, 1), "token_embd_norm.bias": vector(WIDTH)})
    for layer in range(LAYERS):
        for part, rows, columns in [("attn_q", WIDTH, WIDTH), ("attn_k", WIDTH, WIDTH), ("attn_v", WIDTH, WIDTH),
                                    ("attn_output", WIDTH, WIDTH), ("ffn_up", HIDDEN, WIDTH), ("ffn_down", WIDTH, HIDDEN)]:
            bert[f"blk.{layer}.{part}.weight"] = matrix(rows, columns, 2)
            bert[f"blk.{layer}.{part}.bias"] = vector(rows)
        for part in ["attn_output_norm", "layer_output_norm"]:
            bert[f"blk.{layer}.{part}.weight"] = vector(WIDTH, 1)
            bert[f"blk.{layer}.{part}.bias"] = vector(WIDTH)
    bert.update({"cls.weight": matrix(WIDTH, WIDTH), "cls.bias": vector(WIDTH), "cls.output.weight": matrix(1, WIDTH, 4),
                 "cls.output.bias": vector(1)})
    write_bert("bert", bert, 1)
    write_bert("bert-two-types", bert, 2)
    qwen3 = qwen3_body(matrix, vector, 260)
    qwen3["cls.output.weight"] = matrix(2, WIDTH, 2)
    write_qwen3("qwen3", qwen3, True)
    write_qwen3("qwen3-headless", qwen3, False)
    cases = []
    for query, passage in CASES:
        (bert_ids, bert_cut), (qwen3_ids, qwen3_cut) = bert_pair(query, passage), qwen3_pair(query, passage)
        yes = qwen3_forward(qwen3, qwen3_ids)[0]
        cases.append({
            "query": query, "passage": passage,
            "bert": {"tokens": len(bert_ids), "cut": bert_cut, "utility": bert_forward(bert, bert_ids)},
            "qwen3": {"tokens": len(qwen3_ids), "cut": qwen3_cut, "utility": float(np.log(yes / (1 - yes)))},
        })
    (HERE / "gguf.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
