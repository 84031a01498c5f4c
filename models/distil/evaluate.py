#!/usr/bin/env python3
"""Compares a small generator without and with an adapter against a teacher's export: Kendall's tau and nDCG, with errors.

    evaluate.py --base SMALL.gguf --adapter adapter.gguf --student student.jsonl [--teacher teacher.jsonl]

Questions that the adapter was trained on are left out where the export is that of the training; another export that has some of them is
refused. Prints JSON. Needs requirements.txt.
"""

import argparse
import json
import os
import sys

import adapter
import exports
import gguf_files
import judge
import network


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--base", required=True, metavar="GGUF")
    parser.add_argument("--adapter", required=True, metavar="GGUF")
    parser.add_argument("--student", required=True, metavar="FILE", help="export of the small generator, for its tokens")
    parser.add_argument("--teacher", metavar="FILE", help="export of the large generator; without it only nDCG is measured")
    parser.add_argument("--part", choices=["query", "joint"], default="query")
    parser.add_argument("--questions", type=int, help="use only so many")
    parser.add_argument("--orders", type=int, help="use only so many orders of a question")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", default="cpu", help="of torch, such as cuda")
    network.add_check_options(parser)
    options = parser.parse_args()
    for name in ("questions", "orders", "threads", "check_questions", "tokens_at_once"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: must be at least 1")
    student = exports.read(options.student)
    student.refuse_other_generator(options.base, gguf_files.sha256(options.base))
    if options.teacher:
        pairs = exports.pairs(exports.read(options.teacher), student)
    else:
        pairs = [(None, question) for question in student.questions]
    _, told = adapter.read(options.adapter)
    if told[adapter.TRAINED] is None:
        print(f"{options.adapter}: does not say which questions it was trained on; none is left out", file=sys.stderr)
    recipe, trained = json.loads(told[adapter.RECIPE] or "{}"), set((told[adapter.TRAINED] or "").split())
    pairs = exports.held_out(student, pairs, recipe, trained)[: options.questions]
    model = network.load(options.base, options.threads, options.device)
    checked = [own for _, own in pairs][: options.check_questions]
    agreement = network.check(model, student, checked, options.mean_limit, options.most_limit, options.tokens_at_once)
    limits = {"part": options.part, "most_orders": options.orders, "tokens": options.tokens_at_once}
    before = judge.judge(model, student, pairs, **limits)
    network.merge(model, options.adapter, options.base)
    after = judge.judge(model, student, pairs, **limits)
    counts = {"agreement": agreement, "questions": len(pairs), "cut": exports.cut(pairs)}
    print(json.dumps(counts | judge.report(before, after), indent=1))


if __name__ == "__main__":
    try:
        main()
    except (exports.ExportError, adapter.AdapterError, gguf_files.FileError, *network.ERRORS, OSError) as error:
        sys.exit(str(error))
