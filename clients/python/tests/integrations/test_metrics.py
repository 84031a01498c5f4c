"""DeltaSePer and eRAG in RAGAS, DeepEval and Phoenix."""

import asyncio
from typing import Any

import pytest

from integrations import QUERY, TEXTS, Example
from rerankd import Rerankd
from rerankd.testing import FakeServer


class TestRagas:
    @pytest.fixture(autouse=True)
    def _library(self) -> None:
        pytest.importorskip("ragas")

    def test_metrics(self, server: FakeServer) -> None:
        from rerankd.integrations.ragas import DeltaSePer, ERag

        given = {"user_input": QUERY, "retrieved_contexts": TEXTS, "reference": "Eliot"}
        found = DeltaSePer(server.address).score(**given)
        assert (found.value, "+1.000" in found.reason) == (1.0, True)
        first, second = ERag(server.address, annotator="exact-match").batch_score([given, given | {"reference": "x"}])
        assert (first.value, second.value) == (pytest.approx(1 / 3), 0)
        assert first.reason.endswith("(exact-match): 0, 1, 0.")
        assert DeltaSePer(server.address).allowed_values == (-1.0, 1.0)
        assert asyncio.run(ERag(server.address).ascore(QUERY, [], "Eliot")).value == 0

    def test_example(self, example: Example) -> None:
        assert example("RAGAS", question=QUERY, texts=TEXTS, answer="Eliot")["result"].value == 1


class TestDeepEval:
    @pytest.fixture(autouse=True)
    def _library(self) -> None:
        pytest.importorskip("deepeval")

    def case(self, **fields: Any) -> Any:
        from deepeval.test_case import LLMTestCase

        fields = {"retrieval_context": TEXTS, "expected_output": "Eliot"} | fields
        return LLMTestCase(input=QUERY, actual_output="Eliot", **fields)

    def test_metrics(self, client: Rerankd) -> None:
        from rerankd.integrations.deepeval import DeltaSePer, ERag

        metric = DeltaSePer(client)
        assert metric.measure(self.case()) == 1.0
        assert metric.is_successful()
        assert "+1.000" in str(metric.reason)
        assert metric.measure(self.case(expected_output="Austen")) == 0.0
        assert not metric.is_successful()
        labels = ERag(client, threshold=0.5, annotator="exact-match")
        assert asyncio.run(labels.a_measure(self.case())) == pytest.approx(1 / 3)
        assert labels.success is False
        assert labels.measure(self.case(retrieval_context=[])) == 0
        from deepeval import test_case

        if data := getattr(test_case, "RetrievedContextData", None):
            assert metric.measure(self.case(retrieval_context=[data(context=TEXTS[1], source="a book")])) == 1.0
        with pytest.raises(ValueError, match="retrieval_context"):
            metric.measure(self.case(retrieval_context=None))

    def test_evaluate(self, client: Rerankd) -> None:
        from deepeval import assert_test

        from rerankd.integrations.deepeval import DeltaSePer, ERag

        metrics = [DeltaSePer(client), ERag(client, threshold=0.3, annotator="exact-match")]
        assert_test(self.case(), metrics)
        with pytest.raises(AssertionError, match=r"delta_seper(.|\n)*erag"):
            assert_test(self.case(expected_output="Austen"), metrics)

    def test_example(self, example: Example) -> None:
        assert example("DeepEval", case=self.case())["score"] == 1


class TestPhoenix:
    @pytest.fixture(autouse=True)
    def _library(self) -> None:
        pytest.importorskip("phoenix.evals")

    def test_metrics(self, client: Rerankd) -> None:
        from rerankd.integrations.phoenix import delta_seper, erag

        given = {"input": QUERY, "contexts": TEXTS, "reference": "Eliot"}
        (found,) = delta_seper(client).evaluate(given)
        assert (found.name, found.score, "+1.000" in found.explanation) == ("delta_seper", 1.0, True)
        (found,) = erag(client, annotator="exact-match").evaluate(given)
        assert (found.name, found.score) == ("erag", pytest.approx(1 / 3))

    def test_a_frame(self, client: Rerankd) -> None:
        import pandas as pd
        from phoenix.evals import evaluate_dataframe

        from rerankd.integrations.phoenix import erag

        frame = pd.DataFrame({"input": [QUERY], "contexts": [TEXTS], "reference": ["Eliot"]})
        scores = evaluate_dataframe(dataframe=frame, evaluators=[erag(client, annotator="exact-match")])["erag_score"]
        assert '"score": 0.333' in str(scores[0]).replace("'", '"')

    def test_example(self, example: Example) -> None:
        assert example("Phoenix", question=QUERY, texts=TEXTS, answer="Eliot")["scores"][0].score == 1
