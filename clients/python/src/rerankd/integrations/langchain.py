"""LangChain: a document compressor, for `ContextualCompressionRetriever` and others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rerankd.client import Rerankd  # noqa: TC001 - pydantic reads it
from rerankd.integrations._shared import ADDRESS, arerank, clients, needs, rerank
from rerankd.types import Passage

with needs("langchain"):
    from langchain_core.documents import BaseDocumentCompressor, Document
    from pydantic import ConfigDict, PrivateAttr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rerankd.aio import AsyncRerankd
    from rerankd.types import Result


class RerankdCompressor(BaseDocumentCompressor):
    """Reranks documents. Copies of them have the score in `metadata["relevance_score"]`.

    `client` is a client or an address. `score_key` names the metadata with the retriever's score. Set it only if
    higher scores are better: vector stores often return distances.
    """

    client: Rerankd | str = ADDRESS
    top_n: int = 0
    method: str | None = None
    title_key: str = "title"
    score_key: str | None = None
    model_config = ConfigDict(arbitrary_types_allowed=True)
    _clients: tuple[Rerankd, AsyncRerankd] = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:  # noqa: ARG002, D102 - the name is pydantic's
        self._clients = clients(self.client)

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> list[Document]:  # noqa: ARG002
        """Rerank documents, best first."""
        options = {"top_n": self.top_n, "method": self.method}
        return _scored(rerank(self._clients[0], query, documents, self._passage, **options))

    async def acompress_documents(
        self,
        documents: Sequence[Document],
        query: str,
        callbacks: Any = None,  # noqa: ARG002
    ) -> list[Document]:
        """Rerank documents, best first."""
        options = {"top_n": self.top_n, "method": self.method}
        return _scored(await arerank(self._clients[1], query, documents, self._passage, **options))

    def _passage(self, document: Document) -> Passage:
        score = document.metadata[self.score_key] if self.score_key else None
        return Passage(document.page_content, str(document.metadata.get(self.title_key) or ""), score=score)


def _scored(pairs: list[tuple[Document, Result]]) -> list[Document]:
    return [
        document.model_copy(update={"metadata": {**document.metadata, "relevance_score": result.score}})
        for document, result in pairs
    ]
