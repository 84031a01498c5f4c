#!/usr/bin/env python3
"""Adds a GGUF adapter to the weights of its base model: no extra cost a token, and no adapter to load.

    merge.py --base BASE.gguf --adapter ADAPTER.gguf --out MERGED.gguf [--type F16|F32]

Weights that the adapter changes are stored in the given type, the others as they are. Needs the packages gguf and numpy.
"""

import argparse
import sys

import adapter
import gguf
import gguf_files
import numpy


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", required=True)
    parser.add_argument("--adapter", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--type", choices=["F16", "F32"], default="F16", help="type of the changed weights; F16 by default")
    options = parser.parse_args()
    gguf_files.refuse_same(options.out, options.base, options.adapter)
    pairs, told = adapter.read(options.adapter)
    adapter.check_base(options.adapter, told, options.base)
    reader = gguf_files.reader(options.base)
    unknown = set(pairs) - {tensor.name for tensor in reader.tensors}
    if unknown:
        raise SystemExit(f"{options.base} has no tensor {sorted(unknown)[0]}")
    for tensor in reader.tensors:
        if tensor.name in pairs:
            _, a, b = pairs[tensor.name]
            of_base, of_adapter = tuple(int(size) for size in reversed(tensor.shape)), (b.shape[0], a.shape[1])
            if of_base != of_adapter:
                raise SystemExit(f"{options.adapter}: {tensor.name} is for weights of the shape {of_adapter}, {options.base} has {of_base}")
    stored = {"F16": numpy.float16, "F32": numpy.float32}[options.type]
    kind = gguf.GGMLQuantizationType[options.type]

    def merged():
        for tensor in reader.tensors:
            if tensor.name not in pairs:
                yield tensor.name, tensor.data, tensor.tensor_type
                continue
            scale, a, b = pairs[tensor.name]
            yield tensor.name, (gguf_files.weights(tensor) + scale * (b @ a)).astype(stored), kind

    name = f"{gguf_files.value_of(reader, 'general.name') or 'model'} with an adapter"
    # Where the file comes from, as the adapter has it.
    origin = {key: told[key] for key in (adapter.BASE_SHA256, adapter.RECIPE, adapter.TRAINED) if told[key] is not None}
    gguf_files.copy(reader, options.out, metadata={"general.name": name} | origin, tensors=merged())
    print(f"{options.out}: {len(pairs)} weights changed, sha256 {gguf_files.sha256(options.out)}")


if __name__ == "__main__":
    try:
        main()
    except (adapter.AdapterError, gguf_files.FileError, OSError) as error:
        sys.exit(str(error))
