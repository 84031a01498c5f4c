"""Copies GGUF files with changes. Needs numpy and gguf."""

import hashlib
import os
import pathlib

import gguf
import numpy


class FileError(Exception):
    """A file that cannot be read, or must not be written. The text names it."""


def reader(path):
    """Opens a GGUF file. Its tensors are mapped into memory, so it must not be changed while it is in use."""
    try:
        return gguf.GGUFReader(path)
    except (ValueError, IndexError, KeyError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: is no whole GGUF file: {error}") from None


def refuse_same(out, *inputs):
    """Refuses to write to a file that is read."""
    for path in inputs:
        if os.path.exists(out) and os.path.samefile(out, path):
            raise FileError(f"{out}: is {path} itself, which would be lost")


def write(writer, path, tensors=None):
    """Writes all that `writer` holds, and then these tensors if they are given, beside `path`; the whole file takes its place.

    A device or a pipe is refused, which the file would replace; of a link the target is replaced.
    """
    path = os.path.realpath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        raise FileError(f"{path}: is no regular file")
    new = pathlib.Path(f"{path}.new")
    try:
        writer.write_header_to_file(new)
        writer.write_kv_data_to_file()
        if tensors is None:
            writer.write_tensors_to_file()
        else:
            writer.write_ti_data_to_file()
            for data in tensors:
                writer.write_tensor_data(data)
        writer.close()
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


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
    writer = gguf.GGUFWriter(None, architecture_of(reader))
    # A key of the file says it, and is copied with the others.
    writer.data_alignment = int(reader.alignment)
    changed = dict(metadata)
    for field in reader.fields.values():
        if field.name == "general.architecture" or field.name.startswith("GGUF."):
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        value = changed.pop(field.name, field.contents())
        # The writer takes no array without elements, which says nothing.
        if kind != gguf.GGUFValueType.ARRAY or len(value) > 0:
            writer.add_key_value(field.name, value, kind, sub_type=inner)
    for key, value in changed.items():
        kind = gguf.GGUFValueType.STRING if isinstance(value, str) else gguf.GGUFValueType.FLOAT32
        writer.add_key_value(key, value, kind)
    tensors = list(tensors)
    for name, data, kind in tensors:
        writer.add_tensor_info(name, data.shape, data.dtype, data.nbytes, kind)
    write(writer, path, (data for _, data, _ in tensors))
