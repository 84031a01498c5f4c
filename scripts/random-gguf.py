#!/usr/bin/env python3
"""Writes a GGUF file with random weights in the shape of a known model, to measure speed on machines that cannot download a model.

    random-gguf.py [--dry-run] [--type F16|BF16|F32|Q8_0|Q4_0] [--seed N] SHAPE OUT

Needs the packages gguf and numpy. The vocabulary is byte-level: a text has one token for each byte, and the rest of the
vocabulary is never used. The model's output is meaningless; equal arguments write equal files.
"""

import argparse
import dataclasses
import sys


@dataclasses.dataclass(frozen=True)
class Shape:
    """Dimensions as in the model's configuration."""

    architecture: str
    pre_tokenizer: str
    vocabulary: int
    context: int
    layers: int
    width: int
    feed_forward: int
    heads: int
    heads_kv: int
    rope_base: float
    epsilon: float
    biases: bool  # of query, key and value
    tied: bool  # true if the output matrix is the embedding matrix
    normed: bool = False  # true if queries and keys are normalised
    reranker: bool = False  # true if it has Qwen3-Reranker's yes/no head and its template for a query and a document


SHAPES = {
    # Attention heads of 64 dimensions, the smallest size that fused attention supports on GPUs.
    "tiny": Shape("llama", "llama-bpe", 512, 8192, 4, 256, 768, 4, 2, 10_000.0, 1e-5, False, False),
    "qwen2.5-0.5b": Shape("qwen2", "qwen2", 151_936, 32_768, 24, 896, 4864, 14, 2, 1_000_000.0, 1e-6, True, True),
    "qwen2.5-1.5b": Shape("qwen2", "qwen2", 151_936, 32_768, 28, 1536, 8960, 12, 2, 1_000_000.0, 1e-6, True, True),
    # The dimensions of the default generator, SmolLM2-135M, in the form of Qwen3-Reranker.
    "reranker-135m": Shape("qwen3", "qwen2", 49_152, 8192, 30, 576, 1536, 9, 3, 1_000_000.0, 1e-6, False, True, True, True),
    "llama-3.1-8b": Shape("llama", "llama-bpe", 128_256, 131_072, 32, 4096, 14_336, 32, 8, 500_000.0, 1e-5, False, False),
}
TYPES = ["F16", "BF16", "F32", "Q8_0", "Q4_0"]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
RERANK_TEMPLATE = "<|im_start|>query: {query}\ndocument: {document}<|im_end|>\nanswer:"


def tensors(shape):
    """Name and dimensions (rows first) of every tensor; vectors are norms and biases."""
    head = shape.width // shape.heads
    kv = head * shape.heads_kv
    yield "token_embd.weight", (shape.vocabulary, shape.width)
    for layer in range(shape.layers):
        block = f"blk.{layer}"
        yield f"{block}.attn_norm.weight", (shape.width,)
        for name, rows in (("q", shape.width), ("k", kv), ("v", kv)):
            yield f"{block}.attn_{name}.weight", (rows, shape.width)
            if shape.biases:
                yield f"{block}.attn_{name}.bias", (rows,)
            if shape.normed and name != "v":
                yield f"{block}.attn_{name}_norm.weight", (head,)
        yield f"{block}.attn_output.weight", (shape.width, shape.width)
        yield f"{block}.ffn_norm.weight", (shape.width,)
        yield f"{block}.ffn_gate.weight", (shape.feed_forward, shape.width)
        yield f"{block}.ffn_up.weight", (shape.feed_forward, shape.width)
        yield f"{block}.ffn_down.weight", (shape.width, shape.feed_forward)
    yield "output_norm.weight", (shape.width,)
    if not shape.tied:
        yield "output.weight", (shape.vocabulary, shape.width)
    if shape.reranker:
        yield "cls.output.weight", (2, shape.width)


