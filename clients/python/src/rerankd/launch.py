"""A local server that ends with the program that started it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from rerankd.client import Rerankd
from rerankd.errors import RerankdError

if TYPE_CHECKING:
    from collections.abc import Mapping

# On Linux the kernel ends the server with its parent, even if that is killed. The option needs a call between fork and
# exec, and Python code there may hang in a program with threads. So a fresh interpreter makes the call and becomes the
# server.
WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGTERM)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
STOP_SECONDS = 30


class LaunchFailed(RuntimeError):
    """The server ended, or was not ready in time. The message has the last lines of its log."""


class LocalServer:
    """`rerankd serve` on a free port of this machine. The constructor returns when its model is loaded.

    `model` is a name of the catalogue or a GGUF file, `settings` are keys of the configuration, such as
    `{"generator.threads": 4}`. HTTP is off unless they set `http.listen`, because its default port is the same for all
    servers. The program is `binary`, the environment variable RERANKD, that of the package `rerankd-server`, or
    `rerankd` on the PATH. `wait` is in seconds.

    The server ends with `stop`, at the end of a `with` block, with this object, or with this process. A process that
    is killed takes its server along only on Linux.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        binary: str | os.PathLike[str] | None = None,
        settings: Mapping[str, object] | None = None,
        wait: float = 120.0,
    ) -> None:
        with tempfile.TemporaryDirectory(prefix="rerankd-") as folder:
            address = Path(folder, "address")
            command = [find(binary), "serve", "--listen", "127.0.0.1:0", "--address-file", str(address)]
            if model is not None:
                command += ["--model", os.fspath(model)]
            for key, value in {"http.listen": "off", **(settings or {})}.items():
                command += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
            process = _Process(command)
            self._end = weakref.finalize(self, process.stop)
            try:
                self.address = process.ready(address, time.monotonic() + wait)
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Stop the server. A second call does nothing."""
        self._end()

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Process:
    """The process, and the thread that started it, which reads its log.

    The parent of a process is a thread for the kernel, so the thread lives as long as the process.
    """

    def __init__(self, command: list[str]) -> None:
        if sys.platform == "linux" and sys.executable:
            command = [sys.executable, "-ISc", WITH_PARENT, str(os.getpid()), *command]
        self._command, self._owner = command, os.getpid()
        self._log: deque[str] = deque(maxlen=20)
        self._failure: OSError | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rerankd", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            raise LaunchFailed(f"{command[0]}: {self._failure}")

    def _run(self) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the program is the caller's choice
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            )
        except OSError as failure:
            self._failure = failure
            return
        finally:
            self._started.set()
        with self._process:
            self._log.extend(self._process.stderr or ())

    def ready(self, file: Path, until: float) -> str:
        """The address, when the model is loaded."""
        while True:
            if not self._thread.is_alive():
                raise self._error(f"rerankd serve ended with {self._process.returncode}")
            if file.exists():
                address = file.read_text().strip()
                try:
                    with Rerankd(address) as client:
                        if client.info(timeout=5).ready:
                            return address
                except RerankdError:
                    # The log says why, if it does not change.
                    pass
            if time.monotonic() > until:
                raise self._error("rerankd serve was not ready in time")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the process. A forked child leaves it alone."""
        if os.getpid() != self._owner:
            return
        self._process.terminate()
        if threading.current_thread() is self._thread:
            # The garbage collector runs in any thread, and this one must read the log until the process ends.
            return
        self._thread.join(STOP_SECONDS)
        self._process.kill()
        self._thread.join()

    def _error(self, what: str) -> LaunchFailed:
        return LaunchFailed(f"{what}: {''.join(self._log).strip() or 'its log is empty'}")


def find(binary: str | os.PathLike[str] | None = None) -> str:
    """The path of the program."""
    wanted = os.fspath(binary) if binary else os.environ.get("RERANKD")
    found = shutil.which(wanted) if wanted else packaged() or shutil.which("rerankd")
    if found is None:
        raise FileNotFoundError(
            f"{wanted or 'rerankd'}: no such program. Install the wheel rerankd_server that `make dist` writes, "
            "or set RERANKD or binary to its path"
        )
    return os.path.abspath(found)


def packaged() -> str | None:
    """The program of the package rerankd-server, whose version fits this client."""
    package = importlib.util.find_spec("rerankd_server")
    return shutil.which(Path(package.origin).with_name("_bin") / "rerankd") if package and package.origin else None
