"""The interface of `sentence_transformers.CrossEncoder`, without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rerankd.integrations._shared import ADDRESS, clients, descending, needs
from rerankd.types import Request

with needs("cross-encoder"):
    import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rerankd.client import Rerankd


class CrossEncoder:
    """Scores pairs of a query and a passage, in (0, 1).

    Pairs with the same query are one list, so scores of different queries cannot be compared unless the method scores
    each passage alone. Arguments of torch, such as `batch_size`, are accepted and have no effect.
    """

    def __init__(self, client: Rerankd | str = ADDRESS, *, method: str | None = None) -> None:
        self._client, self._method = clients(client)[0], method

    @property
    def model_card_data(self) -> CrossEncoder:
        """The object to which the evaluators of sentence-transformers give their results."""
        return self

    def set_evaluation_metrics(self, *_: object, **__: object) -> None:
        """Ignore the results of an evaluator, which returns them as well."""

    def predict(self, sentences: Sequence[Sequence[str]], *_: object, **__: object) -> Any:
        """The scores of the pairs, as a numpy array. A single pair has a single score."""
        if len(sentences) == 2 and isinstance(sentences[0], str):
            pairs: list[Any] = [sentences]
            return self.predict(pairs)[0]
        queries: dict[str, list[int]] = {}
        for at, pair in enumerate(sentences):
            queries.setdefault(pair[0], []).append(at)
        requests = [
            Request(query, [sentences[at][1] for at in indices], method=self._method)
            for query, indices in queries.items()
        ]
        scores = np.zeros(len(sentences), dtype=np.float32)
        groups = list(queries.values())
        for answer in self._client.rerank_many(requests):
            for index, score in descending(answer.result()):
                scores[groups[answer.index][index]] = score
        return scores

    score = predict
    """The name in LangChain's `BaseCrossEncoder`."""

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        **_: object,
    ) -> list[dict[str, Any]]:
        """The documents as `corpus_id`, `score` and, with `return_documents`, `text`, best first."""
        if not documents:
            return []
        ranking = self._client.rerank(query, documents, top_n=top_k or 0, method=self._method)
        return [
            {"corpus_id": result.index, "score": result.score} | ({"text": result.text} if return_documents else {})
            for result in ranking
        ]
