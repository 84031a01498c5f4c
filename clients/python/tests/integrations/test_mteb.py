"""By its protocol alone: mteb needs torch. Rows are those of mteb's data sets."""

import sys
import types
from typing import Any

import pytest

from integrations import QUERY, SCORES, TEXTS, Example, best_first
from rerankd.integrations.mteb import RerankdSearch
from rerankd.testing import FakeServer

CORPUS = [{"id": f"d{at}", "title": "", "body": text} for at, text in enumerate(TEXTS)]
QUERIES = [{"id": "q1", "text": QUERY}, {"id": "q2", "text": "rye", "instruction": "Find grain."}]
TASK: dict[str, Any] = {"task_metadata": None, "hf_split": "test", "hf_subset": "default", "encode_kwargs": {}}


def search(model: RerankdSearch, top_ranked: dict[str, list[str]] | None, top_k: int = 10) -> dict[str, Any]:
    model.index(CORPUS, num_proc=None, **TASK)
    return model.search(QUERIES, top_k=top_k, top_ranked=top_ranked, num_proc=None, **TASK)


def test_search(server: FakeServer) -> None:
    found = search(RerankdSearch(server.address), {"q1": ["d0", "d1", "d2"], "q2": ["d1", "d0"]})
    assert found["q1"] == pytest.approx({"d0": SCORES[0], "d1": SCORES[1], "d2": SCORES[2]})
    assert found["q2"] == pytest.approx({"d0": 0.75, "d1": 0.25})
    asked = {call.message.request.query: call.message.request.instruction for call in server.calls}
    assert asked == {QUERY: "", "rye": "Find grain."}


def test_equal_scores_keep_the_order(server: FakeServer) -> None:
    found = search(RerankdSearch(server.address), {"q2": ["d1", "d2", "d0"]})["q2"]
    assert found == pytest.approx({"d0": 0.75, "d1": 0.25, "d2": 0.25}, abs=1e-6)
    assert best_first(found) == ["d0", "d1", "d2"]


def test_limits(server: FakeServer) -> None:
    model = RerankdSearch(server.address)
    assert search(model, {"q1": ["d0", "d1", "d2"]}, top_k=1) == {"q1": {"d1": pytest.approx(SCORES[1])}, "q2": {}}
    with pytest.raises(ValueError, match="no ranked documents"):
        search(model, None)


def test_metadata_and_example(server: FakeServer, example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    class ModelMeta:
        @staticmethod
        def create_empty(overwrites: dict[str, Any]) -> dict[str, Any]:
            return overwrites

    models: Any = types.ModuleType("mteb.models")
    models.ModelMeta = ModelMeta
    mteb: Any = types.ModuleType("mteb")
    mteb.evaluate = lambda model, task: (model.mteb_model_meta, task)
    monkeypatch.setitem(sys.modules, "mteb", mteb)
    monkeypatch.setitem(sys.modules, "mteb.models", models)
    meta, task = example("MTEB", task="a task")["results"]
    assert meta == {"name": "rerankd/fake-query-generation", "revision": "0.0.0"}
    assert task == "a task"
