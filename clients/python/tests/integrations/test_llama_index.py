import asyncio

import pytest

from integrations import QUERY, SCORES, TEXTS, Example
from rerankd.testing import FakeServer

schema = pytest.importorskip("llama_index.core.schema")

from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler

from rerankd.integrations.llama_index import RerankdRerank

GIVEN = [schema.NodeWithScore(node=schema.TextNode(text=text), score=at) for at, text in enumerate(TEXTS)]


def test_rerank(server: FakeServer) -> None:
    found = RerankdRerank(client=server.address, top_n=2).postprocess_nodes(GIVEN, query_str=QUERY)
    assert [node.node.text for node in found] == [TEXTS[1], TEXTS[2]]
    assert found[0].score == pytest.approx(SCORES[1])
    assert found[0].node is GIVEN[1].node
    assert [node.score for node in GIVEN] == [0, 1, 2]
    assert RerankdRerank(client=server.address).postprocess_nodes([], query_str=QUERY) == []
    with pytest.raises(ValueError, match="needs a query"):
        RerankdRerank(client=server.address).postprocess_nodes(GIVEN)


def test_scores_are_sent_if_wanted(server: FakeServer) -> None:
    RerankdRerank(client=server.address).postprocess_nodes(GIVEN, query_str=QUERY)
    RerankdRerank(client=server.address, use_scores=True).postprocess_nodes(GIVEN, query_str=QUERY)
    assert [call.message.passages[2].HasField("retriever_score") for call in server.calls] == [False, True]


def test_asyncio(server: FakeServer) -> None:
    async def main() -> None:
        reranker = RerankdRerank(client=server.address)
        found = await reranker._apostprocess_nodes(GIVEN, schema.QueryBundle(QUERY))
        assert found[0].node is GIVEN[1].node
        assert asyncio.get_running_loop()._default_executor is None  # type: ignore[attr-defined]

    asyncio.run(main())


def test_events(server: FakeServer) -> None:
    seen: list[str] = []

    class Handler(BaseEventHandler):  # type: ignore[misc, unused-ignore]
        def handle(self, event: object, **_: object) -> None:
            seen.append(type(event).__name__)

    root, handler = get_dispatcher(), Handler()
    root.add_event_handler(handler)
    try:
        RerankdRerank(client=server.address).postprocess_nodes(GIVEN, query_str=QUERY)
    finally:
        root.event_handlers.remove(handler)
    assert seen == ["ReRankStartEvent", "ReRankEndEvent"]


def test_serialisation(server: FakeServer) -> None:
    reranker = RerankdRerank(client=server.address, top_n=2, method="moi")
    copy = RerankdRerank.from_json(reranker.to_json())
    assert copy.to_dict() == reranker.to_dict()
    assert reranker.to_dict()["class_name"] == "RerankdRerank"
    assert len(copy.postprocess_nodes(GIVEN, query_str=QUERY)) == 2


def test_example(example: Example) -> None:
    assert example("LlamaIndex", nodes=GIVEN, query=QUERY)["best"][0].node is GIVEN[1].node
