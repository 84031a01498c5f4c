"""Public Python clients against a release binary with the default models: every method of rerankd.v1 and tei.v1 over grpcio, and
the SDKs of other rerankers over HTTP. Prints a line a check; the exit code is 1 if one fails.

    python tests/clients/run.py [BINARY]
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALIASES = "rerank-v3.5, jina-reranker-v2-base-multilingual"
START_SECONDS = 120


class Server:
    """The binary on free loopback ports, with a token. Stopped by its process id."""

    def __init__(self, binary, folder):
        self.binary, self.lines = binary, []
        token, line = subprocess.run([binary, "token", "new", "clients"], check=True, capture_output=True, text=True).stdout.split()
        self.token = token
        tokens = folder / "tokens"
        tokens.write_text(line + "\n")
        tokens.chmod(0o600)
        settings = {
            "auth.tokens_file": tokens,
            "http.model_aliases": ALIASES,
            # Patient on a busy machine: clients that retry a refusal wait longer than the work takes.
            "limits.queue_seconds": 0,
            "log.format": "json",
            "position_bias.learn": "false",
        }
        command = [binary, "serve", "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def address(self, message):
        """The address that a line of the log tells."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            for line in list(self.lines):
                fields = json.loads(line).get("fields", {}) if line.startswith("{") else {}
                if fields.get("message") == message:
                    return fields["address"]
            time.sleep(0.05)
        raise RuntimeError("the server does not listen:\n" + "".join(self.lines))

    def wait(self, address):
        subprocess.run(
            [self.binary, "health", "--server", address, "--wait", str(START_SECONDS)], check=True, stdout=subprocess.DEVNULL
        )

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


class Checks:
    """Runs checks and counts the failed ones."""

    def __init__(self):
        self.passed = self.failed = 0

    def __call__(self, name, check):
        began = time.monotonic()
        try:
            check()
        except Exception:  # noqa: BLE001: every failure is one of the check
            self.failed += 1
            print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
        else:
            self.passed += 1
            print(f"ok      {name} ({time.monotonic() - began:.1f} s)", flush=True)


def stubs(folder):
    """Makes stubs of the protocol and puts them on the path."""
    from grpc_tools import protoc

    files = [str(path) for path in sorted((ROOT / "proto").rglob("*.proto"))]
    arguments = ["protoc", f"-I{ROOT / 'proto'}", f"--python_out={folder}", f"--grpc_python_out={folder}", *files]
    if protoc.main(arguments) != 0:
        raise RuntimeError("the stubs cannot be made")
    sys.path.insert(0, str(folder))


def main():
    # A proxy has no way to the loopback address.
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
    binary = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "target/release/rerankd")
    checks = Checks()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        (folder / "stubs").mkdir()
        stubs(folder / "stubs")
        import grpc_clients
        import http_clients

        server = Server(binary, folder)
        try:
            grpc, http = server.address("listening"), server.address("listening for HTTP")
            server.wait(grpc)
            grpc_clients.run(checks, grpc, server.token)
            http_clients.run(checks, f"http://{http}", server.token)
            code = server.stop()
            checks("the server stops with 0", lambda: same(code, 0))
        finally:
            if server.process.poll() is None:
                server.process.kill()
                server.process.wait()
        if checks.failed:
            print("".join(server.lines[-40:]), file=sys.stderr)
    print(f"{checks.passed} checks passed, {checks.failed} failed")
    return 1 if checks.failed else 0


def same(found, expected):
    if found != expected:
        raise AssertionError(f"{found!r}, expected {expected!r}")


if __name__ == "__main__":
    sys.exit(main())
