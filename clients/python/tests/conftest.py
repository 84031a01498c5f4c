import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

import rerankd
from rerankd import Rerankd
from rerankd.testing import FakeServer

SOURCE = str(pathlib.Path(rerankd.__file__).parents[1])
# Takes the arguments of `rerankd serve`, and writes them and its process id into the folder of the script.
STUB = """#!{python}
import os, pathlib, signal, sys, threading
sys.path.insert(0, {source!r})
from rerankd.testing import FakeServer
stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())
folder = pathlib.Path(__file__).parent
(folder / "arguments").write_text(" ".join(sys.argv[1:]))
(folder / "pid").write_text(str(os.getpid()))
with FakeServer() as server:
    file = pathlib.Path(sys.argv[sys.argv.index("--address-file") + 1])
    file.with_suffix(".new").write_text(server.address)
    file.with_suffix(".new").rename(file)
    stopped.wait()
(folder / "stopped").touch()
"""


def program(path: pathlib.Path, text: str) -> pathlib.Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def stub(tmp_path: pathlib.Path) -> pathlib.Path:
    return program(tmp_path / "rerankd", STUB.format(python=sys.executable, source=SOURCE))


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
        command = [sys.executable, "-m", "rerankd.testing", *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": SOURCE}
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
