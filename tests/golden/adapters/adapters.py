"""Writes a tiny random generator, a LoRA adapter for it, and the generator with the adapter merged into its matrices.

    pip install numpy==2.4.6 gguf==0.19.0
    python adapters.py

`base` is a llama of two layers whose vocabulary is bytes. `adapter` has factors of every matrix that llama.cpp applies, of rank 4
with alpha 8; `merged` is `base` with W + alpha / r B A in place of every such W, computed here in double precision. The weights are
large, so that the adapter moves scores by nats. The output is deterministic.
"""

import pathlib

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
WIDTH, HEADS, HEADS_KV, HIDDEN, LAYERS, CONTEXT = 32, 2, 1, 48, 2, 1024
SIZE = WIDTH // HEADS
RANK, ALPHA = 4, 8.0
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_letters():
    """The letters by which byte-level vocabularies write bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


TOKENS = byte_letters() + ["th", *SPECIAL]


def matrices():
    """Name, outputs and inputs of every matrix that takes an adapter."""
    for layer in range(LAYERS):
        for part, outputs, inputs in [("attn_q", WIDTH, WIDTH), ("attn_k", SIZE * HEADS_KV, WIDTH),
                                      ("attn_v", SIZE * HEADS_KV, WIDTH), ("attn_output", WIDTH, WIDTH),
                                      ("ffn_gate", HIDDEN, WIDTH), ("ffn_up", HIDDEN, WIDTH), ("ffn_down", WIDTH, HIDDEN)]:
            yield f"blk.{layer}.{part}.weight", outputs, inputs
    yield "output.weight", len(TOKENS), WIDTH


def finish(writer, tensors):
    for name, tensor in tensors.items():
        writer.add_tensor(name, np.ascontiguousarray(tensor, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_model(name, tensors):
    writer = gguf.GGUFWriter(str(HERE / f"{name}.gguf"), "llama")
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS_KV)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(SIZE)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(TOKENS)
    writer.add_token_types([gguf.TokenType.NORMAL] * 257 + [gguf.TokenType.CONTROL] * len(SPECIAL))
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(257)
    writer.add_eos_token_id(259)
    finish(writer, tensors)


def write_adapter(name, factors):
    writer = gguf.GGUFWriter(str(HERE / f"{name}.gguf"), "llama")
    writer.add_type(gguf.GGUFType.ADAPTER)
    writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
    writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, ALPHA)
    tensors = {}
    for target, (a, b) in factors.items():
        tensors[f"{target}.lora_a"], tensors[f"{target}.lora_b"] = a, b
    finish(writer, tensors)


def main():
    random = np.random.default_rng(7)
    gaussian = lambda outputs, inputs, scale: (random.standard_normal((outputs, inputs)) * scale).astype(np.float32)
    base = {"token_embd.weight": gaussian(len(TOKENS), WIDTH, 1.0), "output_norm.weight": np.ones(WIDTH)}
    for layer in range(LAYERS):
        for part in ["attn_norm", "ffn_norm"]:
            base[f"blk.{layer}.{part}.weight"] = np.ones(WIDTH)
    factors = {}
    for name, outputs, inputs in matrices():
        base[name] = gaussian(outputs, inputs, 1.0 / np.sqrt(inputs))
        factors[name] = (gaussian(RANK, inputs, 0.5 / np.sqrt(inputs)), gaussian(outputs, RANK, 0.5 / np.sqrt(RANK)))
    merged = dict(base)
    for name, (a, b) in factors.items():
        merged[name] = base[name].astype(np.float64) + ALPHA / RANK * (b.astype(np.float64) @ a.astype(np.float64))
    write_model("base", base)
    write_model("merged", merged)
    write_adapter("adapter", factors)


main()
