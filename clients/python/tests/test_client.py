"""Every method: the message that is sent, and the answer that comes back."""

from collections.abc import Mapping
from typing import Any

import pytest

from rerankd import Compression, Interim, Passage, Planned, Progress, Ranking, Rerankd, Retry, Unavailable
from rerankd.testing import FakeServer
from rerankd.v1 import metrics_pb2, rerank_pb2, utility_pb2

QUERY = "who wrote Middlemarch"
TEXTS = ["Middlemarch appeared in parts.", "Eliot wrote Middlemarch.", "Rye absorbs water."]


def test_rerank_returns_results_best_first(client: Rerankd) -> None:
    ranking = client.rerank(QUERY, TEXTS)
    assert [result.index for result in ranking] == [1, 0, 2]
    assert [result.rank for result in ranking] == [0, 1, 2]
    assert ranking[0].text == TEXTS[1]
    assert ranking[0].stage == "alone"
    assert len(ranking[:2]) == 2
    assert ranking.context_order == (1, 0, 2)
    assert [passage.text for passage in ranking.context()] == [TEXTS[1], TEXTS[0], TEXTS[2]]
    assert ranking.none_helps is False
    assert ranking.model == "fake"
    assert ranking.proto.model == "fake"
    assert ranking.usage.tokens == 10


def test_scores_are_in_the_order_of_the_request(client: Rerankd) -> None:
    scores = client.rerank(QUERY, TEXTS, top_n=2).scores()
    assert scores == [pytest.approx(0.25 + 0.5 / 3), pytest.approx(0.25 + 1 / 3), None]


def test_passages_are_texts_mappings_or_objects(client: Rerankd, server: FakeServer) -> None:
    client.rerank("q", ["a", {"id": 7, "text": "b", "title": "t", "score": 2}, Passage("c", id="z")])
    sent = server.calls[0].message.passages
    assert [(passage.id, passage.text, passage.title) for passage in sent] == [
        ("", "a", ""),
        ("7", "b", "t"),
        ("z", "c", ""),
    ]
    assert [passage.HasField("retriever_score") for passage in sent] == [False, True, False]
    assert sent[1].retriever_score == 2.0


