"""Servers that the client starts. A script that runs FakeServer takes the place of the program."""

import os
import pathlib
import pickle
import signal
import subprocess
import sys
import threading

import pytest
from conftest import SOURCE, program

from rerankd import LaunchFailed, LocalServer, Rerankd


def alive(folder: pathlib.Path) -> bool:
    try:
        os.kill(int((folder / "pid").read_text()), 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_serves_and_stops(stub: pathlib.Path) -> None:
    settings = {"generator.threads": 4, "generator.reproducible": True}
    with Rerankd.launch("some-model", binary=stub, settings=settings, timeout=10) as client:
        assert client.rerank("rye", ["wheat", "rye"])[0].index == 1
        assert alive(stub.parent)
    arguments = (stub.parent / "arguments").read_text()
    assert arguments.startswith("serve --listen 127.0.0.1:0 ")
    assert arguments.endswith(
        "--model some-model --set http.listen=off --set generator.threads=4 --set generator.reproducible=true"
    )
    assert not alive(stub.parent)
    assert (stub.parent / "stopped").exists()
    client.close()


def test_a_server_ends_with_its_client(stub: pathlib.Path) -> None:
    client = Rerankd.launch(binary=stub)
    copy = pickle.loads(pickle.dumps(client))
    copy.close()
    assert client.info().ready
    del client
    assert not alive(stub.parent)


def test_the_program_is_found(stub: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere: no such program"):
        LocalServer(binary="nowhere")
    empty = tmp_path / "empty"
    monkeypatch.setenv("RERANKD", "")
    monkeypatch.setenv("PATH", str(empty))
    with pytest.raises(FileNotFoundError, match=r"rerankd: no such program\. Install the wheel rerankd_server"):
        LocalServer()
    package = tmp_path / "packages" / "rerankd_server"
    packaged = program(package / "_bin" / "rerankd", stub.read_text())
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv("PATH", str(stub.parent))
    with LocalServer():
        assert alive(packaged.parent)
    packaged.unlink()
    with LocalServer():
        assert alive(stub.parent)
    (stub.parent / "pid").unlink()
    monkeypatch.setenv("PATH", str(empty))
    monkeypatch.setenv("RERANKD", str(stub))
    with LocalServer():
        assert alive(stub.parent)


def test_a_failure_has_the_log(tmp_path: pathlib.Path) -> None:
    lines = "\n".join(f"echo line {at} >&2" for at in range(50))
    failing = program(tmp_path / "rerankd", f"#!/bin/sh\n{lines}\nexit 78\n")
    with pytest.raises(LaunchFailed, match=r"ended with 78: line 30\n(.|\n)*line 49$"):
        LocalServer(binary=failing)
    broken = program(tmp_path / "rerankd", "#!/nowhere/python\n")
    with pytest.raises(LaunchFailed):
        LocalServer(binary=broken)


def test_a_server_that_is_never_ready_is_stopped(tmp_path: pathlib.Path) -> None:
    slow = program(
        tmp_path / "rerankd", '#!/bin/sh\necho $$ > "$(dirname "$0")/pid"\necho loading >&2\nexec sleep 600\n'
    )
    with pytest.raises(LaunchFailed, match="not ready in time: loading"):
        LocalServer(binary=slow, wait=1)
    assert not alive(tmp_path)


def test_a_server_outlives_the_thread_that_launched_it(stub: pathlib.Path) -> None:
    clients: list[Rerankd] = []
    thread = threading.Thread(target=lambda: clients.append(Rerankd.launch(binary=stub)))
    thread.start()
    thread.join()
    with clients.pop() as client:
        assert client.info().ready
        assert alive(stub.parent)


PARENT = """
import os, sys
from rerankd import Rerankd
client = Rerankd.launch(binary=sys.argv[1])
if hasattr(os, "fork"):
    child = os.fork()
    if child == 0:
        del client
        sys.exit()
    os.waitpid(child, 0)
assert client.info().ready
print("ready", flush=True)
if sys.argv[2] == "wait":
    sys.stdin.read()
"""


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_a_server_ends_with_its_process(stub: pathlib.Path, end: str) -> None:
    if end == "kill" and sys.platform != "linux":
        pytest.skip("only Linux ends a process with its parent")
    command = [sys.executable, "-c", PARENT, str(stub), "wait" if end == "kill" else "exit"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": SOURCE}
    ) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == "ready\n"
        if end == "kill":
            assert alive(stub.parent)
            parent.send_signal(signal.SIGKILL)
        assert parent.wait(60) == (-signal.SIGKILL if end == "kill" else 0)
        # The pipe of the log closes when the server has ended; an orphan is reaped by init.
        wait_for(stub.parent / "stopped")


def wait_for(file: pathlib.Path) -> None:
    waiting = threading.Event()
    for _ in range(600):
        if file.exists():
            return
        waiting.wait(0.05)
    raise AssertionError(f"{file.name} was not written")
