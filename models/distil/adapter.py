"""GGUF adapters: the layout in which llama.cpp loads them. Needs numpy and gguf.

A pair of tensors `blk.I.NAME.weight.lora_a` (r x in) and `.lora_b` (out x r) adds `alpha / r * B A` to the weight `blk.I.NAME.weight`.
The GGUF files of the architecture `llama` hold the rows of the query and key matrices in another order than transformers, head by
head, because llama.cpp rotates neighbouring numbers and transformers the two halves of a head. The rows of B of these two matrices
are reordered likewise; A is not.
"""

import functools
import json
import re
import sys

import gguf
import gguf_files
import numpy

# Linear layers of transformers, and their names in GGUF files.
LAYERS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
# Architectures of GGUF files, and whether their rows of queries and keys are reordered.
ARCHITECTURES = {"llama": True, "qwen2": False}

BASE_SHA256 = "rerankd.base.sha256"
RECIPE = "rerankd.recipe"
SEED = "rerankd.seed"
TRAINED = "rerankd.trained"


class AdapterError(Exception):
    """An adapter that cannot be written or read."""


def to_gguf_rows(rows, heads):
    """Rows of a query or key matrix (or of its B) from the order of transformers to that of a GGUF file."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, 2, half, -1).swapaxes(1, 2).reshape(rows.shape)


def to_torch_rows(rows, heads):
    """The inverse of `to_gguf_rows`."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, half, 2, -1).swapaxes(1, 2).reshape(rows.shape)


def heads_of(architecture, name, heads, heads_kv):
    """Number of heads by which rows of this tensor are reordered; None where they are not."""
    if architecture not in ARCHITECTURES:
        raise AdapterError(f"architecture {architecture!r} is not known here; known are {', '.join(ARCHITECTURES)}")
    if not ARCHITECTURES[architecture]:
        return None
    return {"attn_q": heads, "attn_k": heads_kv}.get(name)


def from_peft(state, architecture, heads, heads_kv):
    """The tensors of a GGUF adapter, by name, from the state that `peft.get_peft_model_state_dict` returns (as numpy arrays)."""
    pattern = re.compile(r"layers\.(\d+)\.(.+)\.lora_([AB])(?:\.default)?\.weight$")
    tensors = {}
    for key, value in state.items():
        match = pattern.search(key)
        layer = match and LAYERS.get(match[2])
        if not layer:
            raise AdapterError(f"{key}: llama.cpp has no adapter for this tensor")
        value = numpy.ascontiguousarray(value, dtype=numpy.float32)
        count = heads_of(architecture, layer, heads, heads_kv)
        if match[3] == "B" and count:
            value = to_gguf_rows(value, count)
        tensors[f"blk.{match[1]}.{layer}.weight.lora_{match[3].lower()}"] = value
    for name in tensors:
        other = name[:-1] + ("b" if name.endswith("a") else "a")
        if other not in tensors:
            raise AdapterError(f"{name} has no {other}")
    return dict(sorted(tensors.items()))


def write(path, tensors, *, architecture, alpha, base_sha256, recipe, seed, trained):
    """Writes an adapter. `recipe` is what it was trained with, a dictionary; `trained` the marks of its questions (exports.mark)."""
    writer = gguf.GGUFWriter(None, architecture)
    writer.add_string("general.type", "adapter")
    writer.add_string("general.name", recipe.get("name", "adapter"))
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(alpha))
    writer.add_string(BASE_SHA256, base_sha256)
    writer.add_string(RECIPE, json.dumps(recipe, sort_keys=True))
    writer.add_uint64(SEED, seed)
    writer.add_string(TRAINED, " ".join(sorted(trained)))
    for name, value in tensors.items():
        writer.add_tensor(name, value)
    gguf_files.write(writer, path)


def read(path):
    """Reads an adapter: its deltas `alpha / r * B A` by the name of the weight, as (scale, A, B), and its metadata."""
    reader = gguf_files.reader(path)
    field = functools.partial(gguf_files.value_of, reader)
    if field("general.type") != "adapter" or field("adapter.type") != "lora":
        raise AdapterError(f"{path}: is no LoRA adapter")
    alpha = field("adapter.lora.alpha")
    parts = {tensor.name: gguf_files.weights(tensor) for tensor in reader.tensors}
    pairs = {}
    for name, a in parts.items():
        if not name.endswith(".lora_a"):
            continue
        b = parts.get(name[:-1] + "b")
        if b is None:
            raise AdapterError(f"{path}: {name} has no {name[:-1]}b")
        rank = b.shape[1]
        pairs[name.removesuffix(".lora_a")] = (alpha / rank if alpha else 1.0, a, b)
    keys = ("general.architecture", BASE_SHA256, RECIPE, SEED, TRAINED)
    return pairs, {key: field(key) for key in keys}


def check_base(path, told, base):
    """Refuses a base that the adapter at `path` was not trained on. One made by another program may not say; then nobody knows."""
    trained_on, actual = told[BASE_SHA256], gguf_files.sha256(base)
    if trained_on is None:
        print(f"{path} does not say which base it was trained on; {base} is taken for it", file=sys.stderr)
    elif trained_on != actual:
        raise AdapterError(f"{path}: was trained on {trained_on}, {base} is {actual}")