@pytest.mark.parametrize(
    ("passages", "arguments", "error"),
    [
        ("one text", {}, TypeError),
        ([1], {}, TypeError),
        ([{"text": "a", "page": 3}], {}, ValueError),
        (["a", "b"], {"scores": [1.0]}, ValueError),
        (["a"], {"method": "best"}, ValueError),
    ],
)
def test_mistakes_are_found_before_the_call(
    client: Rerankd, server: FakeServer, passages: Any, arguments: Mapping[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        client.rerank("q", passages, **arguments)
    assert server.calls == []


def test_arguments_become_fields_and_replace_options(client: Rerankd, server: FakeServer) -> None:
    client.rerank(
        "q",
        ["a", "b"],
        scores=(score for score in (2, 1)),
        method="query-generation",
        top_n=1,
        only_helpful=True,
        auto_k=True,
        latency_budget_ms=250,
        instruction="Write the claim.",
        compression=Compression(target_tokens=20, unit="sentence", method="selective-context"),
        options=rerank_pb2.RerankRequest(query="other", token_budget=1000, top_n=2),
    )
    sent = server.calls[0].message
    assert sent.query == "q"
    assert [passage.retriever_score for passage in sent.passages] == [2.0, 1.0]
    assert (sent.method, sent.top_n, sent.token_budget) == (rerank_pb2.METHOD_QUERY_GENERATION, 1, 1000)
    assert (sent.only_helpful, sent.auto_k, sent.latency_budget_ms) == (True, True, 250.0)
    assert sent.instruction == "Write the claim."
    assert sent.compression.target_tokens == 20
    assert not sent.compression.HasField("ratio")
    assert sent.compression.unit == rerank_pb2.COMPRESSION_UNIT_SENTENCE


def test_numpy_scores(client: Rerankd, server: FakeServer) -> None:
    numpy = pytest.importorskip("numpy")
    client.rerank("q", ["a", "b"], scores=numpy.array([0.5, 0.25], dtype="float32"))
    assert [passage.retriever_score for passage in server.calls[0].message.passages] == [0.5, 0.25]


def test_headers(client: Rerankd, server: FakeServer) -> None:
    ranking = client.rerank("q", ["a"], request_id="search-4711", priority="high")
    assert ranking.request_id == "search-4711"
    assert server.calls[0].metadata["rerankd-priority"] == "high"
    client.rerank("q", ["a"], priority=8)
    assert server.calls[1].metadata["x-rerankd-priority"] == "8"
    assert client.rerank("q", ["a"]).request_id
    assert "rerankd-priority" not in server.calls[2].metadata


def test_optional_fields_of_results(client: Rerankd, server: FakeServer) -> None:
    result = rerank_pb2.RankedPassage(original_index=0, standard_error=0.5, outranks_next=0.75, stage=99)  # type: ignore[arg-type]
    result.signals.model = 0.5
    server.script("Rerank", rerank_pb2.RerankResponse(results=[result], warnings=["cut"]))
    ranking = client.rerank("q", ["a"])
    assert (ranking[0].standard_error, ranking[0].outranks_next) == (0.5, 0.75)
    assert ranking[0].stage == "99"  # of a newer server
    assert (ranking[0].signals.model, ranking[0].signals.embedding) == (0.5, None)
    assert ranking.none_helps is None
    assert ranking.warnings == ("cut",)


def test_context(client: Rerankd, server: FakeServer) -> None:
    passages: list[Any] = ["Rye grows.", {"id": "e", "title": "Élan", "text": "東京 {n} wrote it"}, "東京 {n} wrote it"]
    context = client.context("wrote it", passages, template="{id}|{title}: {text};", separator="--")
    assert str(context) == "e|Élan: 東京 {n} wrote it;--0|: Rye grows.;"
    assert [context.text[passage.start : passage.end] for passage in context.passages] == [
        "東京 {n} wrote it",
        "Rye grows.",
    ]
    assert [(one.index, one.reason, one.duplicate_of) for one in context.left_out] == [(2, "duplicate", 1)]
    assert (context.reader, context.model, context.tokens) == ("fake", "fake", 8)
    options = rerank_pb2.BuildContextRequest(max_characters=40, template="other")
    options.request.token_budget = 7
    client.context(
        "q",
        ["a {text}"],
        max_per_source=2,
        template="{text}",
        tokenizer="other",
        scores=[1],
        top_n=1,
        dedup="off",
        options=options,
    )
    sent = server.calls[1].message
    assert (sent.max_characters, sent.max_tokens, sent.template, sent.max_per_source) == (40, 0, "{text}", 2)
    assert sent.tokenizer == "other"
    assert not sent.HasField("separator")
    assert (sent.request.query, sent.request.token_budget, sent.request.top_n) == ("q", 7, 1)
    assert sent.request.dedup.mode == rerank_pb2.DEDUP_MODE_OFF
    assert [passage.retriever_score for passage in sent.request.passages] == [1.0]


def test_near_duplicates(client: Rerankd, server: FakeServer) -> None:
    result = rerank_pb2.RankedPassage(original_index=1, duplicates=[0, 2])
    server.script("Rerank", rerank_pb2.RerankResponse(results=[result]))
    ranking = client.rerank("q", ["a", "A", "a."], dedup="one-place")
    assert ranking[0].duplicates == (0, 2)
    assert server.calls[0].message.dedup.mode == rerank_pb2.DEDUP_MODE_ONE_PLACE


def test_watch(client: Rerankd, server: FakeServer) -> None:
    planned, progress, ranking = client.watch(QUERY, TEXTS, top_n=1, scores=[3, 2, 1], timeout=5)
    assert planned == Planned(10, 10)
    assert progress == Progress(10, 10)
    assert isinstance(ranking, Ranking)
    assert [result.index for result in ranking] == [1]
    assert server.calls[0].message.request.passages[0].retriever_score == 3.0
    server.script(
        "WatchRerank",
        rerank_pb2.WatchRerankResponse(interim=rerank_pb2.InterimOrder(original_indices=[1, 0], observations=2)),
    )
    assert list(client.watch(QUERY, TEXTS)) == [Interim((1, 0), 2)]


def test_warm(client: Rerankd) -> None:
    warmed = client.warm(TEXTS)
    assert (warmed.passages, warmed.kept, warmed.present, warmed.tokens) == (3, 3, 0, 10)


def test_utility(client: Rerankd, server: FakeServer) -> None:
    utility = client.utility(QUERY, TEXTS, ["Eliot"], each=True, samples=4)
    assert utility.delta_seper
    assert (utility.delta_seper.value, utility.delta_seper.standard_error) == (1.0, 0.0)
    assert [context.delta_seper and context.delta_seper.value for context in utility.each] == [0.0, 1.0, 0.0]
    assert [context.indices for context in utility.each] == [(0,), (1,), (2,)]
    sent = server.calls[0].message
    assert (sent.measure_list, sent.measure_each, sent.sampling.samples) == (True, True, 4)


def test_utility_without_references_and_with_options(client: Rerankd, server: FakeServer) -> None:
    options = utility_pb2.MeasureUtilityRequest(measure_prefixes=True, references=["other"])
    utility = client.utility(QUERY, TEXTS, options=options)
    assert utility.delta_seper is None
    assert utility.entropy_reduction
    assert utility.each == ()
    assert server.calls[0].message.measure_prefixes
    assert list(server.calls[0].message.references) == []


def test_labels(client: Rerankd, server: FakeServer) -> None:
    labels = client.labels(QUERY, TEXTS, ["Eliot"], annotators=["exact-match", "token-f1"], metrics=["RR"])
    assert dict(labels.labels) == {"exact-match": (0.0, 1.0, 0.0), "token-f1": (0.0, 1.0, 0.0)}
    assert labels.metrics["token-f1"] == {"RR": 0.5}
    assert list(server.calls[0].message.annotators) == [
        utility_pb2.ANNOTATOR_EXACT_MATCH,
        utility_pb2.ANNOTATOR_TOKEN_F1,
    ]
    with pytest.raises(TypeError, match="references"):
        client.labels(QUERY, TEXTS, "Eliot")


def test_metrics(client: Rerankd, server: FakeServer) -> None:
    run: Mapping[str, Any] = {"a": {"x": 1.0, "y": 2.0}, "b": ["x", "y"], "unjudged": ["x"]}
    judged = {"a": {"x": 1}, "b": {"x": 1}, "missing": {"x": 1}}
    options = metrics_pb2.EvaluateRankingRequest(graded=True)
    metrics = client.metrics(run, judged, ["RR"], options=options)
    assert {query: values["RR"] for query, values in metrics.queries.items()} == {"a": 0.5, "b": 1.0, "missing": 0.0}
    assert metrics["RR"] == 0.5
    assert server.calls[0].message.graded


def test_compress(client: Rerankd, server: FakeServer) -> None:
    compressed = client.compress(QUERY, TEXTS, ratio=0.5)
    assert compressed.texts() == ["Eliot", "Middlemarch appeared", "Rye"]
    assert [passage.index for passage in compressed] == [1, 0, 2]
    assert (compressed.tokens_before, compressed.tokens_after) == (10, 4)
    assert server.calls[0].message.method == rerank_pb2.METHOD_QUERY_GENERATION
    assert client.rerank(QUERY, TEXTS, compression=Compression(ratio=0.1)).compressed is not None


def test_info(client: Rerankd) -> None:
    info = client.info()
    assert (info.model, info.ready, info.proto.limits.passages) == ("fake", True, 100)


def test_a_closed_client_opens_again(client: Rerankd) -> None:
    client.close()
    client.close()
    assert client.info().ready


@pytest.mark.parametrize(
    ("query", "passages", "more", "named"),
    [
        (None, ["a"], {}, "query: a text is needed, not NoneType"),
        ("q", {"text": "a"}, {}, "passages: a list of passages is needed, not one dict"),
        ("q", [{"text": ["a"]}], {}, r"passages\[0\].text: a text is needed, not list"),
        ("q", ["a", {"text": "a", "score": "high"}], {}, r"passages\[1\].score: a number is needed, not 'high'"),
        ("q", ["a"], {"scores": ["b"]}, r"scores\[0\]: a number is needed"),
        ("q", ["a"], {"compression": {"ratio": 0.5}}, "compression: a Compression is needed, not dict"),
        ("q", ["a"], {"options": {"token_budget": 9}}, "options: a RerankRequest message is needed, not dict"),
    ],
)
def test_wrong_types_name_their_argument(
    client: Rerankd, query: Any, passages: Any, more: dict[str, Any], named: str
) -> None:
    with pytest.raises(TypeError, match=named):
        client.rerank(query, passages, **more)


def test_rerank_many_takes_pairs(client: Rerankd) -> None:
    wrong: Any = [{"query": "q", "passages": ["a"]}]
    with pytest.raises(TypeError, match=r"requests: a Request or a pair \(query, passages\) is needed"):
        list(client.rerank_many(wrong))


def test_a_server_that_does_not_run_is_explained() -> None:
    with Rerankd("127.0.0.1:9", retry=Retry(attempts=1)) as client, pytest.raises(Unavailable, match="rerankd serve"):
        client.rerank("q", ["a"])
