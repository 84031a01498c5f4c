"""The program itself, with its default models. RERANKD is the path of the binary; without it they are skipped."""

import asyncio
import os
import pathlib
import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest

import rerankd
from rerankd import TLS, AsyncRerankd, Compression, InvalidRequest, Planned, Ranking, Request, Rerankd
from rerankd.v1 import rerank_pb2, utility_pb2

BINARY = os.environ.get("RERANKD", "")
SECONDS = 120

pytestmark = [pytest.mark.skipif(not BINARY, reason="RERANKD is not set"), pytest.mark.timeout(2 * SECONDS)]

QUERY = "who wrote Middlemarch?"
TEXTS = ["Rye absorbs water.", "George Eliot wrote Middlemarch in 1871.", "Middlemarch appeared in eight parts."]


class Server:
    """The binary on a free port of the loopback address."""

    def __init__(self, **settings: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        # Patient on a busy machine.
        settings = {"limits.queue_seconds": "unlimited", "position_bias.learn": "false"} | settings
        command = [BINARY, "serve", "--listen", self.address, "--http-listen", "off"]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def wait(self, *arguments: str, scheme: str = "") -> "Server":
        command = [BINARY, "health", "--server", scheme + self.address, "--wait", str(SECONDS), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return self

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def real() -> Iterator[Server]:
    with Server() as server:
        yield server.wait()


@pytest.fixture(scope="module")
def client(real: Server) -> Iterator[Rerankd]:
    with Rerankd(real.address, timeout=SECONDS) as client:
        yield client


def test_rerank(client: Rerankd) -> None:
    ranking = client.rerank(QUERY, TEXTS, request_id="search-4711", priority="high")
    assert next(result.index for result in ranking) == 1
    assert sorted(ranking.context_order) == [0, 1, 2]
    assert 0 < ranking[0].score < 1
    assert ranking[0].stage in ("alone", "together")
    assert ranking.request_id == "search-4711"
    assert ranking.model
    assert ranking.usage.total_ms > 0
    assert ranking._repr_html_()


def test_the_example_of_the_readme(real: Server, capsys: pytest.CaptureFixture[str]) -> None:
    text = (pathlib.Path(__file__).parents[1] / "README.md").read_text()
    program, printed = (text.partition(f"```{kind}\n")[2].partition("```")[0] for kind in ("python", "text"))
    exec(program.replace("Rerankd()", f'Rerankd("{real.address}")'), {})
    assert capsys.readouterr().out == printed


def test_rerank_with_a_fit_and_compression(client: Rerankd) -> None:
    ranking = client.rerank(QUERY, TEXTS, method="moi", compression=Compression(ratio=0.5))
    assert ranking.position_bias
    assert ranking[0].standard_error is not None
    assert ranking.compressed is not None
    assert ranking.compressed.tokens_after < ranking.compressed.tokens_before


def test_scores_and_options(client: Rerankd) -> None:
    options = rerank_pb2.RerankRequest(fusion=rerank_pb2.Fusion(mode=rerank_pb2.FUSION_MODE_ON))
    ranking = client.rerank(QUERY, TEXTS, scores=[3.0, 2.0, 1.0], method="query-generation", options=options, top_n=2)
    assert len(ranking) == 2
    assert ranking[0].signals.model is not None
    assert ranking.proto.fusion.source == rerank_pb2.FUSION_SOURCE_RETRIEVER


def test_watch(client: Rerankd) -> None:
    events = list(client.watch(QUERY, TEXTS, method="query-generation"))
    assert isinstance(events[0], Planned)
    assert isinstance(events[-1], Ranking)
    assert events[-1][0].index == 1


def test_warm(client: Rerankd) -> None:
    assert client.warm(["Seven warm passages."]).passages == 1
    assert client.warm(["Seven warm passages."]).present == 1


def test_utility(client: Rerankd) -> None:
    options = utility_pb2.MeasureUtilityRequest()
    options.sampling.max_tokens = 8
    utility = client.utility(QUERY, TEXTS[1:2], ["George Eliot"], each=True, samples=2, options=options)
    assert utility.delta_seper is not None
    assert -1 <= utility.delta_seper.value <= 1
    assert len(utility.each) == 1


def test_labels(client: Rerankd) -> None:
    labels = client.labels(
        QUERY, TEXTS, ["George Eliot"], annotators=["containment", "token-f1"], metrics=["RR", "P@1"]
    )
    assert labels.labels["containment"][1] == 1.0
    assert set(labels.metrics["token-f1"]) == {"RR", "P@1"}


def test_metrics(client: Rerankd) -> None:
    metrics = client.metrics(
        {"a": {"x": 1.0, "y": 2.0}, "b": ["x"]}, {"a": {"x": 1}, "b": {"x": 1}}, ["RR", "ndcg_cut_10"]
    )
    assert metrics["RR"] == 0.75
    assert metrics.queries["a"]["RR"] == 0.5
    assert "RR" in metrics.intervals
    assert metrics["ndcg_cut_10"] is not None


def test_context(client: Rerankd) -> None:
    passages = [{"title": "Élan", "text": text} for text in (*TEXTS, TEXTS[0].upper())]
    context = client.context(QUERY, passages, max_tokens=40, template="{n}. {{{title}}} {text}", separator="\n")
    assert 0 < context.tokens <= 40
    assert context.text.startswith("1. {Élan} ")
    for passage in context.passages:
        text = context.text[passage.start : passage.end]
        assert passages[passage.index]["text"].startswith(text)
        assert passage.cut == (text != passages[passage.index]["text"])
    found = [passage.index for passage in context.passages] + [passage.index for passage in context.left_out]
    assert sorted(found) == list(range(len(passages)))
    assert any(passage.reason == "duplicate" for passage in context.left_out)
    with pytest.raises(InvalidRequest, match="template"):
        client.context(QUERY, passages, template="{body}")


def test_compress(client: Rerankd) -> None:
    compressed = client.compress(QUERY, TEXTS, target_tokens=15, unit="phrase")
    assert compressed.texts()
    assert compressed.tokens_after < compressed.tokens_before


def test_info(client: Rerankd) -> None:
    info = client.info()
    assert info.ready
    assert info.model
    assert info.version


def test_errors(client: Rerankd) -> None:
    with pytest.raises(rerankd.InvalidRequest) as invalid:
        client.rerank("", TEXTS, request_id="search-1")
    assert invalid.value.field == "query"
    assert invalid.value.request_id == "search-1"
    with pytest.raises(rerankd.QuotaExceeded):
        client.rerank(QUERY, TEXTS, method="moi", options=rerank_pb2.RerankRequest(token_budget=1))
    with pytest.raises(rerankd.NotSetUp):
        client.rerank(QUERY, TEXTS, auto_k=True)
    truncation = rerank_pb2.Truncation(mode=rerank_pb2.TRUNCATION_MODE_OFF)
    with pytest.raises(rerankd.TooLong):
        long = "word " * 20_000
        client.rerank(QUERY, [long], method="query-generation", options=rerank_pb2.RerankRequest(truncation=truncation))
    with pytest.raises(rerankd.TooLong):
        client.rerank(QUERY, ["word " * 1_000_000])
    with pytest.raises(rerankd.DeadlineExceeded):
        client.rerank(QUERY, TEXTS, timeout=0.001)


def requests(count: int) -> list[Request]:
    passages = [f"Passage {at} names no author." for at in range(2)]
    return [Request(QUERY, [*passages, TEXTS[1]], method="query-generation", id=f"q{at}") for at in range(count)]


def test_many(client: Rerankd) -> None:
    answers = list(client.rerank_many([*requests(10), Request("", ["a"])], ordered=True))
    assert [answer.index for answer in answers] == list(range(11))
    assert all(answer.result()[0].index == 2 for answer in answers[:10])
    assert isinstance(answers[10].error, rerankd.InvalidRequest)


def test_async(real: Server) -> None:
    async def main() -> None:
        async with AsyncRerankd(real.address, timeout=SECONDS) as client:
            rankings = await asyncio.gather(*(client.rerank(QUERY, TEXTS, method="query-generation") for _ in range(8)))
            assert {ranking[0].index for ranking in rankings} == {1}
            answers = [answer async for answer in client.rerank_many(requests(6))]
            assert {answer.result()[0].index for answer in answers} == {2}
            events = [event async for event in client.watch(QUERY, TEXTS)]
            assert isinstance(events[-1], Ranking)

    asyncio.run(main())


def test_tls_and_tokens(tmp_path: pathlib.Path) -> None:
    trustme = pytest.importorskip("trustme")
    authority, files = trustme.CA(), {}
    own, mine = authority.issue_cert("reranker.example", "127.0.0.1"), authority.issue_cert("client.example")
    contents = {
        "ca": authority.cert_pem,
        "server.crt": own.cert_chain_pems[0],
        "server.key": own.private_key_pem,
        "client.crt": mine.cert_chain_pems[0],
        "client.key": mine.private_key_pem,
    }
    for name, content in contents.items():
        files[name] = str(tmp_path / name)
        content.write_to_path(files[name])
    command = [BINARY, "token", "new", "clients"]
    token, line = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    tokens = tmp_path / "tokens"
    tokens.write_text(line + "\n")
    settings = {
        "tls.certificate": files["server.crt"],
        "tls.key": files["server.key"],
        "tls.client_ca": files["ca"],
        "auth.tokens_file": str(tokens),
    }
    with Server(**settings) as server:
        proofs = ["--ca", files["ca"], "--cert", files["client.crt"], "--key", files["client.key"]]
        server.wait(*proofs, scheme="https://")
        tls = TLS(files["ca"], files["client.crt"], files["client.key"])
        with Rerankd(f"https://{server.address}", token=token, tls=tls) as client:
            assert client.info().ready
        named = TLS(files["ca"], files["client.crt"], files["client.key"], "reranker.example")
        with Rerankd([server.address, server.address], token=token, tls=named) as client:
            assert client.info().ready
        with Rerankd(server.address, token="wrong", tls=tls) as client, pytest.raises(rerankd.Unauthenticated):
            client.info()
        with Rerankd(server.address, tls=TLS(files["ca"]), timeout=10) as client, pytest.raises(rerankd.Unavailable):
            client.info()


def test_launch() -> None:
    settings = {"limits.queue_seconds": "unlimited", "position_bias.learn": False}
    with Rerankd.launch(binary=BINARY, settings=settings, wait=SECONDS, timeout=SECONDS) as client:
        assert client.rerank(QUERY, TEXTS)[0].index == 1
    with pytest.raises(rerankd.LaunchFailed, match=r"ended with 78: (.|\n)*generator\.thread"):
        Rerankd.launch(binary=BINARY, settings={"generator.thread": 1})


def test_a_server_that_stops_loses_nothing(real: Server) -> None:
    """Last, because it stops the server of the module."""
    with Server() as other:
        other.wait()
        with Rerankd([real.address, other.address], timeout=SECONDS) as client:
            found = []
            for answer in client.rerank_many(requests(24)):
                found.append(answer)
                if len(found) == 4:
                    assert real.stop() == 0
            assert sorted(answer.index for answer in found) == list(range(24))
            assert {answer.result()[0].index for answer in found} == {2}
            assert client.rerank(QUERY, TEXTS)[0].index == 1
