import asyncio

import pytest

import rerankd
from integrations import QUERY, SCORES, TEXTS, Example
from rerankd import Rerankd
from rerankd.testing import FakeServer

documents = pytest.importorskip("langchain_core.documents")

from rerankd.integrations.langchain import RerankdCompressor

GIVEN = [documents.Document(text, metadata={"title": "A title", "distance": at}) for at, text in enumerate(TEXTS)]


def test_rerank(client: Rerankd) -> None:
    found = RerankdCompressor(client=client).compress_documents(GIVEN, QUERY)
    assert [document.page_content for document in found] == [TEXTS[1], TEXTS[2], TEXTS[0]]
    assert found[0].metadata == {"title": "A title", "distance": 1, "relevance_score": pytest.approx(SCORES[1])}
    assert all("relevance_score" not in document.metadata for document in GIVEN)
    assert RerankdCompressor(client=client).compress_documents([], QUERY) == []


def test_request(server: FakeServer) -> None:
    compressor = RerankdCompressor(client=server.address, top_n=2, method="query-generation", score_key="distance")
    assert len(compressor.compress_documents(GIVEN, QUERY)) == 2
    message = server.calls[0].message
    assert (message.top_n, message.passages[2].title, message.passages[2].retriever_score) == (2, "A title", 2.0)
    RerankdCompressor(client=server.address).compress_documents(GIVEN, QUERY)
    assert not server.calls[1].message.passages[2].HasField("retriever_score")


def test_asyncio_needs_no_thread(server: FakeServer) -> None:
    async def main() -> None:
        found = await RerankdCompressor(client=server.address, top_n=1).acompress_documents(GIVEN, QUERY)
        assert [document.page_content for document in found] == [TEXTS[1]]
        assert asyncio.get_running_loop()._default_executor is None  # type: ignore[attr-defined]

    asyncio.run(main())


def test_errors_reach_the_caller(client: Rerankd) -> None:
    with pytest.raises(rerankd.InvalidRequest, match="query"):
        RerankdCompressor(client=client).compress_documents(GIVEN, "")


def test_example(example: Example) -> None:
    assert example("LangChain", documents=GIVEN, query=QUERY)["best"][0].page_content == TEXTS[1]
