#!/usr/bin/env python3
"""Writes a copy of a GGUF model without some of its layers: a smaller and faster model that has forgotten a part.

    prune_layers.py --drop 20-25 BASE.gguf OUT.gguf

Distillation (train.py) teaches it to rank again as the whole model does. Needs the packages gguf and numpy.
"""

import argparse
import re
import sys

import gguf_files


def dropped(text, layers):
    """The layers of a text such as `3,20-25`."""
    chosen = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip(), re.ASCII)
        if not match:
            raise SystemExit(f"--drop: {text}: must be layers such as 3,7,20-25")
        first, last = int(match[1]), int(match[2] or match[1])
        # Before the set is made: its size must not follow from a mistyped number.
        if first > last or last >= layers:
            raise SystemExit(f"--drop: {text}: the model has layers 0 to {layers - 1}")
        chosen.update(range(first, last + 1))
    if len(chosen) >= layers:
        raise SystemExit(f"--drop: {text}: the model has layers 0 to {layers - 1}, and one at least must stay")
    return chosen


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", metavar="BASE")
    parser.add_argument("out", metavar="OUT")
    parser.add_argument("--drop", required=True, metavar="LAYERS", help="such as 20-25 or 3,7,20-25; the first layer is 0")
    options = parser.parse_args()
    gguf_files.refuse_same(options.out, options.base)
    reader = gguf_files.reader(options.base)
    count = f"{gguf_files.architecture_of(reader)}.block_count"
    layers = gguf_files.value_of(reader, count)
    for field in reader.fields.values():
        if isinstance(field.contents(), list) and len(field.contents()) == layers:
            raise SystemExit(f"{options.base}: {field.name} has a value for each layer, which this script does not know")
    drop = dropped(options.drop, layers)
    kept = [layer for layer in range(layers) if layer not in drop]
    number = {old: new for new, old in enumerate(kept)}

    def renamed():
        for tensor in reader.tensors:
            match = re.match(r"blk\.(\d+)\.(.+)$", tensor.name)
            if not match:
                yield tensor.name, tensor.data, tensor.tensor_type
            elif int(match[1]) in number:
                yield f"blk.{number[int(match[1])]}.{match[2]}", tensor.data, tensor.tensor_type

    name = f"{gguf_files.value_of(reader, 'general.name') or 'model'} without layers {options.drop}"
    metadata = {count: len(kept), "general.name": name}
    gguf_files.copy(reader, options.out, metadata=metadata, tensors=renamed())
    print(f"{options.out}: {len(kept)} of {layers} layers, sha256 {gguf_files.sha256(options.out)}")


if __name__ == "__main__":
    try:
        main()
    except (gguf_files.FileError, OSError) as error:
        sys.exit(str(error))
