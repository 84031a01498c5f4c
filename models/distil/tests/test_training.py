"""Distillation of a tiny random model into another, end to end, with the release binary. `make test-distil`

Models, lists and exports are those of tiny.py.
"""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import unittest
from unittest import mock

# First: it tells where the modules are.
from tiny import HERE, Tiny

import adapter
import exports
import gguf
import gguf_files
import network
import numpy
import torch
import train


class Distillation(Tiny):
    def test_rows_are_reordered_head_by_head(self):
        rows = numpy.arange(8.0).reshape(8, 1)
        self.assertEqual(adapter.to_gguf_rows(rows, 2).ravel().tolist(), [0, 2, 1, 3, 4, 6, 5, 7])
        random = numpy.random.default_rng(0).standard_normal((24, 5))
        for heads in (1, 2, 3):
            self.assertTrue((adapter.to_torch_rows(adapter.to_gguf_rows(random, heads), heads) == random).all())
        # transformers reorders the rows of the whole matrix when it reads the file: the two must be the same order.
        reader = gguf.GGUFReader(self.path("student.gguf"))
        stored = {tensor.name: gguf_files.weights(tensor) for tensor in reader.tensors}
        model = network.load(self.path("student.gguf"), 2)
        for name, layer, heads in (("attn_q", "q_proj", 4), ("attn_k", "k_proj", 2), ("attn_v", "v_proj", None)):
            own = model.get_submodule(f"model.layers.1.self_attn.{layer}").weight.detach().numpy()
            rows = stored[f"blk.1.{name}.weight"]
            self.assertTrue(numpy.array_equal(own, adapter.to_torch_rows(rows, heads) if heads else rows), name)

    def test_preference_training_is_served_by_the_merged_file(self):
        log = self.taught("orders", "--epochs", "6", "--part", "joint", "--dropout", "0")
        losses = [line["loss"] for line in log if line.get("epoch")]
        self.assertLess(losses[-1], 0.7 * losses[0], losses)
        with open(os.path.join(self.path("orders"), "report.json")) as file:
            report = json.load(file)
        self.assertLess(report["agreement"]["most"], 0.02)
        self.assertEqual(report["recipe"]["base_sha256"], gguf_files.sha256(self.path("student.gguf")))
        made = os.path.join(self.path("orders"), "adapter.gguf")
        pairs, told = adapter.read(made)
        self.assertEqual((len(pairs), told["general.architecture"], told[adapter.SEED]), (4 * 7, "llama", 0))
        self.assertEqual({name: value for name, value in json.loads(told[adapter.RECIPE]).items() if name == "rank"}, {"rank": 8})
        # rerankd's scores of the merged file are those of torch with the adapter, and not those of the base.
        merge = [sys.executable, str(HERE / "merge.py"), "--base", self.path("student.gguf"), "--adapter", made]
        subprocess.run([*merge, "--out", self.path("merged.gguf"), "--type", "F32"], check=True, stdout=subprocess.DEVNULL)
        merged = self.export("merged", "orders", "merged.gguf")
        model = network.merge(network.load(self.path("student.gguf"), 2), made, self.path("student.gguf"))
        found = network.check(model, merged, merged.questions, 0.005, 0.02)
        self.assertEqual(found["scores"], 16 * (4 + 1 + 2 * 4))
        # The bound on memory holds for the check, too.
        with mock.patch.object(network, "log_probabilities", wraps=network.log_probabilities) as asked:
            self.assertEqual(network.check(model, merged, merged.questions, 0.005, 0.02, 64)["scores"], found["scores"])
        self.assertTrue(all(call.args[2] == 64 for call in asked.call_args_list))
        # So are those of the base that rerankd serves with the adapter beside it.
        served = self.export("served", "orders", "student.gguf", "--set", f"generator.adapter={made}")
        self.assertEqual(network.check(model, served, served.questions, 0.005, 0.02)["scores"], 16 * (4 + 1 + 2 * 4))
        self.assertEqual(served.header["generator_sha256"], gguf_files.sha256(self.path("student.gguf")))
        merged_file = gguf.GGUFReader(self.path("merged.gguf"))
        for key in (adapter.BASE_SHA256, adapter.RECIPE):
            self.assertEqual(gguf_files.value_of(merged_file, key), told[key])
        self.assertTrue(torch.__version__.startswith(json.loads(told[adapter.RECIPE])["versions"]["torch"]))
        self.evaluates(made, report["questions"])
        for out in ("student.gguf", "orders/adapter.gguf"):
            before = gguf_files.sha256(self.path(out))
            result = subprocess.run([*merge, "--out", self.path(out)], check=False, capture_output=True, text=True)
            self.assertIn("itself, which would be lost", result.stderr)
            self.assertEqual((result.returncode, gguf_files.sha256(self.path(out))), (1, before))
        with self.assertRaises(network.Disagreement):
            network.check(network.load(self.path("student.gguf"), 2), merged, merged.questions, 0.005, 0.02)
        with self.assertRaisesRegex(adapter.AdapterError, "was trained on"):
            network.merge(network.load(self.path("merged.gguf"), 2), made, self.path("merged.gguf"))
        # Both files hold the same numbers: transformers reads the merged one as torch merged it.
        read = network.load(self.path("merged.gguf"), 2)
        for own, other in zip(model.parameters(), read.parameters(), strict=True):
            self.assertTrue(torch.allclose(own, other, atol=1e-6))

    def evaluates(self, made, counts):
        """Questions of the training are left out of its own export, and refused in another."""

        def evaluated(name, base="student.gguf"):
            program = [sys.executable, str(HERE / "evaluate.py"), "--base", self.path(base), "--adapter", made, "--threads", "2"]
            files = ["--student", self.path(f"{name}.jsonl"), "--teacher", self.path("teacher.jsonl")]
            return subprocess.run([*program, *files], check=False, capture_output=True, text=True)

        found = json.loads(evaluated("student").stdout)
        self.assertEqual((found["questions"], found["cut"]), (counts["test"], 0))
        self.assertLess(counts["test"], 16)
        self.export("other", "passages", "student.gguf")
        self.assertIn(f"{16 - counts['test']} questions were trained on", evaluated("other").stderr)
        self.assertIn("student.jsonl: is of generator", evaluated("student", "teacher.gguf").stderr)

    def test_a_training_that_was_broken_off_ends_as_one_that_was_not(self):
        options = ["--on", "passages", "--epochs", "2", "--checkpoint-steps", "1"]
        whole = self.taught("whole", *options)
        # Ended after a step, in the middle of an epoch.
        first = self.taught("parts", *options, "--minutes", "1e-9")
        self.assertEqual([line["step"] for line in first if line.get("epoch")], [1])
        # The time is over: the same command makes no step, and the same adapter.
        ended = gguf_files.sha256(os.path.join(self.path("parts"), "adapter.gguf"))
        again = self.taught("parts", *options, "--minutes", "1e-9")
        self.assertEqual({line["step"] for line in again if line.get("epoch")}, {1})
        self.assertEqual(gguf_files.sha256(os.path.join(self.path("parts"), "adapter.gguf")), ended)
        second = self.taught("parts", *options)
        self.assertIn({"resumed": 1}, second)
        # The loss of an epoch is over all of its steps, also over those before it was broken off.
        losses = [{line["epoch"]: line["loss"] for line in log if line.get("epoch")} for log in (whole, second)]
        self.assertEqual(losses[0], losses[1])
        read = [adapter.read(os.path.join(self.path(out), "adapter.gguf"))[0] for out in ("whole", "parts")]
        for name, (_, a, b) in read[0].items():
            self.assertTrue(numpy.array_equal(a, read[1][name][1]) and numpy.array_equal(b, read[1][name][2]), name)
        other = self.train("parts", "--teacher", self.path("teacher.jsonl"), *options, "--rank", "4", check=False)
        self.assertIn("was made with other settings: rank (stored 8, now 4)", other.stderr)

    def test_labels_teach_without_a_teacher(self):
        self.export("tokens", "tokens", "student.gguf")
        without = ["--objective", "contrastive", "--student", self.path("tokens.jsonl")]
        unchecked = self.train("unchecked", *without, "--epochs", "1")
        self.assertIn("is not checked", unchecked.stderr)
        self.assertIn('{"agrees_with_rerankd": null}', unchecked.stdout)
        checked = ["--check", self.path("student.jsonl"), "--epochs", "6", "--dropout", "0", "--validation", "0"]
        result = self.train("labels", *without, *checked)
        epochs = [json.loads(line) for line in result.stdout.splitlines() if '"epoch"' in line]
        self.assertLess(epochs[-1]["loss"], epochs[0]["loss"])

    def test_another_base_is_refused(self):
        teacher = ["--teacher", self.path("teacher.jsonl")]
        other = self.train("refused", *teacher, base="teacher.gguf", check=False)
        self.assertIn("student.jsonl: is of generator", other.stderr)
        strict = self.train("refused", *teacher, "--mean-limit", "0", "--most-limit", "0", check=False)
        self.assertIn("allowed are 0.0 and 0.0", strict.stderr)
        self.assertFalse(os.path.exists(os.path.join(self.path("refused"), "adapter.gguf")))

    def test_scores_that_are_no_numbers_are_refused(self):
        export = exports.read(self.path("student.jsonl"))
        model = network.load(self.path("student.gguf"), 2)
        with torch.no_grad():
            model.lm_head.weight[0] = float("nan")
        with self.assertRaisesRegex(network.Disagreement, "nan nats a token"):
            network.check(model, export, export.questions[:1], 0.05, 0.25)
        teacher = ["--teacher", self.path("teacher.jsonl"), "--on", "passages"]
        huge = self.train("huge", *teacher, "--rate", "1e30", check=False)
        self.assertRegex(huge.stderr, r"question 'q\d+': the loss is (nan|inf)")

    def test_differences_of_both_signs_do_not_cancel(self):
        export = exports.read(self.path("student.jsonl"))
        own = network.scored

        def apart(model, sequences, tokens):
            query, passages = own(model, sequences, tokens)
            signs = [0.1 if index % 2 else -0.1 for index in range(len(sequences))]
            return [score + sign * len(one.query) for score, sign, one in zip(query, signs, sequences)], passages

        with mock.patch.object(network, "scored", apart):
            # Nine scores of the query are .1 away, up and down in turn; four of passages are not.
            with self.assertRaisesRegex(network.Disagreement, r"13 scores differ by 0\.069. nats a token in the mean, 0\.100"):
                network.check(network.load(self.path("student.gguf"), 2), export, export.questions[:1], 0.05, 0.25)

    def test_parts_of_a_question_give_the_gradient_of_the_whole(self):
        self.assertEqual(network.batches_of([3, 9, 4, 4], 8), [[1], [2, 3], [0]])
        export = exports.read(self.path("student.jsonl"))
        model = network.load(self.path("student.gguf"), 2)
        question = export.questions[0]
        sequences = [network.prompt(export, question, order, with_passages=True) for order in question.orders]
        sequences += [network.prompt(export, question, [index]) for index in range(4)]
        found = []
        for tokens in (1 << 20, 1):
            model.zero_grad()
            query, passages = network.log_probabilities(model, sequences, tokens)
            # The weights tell the sequences apart.
            (torch.arange(1.0, len(sequences) + 1) @ torch.log_softmax((query + passages) / 9, 0)).backward()
            found.append([query.detach(), passages.detach(), *(weight.grad.clone() for weight in model.parameters())])
        for whole, parts in zip(*found, strict=True):
            self.assertTrue(torch.allclose(whole, parts, rtol=1e-3, atol=1e-4 * whole.abs().max().item()))

    def test_parts_that_are_evaluated_again_have_the_same_dropout(self):
        export = exports.read(self.path("student.jsonl"))
        model = network.load(self.path("student.gguf"), 2)
        wrapped = network.with_lora(model, 4, 8.0, 0.5, ["q_proj", "down_proj"])
        weights = [weight for weight in wrapped.parameters() if weight.requires_grad]
        sequences = [network.prompt(export, export.questions[0], [index]) for index in range(4)]

        def gradient():
            torch.manual_seed(5)
            model.train()
            query, _ = network.log_probabilities(model, sequences, 1)
            return torch.autograd.grad(torch.log_softmax(query, 0)[0], weights)

        again = gradient()
        with mock.patch.object(network, "checkpoint", lambda function, *given, use_reentrant: function(*given)):
            kept = gradient()
        self.assertTrue(all(torch.equal(left, right) for left, right in zip(again, kept, strict=True)))
        self.assertTrue(any(part.abs().max() > 0 for part in again))

    def test_bad_options_are_refused(self):
        files = ["--base", "b", "--student", "s", "--teacher", "t", "--out", "o"]
        for option, *values in [
            ("--temperature", "abc", "0", "nan"), ("--checkpoint-steps", "0"), ("--check-questions", "0"), ("--alpha", "0", "nan"),
            ("--validation", "-0.1", "nan"), ("--test", "-1", "1"), ("--seed", "-1", str(2**63)), ("--targets", "lm_head"),
            ("--minutes", "0"), ("--rate", "-1", "nan"), ("--dropout", "1"), ("--test-orders", "0"), ("--tokens-at-once", "0"),
        ]:  # fmt: skip
            for value in values:
                said = io.StringIO()
                with mock.patch.object(sys, "argv", ["train.py", *files, f"{option}={value}"]), contextlib.redirect_stderr(said):
                    with self.assertRaises(SystemExit, msg=f"{option} {value}"):
                        train.arguments()
                self.assertIn(option, said.getvalue().splitlines()[-1])
        with mock.patch.object(sys, "argv", ["train.py", *files, "--seed", str(2**63 - 1), "--temperature", "2.5"]):
            train.arguments()

    def test_missing_and_wrong_files_are_named(self):
        absent = self.train("absent", "--teacher", self.path("absent.jsonl"), check=False)
        self.assertRegex(absent.stderr, r"\[Errno 2\].*absent\.jsonl'\n$")
        self.assertNotIn("Traceback", absent.stderr)
        prune = [sys.executable, str(HERE / "prune_layers.py")]
        os.mkfifo(self.path("pipe"))
        for drop, base, out, problem in [
            ("a", "student.gguf", "short.gguf", "--drop: a: must be layers such as"),
            ("0-99999999999", "student.gguf", "short.gguf", "the model has layers 0 to 3"),
            ("1", "lists.jsonl", "short.gguf", "lists.jsonl: is no whole GGUF file"),
            ("1", "student.gguf", "student.gguf", "itself, which would be lost"),
            ("1", "student.gguf", "pipe", "pipe: is no regular file"),
        ]:
            result = subprocess.run([*prune, "--drop", drop, self.path(base), self.path(out)], check=False, capture_output=True, text=True)
            self.assertIn(problem, result.stderr)
            self.assertEqual((result.returncode, "Traceback" in result.stderr), (1, False))

    def test_a_training_that_teaches_nothing_is_refused(self):
        """The adapter was written untrained, with success, and a teacher of tokens ended in a traceback."""
        teacher = ["--teacher", self.path("teacher.jsonl")]
        tokens = self.export("some-tokens", "tokens", "teacher.gguf", "--limit", "4").path
        for more, problem in [
            ([*teacher, "--orders-per-step", "1"], "no question teaches anything"),
            (["--teacher", tokens, "--on", "passages"], "has no scores of passages"),
        ]:
            result = self.train("idle", *more, check=False)
            self.assertIn(problem, result.stderr)
            self.assertEqual((result.returncode, "Traceback" in result.stderr), (1, False))

    def test_weights_of_16_bits_take_an_adapter_of_32(self):
        model = network.load(self.path("student.gguf"), 2, dtype="bfloat16")
        wrapped = network.with_lora(model, 4, 8.0, 0.0, ["q_proj"])
        export = exports.read(self.path("student.jsonl"))
        query, _ = network.log_probabilities(model, [network.prompt(export, export.questions[0], [0])])
        query.sum().backward()
        learnt = {weight.dtype for weight in wrapped.parameters() if weight.requires_grad}
        self.assertEqual((learnt, query.dtype, model.lm_head.weight.dtype), ({torch.float32}, torch.float32, torch.bfloat16))
        with self.assertRaisesRegex(network.LoadError, "--device nowhere: "):
            network.load(self.path("student.gguf"), 2, device="nowhere")

    def test_an_adapter_of_16_bit_tensors_is_read(self):
        """Tensors of BF16 were read as twice as many numbers."""
        values = {"blk.0.attn_q.weight.lora_a": numpy.full((2, 8), 0.5), "blk.0.attn_q.weight.lora_b": numpy.full((4, 2), -3.0)}
        writer = gguf.GGUFWriter(self.path("bf16.gguf"), "llama")
        writer.add_type(gguf.GGUFType.ADAPTER)
        writer.add_string(gguf.Keys.Adapter.TYPE, "lora")
        writer.add_float32(gguf.Keys.Adapter.LORA_ALPHA, 4.0)
        kind = gguf.GGMLQuantizationType.BF16
        for name, value in values.items():
            writer.add_tensor(name, gguf.quants.quantize(value.astype(numpy.float32), kind), raw_dtype=kind)
        gguf_files.write(writer, self.path("bf16.gguf"))
        pairs, _ = adapter.read(self.path("bf16.gguf"))
        scale, a, b = pairs["blk.0.attn_q.weight"]
        self.assertEqual((scale, a.shape, b.shape), (2.0, (2, 8), (4, 2)))
        self.assertTrue((b @ a == -3.0).all())

    def test_a_file_keeps_its_own_alignment(self):
        """The key was copied, and the tensors lay where another alignment puts them."""
        writer = gguf.GGUFWriter(self.path("aligned.gguf"), "llama")
        writer.add_custom_alignment(64)
        values = {name: numpy.full((3, 8), number, dtype=numpy.float32) for number, name in enumerate("abc")}
        for name, value in values.items():
            writer.add_tensor(name, value)
        gguf_files.write(writer, self.path("aligned.gguf"))
        reader = gguf_files.reader(self.path("aligned.gguf"))
        tensors = [(tensor.name, tensor.data, tensor.tensor_type) for tensor in reader.tensors]
        gguf_files.copy(reader, self.path("copied.gguf"), metadata={}, tensors=tensors)
        copied = gguf.GGUFReader(self.path("copied.gguf"))
        self.assertEqual(copied.alignment, 64)
        for tensor in copied.tensors:
            self.assertTrue((tensor.data == values[tensor.name]).all(), tensor.name)

    def test_a_configuration_beside_the_base_is_nothing_to_the_adapter(self):
        """Where its vocabulary has another size, peft counted the embeddings to the adapter, and no adapter was written."""
        folder = pathlib.Path(self.path("beside"))
        folder.mkdir()
        base = folder / "student.gguf"
        base.write_bytes(pathlib.Path(self.path("student.gguf")).read_bytes())
        (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 7}))
        wrapped = network.with_lora(network.load(str(base), 2), 4, 8.0, 0.0, ["q_proj"])
        names = network.lora_state(wrapped)
        self.assertTrue(names and all("lora_" in name for name in names), list(names))

    def test_layers_are_dropped(self):
        program = [sys.executable, str(HERE / "prune_layers.py"), "--drop", "1-2", self.path("student.gguf"), self.path("short.gguf")]
        subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
        whole, short = (gguf.GGUFReader(self.path(f"{name}.gguf")) for name in ("student", "short"))
        self.assertEqual(gguf_files.value_of(short, "llama.block_count"), 2)
        stored = {tensor.name: tensor.data for tensor in short.tensors}
        for tensor in whole.tensors:
            name = tensor.name.replace("blk.3.", "blk.1.") if tensor.name.startswith("blk.3.") else tensor.name
            if not tensor.name.startswith(("blk.1.", "blk.2.")):
                self.assertTrue(numpy.array_equal(stored[name], tensor.data), name)
        self.export("short", "passages", "short.gguf")


if __name__ == "__main__":
    unittest.main()
