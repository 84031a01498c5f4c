"""Without the frameworks: a module names the extra that is missing."""

import importlib
import sys

import pytest

from integrations import Example
from rerankd.integrations.mteb import RerankdSearch
from rerankd.testing import FakeServer

MISSING = {
    "langchain": ("langchain_core.documents", "langchain"),
    "llama_index": ("llama_index.core.bridge.pydantic", "llama-index"),
    "haystack": ("haystack", "haystack"),
    "cross_encoder": ("numpy", "cross-encoder"),
    "pyterrier": ("pyterrier", "pyterrier"),
    "dspy": ("dspy", "dspy"),
    "ragas": ("ragas.metrics.collections.base", "ragas"),
    "deepeval": ("deepeval.metrics", "deepeval"),
    "phoenix": ("phoenix.evals", "phoenix"),
}


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_framework(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, extra = MISSING[name]
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"rerankd.integrations.{name}", raising=False)
    with pytest.raises(ImportError, match=rf"pip install 'rerankd\[{extra}\]'"):
        importlib.import_module(f"rerankd.integrations.{name}")


def test_a_missing_mteb(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mteb.models", None)
    with pytest.raises(ImportError, match=r"rerankd\[mteb\]"):
        _ = RerankdSearch(server.address).mteb_model_meta


def test_batches(example: Example) -> None:
    rows = [{"id": "a", "query": "rye", "passages": ["wheat", "rye"]}]
    assert example("Spark, Dask, Daft, Beam", rows=rows)["ranked"][0]["order"] == [1, 0]
