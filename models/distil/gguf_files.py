"""Copies GGUF files with changes. Needs numpy and gguf."""

import hashlib

import gguf
import numpy


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def value_of(reader, key):
    """A metadata value, or None."""
    field = reader.get_field(key)
    return None if field is None else field.contents()


def architecture_of(reader):
    return value_of(reader, "general.architecture")


def heads_of(reader):
    """Heads of queries, and heads of keys and values."""
    architecture = architecture_of(reader)
    heads = value_of(reader, f"{architecture}.attention.head_count")
    return heads, value_of(reader, f"{architecture}.attention.head_count_kv") or heads


def weights(tensor):
    """The values of a tensor, rows first, as 32-bit numbers."""
    return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)


def copy(reader, path, *, metadata, tensors):
    """Writes a file with the metadata of `reader`, where `metadata` replaces and adds values, and these tensors.

    `tensors` gives (name, data, type): data as stored, in the type of GGML.
    """
    writer = gguf.GGUFWriter(path, architecture_of(reader))
    changed = dict(metadata)
    for field in reader.fields.values():
        if field.name == "general.architecture" or field.name.startswith("GGUF."):
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, changed.pop(field.name, field.contents()), kind, sub_type=inner)
    for key, value in changed.items():
        kind = gguf.GGUFValueType.STRING if isinstance(value, str) else gguf.GGUFValueType.FLOAT32
        writer.add_key_value(key, value, kind)
    tensors = list(tensors)
    for name, data, kind in tensors:
        writer.add_tensor_info(name, data.shape, data.dtype, data.nbytes, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for _, data, _ in tensors:
        writer.write_tensor_data(data)
    writer.close()
