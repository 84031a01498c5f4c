"""Haystack: a ranker component."""

# Haystack reads the annotations, so they are not strings.
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rerankd.client import Rerankd
from rerankd.integrations._shared import ADDRESS, arerank, clients, needs, rerank
from rerankd.types import Passage

with needs("haystack"):
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.utils import Secret, deserialize_secrets_inplace

if TYPE_CHECKING:
    from rerankd.types import Result


@component
class RerankdRanker:
    """Reranks documents. `use_scores` mixes in their scores, which must be higher for better documents.

    `token` is a bearer token, for example `Secret.from_env_var("RERANKD_TOKEN")`.
    """

    def __init__(
        self,
        address: str = ADDRESS,
        *,
        token: Secret | None = None,
        tls: bool = False,
        timeout: float = 60.0,
        top_k: int = 0,
        method: str | None = None,
        use_scores: bool = False,
    ) -> None:
        self._settings = {"address": address, "tls": tls, "timeout": timeout}
        self._settings |= {"top_k": top_k, "method": method, "use_scores": use_scores}
        self.token = token
        resolve: Any = token.resolve_value if token else None
        self._clients = clients(Rerankd(address, token=resolve, tls=tls, timeout=timeout))

    def to_dict(self) -> dict[str, Any]:
        """The component as a dictionary."""
        token = self.token.to_dict() if self.token else None
        saved: dict[str, Any] = default_to_dict(self, token=token, **self._settings)
        return saved

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "RerankdRanker":
        """A component from its dictionary."""
        deserialize_secrets_inplace(data["init_parameters"], keys=["token"])
        ranker: RerankdRanker = default_from_dict(cls, data)
        return ranker

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, list[Document]]:
        """Rerank documents, best first."""
        return _output(rerank(self._clients[0], query, documents, self._passage, **self._options(top_k)))

    @component.output_types(documents=list[Document])
    async def run_async(
        self, query: str, documents: list[Document], top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Rerank documents, best first."""
        return _output(await arerank(self._clients[1], query, documents, self._passage, **self._options(top_k)))

    def _options(self, top_k: int | None) -> dict[str, Any]:
        return {"top_n": self._settings["top_k"] if top_k is None else top_k, "method": self._settings["method"]}

    def _passage(self, document: Document) -> Passage:
        score = document.score if self._settings["use_scores"] else None
        return Passage(document.content or "", str(document.meta.get("title") or ""), score=score)


def _output(pairs: "list[tuple[Document, Result]]") -> dict[str, list[Document]]:
    return {"documents": [replace(document, score=result.score) for document, result in pairs]}
