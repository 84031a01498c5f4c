import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

import rerankd
from rerankd import Rerankd
from rerankd.testing import FakeServer


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as server:
        yield server


@pytest.fixture
def client(server: FakeServer) -> Iterator[Rerankd]:
    with Rerankd(server.address, timeout=10) as client:
        yield client


class Process:
    """A FakeServer in a process of its own, which a test may kill."""

    def __init__(self, *arguments: str) -> None:
        source = os.path.dirname(os.path.dirname(rerankd.__file__))
        command = [sys.executable, "-m", "rerankd.testing", *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": source}
        )
        assert self.process.stdout
        self.address = self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        assert self.process.stdout
        self.process.stdout.close()
