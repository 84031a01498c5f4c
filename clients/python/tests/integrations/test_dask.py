import pytest

from integrations import QUERY, TEXTS
from rerankd.batch import COLUMNS, rank_batch
from rerankd.testing import FakeServer

dask = pytest.importorskip("dask")
frames = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")


def test_partitions(server: FakeServer) -> None:
    rows = [{"id": f"q{at}", "query": QUERY if at else "", "passages": TEXTS} for at in range(4)]
    # Dask would make strings of the lists.
    with dask.config.set({"dataframe.convert-string": False}):
        frame = frames.from_pandas(pd.DataFrame(rows), npartitions=2)
        meta = pd.DataFrame({name: pd.Series(dtype=object) for name in COLUMNS})
        found = frame.map_partitions(rank_batch, server.address, meta=meta).compute(scheduler="threads")
    assert found["id"].tolist() == ["q0", "q1", "q2", "q3"]
    assert found["order"].tolist() == [[], [1, 2, 0], [1, 2, 0], [1, 2, 0]]
    assert found["error"].isna().tolist() == [False, True, True, True]
