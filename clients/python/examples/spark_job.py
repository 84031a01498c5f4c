"""Rank lists with Spark: python spark_job.py LISTS.jsonl HOST:PORT FOLDER.

A line has an id, a query and passages. The folder gets Parquet files.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from rerankd.batch import rank_batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

SCHEMA = "id string, order array<long>, scores array<double>, utilities array<double>, error string"


def main(lists: str, address: str, folder: str) -> None:
    def rank(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        return (rank_batch(batch, address) for batch in batches)

    # The workers take the Python of this program, not the first one on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.getOrCreate()
    # Spark reads a small file as one partition.
    rows = spark.read.schema("id string, query string, passages array<string>").json(lists).repartition(4)
    rows.mapInPandas(rank, SCHEMA).write.mode("overwrite").parquet(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
