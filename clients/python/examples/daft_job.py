"""Rank lists with Daft: python daft_job.py LISTS.jsonl HOST:PORT FOLDER.

A line has an id, a query and passages. The folder gets Parquet files.
"""

import sys
from typing import Any

import daft
import pyarrow as pa
from daft import DataType

from rerankd.batch import arrow_schema, rank_batch

ROW = DataType.from_arrow_type(pa.struct(list(arrow_schema())))


@daft.func.batch(return_dtype=ROW, unnest=True, batch_size=64)
def rank(id: daft.Series, query: daft.Series, passages: daft.Series, address: str) -> list[dict[str, Any]]:
    rows = zip(id.to_pylist(), query.to_pylist(), passages.to_pylist(), strict=True)
    return rank_batch([dict(zip(("id", "query", "passages"), row, strict=True)) for row in rows], address)


def main(lists: str, address: str, folder: str) -> None:
    frame = daft.read_json(lists)
    frame.select(rank(frame["id"], frame["query"], frame["passages"], address)).write_parquet(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
