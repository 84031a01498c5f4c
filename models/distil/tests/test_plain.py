"""Exports and measures: needs nothing but Python. `python3 -m unittest discover models/distil/tests -p test_plain.py`"""

import json
import math
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import exports
import measures

HEADER = {
    "rerankd_distil": 1, "kind": "orders", "template_version": "t", "max_passage_tokens": None,
    "opening_tokens": [1], "cue_tokens": [2],
}  # fmt: skip


def line(identifier, **more):
    passages = [{"id": "a", "label": 1.0, "tokens": [5, 6]}, {"id": "b", "label": 0.0, "tokens": [7]}]
    scores = {"query_tokens": [8, 9], "orders": [[0, 1], [1, 0]], "query_after_order": [-1.0, -2.0], "passages_in_order": [-30.0, -31.5]}
    alone = {"query_after_passage": [-3.0, -4.0], "query_alone": -5.0}
    return {"id": identifier, "data": "d" + identifier, "question": "Who?", "passages": passages, **scores, **alone, **more}


def written(values):
    before, text = "", ""
    for value in values:
        body = json.dumps(value, separators=(",", ":"))[:-1]
        before = exports.seal(before, body)
        text += f'{body},"sum":"{before}"}}\n'
    return text.encode()


class Exports(unittest.TestCase):
    def read(self, content):
        with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
            file.write(content)
            file.flush()
            try:
                return exports.read(file.name)
            except exports.ExportError as error:
                return str(error).removeprefix(file.name + ":")

    def test_an_export_is_read(self):
        refused = {"id": "r", "data": "d", "question": "?", "passages": [], "error": "too long"}
        export = self.read(written([HEADER, line("q"), refused]))
        self.assertEqual((export.opening, export.cue, export.refused), ([1], [2], 1))
        [question] = export.questions
        self.assertEqual((question.passages, question.labels), ([[5, 6], [7]], [1.0, 0.0]))
        self.assertEqual(question.order_scores("query"), [-1.0, -2.0])
        self.assertEqual(question.order_scores("joint"), [-31.0, -33.5])
        self.assertEqual(question.query_alone, -5.0)

    def test_damage_is_refused(self):
        good = written([HEADER, line("q"), line("r")])
        lines = good.splitlines(keepends=True)
        self.assertEqual(self.read(good[:-1]), "3: is incomplete; the export's own command continues it")
        self.assertEqual(self.read(good[:-20]), "3: is incomplete; the export's own command continues it")
        self.assertEqual(self.read(good.replace(b"-30.0", b"-31.0", 1)), "2: is damaged: its checksum is another one")
        self.assertEqual(self.read(lines[0] + lines[2]), "2: is damaged: its checksum is another one")
        self.assertEqual(self.read(b"{}\n"), "1: is not an export")
        self.assertEqual(self.read(good[:9]), "1: is incomplete; the export's own command continues it")
        self.assertEqual(self.read(written([HEADER | {"rerankd_distil": 2}])), "1: format 2, this program reads 1")

    def test_teacher_and_student_are_matched(self):
        def export(*questions, **header):
            return self.read(written([HEADER | header, *questions]))

        pairs = exports.pairs(export(line("q"), line("r")), export(line("r"), line("s")))
        self.assertEqual([(teacher.id, student.id) for teacher, student in pairs], [("r", "r")])
        for teacher, student, problem in [
            (export(line("q")), export(line("s")), "no question in common"),
            (export(line("q", data="other")), export(line("q")), "are not those of"),
            (export(line("q"), max_passage_tokens=9), export(line("q")), "max_passage_tokens: 9 in"),
        ]:
            with self.assertRaisesRegex(exports.ExportError, problem):
                exports.pairs(teacher, student)

    def test_questions_that_were_trained_on_are_not_held_out(self):
        export = self.read(written([HEADER, line("q"), line("r")]))
        pairs = [(None, question) for question in export.questions]
        trained = {exports.mark(pairs[0][1])}
        own = {"student_sha256": export.sha256}
        self.assertEqual([kept.id for _, kept in exports.held_out(export, pairs, own, trained)], ["r"])
        self.assertEqual(exports.held_out(export, pairs, {}, set()), pairs)
        with self.assertRaisesRegex(exports.ExportError, "1 questions were trained on, such as 'q'"):
            exports.held_out(export, pairs, {"student_sha256": "another"}, trained)
        with self.assertRaisesRegex(exports.ExportError, "all questions were trained on"):
            exports.held_out(export, pairs[:1], own, trained)
        # Other passages of the same question do not make it new.
        other = self.read(written([HEADER, line("q", data="other", passages=[])]))
        self.assertEqual({exports.mark(question) for question in other.questions}, trained)

    def test_cut_passages_of_either_side_are_counted(self):
        whole = self.read(written([HEADER, line("q")])).questions[0]
        cut = [{"id": "a", "label": 1.0, "tokens": [5], "tokens_cut": 3}, {"id": "b", "label": 0.0, "tokens": [7], "tokens_cut": 0}]
        short = self.read(written([HEADER, line("q", passages=cut)])).questions[0]
        self.assertEqual(exports.cut([(whole, whole), (None, whole), (short, whole), (whole, short), (None, short)]), 3)

    def test_an_export_of_another_generator_or_with_an_adapter_is_refused(self):
        for adapter, sha256, problem in [(None, "00", "is of generator ff, m.gguf is 00"), (["aa", 1.0], "ff", "with an adapter")]:
            export = self.read(written([HEADER | {"generator_sha256": "ff", "adapter": adapter}, line("q")]))
            with self.assertRaisesRegex(exports.ExportError, problem):
                export.refuse_other_generator("m.gguf", sha256)

    def test_parts_are_shares_and_stay(self):
        numbers = [exports.part_of(f"q{index}", 0) for index in range(2000)]
        self.assertTrue(all(0 <= number < 1 for number in numbers))
        self.assertAlmostEqual(sum(number < 0.2 for number in numbers) / 2000, 0.2, delta=0.03)
        self.assertNotEqual(exports.part_of("q", 0), exports.part_of("q", 1))


