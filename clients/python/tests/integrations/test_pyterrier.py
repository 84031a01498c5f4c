import pickle

import pytest

import rerankd
from integrations import QUERY, SCORES, TEXTS, Example, best_first
from rerankd.testing import FakeServer

pt = pytest.importorskip("pyterrier")
pd = pytest.importorskip("pandas")

from rerankd.integrations.pyterrier import RerankdTransformer

ROWS = [
    {"qid": qid, "query": query, "docno": f"d{at}", "text": text, "score": 9.0 - at, "rank": at}
    for qid, query in (("1", QUERY), ("2", "rye"))
    for at, text in enumerate(TEXTS)
]
RESULTS = pd.DataFrame(ROWS, index=range(10, 16))


def test_rerank(server: FakeServer) -> None:
    retriever = pt.Transformer.from_df(RESULTS, uniform=True)
    found = (retriever >> RerankdTransformer(server.address))(RESULTS[["qid", "query"]].drop_duplicates())
    first = found[found.qid == "1"].sort_values("rank")
    assert first.docno.tolist() == ["d1", "d2", "d0"]
    assert first.score.tolist() == pytest.approx(sorted(SCORES, reverse=True))
    second = found[found.qid == "2"].sort_values("rank")
    assert second.score.tolist() == pytest.approx([0.75, 0.25, 0.25], abs=1e-6)
    assert best_first(dict(second[["docno", "score"]].to_numpy())) == second.docno.tolist() == ["d0", "d1", "d2"]
    assert len(server.calls) == 2


def test_scores_are_sent_if_wanted(server: FakeServer) -> None:
    RerankdTransformer(server.address).transform(RESULTS)
    RerankdTransformer(server.address, use_scores=True).transform(RESULTS)
    sent = [call.message.request.passages[1].HasField("retriever_score") for call in server.calls]
    assert sent == [False, False, True, True]


def test_pickle_and_none(server: FakeServer) -> None:
    copy = pickle.loads(pickle.dumps(RerankdTransformer(server.address, text="text")))
    assert copy.transform(RESULTS.iloc[:3]).docno.tolist()[0] in {"d0", "d1", "d2"}
    assert len(copy.transform(RESULTS.iloc[:0])) == 0


def test_errors_reach_the_caller(server: FakeServer) -> None:
    with pytest.raises(rerankd.InvalidRequest):
        RerankdTransformer(server.address).transform(RESULTS.assign(query=""))


def test_example(example: Example) -> None:
    scope = example("PyTerrier", bm25=pt.Transformer.from_df(RESULTS, uniform=True))
    found = scope["pipeline"](RESULTS[["qid", "query"]].drop_duplicates())
    assert found[(found.qid == "1") & (found["rank"] == 0)].docno.tolist() == ["d1"]
