"""Tiny random models, lists and their exports, made with the release binary, for the tests that need them.

The environment variable RERANKD names the binary. Nothing is fetched.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parents[1]
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
import exports

WORDS = "mill river lamp bread stone field clock wool bridge fog bell road fair salt tin apple".split()


def sentence(number):
    return " ".join(WORDS[(number * step + step) % len(WORDS)] for step in range(3, 9))


def lists(path, count):
    with open(path, "w") as file:
        for number in range(count):
            passages = [
                {"id": f"p{at}", "text": sentence(4 * number + at).capitalize() + ".", "label": int(at == number % 4)} for at in range(4)
            ]
            question = f"What of the {WORDS[number % len(WORDS)]}?"
            file.write(json.dumps({"id": f"q{number}", "question": question, "passages": passages}) + "\n")


class Tiny(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.binary = os.environ["RERANKD"]
        lists(cls.path("lists.jsonl"), 16)
        for name, seed in (("teacher", 2), ("student", 1)):
            program = [sys.executable, str(ROOT / "scripts/random-gguf.py"), "tiny", cls.path(f"{name}.gguf"), "--type", "F32"]
            subprocess.run([*program, "--seed", str(seed)], check=True)
            cls.export(name, "orders", f"{name}.gguf")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder.name, name)

    @classmethod
    def export(cls, name, kind, model, *more):
        program = [cls.binary, "distil", "export", cls.path("lists.jsonl"), "--out", cls.path(f"{name}.jsonl"), "--kind", kind]
        settings = ["--permutations", "6", "--set", f"generator.model={cls.path(model)}", "--set", "generator.reencode_megabytes=off"]
        subprocess.run([*program, *settings, *more], check=True, stdout=subprocess.DEVNULL)
        return exports.read(cls.path(f"{name}.jsonl"))

    @classmethod
    def train(cls, out, *more, base="student.gguf", check=True):
        program = [sys.executable, str(HERE / "train.py"), "--base", cls.path(base), "--student", cls.path("student.jsonl")]
        options = ["--out", cls.path(out), "--rate", "1e-3", "--warm-up", "1", "--threads", "2", "--patience", "9", *more]
        result = subprocess.run([*program, *options], check=False, capture_output=True, text=True)
        if check and result.returncode != 0:
            raise AssertionError(result.stderr)
        return result

    @classmethod
    def taught(cls, out, *more):
        cls.train(out, "--teacher", cls.path("teacher.jsonl"), *more)
        with open(os.path.join(cls.path(out), "log.jsonl")) as log:
            return [json.loads(line) for line in log]