def byte_tokens():
    """The 256 tokens of single bytes in GPT-2's notation: printable characters stand for themselves, others follow from U+0100."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def vocabulary(shape, token_type):
    """Tokens and their types. The only merge needs a token of two bytes; without merges llama.cpp refuses the file."""
    tokens = [*byte_tokens(), "Ġt", *SPECIAL]
    types = [token_type.NORMAL] * 257 + [token_type.CONTROL] * len(SPECIAL)
    unused = shape.vocabulary - len(tokens)
    tokens += [f"<|unused_{index}|>" for index in range(unused)]
    return tokens, types + [token_type.UNUSED] * unused


def write(shape, name, kind, seed, path):
    import gguf
    import numpy

    quantization = gguf.GGMLQuantizationType[kind]
    random = numpy.random.default_rng(seed)
    # Speed does not depend on the values, so one piece of random weights is repeated. Its length is not a multiple of any row's length.
    stretch = gguf.quants.quantize(random.standard_normal((4099, 256), dtype=numpy.float32) * 0.02, quantization)
    stretch = numpy.frombuffer(stretch.tobytes(), dtype=numpy.uint8)

    writer = gguf.GGUFWriter(path, shape.architecture)
    writer.add_name(f"random {name}")
    writer.add_file_type(gguf.LlamaFileType[f"ALL_{kind}" if kind == "F32" else f"MOSTLY_{kind}"])
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads_kv)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_vocab_size(shape.vocabulary)
    tokens, types = vocabulary(shape, gguf.TokenType)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(shape.pre_tokenizer)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(["Ġ t"])
    writer.add_bos_token_id(tokens.index("<|endoftext|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    if shape.reranker:
        writer.add_chat_template([{"name": "rerank", "template": RERANK_TEMPLATE}])
        writer.add_pooling_type(gguf.PoolingType.RANK)
        writer.add_classifier_output_labels(["yes", "no"])
    else:
        writer.add_chat_template(CHAT_TEMPLATE)

    def encoded(dimensions):
        return gguf.GGMLQuantizationType.F32 if len(dimensions) == 1 else quantization

    def size(dimensions):
        block, block_bytes = gguf.GGML_QUANT_SIZES[encoded(dimensions)]
        return int(numpy.prod(dimensions)) // block * block_bytes

    for tensor, dimensions in tensors(shape):
        stored = gguf.quant_shape_to_byte_shape(dimensions, encoded(dimensions)) if len(dimensions) > 1 else dimensions
        dtype = numpy.dtype(numpy.uint8 if len(dimensions) > 1 else numpy.float32)
        writer.add_tensor_info(tensor, stored, dtype, size(dimensions), raw_dtype=encoded(dimensions))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor, dimensions in tensors(shape):
        if len(dimensions) == 1:
            data = numpy.full(dimensions, 0.0 if tensor.endswith(".bias") else 1.0, dtype=numpy.float32)
        else:
            data = numpy.resize(stretch, size(dimensions))
        writer.write_tensor_data(data)
    writer.close()


def main():
    parser = argparse.ArgumentParser(description="Writes a GGUF file with random weights in the shape of a known model.")
    parser.add_argument("shape", choices=SHAPES, metavar="SHAPE", help=", ".join(SHAPES))
    parser.add_argument("out", metavar="OUT", help="file to write")
    parser.add_argument("--type", choices=TYPES, default="F16", help="type of the matrices; F16 by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dry-run", action="store_true", help="only print the tensors and their number of weights")
    options = parser.parse_args()
    shape = SHAPES[options.shape]
    if not options.dry_run:
        write(shape, options.shape, options.type, options.seed, options.out)
        return
    weights = 0
    for tensor, dimensions in tensors(shape):
        count = dimensions[0] * (dimensions[1] if len(dimensions) > 1 else 1)
        weights += count
        print(tensor, "x".join(map(str, dimensions)))
    print(f"{weights} weights", file=sys.stderr)


main()
