"""Public Python clients against a release binary with the default models and settings: every method of rerankd.v1 and tei.v1 over
grpcio, and the clients of other rerankers over HTTP, each with its own defaults but URL, token and model. Prints a line per check; the
exit code is 1 if one fails.

    python tests/clients/run.py BINARY ENVIRONMENTS

ENVIRONMENTS is a folder with a virtual environment for each file of requirements here.
"""

import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from common import QUESTION, Checks, Servers, same

HERE = pathlib.Path(__file__).resolve().parent
PROTOCOL = HERE.parents[1] / "proto"
START_SECONDS = 120

# Scores of equal requests differ by less, also with block types ("Rounding" in docs/experiments/speed.md).
ROUNDING = 0.05

# The scripts of each environment. Versions of cohere, httpx and protobuf keep the clients apart.
ENVIRONMENTS = {
    "protobuf5": ["stub_clients", "infinity_clients"],
    "protobuf6": ["stub_clients", "cohere_clients", "langchain_clients", "llama_index_cohere_clients", "haystack_clients"],
    "protobuf7": [
        "stub_clients",
        "grpc_clients",
        "cohere_clients",
        "llama_index_clients",
        "litellm_clients",
        "rerankers_clients",
    ],
}


class Server:
    """The binary on free loopback ports. Stopped by its process id."""

    def __init__(self, binary, **settings):
        self.binary, self.lines = binary, []
        command = [binary, "serve", "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"]
        settings |= {
            # Patient on a busy machine: clients that retry a refusal wait longer than the work takes.
            "limits.queue_seconds": "unlimited",
            "log.format": "json",
            "position_bias.learn": "false",
        }
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def address(self, message):
        """The address in a line of the log."""
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            for line in list(self.lines):
                fields = json.loads(line).get("fields", {}) if line.startswith("{") else {}
                if fields.get("message") == message:
                    return fields["address"]
            time.sleep(0.05)
        raise RuntimeError("the server does not listen:\n" + "".join(self.lines))

    def ready(self):
        """Its addresses for gRPC and HTTP, once it serves."""
        grpc, http = self.address("listening"), self.address("listening for HTTP")
        command = [self.binary, "health", "--server", grpc, "--wait", str(START_SECONDS)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return grpc, f"http://{http}"

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


class Asked(Servers):
    """The servers, and a check against the order of a whole list."""

    def check_order(self, found, model=""):
        """Texts are in the order of the whole list, unless their scores differ by rounding."""
        assert len(set(found)) == len(found), found
        body = json.dumps({"query": QUESTION, "documents": sorted(found), "model": model}).encode()
        headers = {"authorization": f"Bearer {self.token}"}
        with urllib.request.urlopen(urllib.request.Request(f"{self.http}/v1/rerank", body, headers)) as answer:
            results = json.load(answer)["results"]
        scores = {result["document"]["text"]: result["relevance_score"] for result in results}
        for before, after in itertools.combinations(found, 2):
            assert scores[before] > scores[after] - ROUNDING, f"{before} {scores[before]}, {after} {scores[after]}"


def token(binary, folder):
    """A new token, and the file that a server reads."""
    command = [binary, "token", "new", "clients"]
    new, line = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    tokens = folder / "tokens"
    tokens.write_text(line + "\n")
    tokens.chmod(0o600)
    return new, tokens


def main(binary, environments):
    # A proxy cannot reach the loopback address.
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
    checks, failed = Checks(), 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        new, tokens = token(binary, folder)
        # Without a token, and with the settings of docs/how-to/migrate.md for clients that split a list or wait five seconds.
        settings = {"http.latency_budget_ms": 2000}
        servers = [Server(binary, **{"auth.tokens_file": tokens}), Server(binary, **settings)]
        try:
            (grpc, http), (open_grpc, open_http) = (server.ready() for server in servers)
            stubs = folder / "stubs"
            stubs.mkdir()
            python = {name: str(environments / name / "bin/python") for name in ENVIRONMENTS}
            # Made as scripts/python-stubs.sh makes them, with those of tei.v1.
            files = [str(path) for path in sorted(PROTOCOL.rglob("*.proto"))]
            made = [f"-I{PROTOCOL}", f"--python_out={stubs}", f"--grpc_python_out={stubs}", *files]
            subprocess.run([python["protobuf5"], "-m", "grpc_tools.protoc", *made], check=True)
            given = {"grpc": grpc, "http": http, "token": new, "open_grpc": open_grpc, "open_http": open_http}
            # No client needs another address than the server's.
            quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HAYSTACK_TELEMETRY_ENABLED": "False"}
            environment = os.environ | quiet | {"PYTHONPATH": str(stubs)}
            for name, modules in ENVIRONMENTS.items():
                command = [python[name], __file__, "--inside", json.dumps(given), *modules]
                failed += subprocess.run(command, env=environment).returncode != 0
            for server in servers:
                checks("a server stops with 0", lambda server=server: same(server.stop(), 0))
        finally:
            for server in servers:
                server.kill()
        if failed or checks.failed:
            print("".join(line for server in servers for line in server.lines[-40:]), file=sys.stderr)
    return failed or checks.failed


def inside(given, modules):
    """Runs the checks of this environment."""
    checks, servers = Checks(), Asked(**json.loads(given))
    for name in modules:
        # A client that cannot be imported fails alone.
        checks(f"{name}: import", lambda name=name: __import__(name))
        if name in sys.modules:
            sys.modules[name].run(checks, servers)
    print(f"{checks.passed} checks passed, {checks.failed} failed")
    return checks.failed


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        sys.exit(bool(inside(sys.argv[2], sys.argv[3:])))
    sys.exit(bool(main(sys.argv[1], pathlib.Path(sys.argv[2]))))
