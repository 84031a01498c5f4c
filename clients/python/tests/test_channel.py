"""Targets, credentials, several servers."""

import os
import pathlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import Process

import rerankd
from rerankd import TLS, Rerankd, Retry
from rerankd.channel import channel_options, configure, resolve
from rerankd.testing import Failure, FakeServer


def options(*addresses: str, tls: bool | TLS = False) -> dict[str, object]:
    return dict(channel_options(configure(list(addresses), None, tls, 1, Retry())))


def target(*addresses: str) -> str:
    return resolve(configure(list(addresses), None, False, 1, Retry()))


def test_targets() -> None:
    assert target("localhost") == "localhost:50051"
    assert target("http://reranker.example:80/") == "reranker.example:80"
    assert target("[::1]:9") == "[::1]:9"
    assert target("dns:///reranker.example:50051") == "dns:///reranker.example:50051"
    assert target("127.0.0.1:1", "127.0.0.2:2") == "ipv4:127.0.0.1:1,127.0.0.2:2"
    assert target("[::1]:1", "[::1]:2") == "ipv6:[::1]:1,[::1]:2"
    assert configure("https://reranker.example:443", None, False, 1, Retry()).tls == TLS()


@pytest.mark.parametrize("addresses", [[], ["a:b"], [":1"], ["http://a:1/path"], ["::1"], ["dns:///a:1", "b:1"]])
def test_bad_targets(addresses: list[str]) -> None:
    with pytest.raises(ValueError, match="target"):
        Rerankd(addresses)


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="mixed"):
        target("127.0.0.1:1", "[::1]:2")
    with pytest.raises(ValueError, match="server_name"):
        Rerankd(["10.0.0.1:1", "10.0.0.2:1"], tls=True)
    with pytest.raises(ValueError, match="timeout"):
        Rerankd(timeout=0)
    with pytest.raises(ValueError, match="attempts"):
        Retry(attempts=9)


def test_authority() -> None:
    assert "grpc.default_authority" not in options("10.0.0.1:1")
    assert options("10.0.0.1:1", "10.0.0.2:1")["grpc.default_authority"] == "rerankd"
    assert options("ipv4:10.0.0.1:1,10.0.0.2:1")["grpc.default_authority"] == "rerankd"
    assert options("a.example:1", "b.example:1", tls=True)["grpc.default_authority"] == "a.example"
    assert options("10.0.0.1:1", tls=TLS(server_name="r"))["grpc.default_authority"] == "r"


def test_no_proxy_on_loopback() -> None:
    assert options("127.0.0.1:1")["grpc.enable_http_proxy"] == 0
    assert "grpc.enable_http_proxy" not in options("10.0.0.1:1")


def test_tokens() -> None:
    with FakeServer(token="secret") as server:
        with Rerankd(server.address) as client, pytest.raises(rerankd.Unauthenticated):
            client.info()
        with Rerankd(server.address, token="secret") as client:
            assert client.info().ready
            assert list(client.rerank_many([("a", ["a"])]))
        tokens = iter(["secret", "old"])
        with Rerankd(server.address, token=lambda: next(tokens)) as client:
            assert client.info().ready
            with pytest.raises(rerankd.Unauthenticated):
                client.info()


def test_tls(tmp_path: pathlib.Path) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    own = authority.issue_cert("reranker.example")
    mine = authority.issue_cert("client.example")
    files = {
        "ca": authority.cert_pem.bytes(),
        "cert": mine.cert_chain_pems[0].bytes(),
        "key": mine.private_key_pem.bytes(),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    ca, cert, key = (tmp_path / name for name in files)
    settings = TLS(ca, cert, key, server_name="reranker.example")
    pair = own.private_key_pem.bytes(), own.cert_chain_pems[0].bytes()
    with FakeServer(tls=pair, client_ca=files["ca"]) as first, FakeServer(tls=pair) as second:
        with Rerankd(first.address, tls=settings) as client:
            assert client.info().ready
        with Rerankd([first.address, second.address], tls=settings) as client:
            assert all(client.info().ready for _ in range(10))
        assert second.calls
        quick = Retry(attempts=1, wait=False)
        for wrong in (TLS(ca, server_name="reranker.example"), TLS(ca, cert, key)):
            with (
                Rerankd(first.address, tls=wrong, retry=quick, timeout=5) as client,
                pytest.raises(rerankd.Unavailable),
            ):
                client.info()


def test_calls_are_balanced() -> None:
    with FakeServer() as first, FakeServer() as second, Rerankd([first.address, second.address]) as client:
        client.warm(["a"])
        for _ in range(20):
            client.info()
        assert min(len(first.calls), len(second.calls)) >= 8


def test_the_number_of_servers() -> None:
    def servers(*addresses: str) -> int:
        return configure(list(addresses), None, False, 1, Retry()).servers

    assert servers("127.0.0.1:1") == servers("localhost") == servers("unix:///socket") == 1
    assert servers("reranker.example") == servers("dns:///reranker.example:1") == 2
    assert servers("10.0.0.1", "10.0.0.2", "10.0.0.3") == servers("ipv4:10.0.0.1:1,10.0.0.2:1,10.0.0.3:1") == 3


@pytest.mark.parametrize("listed", [True, False])
def test_a_busy_server_is_left_for_another(listed: bool) -> None:
    with FakeServer() as first, FakeServer() as second:
        addresses = [first.address, second.address]
        with Rerankd(addresses if listed else f"ipv4:{','.join(addresses)}", timeout=5) as client:
            for _ in range(10):
                client.info()
            busy = Failure("RESOURCE_EXHAUSTED", "busy", retry_after=60)
            first.script("Rerank", *[busy] * 10)
            assert all(client.rerank("q", ["a"]) for _ in range(10))


def test_a_killed_server_loses_nothing() -> None:
    with Process("--seconds", "0.02") as first, Process("--seconds", "0.02") as second:
        with Rerankd([first.address, second.address], timeout=20) as client, ThreadPoolExecutor(4) as pool:
            killed = threading.Event()

            def ask(at: int) -> int:
                if at == 100:
                    first.kill()
                    killed.set()
                return client.rerank(f"word{at}", [f"word{at}", "other"])[0].index

            assert list(pool.map(ask, range(200))) == [0] * 200
            assert killed.is_set()
            assert {answer.result()[0].index for answer in client.rerank_many([("a", ["a", "b"])] * 20)} == {0}


def test_more_threads_than_slots() -> None:
    with FakeServer(slots=64, seconds=0.3) as server, Rerankd(server.address, timeout=30) as client:
        with ThreadPoolExecutor(80) as pool:
            found = list(pool.map(lambda at: client.rerank(f"word{at}", ["other", f"word{at}"])[0].index, range(200)))
    assert found == [1] * 200
    assert len(server.calls) > 200, "some calls were refused first"


def test_environment() -> None:
    assert os.environ["GRPC_ENABLE_FORK_SUPPORT"] == "1"
