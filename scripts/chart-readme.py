#!/usr/bin/env python3
"""Writes helm/rerankd/README.md from README.in.md and the comments of values.yaml. With --check it only compares.

Needs PyYAML. A comment block that begins with `# -- ` describes the key on the line after it. Every key without keys below it
needs such a description, or one on a key above it.
"""

import json
import pathlib
import re
import sys

import yaml

CHART = pathlib.Path(__file__).resolve().parent.parent / "helm" / "rerankd"
MARK = "<!-- values -->"


def descriptions(text):
    """Maps the dotted path of a key to its comment."""
    found, path, comment = {}, [], None
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# -- "):
            comment = stripped.removeprefix("# -- ")
        elif stripped.startswith("# ") and comment is not None:
            comment += " " + stripped.removeprefix("# ")
        elif match := re.match(r"( *)([\w.-]+):", line):
            depth = len(match[1]) // 2
            path = [*path[:depth], match[2]]
            if comment is not None:
                found[".".join(path)] = comment
            comment = None
        else:
            comment = None
    return found


def rows(value, path, described):
    """Table rows of the value at a path: one if it is described, otherwise those of its keys."""
    name = ".".join(path)
    below = isinstance(value, dict) and any(key.startswith(f"{name}.") for key in described)
    out = []
    if name in described:
        shown = "see below" if below else f"`{json.dumps(value, ensure_ascii=False)}`"
        out.append(f"| `{name}` | {shown} | {described[name]} |")
    if isinstance(value, dict) and (below or not path):
        for key, item in value.items():
            out.extend(rows(item, [*path, key], described))
    elif name not in described:
        sys.exit(f"values.yaml: {name} has no description")
    return out


def main():
    text = (CHART / "values.yaml").read_text()
    table = ["| value | default | meaning |", "|---|---|---|", *rows(yaml.safe_load(text), [], descriptions(text))]
    note = "<!-- Written by scripts/chart-readme.py from README.in.md and values.yaml. -->\n\n"
    page = note + (CHART / "README.in.md").read_text().replace(MARK, "\n".join(table))
    target = CHART / "README.md"
    if "--check" not in sys.argv[1:]:
        target.write_text(page)
    elif not target.is_file() or target.read_text() != page:
        sys.exit("helm/rerankd/README.md is not up to date: run scripts/chart-readme.py")


main()
