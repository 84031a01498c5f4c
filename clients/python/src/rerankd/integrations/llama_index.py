"""LlamaIndex: a node postprocessor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rerankd.client import Rerankd  # noqa: TC001 - pydantic reads it
from rerankd.integrations._shared import ADDRESS, arerank, clients, needs, rerank
from rerankd.types import Passage

with needs("llama-index"):
    from llama_index.core.bridge.pydantic import ConfigDict, PrivateAttr
    from llama_index.core.instrumentation import get_dispatcher
    from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

if TYPE_CHECKING:
    from rerankd.aio import AsyncRerankd
    from rerankd.types import Result

dispatcher = get_dispatcher(__name__)


class RerankdRerank(BaseNodePostprocessor):
    """Reranks nodes. `client` is a client or an address; `use_scores` mixes in the scores of the retriever.

    A retriever's scores must be higher for better nodes.
    """

    client: Rerankd | str = ADDRESS
    top_n: int = 0
    method: str | None = None
    use_scores: bool = False
    model_config = ConfigDict(arbitrary_types_allowed=True)
    _clients: tuple[Rerankd, AsyncRerankd] = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:  # noqa: D102 - the name is pydantic's
        super().model_post_init(context)
        self._clients = clients(self.client)

    @classmethod
    def class_name(cls) -> str:
        """The name in serialised pipelines."""
        return "RerankdRerank"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = self._start(nodes, query_bundle)
        options = {"top_n": self.top_n, "method": self.method}
        return _end(rerank(self._clients[0], query, nodes, self._passage, **options))

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = self._start(nodes, query_bundle)
        options = {"top_n": self.top_n, "method": self.method}
        return _end(await arerank(self._clients[1], query, nodes, self._passage, **options))

    def _passage(self, node: NodeWithScore) -> Passage:
        text = node.node.get_content(metadata_mode=MetadataMode.EMBED)
        return Passage(text, score=node.score if self.use_scores else None)

    def _start(self, nodes: list[NodeWithScore], query: QueryBundle | None) -> str:
        if query is None:
            raise ValueError("RerankdRerank needs a query")
        event = ReRankStartEvent(query=query, nodes=nodes, top_n=self.top_n, model_name=self.method or "rerankd")
        dispatcher.event(event)
        return str(query.query_str)


def _end(pairs: list[tuple[NodeWithScore, Result]]) -> list[NodeWithScore]:
    nodes = [NodeWithScore(node=node.node, score=result.score) for node, result in pairs]
    dispatcher.event(ReRankEndEvent(nodes=nodes))
    return nodes
