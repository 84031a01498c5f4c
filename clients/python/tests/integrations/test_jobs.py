"""The examples of batch engines, each in its own process."""

import importlib
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from conftest import SOURCE

from integrations import Example
from rerankd.batch import rank_batch
from rerankd.testing import FakeServer

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
ENGINES = {"spark": "pyspark", "dask": "dask.dataframe", "daft": "daft", "beam": "apache_beam", "ray": "ray.data"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("engine", ENGINES)
def test_job(engine: str, server: FakeServer, tmp_path: pathlib.Path) -> None:
    pytest.importorskip(ENGINES[engine].partition(".")[0])
    importlib.import_module(ENGINES[engine])
    parquet = pytest.importorskip("pyarrow.parquet")
    rows: list[dict[str, Any]] = [
        {"id": f"q{at}", "query": "rye bread" if at != 3 else "", "passages": ["wheat", "rye", f"rye bread {at}"]}
        for at in range(8)
    ]
    lists = tmp_path / "lists.jsonl"
    lists.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = tmp_path / "ranked"
    environment = os.environ | {"PYTHONPATH": SOURCE, "RAY_USAGE_STATS_ENABLED": "0", "DO_NOT_TRACK": "1"}
    command = [sys.executable, str(EXAMPLES / f"{engine}_job.py"), str(lists), server.address, str(folder)]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path)
    found = parquet.read_table(folder).to_pylist()
    assert sorted(found, key=lambda row: row["id"]) == rank_batch(rows, server.address)


def test_example(example: Example) -> None:
    rows = [{"id": "q", "query": "rye", "passages": ["wheat", "rye"]}]
    assert example("Spark, Dask, Daft, Beam", rows=rows)["ranked"][0]["order"] == [1, 0]
