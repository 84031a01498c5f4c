"""Log-probabilities of a text under a llama-architecture GGUF file, by numpy alone.

An independent program over the same file: weights are dequantised to 32-bit floats and the forward pass is written out,
so it shares neither kernels nor cache nor tokeniser code with llama.cpp. Token ids are given, not computed.

  pip install gguf numpy
  python reference.py MODEL.gguf < tokens.json > scores.json      # tokens.json: a list of token ids
"""

import json
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


def main() -> None:
    reader = GGUFReader(sys.argv[1])
    tensors = {t.name: t for t in reader.tensors}
    value = lambda key: reader.fields["llama." + key].contents()
    heads, kv_heads = value("attention.head_count"), value("attention.head_count_kv")
    epsilon, base = value("attention.layer_norm_rms_epsilon"), value("rope.freq_base")
    weight = lambda name: dequantize(tensors[name].data, tensors[name].tensor_type).astype(np.float32)

    tokens = json.load(sys.stdin)
    embedding = weight("token_embd.weight")
    x = embedding[tokens]
    length, width = x.shape
    size = width // heads
    # llama.cpp stores q and k permuted so that rotary pairs are neighbours.
    angle = np.arange(length)[:, None] * base ** (-np.arange(0, size, 2) / size)[None, :]
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]

    def rotate(v):
        even, odd = v[..., 0::2], v[..., 1::2]
        out = np.empty_like(v)
        out[..., 0::2], out[..., 1::2] = even * cos - odd * sin, even * sin + odd * cos
        return out

    def norm(v, name):
        return v / np.sqrt((v * v).mean(-1, keepdims=True) + epsilon) * weight(name)

    mask = np.triu(np.full((length, length), -np.inf, np.float32), 1)
    for layer in range(value("block_count")):
        part = lambda name: weight(f"blk.{layer}.{name}.weight")
        h = norm(x, f"blk.{layer}.attn_norm.weight")
        q = rotate((h @ part("attn_q").T).reshape(length, heads, size))
        k = rotate((h @ part("attn_k").T).reshape(length, kv_heads, size))
        v = (h @ part("attn_v").T).reshape(length, kv_heads, size)
        k, v = (np.repeat(m, heads // kv_heads, axis=1) for m in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(size) + mask
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        x = x + np.einsum("hqk,khd->qhd", scores, v).reshape(length, width) @ part("attn_output").T
        h = norm(x, f"blk.{layer}.ffn_norm.weight")
        gate = h @ part("ffn_gate").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ part("ffn_up").T)) @ part("ffn_down").T
    output = weight("output.weight") if "output.weight" in tensors else embedding
    logits = (norm(x, "output_norm.weight") @ output.T).astype(np.float64)
    peak = logits.max(-1, keepdims=True)
    log_probabilities = logits - peak - np.log(np.exp(logits - peak).sum(-1, keepdims=True))
    scored = [float(log_probabilities[i, t]) for i, t in enumerate(tokens[1:])]
    json.dump({"tokens": tokens, "log_probabilities": scored}, sys.stdout)


main()
