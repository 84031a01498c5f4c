"""Fork, pickle, worker processes."""

import concurrent.futures
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys

import pytest
from conftest import Process

from rerankd import TLS, AsyncRerankd, Request, Rerankd, Retry


def first(client: Rerankd) -> int:
    return client.rerank("rye", ["wheat", "rye"])[0].index


def test_pickle(client: Rerankd) -> None:
    assert first(client) == 1
    copy = pickle.loads(pickle.dumps(client))
    assert first(copy) == 1
    copy.close()
    settings = AsyncRerankd(["a:1", "b:1"], token="t", tls=TLS(ca="ca"), timeout=3, retry=Retry(2))
    assert pickle.loads(pickle.dumps(settings)).__getstate__() == settings.__getstate__()


def test_rankings_and_requests_are_pickled(client: Rerankd) -> None:
    ranking = pickle.loads(pickle.dumps(client.rerank("rye", ["wheat", "rye"])))
    assert ranking[0].text == "rye"
    assert pickle.loads(pickle.dumps(Request("q", ["a"], top_n=1))).top_n == 1


def test_spawned_workers(client: Rerankd) -> None:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        assert list(pool.map(first, [client] * 4)) == [1] * 4


FORK = """
import os, sys, signal
from rerankd import AsyncRerankd, Rerankd
client = Rerankd(sys.argv[1], timeout=10)
first = lambda: client.rerank("rye", ["wheat", "rye"])[0].index
answers = list(client.rerank_many([("rye", ["wheat", "rye"])] * 3))
assert first() == 1
for _ in range(3):
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        os._exit(0 if first() == 1 and first() == 1 and len(list(client.rerank_many([("a", ["a"])] * 3))) == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0, "the child failed"
    assert first() == 1
print("ok")
"""


FORK_AFTER_ASYNCIO = """
import asyncio, os, signal, sys
from rerankd import AsyncRerankd, Rerankd
client = AsyncRerankd(sys.argv[1], timeout=10)
async def first():
    return (await client.rerank("rye", ["wheat", "rye"]))[0].index
assert asyncio.run(first()) == 1
child = os.fork()
if child == 0:
    signal.alarm(30)
    refused = 0
    for call in (lambda: asyncio.run(first()), lambda: Rerankd(sys.argv[1]).info()):
        try:
            call()
        except RuntimeError:
            refused += 1
    os._exit(refused)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
assert asyncio.run(first()) == 1
print("ok")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("program", [FORK, FORK_AFTER_ASYNCIO])
def test_fork(program: str) -> None:
    with Process() as process:
        command = [sys.executable, "-c", program, process.address]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        assert done.stdout.strip() == "ok", done.stderr


def test_the_server_of_the_command_line_stops() -> None:
    process = Process()
    process.process.send_signal(signal.SIGTERM)
    assert process.process.wait(10) == 0
    process.__exit__()
