#!/usr/bin/env python3
"""Writes nodes.bin: the nodes of all-minilm-l6-v2 as ONNX Runtime's fused operators, without weights.

    pip install onnx==1.*
    models/minilm/fuse.py ~/.cache/rerankd/models/all-minilm-l6-v2/model.onnx models/minilm/nodes.bin

The published file has a node for each step of PyTorch, and converts its 8-bit weights to 32 bits before it multiplies. The
nodes written here read the same weights, by name, and multiply in 8 bits. The program adds the weights of the file when it
loads the model (crates/models/src/onnx/fused.rs). docs/experiments/onnx.md has the speed and the quality.
"""

import sys

import onnx
from onnx import TensorProto, helper

LAYERS, HEADS, EPSILON = 6, 12, 1e-12

nodes = []


def node(operator, inputs, output, domain="com.microsoft", **attributes):
    outputs = output if isinstance(output, list) else [output]
    nodes.append(helper.make_node(operator, inputs, outputs, domain=domain, **attributes))
    return output


def plain(operator, inputs, output, **attributes):
    """A node of the ONNX standard."""
    return node(operator, inputs, output, domain="", **attributes)


def matrices(graph):
    """The 8-bit matrices and their scales, in the order of their products."""
    makers = {output: node for node in graph.node for output in node.output}
    for product in graph.node:
        scaled = makers.get(product.input[1]) if product.op_type == "MatMul" else None
        if scaled is not None and scaled.op_type == "Mul" and makers[scaled.input[0]].op_type == "Cast":
            yield makers[scaled.input[0]].input[0], scaled.input[1]


def rows(name, indices, output):
    """Rows of an embedding table. They are converted to 32 bits after they are chosen."""
    chosen = plain("Gather", [f"{name}.weight_q", indices], f"{output}_q")
    scale = plain("Gather", [f"{name}.weight_scale", indices], f"{output}_scale")
    return plain("Mul", [plain("Cast", [chosen], f"{output}_f", to=TensorProto.FLOAT), scale], output)


def embeddings(prefix):
    plain("Shape", ["input_ids"], "tokens", start=1, end=2)
    plain("Range", ["zero", plain("Squeeze", ["tokens"], "count"), "one"], "positions")
    words = rows(f"{prefix}.word_embeddings", "input_ids", "words")
    places = rows(f"{prefix}.position_embeddings", "positions", "places")
    types = plain("Gather", [f"{prefix}.token_type_embeddings.weight", "token_type_ids"], "types")
    added = plain("Add", [plain("Add", [words, types], "words_types"), places], "added")
    weights = [f"{prefix}.LayerNorm.weight", f"{prefix}.LayerNorm.bias"]
    return plain("LayerNormalization", [added, *weights], "embedded", epsilon=EPSILON)


def normalised(product, residual, prefix, output):
    """The sum with the residual, normalised. SkipLayerNormalization does both, several times slower."""
    weights = [f"{prefix}.LayerNorm.weight", f"{prefix}.LayerNorm.bias"]
    added = plain("Add", [product, residual], f"{output}_sum")
    return plain("LayerNormalization", [added, *weights], output, epsilon=EPSILON)


def product(states, weight, output):
    """A product in 8 bits. One range of numbers holds for all tokens. No bias: with an empty input before it, ONNX Runtime may
    not convert the weights for CPUs whose 8-bit products overflow."""
    return node("DynamicQuantizeMatMul", [states, *weight], output)


def scaled_product(states, weight, output):
    """A product in 8 bits. Each token is divided by its largest number first, because a few tokens have much larger ones."""
    largest = plain("ReduceMax", [plain("Abs", [states], f"{output}_abs")], f"{output}_largest", axes=[-1])
    scaled = product(plain("Div", [states, largest], f"{output}_scaled"), weight, f"{output}_product")
    return plain("Mul", [scaled, largest], output)


def biased(states, prefix):
    return plain("Add", [states, f"{prefix}.dense.bias"], f"{states}_biased")


def layer(number, states, weights, prefix, output):
    name = lambda part: f"layer{number}_{part}"
    # Constants: the runtime computes them once.
    joined = plain("Concat", [matrix for matrix, _ in weights[:3]], name("matrix"), axis=1)
    scales = plain("Squeeze", [plain("Concat", [scale for _, scale in weights[:3]], name("scales"), axis=1)], name("scale"))
    own = [f"{prefix}.attention.self.{part}.bias" for part in ("query", "key", "value")]
    biases = plain("Concat", own, name("bias"), axis=0)
    read, scale, zero = plain("DynamicQuantizeLinear", [states], [name(part) for part in ("read", "read_scale", "zero")])
    inputs = [read, joined, biases, scale, scales, "mask", zero]
    attended = node("QAttention", inputs, name("attended"), num_heads=HEADS)
    own = f"{prefix}.attention.output"
    dense = biased(product(attended, weights[3], name("dense")), own)
    between = normalised(dense, states, own, name("between"))
    wide = biased(scaled_product(between, weights[4], name("wide")), f"{prefix}.intermediate")
    narrow = scaled_product(node("Gelu", [wide], name("gelu")), weights[5], name("narrow"))
    return normalised(biased(narrow, f"{prefix}.output"), between, f"{prefix}.output", output)


def main(published, written):
    graph = onnx.load(published).graph
    weights = list(matrices(graph))
    assert len(weights) == 6 * LAYERS
    plain("Cast", ["attention_mask"], "mask", to=TensorProto.INT32)
    states = embeddings("inner.embeddings")
    for number in range(LAYERS):
        output = graph.output[0].name if number == LAYERS - 1 else f"layer{number}"
        states = layer(number, states, weights[6 * number : 6 * number + 6], f"inner.encoder.layer.{number}", output)
    numbers = [helper.make_tensor(name, TensorProto.INT64, [], [value]) for name, value in (("zero", 0), ("one", 1))]
    fused = helper.make_graph(nodes, "all-minilm-l6-v2", list(graph.input), list(graph.output), numbers)
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(fused, opset_imports=versions, ir_version=10), written)


if __name__ == "__main__":
    main(*sys.argv[1:])
