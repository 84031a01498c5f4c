"""DSPy: a module that reranks the passages of a retriever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rerankd.integrations._shared import ADDRESS, arerank, clients, needs, rerank
from rerankd.types import Passage

with needs("dspy"):
    import dspy

if TYPE_CHECKING:
    from collections.abc import Callable

    from rerankd.client import Rerankd


class Rerank(dspy.Module):
    """The best `k` passages of `retriever`, a module or function of the query, as `Prediction(passages, scores)`."""

    def __init__(
        self, retriever: Callable[[str], Any], k: int = 3, client: Rerankd | str = ADDRESS, *, method: str | None = None
    ) -> None:
        super().__init__()
        self.retriever = retriever
        self._clients = clients(client)
        self._options = {"top_n": k, "method": method}

    def forward(self, query: str) -> dspy.Prediction:
        """Retrieve and rerank."""
        texts = _texts(self.retriever(query))
        return _prediction(rerank(self._clients[0], query, texts, Passage, **self._options))

    async def aforward(self, query: str) -> dspy.Prediction:
        """Retrieve and rerank."""
        called = getattr(self.retriever, "acall", self.retriever)(query)
        texts = _texts(await called if hasattr(called, "__await__") else called)
        return _prediction(await arerank(self._clients[1], query, texts, Passage, **self._options))


def _texts(found: Any) -> list[str]:
    return list(getattr(found, "passages", found))


def _prediction(pairs: list[tuple[str, Any]]) -> dspy.Prediction:
    return dspy.Prediction(passages=[text for text, _ in pairs], scores=[result.score for _, result in pairs])
