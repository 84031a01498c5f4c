"""Two nodes of Ray on this machine. FakeServer takes the place of the program, except in the last test."""

import importlib
import json
import os
import pathlib
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import SOURCE, STUB, program

from integrations import Example
from rerankd import Rerankd
from rerankd.testing import Failure, FakeServer

ray = pytest.importorskip("ray")
pytest.importorskip("pyarrow")
rerank = pytest.importorskip("rerankd.ray").rerank

pytestmark = pytest.mark.timeout(300)
COUNT = 60
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    node = {"num_cpus": 2, "object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    cluster.add_node(num_cpus=2, object_store_memory=80 << 20)
    ray.init(address=cluster.address, runtime_env={"env_vars": {"PYTHONPATH": SOURCE}}, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def lists(count: int = COUNT) -> list[dict[str, Any]]:
    words = ["wheat", "rye", "oat", "barley", "spelt"]
    return [
        {"id": f"q{at}", "query": f"{words[at % 5]} {at}", "passages": [*words, f"{words[at % 5]} {at}"]}
        for at in range(count)
    ]


def by_id(dataset: Any) -> dict[str, dict[str, Any]]:
    rows = dataset.take_all()
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows), "an id has two rows"
    return found


@pytest.fixture
def slow_stub(tmp_path: pathlib.Path) -> pathlib.Path:
    """Writes its process id into a folder, because several run at once."""
    text = STUB.format(python=sys.executable, source=SOURCE)
    text = text.replace("FakeServer()", "FakeServer(seconds=0.05)")
    text = text.replace('(folder / "pid").write_text(str(os.getpid()))', '(folder / f"pid-{os.getpid()}").touch()')
    return program(tmp_path / "program" / "rerankd", text)


def servers(stub: pathlib.Path) -> list[int]:
    found = []
    for file in stub.parent.glob("pid-*"):
        process = int(file.name.removeprefix("pid-"))
        state = pathlib.Path(f"/proc/{process}/stat")
        if state.exists() and ") Z " not in state.read_text():
            found.append(process)
    return found


def wait(condition: Any, seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.05)


def test_rows_errors_and_resume(cluster: Any, server: FakeServer, tmp_path: pathlib.Path) -> None:
    rows = lists()
    rows[3]["query"] = ""
    folder = tmp_path / "ranked"
    options: dict[str, Any] = {"client": server.address, "batch_size": 7, "workers": 2, "top_n": 2}
    server.script("RerankStream", Failure("INTERNAL", "a fault"))
    found = by_id(rerank(ray.data.from_items(rows), folder, **options))
    assert set(found) == {row["id"] for row in rows}
    failed = {name: row["error"] for name, row in found.items() if row["error"]}
    assert failed.pop("q3") == "query: must not be empty (INVALID_ARGUMENT)"
    assert list(failed.values()) == ["a fault (INTERNAL)"]
    assert list(found["q1"]["order"]) == [5, 1]
    # The same call ranks rows that are missing or have an error, and no others.
    next(iter(folder.glob("*.parquet"))).unlink()
    left = len(by_id(ray.data.read_parquet(str(folder))))
    calls = len(server.calls)
    again = by_id(rerank(ray.data.from_items(rows), folder, **options))
    assert [name for name, row in again.items() if row["error"]] == ["q3"]
    assert len(server.calls) - calls in range(COUNT - left + 1, COUNT - left + 3)
    assert set(again) == set(found)
    more = by_id(rerank(ray.data.from_items([*rows, {**rows[0], "id": "new"}]), folder, **options))
    assert set(more) == {*found, "new"}
    with pytest.raises(ValueError, match="another folder"):
        rerank(ray.data.from_items(rows), folder, **options | {"top_n": 3})
    assert not [
        file.name for file in folder.iterdir() if file.name not in {"_options.json"} and file.suffix != ".parquet"
    ]


def test_example(cluster: Any, example: Example, tmp_path: pathlib.Path) -> None:
    found = by_id(example("Ray", dataset=ray.data.from_items(lists(4)), folder=tmp_path)["ranked"])
    assert [found[f"q{at}"]["order"][0] for at in range(4)] == [5] * 4


def test_ids_must_be_unique(cluster: Any, server: FakeServer, tmp_path: pathlib.Path) -> None:
    rows = lists(3)
    for wrong, message in (("q0", "id: several rows have the id 'q0'"), (None, "id: 1 rows have no id")):
        with pytest.raises(ValueError, match=message):
            rerank(ray.data.from_items([*rows, {**rows[1], "id": wrong}]), tmp_path, client=server.address)
    assert not server.calls


def test_two_rows_of_an_id_become_one(cluster: Any, server: FakeServer, tmp_path: pathlib.Path) -> None:
    """A worker that was lost may still write its batch."""
    dataset = ray.data.from_items(lists(8))
    options: dict[str, Any] = {"client": Rerankd([server.address]), "batch_size": 4}
    first = by_id(rerank(dataset, tmp_path, **options))
    parquet = importlib.import_module("pyarrow.parquet")
    part = parquet.read_table(next(iter(tmp_path.glob("*.parquet"))))
    parquet.write_table(part.slice(0, 3), tmp_path / "late.parquet")
    assert by_id(rerank(dataset, tmp_path, **options)) == first


def test_workers_launch_servers_and_may_be_killed(
    cluster: Any, slow_stub: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    dataset = ray.data.from_items(lists())
    launch = {"binary": slow_stub}
    one = by_id(rerank(dataset, tmp_path / "one", launch=launch, batch_size=5))
    wait(lambda: not servers(slow_stub))
    folder = tmp_path / "two"
    found: list[Any] = []

    def run() -> None:
        found.append(by_id(rerank(dataset, folder, launch=launch, batch_size=5, workers=2)))

    job = threading.Thread(target=run)
    job.start()
    wait(lambda: len(list(folder.glob("*.parquet"))) >= 3)
    # A worker dies and takes its server along; then the other worker loses its server.
    first, second = servers(slow_stub)
    os.kill(parent(first), signal.SIGKILL)
    os.kill(second, signal.SIGKILL)
    job.join()
    assert found == [one]
    assert not any(row["error"] for row in one.values())
    wait(lambda: not servers(slow_stub))


def parent(process: int) -> int:
    return int(pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_serve(cluster: Any, server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    serve = pytest.importorskip("ray.serve")
    monkeypatch.syspath_prepend(EXAMPLES)
    example = importlib.import_module("ray_serve")
    # The replicas do not find the module.
    importlib.import_module("ray.cloudpickle").register_pickle_by_value(example)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(example.application({"target": server.address}))

    def ask(body: str) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", body.encode(), timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as failed:
            return failed.code, json.load(failed)

    best = {"results": [{"index": 1, "score": 0.75}]}
    assert ask('{"query": "rye", "passages": ["wheat", "rye"], "top_n": 1}') == (200, best)
    assert ask('{"passages": ["wheat"]}')[0] == 400
    assert "query" in ask('{"passages": ["wheat"]}')[1]["error"]
    assert ask("{")[0] == ask("7")[0] == 400
    server.script("Rerank", Failure("FAILED_PRECONDITION", "no model"))
    assert ask('{"query": "rye", "passages": ["rye"]}')[0] == 503
    serve.shutdown()


@pytest.mark.skipif(not os.environ.get("RERANKD"), reason="RERANKD is not set")
def test_the_program(cluster: Any, tmp_path: pathlib.Path) -> None:
    settings = {"generator.reproducible": True, "position_bias.learn": False}
    launch = {"binary": os.environ["RERANKD"], "settings": settings, "timeout": 240}
    dataset = ray.data.from_items(lists(8))
    one = by_id(rerank(dataset, tmp_path / "one", launch=launch, batch_size=2, method="query-generation"))
    two = by_id(rerank(dataset, tmp_path / "two", launch=launch, batch_size=2, workers=2, method="query-generation"))
    assert two == one
    assert not any(row["error"] for row in one.values())