class Measures(unittest.TestCase):
    def test_two_orders(self):
        """Scores of -3000 and -3002."""
        teacher = measures.softmax([-3000.0, -3002.0], 1.0)
        self.assertAlmostEqual(teacher[0], 0.881, places=3)
        # At the temperature of their standard deviation, 1, these are the same; far apart they would be one-hot.
        self.assertEqual(measures.standard_deviation([-3000.0, -3002.0]), 1.0)
        self.assertGreater(measures.softmax([0.0, -60.0], 30.0)[1], 0.1)

    def test_tau(self):
        self.assertEqual(measures.kendall_tau([1, 2, 3], [4, 5, 6]), 1.0)
        self.assertEqual(measures.kendall_tau([1, 2, 3], [6, 5, 4]), -1.0)
        self.assertAlmostEqual(measures.kendall_tau([1, 2, 3], [1, 3, 2]), 1 / 3)
        # One tie on the left: two of three pairs agree, of sqrt(2 * 3).
        self.assertAlmostEqual(measures.kendall_tau([1, 1, 2], [1, 2, 3]), 2 / math.sqrt(6))
        self.assertIsNone(measures.kendall_tau([1, 1], [1, 2]))

    def test_ndcg(self):
        self.assertAlmostEqual(measures.ndcg([3, 2, 1], [0, 1, 0]), 1 / math.log2(3))
        self.assertEqual(measures.ndcg([1, 2, 3], [0, 1, 2]), 1.0)
        self.assertAlmostEqual(measures.ndcg([3, 2, 1], [0, 1, 2]), (1 / math.log2(3) + 1) / (2 + 1 / math.log2(3)))
        self.assertEqual(measures.ndcg([2, 1], [0, 1], cutoff=1), 0.0)
        self.assertIsNone(measures.ndcg([2, 1], [0, 0]))

    def test_summaries(self):
        self.assertEqual(measures.summary([1.0, None, 3.0]), {"mean": 2.0, "standard_error": 1.0, "questions": 2})
        self.assertEqual(measures.difference([1.0, None, 2.0], [2.0, 5.0, 2.0])["mean"], 0.5)
        self.assertEqual(measures.summary([None]), {"questions": 0})
        self.assertEqual(measures.summary([0.5]), {"mean": 0.5, "standard_error": None, "questions": 1})


if __name__ == "__main__":
    unittest.main()
