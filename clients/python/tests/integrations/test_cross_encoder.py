"""Without sentence-transformers, which needs torch: its interface is called as its evaluators and LangChain call it."""

import pytest

from integrations import QUERY, SCORES, TEXTS, Example
from rerankd.testing import FakeServer

np = pytest.importorskip("numpy")

from rerankd.integrations.cross_encoder import CrossEncoder


def test_predict(server: FakeServer) -> None:
    pairs = [(QUERY, TEXTS[0]), ("rye", TEXTS[1]), [QUERY, TEXTS[1]], ("rye", TEXTS[0]), (QUERY, TEXTS[2])]
    scores = CrossEncoder(server.address).predict(pairs, batch_size=2, show_progress_bar=False, convert_to_numpy=True)
    assert scores.dtype == np.float32
    assert scores.tolist() == pytest.approx([SCORES[0], 0.25, SCORES[1], 0.75, SCORES[2]])
    # One list for each query, whatever the batch size.
    assert [len(call.message.request.passages) for call in server.calls] == [3, 2]


def test_single_pairs_and_none(server: FakeServer) -> None:
    encoder = CrossEncoder(server.address)
    assert float(encoder.predict((QUERY, TEXTS[1]))) == pytest.approx(SCORES[1])
    assert float(encoder.predict([QUERY, TEXTS[1]])) == pytest.approx(SCORES[1])
    assert encoder.predict([]).shape == (0,)
    assert encoder.rank(QUERY, []) == []


def test_equal_scores_keep_the_order(server: FakeServer) -> None:
    scores = CrossEncoder(server.address).predict([("rye", text) for text in TEXTS])
    assert scores.tolist() == pytest.approx([0.75, 0.25, 0.25], abs=1e-6)
    assert scores[0] > scores[1] > scores[2]


def test_rank(server: FakeServer) -> None:
    encoder = CrossEncoder(server.address, method="query-generation")
    found = encoder.rank(QUERY, TEXTS, top_k=2, return_documents=True, batch_size=8)
    assert found == [
        {"corpus_id": 1, "score": pytest.approx(SCORES[1]), "text": TEXTS[1]},
        {"corpus_id": 2, "score": pytest.approx(SCORES[2]), "text": TEXTS[2]},
    ]
    assert encoder.rank(QUERY, TEXTS)[2] == {"corpus_id": 0, "score": pytest.approx(SCORES[0])}
    assert server.calls[0].message.method == server.calls[1].message.method != 0


def test_the_interfaces_of_langchain_and_of_evaluators(server: FakeServer) -> None:
    encoder = CrossEncoder(server.address)
    assert encoder.score([(QUERY, TEXTS[1])])[0] == pytest.approx(SCORES[1])
    encoder.model_card_data.set_evaluation_metrics(object(), {"ndcg@10": 1.0}, 0, 0)


def test_example(example: Example) -> None:
    assert example("sentence-transformers", query=QUERY, texts=TEXTS)["best"][0]["corpus_id"] == 1
