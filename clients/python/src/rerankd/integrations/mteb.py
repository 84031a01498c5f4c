"""MTEB: a model with its search protocol, for reranking tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rerankd.integrations._shared import ADDRESS, clients, descending, needs
from rerankd.types import Passage, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rerankd.client import Rerankd


class RerankdSearch:
    """`mteb.evaluate(RerankdSearch(client), task)`. A task must come with ranked documents, as reranking tasks do."""

    def __init__(self, client: Rerankd | str = ADDRESS, *, method: str | None = None) -> None:
        self._client, self._method = clients(client)[0], method
        self._corpus: dict[str, Passage] = {}

    @property
    def mteb_model_meta(self) -> Any:
        """Metadata of the model."""
        with needs("mteb"):
            from mteb.models import ModelMeta
        info = self._client.info()
        name = f"rerankd/{info.model.rpartition('/')[2]}-{self._method or 'default'}"
        return ModelMeta.create_empty({"name": name, "revision": info.version})

    def index(self, corpus: Iterable[Mapping[str, Any]], **_: object) -> None:
        """Keep the documents."""
        self._corpus = {
            row["id"]: Passage(row.get("body") or row.get("text") or "", row.get("title") or "") for row in corpus
        }

    def search(
        self,
        queries: Iterable[Mapping[str, Any]],
        *,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **_: object,
    ) -> dict[str, dict[str, float]]:
        """The scores of the best documents by query."""
        if top_ranked is None:
            raise ValueError("the task has no ranked documents; retrieve some with another model first")
        found: dict[str, dict[str, float]] = {row["id"]: {} for row in queries}
        asked = {row["id"]: list(top_ranked.get(row["id"], ())) for row in queries}
        requests = [
            Request(
                row["text"],
                [self._corpus[name] for name in asked[row["id"]]],
                top_n=top_k,
                method=self._method,
                instruction=row.get("instruction") or "",
                id=row["id"],
            )
            for row in queries
            if asked[row["id"]]
        ]
        for answer in self._client.rerank_many(requests):
            name = answer.request.id
            found[name] = {asked[name][index]: score for index, score in descending(answer.result())}
        return found
