"""Writes tiny random rerankers of the architectures modern-bert and jina-bert-v2 as GGUF files, and the scores they must give.

    pip install numpy==2.4.6 gguf==0.19.0
    python encoder_models.py

The forward passes follow the models' own definitions, and share no code with llama.cpp. `modern-bert`: every third
layer, the first included, attends to all tokens with one base of its rotary embedding, the others to neighbours within
half a window with another base. The first layer has no norm before its attention. The head has the mean of all tokens,
a dense layer, GELU, a norm and the output. `jina-bert-v2`: attention biased by distance (ALiBi, both ways), a gated
unit, norms after each part. The head is the tanh of the classifier on the first token, as in the files: the conversion
leaves out the published model's dense layer before it. Scores agree within 2e-2.
"""

import json

import gguf
import numpy as np

import gguf_models as models

LAYERS, WINDOW, GLOBAL_BASE, LOCAL_BASE = 4, 8, 160000.0, 10000.0
CLS, SEP, PAD = 257, 258, 259
# Text that spells a control token is text.
CASES = models.CASES + [["what makes the tide", "[SEP] moon"]]


def heads(x):
    return x.reshape(len(x), models.HEADS, models.SIZE)


def attention(query, key, value, bias):
    """`bias` is [tokens, tokens] or [heads, tokens, tokens]."""
    scores = np.einsum("ihd,jhd->hij", query, key) / np.sqrt(models.SIZE) + bias
    return np.einsum("hij,jhd->ihd", models.softmax(scores), value).reshape(len(query), -1)


def distances(length):
    places = np.arange(length)
    return np.abs(places[:, None] - places[None, :])


def gated(x):
    gate, value = np.split(x, 2, axis=-1)
    return models.gelu(gate) * value


