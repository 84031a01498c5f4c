"""Batches of data frames and pipelines: Spark, Dask, Daft, Beam. `rerankd.ray` has more for Ray."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rerankd import _convert
from rerankd.client import Rerankd
from rerankd.errors import RerankdError
from rerankd.types import Request

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from rerankd.types import Result

Batch = TypeVar("Batch")
LISTS = {"order": "index", "scores": "score", "utilities": "utility"}
COLUMNS = ("id", *LISTS, "error")
_shared = functools.cache(Rerankd)


def rank_batch(
    batch: Batch,
    client: Rerankd | str = "127.0.0.1:50051",
    *,
    id: str = "id",  # noqa: A002 - names of columns
    query: str = "query",
    passages: str = "passages",
    scores: str = "",
    **options: Any,
) -> Batch:
    """Rank the passages of every row: of a pandas data frame to a data frame, of other rows (mappings) to a list.

    `id`, `query`, `passages` and `scores` name the columns; `options` are those of `Request`. Every row of the batch
    has one row in the answer, in the same order: `id`, `order` (the indices of its passages, best first), `scores`,
    `utilities`, and `error`, which is None or says why the lists are empty. The batches of a process share one client.

    >>> from rerankd.testing import FakeServer
    >>> rows = [{"id": "a", "query": "rye", "passages": ["wheat", "rye"]}, {"id": "b", "query": "", "passages": ["x"]}]
    >>> with FakeServer() as server:
    ...     [(row["id"], row["order"], row["error"]) for row in rank_batch(rows, server.address)]
    [('a', [1, 0], None), ('b', [], 'query: must not be empty (INVALID_ARGUMENT)')]
    """
    source: Any = batch
    rows: list[Mapping[str, Any]] = source.to_dict("records") if hasattr(batch, "to_dict") else list(source)
    answers, _ = rank_rows(rows, client, id=id, query=query, passages=passages, scores=scores, **options)
    return cast("Batch", type(source)(answers, columns=list(COLUMNS)) if hasattr(batch, "to_dict") else answers)


def rank_rows(
    rows: Sequence[Mapping[str, Any]],
    client: Rerankd | str,
    *,
    id: str = "id",  # noqa: A002 - names of columns
    query: str = "query",
    passages: str = "passages",
    scores: str = "",
    **options: Any,
) -> tuple[list[dict[str, Any]], RerankdError | None]:
    """The answers to rows, and the error that ended the stream, if any. Rows without an answer have this error."""
    check(options)
    names = query, passages, *([scores] if scores else ())
    for name in names:
        if rows and not any(name in row for row in rows):
            raise ValueError(f"no row has {name!r}; the first one has {', '.join(map(repr, rows[0]))}")
    answers = [dict.fromkeys(COLUMNS) | {"id": row.get(id), **_lists(())} for row in rows]
    waiting, requests = dict(enumerate(answers)), []
    for at, row in enumerate(rows):
        request = _request(str(at), options, *(row.get(name) for name in names))
        if isinstance(request, Request):
            requests.append(request)
        else:
            waiting.pop(at)["error"] = request
    failure = None
    try:
        for answer in (_shared(client) if isinstance(client, str) else client).rerank_many(requests):
            row = waiting.pop(int(answer.request.id))
            row |= _lists(answer.ranking or ()) | {"error": str(answer.error) if answer.error else None}
    except RerankdError as failed:
        # The stream cannot be opened again.
        failure = failed
        for row in waiting.values():
            row["error"] = str(failed)
    return answers, failure


def check(options: Mapping[str, Any]) -> None:
    """Raise TypeError or ValueError for options that no request can have."""
    _convert.rerank_request(Request("", [], **options), ())


def arrow_schema(id_type: pa.DataType | None = None) -> pa.Schema:
    """The columns of `rank_batch` for pyarrow. Ids are strings, if no other type is given."""
    import pyarrow as pa

    numbers = pa.list_(pa.float64())
    types = [id_type or pa.string(), pa.list_(pa.int64()), numbers, numbers, pa.string()]
    return pa.schema(list(zip(COLUMNS, types, strict=True)))


def _request(name: str, options: Mapping[str, Any], query: Any, passages: Any, *scores: Any) -> Request | str:
    """The request of a row, or why it cannot be sent. On the stream, such a request would end all others."""
    try:
        request = Request(query, list(passages), scores=list(*scores) if scores else None, id=name, **options)
        _convert.rerank_request(request, _convert.passages(request.passages, request.scores))
    except (TypeError, ValueError) as wrong:
        return f"{type(wrong).__name__}: {wrong}"
    return request


def _lists(results: Sequence[Result]) -> dict[str, Any]:
    return {column: [getattr(result, name) for result in results] for column, name in LISTS.items()}
