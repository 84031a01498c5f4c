import asyncio

import pytest

import rerankd
from integrations import QUERY, SCORES, TEXTS, Example
from rerankd.testing import FakeServer

haystack = pytest.importorskip("haystack")

from haystack.utils import Secret

from rerankd.integrations.haystack import RerankdRanker

GIVEN = [haystack.Document(content=text, score=float(at), meta={"title": "A title"}) for at, text in enumerate(TEXTS)]


def test_rerank(server: FakeServer) -> None:
    ranker = RerankdRanker(server.address)
    found = ranker.run(QUERY, GIVEN)["documents"]
    assert [document.content for document in found] == [TEXTS[1], TEXTS[2], TEXTS[0]]
    assert found[0].score == pytest.approx(SCORES[1])
    assert found[0].id == GIVEN[1].id
    assert [document.score for document in GIVEN] == [0, 1, 2]
    assert len(ranker.run(QUERY, GIVEN, top_k=1)["documents"]) == 1
    assert ranker.run(QUERY, [])["documents"] == []
    assert len(ranker.run(QUERY, [*GIVEN, haystack.Document(content=None)])["documents"]) == 4


def test_scores_are_sent_if_wanted(server: FakeServer) -> None:
    RerankdRanker(server.address).run(QUERY, GIVEN)
    RerankdRanker(server.address, use_scores=True).run(QUERY, GIVEN)
    assert [call.message.passages[2].HasField("retriever_score") for call in server.calls] == [False, True]
    assert server.calls[0].message.passages[0].title == "A title"


def test_asyncio(server: FakeServer) -> None:
    async def main() -> None:
        found = await RerankdRanker(server.address, top_k=1).run_async(QUERY, GIVEN)
        assert [document.content for document in found["documents"]] == [TEXTS[1]]
        assert asyncio.get_running_loop()._default_executor is None  # type: ignore[attr-defined]

    asyncio.run(main())


def test_a_pipeline_and_its_yaml(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", "rerankd.integrations.haystack")
    pipeline = haystack.Pipeline()
    pipeline.add_component("ranker", RerankdRanker(server.address, top_k=2, method="moi"))
    copy = haystack.Pipeline.loads(pipeline.dumps())
    assert copy.dumps() == pipeline.dumps()
    found = copy.run({"ranker": {"query": QUERY, "documents": GIVEN}})
    assert [document.content for document in found["ranker"]["documents"]] == [TEXTS[1], TEXTS[2]]


def test_a_token_is_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeServer(token="secret") as server:
        monkeypatch.setenv("RERANKD_TOKEN", "secret")
        ranker = RerankdRanker(server.address, token=Secret.from_env_var("RERANKD_TOKEN"))
        saved = ranker.to_dict()
        assert "secret" not in str(saved["init_parameters"]["token"].get("token"))
        assert len(RerankdRanker.from_dict(saved).run(QUERY, GIVEN)["documents"]) == 3
        with pytest.raises(rerankd.Unauthenticated):
            RerankdRanker(server.address).run(QUERY, GIVEN)


def test_example(example: Example) -> None:
    assert example("Haystack", documents=GIVEN, query=QUERY)["best"][0].content == TEXTS[1]