def modern_forward(t, ids):
    norm = lambda x, name: models.normalise(x, t[name + ".weight"], 0.0)
    x = norm(t["token_embd.weight"][ids], "token_embd_norm")
    far = np.where(distances(len(ids)) > WINDOW // 2, -np.inf, 0.0)
    for layer in range(LAYERS):
        name = lambda part: f"blk.{layer}.{part}"
        everywhere = layer % 3 == 0
        models.BASE = GLOBAL_BASE if everywhere else LOCAL_BASE
        h = x if layer == 0 else norm(x, name("attn_norm"))
        query, key, value = map(heads, np.split(h @ t[name("attn_qkv.weight")].T, 3, axis=-1))
        mixed = attention(models.rotate(query), models.rotate(key), value, 0.0 if everywhere else far)
        x = x + mixed @ t[name("attn_output.weight")].T
        x = x + gated(norm(x, name("ffn_norm")) @ t[name("ffn_up.weight")].T) @ t[name("ffn_down.weight")].T
    pooled = norm(x, "output_norm").mean(axis=0)
    head = norm(models.gelu(pooled @ t["cls.weight"].T), "cls.norm")
    return float((head @ t["cls.output.weight"].T + t["cls.output.bias"])[0])


def jina_forward(t, ids):
    linear = lambda x, name: x @ t[name + ".weight"].T + t[name + ".bias"]
    norm = lambda x, name: models.normalise(x, t[name + ".weight"], t[name + ".bias"])
    x = norm(t["token_embd.weight"][ids] + t["token_types.weight"][0], "token_embd_norm")
    # The slopes of a power of two of heads: 2^(-8 k / heads).
    slopes = 2.0 ** (-8.0 * np.arange(1, models.HEADS + 1) / models.HEADS)
    bias = -slopes[:, None, None] * distances(len(ids))
    for layer in range(LAYERS):
        name = lambda part: f"blk.{layer}.{part}"
        query, key, value = (heads(linear(x, name(part))) for part in ["attn_q", "attn_k", "attn_v"])
        x = norm(x + linear(attention(query, key, value, bias), name("attn_output")), name("attn_output_norm"))
        x = norm(x + linear(gated(x @ t[name("ffn_up.weight")].T), name("ffn_down")), name("layer_output_norm"))
    return float(np.tanh(linear(x[0], "cls"))[0])


def write(architecture, pre, tensors, settings):
    writer = gguf.GGUFWriter(str(models.HERE / f"{architecture}.gguf"), architecture)
    writer.add_context_length(models.CONTEXT)
    writer.add_embedding_length(models.WIDTH)
    writer.add_feed_forward_length(models.HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_head_count(models.HEADS)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_layer_norm_eps(models.EPSILON)
    writer.add_causal_attention(False)
    settings(writer)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(models.byte_letters() + ["th", "[CLS]", "[SEP]", "[PAD]"])
    writer.add_token_types([gguf.TokenType.NORMAL] * 257 + [gguf.TokenType.CONTROL] * 3)
    writer.add_token_merges(["t h"])
    for add, token in [(writer.add_bos_token_id, CLS), (writer.add_eos_token_id, SEP), (writer.add_sep_token_id, SEP),
                       (writer.add_pad_token_id, PAD)]:
        add(token)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)
    models.finish(writer, tensors)


def pair(query, passage, separators):
    query, passage = models.qwen3_tokens(query), models.qwen3_tokens(passage)
    cut = max(0, len(query) + len(passage) + len(separators) + 2 - models.CONTEXT)
    return [CLS, *query, *separators, *passage[: len(passage) - cut], SEP], cut


def main():
    random = np.random.default_rng(31)
    matrix = lambda rows, columns, scale=1.0: random.normal(0, scale / np.sqrt(columns), (rows, columns)).astype(np.float32)
    vector = lambda size, mean=0.0: (mean + random.normal(0, 0.1, size)).astype(np.float32)
    width, hidden = models.WIDTH, models.HIDDEN
    modern = {"token_embd.weight": matrix(260, width, 4), "token_embd_norm.weight": vector(width, 1),
              "output_norm.weight": vector(width, 1), "cls.weight": matrix(width, width, 2), "cls.norm.weight": vector(width, 1),
              "cls.output.weight": matrix(1, width, 2), "cls.output.bias": vector(1)}
    for layer in range(LAYERS):
        name = lambda part: f"blk.{layer}.{part}.weight"
        if layer > 0:
            modern[name("attn_norm")] = vector(width, 1)
        modern[name("ffn_norm")] = vector(width, 1)
        modern.update({name("attn_qkv"): matrix(3 * width, width, 2), name("attn_output"): matrix(width, width, 2),
                       name("ffn_up"): matrix(2 * hidden, width, 2), name("ffn_down"): matrix(width, hidden, 2)})
    jina = {"token_embd.weight": matrix(260, width, 4), "token_types.weight": matrix(2, width),
            "token_embd_norm.weight": vector(width, 1), "token_embd_norm.bias": vector(width),
            "cls.weight": matrix(1, width), "cls.bias": vector(1)}
    for layer in range(LAYERS):
        name = lambda part: f"blk.{layer}.{part}"
        for part in ["attn_q", "attn_k", "attn_v", "attn_output"]:
            jina.update({name(part) + ".weight": matrix(width, width, 1.5), name(part) + ".bias": vector(width)})
        jina.update({name("ffn_up.weight"): matrix(2 * hidden, width), name("ffn_down.weight"): matrix(width, hidden),
                     name("ffn_down.bias"): vector(width)})
        for part in ["attn_output_norm", "layer_output_norm"]:
            jina.update({name(part) + ".weight": vector(width, 1), name(part) + ".bias": vector(width)})

    def of_modern(writer):
        writer.add_sliding_window(WINDOW)
        writer.add_sliding_window_pattern(3)
        writer.add_rope_freq_base(GLOBAL_BASE)
        writer.add_rope_freq_base_swa(LOCAL_BASE)
        # One separator, as in its tokenizer for pairs.
        writer.add_add_sep_token(False)

    def of_jina(writer):
        writer.add_token_type_count(2)
        writer.add_add_sep_token(True)

    write("modern-bert", "modern-bert", modern, of_modern)
    write("jina-bert-v2", "jina-v1-en", jina, of_jina)
    cases = []
    for query, passage in CASES:
        case = {"query": query, "passage": passage}
        for model, forward, tensors, separators in [("modern-bert", modern_forward, modern, [SEP]),
                                                    ("jina-bert-v2", jina_forward, jina, [SEP, SEP])]:
            ids, cut = pair(query, passage, separators)
            case[model] = {"tokens": len(ids), "cut": cut, "utility": forward(tensors, ids)}
        cases.append(case)
    (models.HERE / "encoders.json").write_text(json.dumps(cases, indent=1) + "\n")


if __name__ == "__main__":
    main()
