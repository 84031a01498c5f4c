"""Batches of frames and pipelines."""

import json
import pickle
from functools import partial
from typing import Any

import pytest

from rerankd import Rerankd, Retry
from rerankd.batch import COLUMNS, rank_batch
from rerankd.testing import Failure, FakeServer

ROWS: list[dict[str, Any]] = [
    {"id": "a", "query": "rye", "passages": ["wheat", "rye"], "score": [2.0, 1.0]},
    {"id": "b", "query": "", "passages": ["wheat"], "score": [1.0]},
    {"id": "c", "query": "wheat", "passages": [], "score": []},
    {"id": "d", "query": None, "passages": ["wheat"], "score": [1.0]},
    {"id": "e", "query": "wheat", "passages": None, "score": None},
    {"id": "f", "passages": ["wheat"]},
    {"query": "wheat", "passages": [{"id": "x", "text": "wheat", "title": "grain"}], "score": [1.0]},
]


def test_each_row_has_one_answer(client: Rerankd) -> None:
    found = rank_batch(ROWS, client)
    assert [row["id"] for row in found] == ["a", "b", "c", "d", "e", "f", None]
    assert [row["order"] for row in found] == [[1, 0], [], [], [], [], [], [0]]
    assert found[0] == {"id": "a", "order": [1, 0], "scores": [0.75, 0.25], "utilities": [1.0, 0.0], "error": None}
    assert [row["error"] is None for row in found] == [True, False, False, False, False, False, True]
    assert found[1]["error"] == "query: must not be empty (INVALID_ARGUMENT)"
    assert found[3]["error"].startswith("TypeError: ")
    assert found[5]["error"].startswith("TypeError: ")
    assert rank_batch([], client) == []


def test_columns_and_options(server: FakeServer) -> None:
    rows: list[dict[str, Any]] = [{"name": 7, "q": "rye", "texts": ("wheat", "rye"), "bm25": (2.0, 1.0)}]
    names = {"id": "name", "query": "q", "passages": "texts", "scores": "bm25"}
    assert rank_batch(rows, server.address, **names, top_n=1)[0]["order"] == [1]
    message = server.calls[0].message.request
    assert [passage.retriever_score for passage in message.passages] == [2.0, 1.0]
    assert rank_batch([{**rows[0], "bm25": (1.0,)}], server.address, **names)[0]["error"].startswith("ValueError: ")


def test_what_no_row_can_have_is_refused(client: Rerankd) -> None:
    with pytest.raises(TypeError, match="topn"):
        rank_batch(ROWS, client, topn=3)
    with pytest.raises(ValueError, match="nonsense"):
        rank_batch(ROWS, client, method="nonsense")
    with pytest.raises(ValueError, match="no row has 'text'; the first one has 'id', 'query'"):
        rank_batch(ROWS, client, passages="text")


def test_frames(server: FakeServer) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(ROWS[:3], index=[7, 7, 8])
    function = pickle.loads(pickle.dumps(partial(rank_batch, client=server.address)))
    (found,) = map(function, iter([frame]))
    assert tuple(found.columns) == COLUMNS
    assert found["order"].tolist() == [[1, 0], [], []]
    assert found["error"].isna().tolist() == [True, False, False]
    assert tuple(rank_batch(frame.iloc[:0], server.address).columns) == COLUMNS
    # Spark, Ray Data and Parquet have arrays for lists.
    arrays = frame.assign(passages=[pd.array(texts, dtype=object).to_numpy() for texts in frame["passages"]])
    assert rank_batch(arrays, server.address).equals(found)


def test_failures_of_the_server_are_errors_of_rows(server: FakeServer) -> None:
    server.script("RerankStream", None, Failure("RESOURCE_EXHAUSTED", "busy"))
    found = rank_batch(ROWS[:1] * 3, server.address)
    assert [row["error"] for row in found] == [None, "busy (RESOURCE_EXHAUSTED)", None]
    assert json.dumps(found)


def test_no_server() -> None:
    with Rerankd("127.0.0.1:1", timeout=1, retry=Retry(1, wait=False)) as client:
        found = rank_batch([*ROWS[:1] * 2, ROWS[5]], client)
    assert all("UNAVAILABLE" in row["error"] for row in found[:2])
    assert "TypeError" in found[2]["error"]
