"""What the questions of a training step teach, and that they may be evaluated together."""

import unittest
from unittest import mock

# First: it tells where the modules are.
from tiny import Tiny

import exercises
import exports
import judge
import network
import numpy
import torch


class Exercises(Tiny):
    def test_questions_that_are_evaluated_together_give_the_step_of_one_after_the_other(self):
        """A GPU waited for each question of a step."""
        export = exports.read(self.path("student.jsonl"))
        model = network.load(self.path("student.gguf"), 2)
        # With a term that needs prompts beside those of the objective: two relevant passages, of which one is drawn.
        options = mock.Mock(objective="contrastive", temperature="9", negatives=1, query_nll=0.5)
        data = mock.Mock(student=export)
        data.relevant.return_value = [1, 2]
        draw = mock.Mock()
        draw.choice.side_effect = lambda relevant: relevant[0]
        with mock.patch.object(exercises.questions, "teaches", side_effect=lambda _, __, pair: pair[1] is not export.questions[1]):
            asked = exercises.of(data, options, [(None, question) for question in export.questions[:4]], draw)
        self.assertEqual([len(exercise.sequences) for exercise in asked], [4, 4, 4])
        longest = max(len(sequence.ids) for exercise in asked for sequence in exercise.sequences)
        found = []
        for tokens, groups in ((1 << 20, [3]), (8 * longest, [2, 1]), (1, [1, 1, 1])):
            model.zero_grad()
            sizes, losses = [], []
            for group in exercises.losses(model, asked, tokens):
                sum(group).backward()
                sizes.append(len(group))
                losses += [loss.detach() for loss in group]
            self.assertEqual(sizes, groups)
            found.append([torch.stack(losses), *(weight.grad.clone() for weight in model.parameters())])
        for parts in found[1:]:
            for whole, part in zip(found[0], parts, strict=True):
                self.assertTrue(torch.allclose(whole, part, rtol=1e-3, atol=1e-4 * whole.abs().max().item()))
        # By hand: the contrast of two scores, and the mean likelihood of both relevant passages, a token of the query.
        question = export.questions[0]
        orders = [[1], [max((0, 3), key=lambda index: question.query_after_passage[index])], [1], [2]]
        scores = network.log_probabilities(model, [network.prompt(export, question, order) for order in orders])[0]
        likelihood = (scores[2] + scores[3]) / 2 / len(question.query)
        expected = -torch.log_softmax(scores[:2] / 9, 0)[0] - 0.5 * likelihood
        self.assertAlmostEqual(found[0][0][0].item(), expected.item(), places=4)

    def test_the_deviation_is_of_all_orders(self):
        """Two scores are one deviation from their mean, whatever they are."""
        scores, draw = [0.0, -4.0, -8.0, -60.0], mock.Mock()
        draw.sample.return_value = [0, 1]
        options = mock.Mock(objective="preference", part="query", temperature="sd", orders_per_step=2, query_nll=0)
        teacher = mock.Mock(orders=[[0], [1], [2], [3]])
        teacher.order_scores.return_value = scores
        data = mock.Mock(on="orders")
        data.relevant.return_value = []
        found = []
        with mock.patch.object(network, "prompt"):
            exercise = exercises.exercise_of(data, options, (teacher, mock.Mock()), draw)
        with mock.patch.object(judge, "divergence", side_effect=lambda *given: found.append(given) or torch.tensor(0.0)):
            exercise.loss(torch.zeros(2))
        self.assertEqual(found[0][0], [0.0, -4.0])
        self.assertAlmostEqual(found[0][2], numpy.std(scores), places=9)

    def test_the_loss_is_the_divergence(self):
        student = torch.tensor([0.0, 0.0], requires_grad=True)
        loss = judge.divergence([-3000.0, -3002.0], student, 1.0)
        loss.backward()
        self.assertAlmostEqual(loss.item(), 0.3278, places=4)
        self.assertAlmostEqual(student.grad[0].item(), -0.381, places=3)
        self.assertAlmostEqual(student.grad[1].item(), 0.381, places=3)

    def test_a_small_temperature_is_one(self):
        """1e-7 left out every question, and the adapter was written untrained."""
        self.assertEqual(judge.temperature_of([1.0, 1.0], "1e-7"), 1e-7)
        self.assertIsNone(judge.temperature_of([1.0, 1.0], "sd"))

    def test_orders_with_their_passages_have_a_term_of_single_ones_beside_them(self):
        """`--part joint --query-nll`: the scores of orders hold those of their passages, the other term does not."""
        export, teacher = (exports.read(self.path(f"{name}.jsonl")) for name in ("student", "teacher"))
        model = network.load(self.path("student.gguf"), 2)
        options = mock.Mock(objective="preference", temperature="sd", part="joint", orders_per_step=3, query_nll=0.5)
        data = mock.Mock(student=export, on="orders")
        data.relevant.return_value = [2]
        draw = mock.Mock()
        draw.sample.return_value = [0, 2, 5]
        question, taught = export.questions[0], teacher.questions[0]
        scores = taught.order_scores("joint")
        with (
            mock.patch.object(exercises.questions, "teaches", return_value=True),
            mock.patch.object(exercises.questions, "teacher_scores", return_value=scores),
        ):
            asked = exercises.of(data, options, [(taught, question)], draw)
        [[loss]] = exercises.losses(model, asked, 4096)
        wanted = [network.prompt(export, question, taught.orders[index], with_passages=True) for index in (0, 2, 5)]
        query, passages = network.log_probabilities(model, wanted)
        expected = judge.divergence([scores[index] for index in (0, 2, 5)], query + passages, float(numpy.std(scores)))
        alone = network.log_probabilities(model, [network.prompt(export, question, [2])])[0][0]
        self.assertAlmostEqual(loss.item(), (expected - 0.5 * alone / len(question.query)).item(), places=3)

    def test_a_short_question_is_not_padded_to_a_long_one(self):
        def of(length):
            return exercises.Exercise([mock.Mock(ids=[0] * length)] * 4, None)

        short, long = of(20), of(90)
        self.assertEqual(exercises.joined([short, short, long, short], 4096), [[short, short], [long], [short]])
        self.assertEqual(exercises.joined([], 4096), [])


if __name__ == "__main__":
    unittest.main()
