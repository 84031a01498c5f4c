import asyncio
import copy
from typing import Any

import pytest

from integrations import QUERY, SCORES, TEXTS, Example
from rerankd.testing import FakeServer

dspy = pytest.importorskip("dspy")

from rerankd.integrations.dspy import Rerank


class Retriever(dspy.Module):  # type: ignore[misc, name-defined, unused-ignore]
    def forward(self, query: str) -> Any:
        return dspy.Prediction(passages=TEXTS)

    async def aforward(self, query: str) -> Any:
        return self.forward(query)


def function(query: str) -> list[str]:
    return TEXTS


@pytest.mark.parametrize("retriever", [Retriever(), function])
def test_rerank(server: FakeServer, retriever: Any) -> None:
    module = Rerank(retriever, k=2, client=server.address)
    for found in (module(query=QUERY), asyncio.run(module.acall(query=QUERY)), copy.deepcopy(module)(query=QUERY)):
        assert found.passages == [TEXTS[1], TEXTS[2]]
        assert found.scores == pytest.approx([SCORES[1], SCORES[2]])


def test_nothing_is_retrieved(server: FakeServer) -> None:
    assert Rerank(lambda query: [], client=server.address)(query=QUERY).passages == []


def test_example(example: Example) -> None:
    assert example("DSPy", retriever=function, query=QUERY)["best"].passages[0] == TEXTS[1]
