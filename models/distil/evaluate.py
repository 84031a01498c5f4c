#!/usr/bin/env python3
"""Compares a small generator without and with an adapter against a teacher's export: Kendall's tau and nDCG, with errors.

    evaluate.py --base SMALL.gguf --adapter adapter.gguf --student student.jsonl [--teacher teacher.jsonl]

The exports are of questions that the adapter was not trained on, such as those of another `--skip`. Prints JSON. Needs
requirements.txt.
"""

import argparse
import json
import os
import sys

import adapter
import exports
import judge
import network


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", required=True, metavar="GGUF")
    parser.add_argument("--adapter", required=True, metavar="GGUF")
    parser.add_argument("--student", required=True, metavar="FILE", help="export of the small generator, for its tokens")
    parser.add_argument("--teacher", metavar="FILE", help="export of the large generator; without it only nDCG is measured")
    parser.add_argument("--part", choices=["query", "joint"], default="query")
    parser.add_argument("--questions", type=int, help="use only so many")
    parser.add_argument("--orders", type=int, help="use only so many orders of a question")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    student = exports.read(options.student)
    if options.teacher:
        pairs = exports.pairs(exports.read(options.teacher), student)
    else:
        pairs = [(None, question) for question in student.questions]
    pairs = pairs[: options.questions]
    model = network.load(options.base, options.threads)
    limits = {"part": options.part, "most_orders": options.orders}
    before = judge.judge(model, student, pairs, **limits)
    network.merge(model, options.adapter, options.base)
    after = judge.judge(model, student, pairs, **limits)
    print(json.dumps(judge.report(before, after), indent=1))


if __name__ == "__main__":
    try:
        main()
    except (exports.ExportError, adapter.AdapterError) as error:
        sys.exit(str(error))
