"""Rank lists with Dask: python dask_job.py LISTS.jsonl HOST:PORT FOLDER.

A line has an id, a query and passages. The folder gets Parquet files.
"""

import sys

import dask
import dask.dataframe as dd
import pandas as pd

from rerankd.batch import COLUMNS, arrow_schema, rank_batch

META = pd.DataFrame({name: pd.Series(dtype=object) for name in COLUMNS})


def main(lists: str, address: str, folder: str) -> None:
    # With this option, Dask makes strings of lists.
    with dask.config.set({"dataframe.convert-string": False}):
        rows = dd.read_json(lists, lines=True, blocksize=1_000_000, dtype=False)
        ranked = rows.map_partitions(rank_batch, address, meta=META)
        ranked.to_parquet(folder, schema=arrow_schema(), write_index=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
