"""Two nodes of Ray on this machine. FakeServer takes the place of the program, except in the last test."""

import importlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import SOURCE, STUB, program
from grpc import StatusCode

from integrations import Example
from rerankd import Rerankd, Unauthenticated, Unavailable
from rerankd.batch import rank_batch
from rerankd.testing import Failure, FakeServer

ray = pytest.importorskip("ray")
parquet = pytest.importorskip("pyarrow.parquet")
rerank = pytest.importorskip("rerankd.ray").rerank

pytestmark = pytest.mark.timeout(900)
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": 200 << 20}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", SOURCE)
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
        cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield cluster
        ray.shutdown()
        cluster.shutdown()


def lists(count: int) -> list[dict[str, Any]]:
    words = ["wheat", "rye", "oat", "barley", "spelt"]
    return [
        {"id": f"q{at}", "query": f"{words[at % 5]} {at}", "passages": [*words, f"{words[at % 5]} {at}"]}
        for at in range(count)
    ]


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: int(row["id"].removeprefix("q")))


def wait(condition: Any, seconds: float = 400) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.05)


def test_rows(cluster: Any, server: FakeServer) -> None:
    rows = lists(20)
    rows[3]["query"] = ""
    ranked = rerank(ray.data.from_items(rows), client=server.address, workers=2, batch_size=7, top_n=2)
    expected = rank_batch(rows, server.address, top_n=2)
    assert expected[3]["error"] == "query: must not be empty (INVALID_ARGUMENT)"
    assert by_id(ranked.take_all()) == expected


def test_a_server_that_is_gone(cluster: Any, server: FakeServer) -> None:
    """Its rows are not written, or a job that continues would not rank them."""
    server.stop()
    with pytest.raises(Exception, match="UNAVAILABLE"):
        rerank(ray.data.from_items(lists(2)), client=server.address).materialize()


def test_rows_without_an_answer_are_ranked_again(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server may be back before the worker looks."""
    module = importlib.import_module("rerankd.ray")
    rows = lists(2)
    good = rank_batch(rows, server.address)
    gone = Unavailable("connection refused", StatusCode.UNAVAILABLE)
    lost = [good[0], good[1] | {"error": "no answer"}], gone
    worker = module._Worker(server.address, {}, {"id": "id"})
    batch = module.pa.Table.from_pylist(rows)
    for answers in [lost, (good, None)], [(good, None)]:
        monkeypatch.setattr(module, "rank_rows", lambda *_, answers=answers, **__: answers.pop(0))
        assert worker(batch).to_pylist() == good
    monkeypatch.setattr(module, "rank_rows", lambda *_, **__: lost)
    with pytest.raises(Unavailable, match="refused"):
        worker(batch)


def test_a_wrong_token_or_option_fails_the_job() -> None:
    module = importlib.import_module("rerankd.ray")
    batch = module.pa.Table.from_pylist(lists(2))
    with FakeServer(token="right") as server, Rerankd(server.address, token="wrong") as client:
        with pytest.raises(Unauthenticated):
            module._Worker(client, {}, {"id": "id"})(batch)
        with pytest.raises(ValueError, match="no row has 'text'"):
            module._Worker(client, {}, {"id": "id", "passages": "text"})(batch)
        with pytest.raises(TypeError, match="topn"):
            rerank(ray.data.from_items(lists(2)), client=client, topn=3)


def test_example(cluster: Any, example: Example) -> None:
    found = example("Ray", dataset=ray.data.from_items(lists(4)))["ranked"].take_all()
    assert [row["order"][0] for row in by_id(found)] == [5] * 4


def test_a_job_continues(cluster: Any, tmp_path: pathlib.Path) -> None:
    rows = lists(1000)
    lines, folder = tmp_path / "lists.jsonl", tmp_path / "ranked"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    environment = os.environ | {"RAY_ADDRESS": cluster.address}
    with FakeServer(seconds=0.01) as server:
        command = [sys.executable, str(EXAMPLES / "ray_job.py"), str(lines), server.address, str(folder)]
        with subprocess.Popen(command, env=environment) as job:
            wait(lambda: folder.exists() and len(list(folder.iterdir())) >= 3)
            job.kill()
        before = len(server.calls)
        assert before < len(rows)
        subprocess.run(command, env=environment, check=True)
        # Some were ranked when the job was killed, and had not been written.
        assert len(rows) <= len(server.calls) < before + len(rows)
        assert by_id(parquet.read_table(folder).to_pylist()) == rank_batch(rows, server.address)


@pytest.fixture
def slow_stub(tmp_path: pathlib.Path) -> pathlib.Path:
    """Writes its process id into a folder after its first call, because several run at once."""
    text = STUB.format(python=sys.executable, source=SOURCE)
    text = text.replace("FakeServer()", "FakeServer(seconds=0.2)")
    ready = """while not server.calls and not stopped.wait(0.02): pass
    (folder / f"pid-{os.getpid()}").touch()
    stopped.wait()"""
    text = text.replace('(folder / "pid").write_text(str(os.getpid()))', "").replace("stopped.wait()", ready)
    return program(tmp_path / "program" / "rerankd", text)


def servers(stub: pathlib.Path) -> list[int]:
    found = []
    for file in stub.parent.glob("pid-*"):
        process = int(file.name.removeprefix("pid-"))
        state = pathlib.Path(f"/proc/{process}/stat")
        if state.exists() and ") Z " not in state.read_text():
            found.append(process)
    return found


def test_workers_and_servers_may_be_killed(
    cluster: Any, server: FakeServer, slow_stub: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    rows = lists(60)
    dataset = ray.data.from_items(rows)
    ranked = rerank(dataset, launch={"binary": slow_stub, "timeout": 2}, workers=2, batch_size=5)
    job = threading.Thread(target=ranked.write_parquet, args=[tmp_path / "ranked"])
    job.start()
    wait(lambda: len(servers(slow_stub)) == 2 and len(list(tmp_path.glob("ranked/*"))) >= 2)
    # A worker dies and takes its server along; the other worker loses its server.
    first, second = servers(slow_stub)
    os.kill(parent(first), signal.SIGKILL)
    os.kill(second, signal.SIGKILL)
    job.join()
    assert len(list(slow_stub.parent.glob("pid-*"))) == 4
    assert by_id(parquet.read_table(tmp_path / "ranked").to_pylist()) == rank_batch(rows, server.address)
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
def test_the_program(cluster: Any) -> None:
    settings = {"generator.reproducible": True, "position_bias.learn": False}
    launch = {"binary": os.environ["RERANKD"], "settings": settings, "wait": 300}
    rows = lists(8)

    def ranked(workers: int) -> list[dict[str, Any]]:
        dataset = ray.data.from_items(rows)
        found = rerank(dataset, launch=launch, workers=workers, batch_size=2, method="query-generation").take_all()
        return by_id(found)

    one = ranked(1)
    assert ranked(2) == one
    assert not any(row["error"] for row in one)
