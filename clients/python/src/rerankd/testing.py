"""A server without a model, for tests of programs that use the client.

>>> from rerankd import Rerankd
>>> from rerankd.testing import Failure, FakeServer
>>> with FakeServer() as server, Rerankd(server.address) as client:
...     server.script("Rerank", Failure("RESOURCE_EXHAUSTED", "busy", retry_after=0.01))
...     client.rerank("Eliot wrote", ["Eliot wrote it."])[0].score  # the second attempt
...     [call.name for call in server.calls]
0.75
['Rerank', 'Rerank']

`python -m rerankd.testing` runs a server of its own and prints its address.
"""

from __future__ import annotations

import argparse
import re
import signal
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from rerankd import _details_pb2 as details
from rerankd import _methods
from rerankd.errors import DETAILS, REQUEST_ID, metadata, text
from rerankd.v1 import metrics_pb2, model_pb2, rerank_pb2, utility_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MODEL = "fake"
Answerer = Callable[[Any], list[Message]]
RequestId = tuple[tuple[str, str], ...]
WORDS = re.compile(r"\w+")


@dataclass(eq=False)
class Failure(Exception):
    """An error in place of an answer. On RerankStream it is the error of one question."""

    code: str
    message: str = ""
    retry_after: float | None = None
    field: str | None = None
    too_long: bool = False
    quota: bool = False

    def trailers(self) -> tuple[tuple[str, bytes], ...]:
        """The details, as the server sends them."""
        found: list[tuple[str, Message]] = []
        if self.retry_after is not None:
            info = details.RetryInfo()
            info.retry_delay.FromNanoseconds(round(self.retry_after * 1e9))
            found.append(("RetryInfo", info))
        if self.field is not None:
            violation = details.BadRequest.FieldViolation(field=self.field, description=self.message)
            found.append(("BadRequest", details.BadRequest(field_violations=[violation])))
        if self.too_long:
            found.append(("ErrorInfo", details.ErrorInfo(reason="TOO_LONG", domain="rerankd")))
        if self.quota:
            found.append(("QuotaFailure", details.BadRequest()))
        if not found:
            return ()
        packed = [
            AnyMessage(type_url=f"type.googleapis.com/google.rpc.{name}", value=message.SerializeToString())
            for name, message in found
        ]
        status = details.Status(code=self.status.value[0], message=self.message, details=packed)
        return ((DETAILS, status.SerializeToString()),)

    @property
    def status(self) -> grpc.StatusCode:
        """The gRPC status."""
        return grpc.StatusCode[self.code]


class Break(Failure):
    """The end of RerankStream at this question, which stays without an answer. On other methods it is a failure."""

    def __init__(self, code: str = "UNAVAILABLE", message: str = "the server stops") -> None:
        super().__init__(code, message)


@dataclass(frozen=True)
class Call:
    """A call that the server received: the name of its method, its message and its metadata."""

    name: str
    message: Any
    metadata: dict[str, str | bytes] = field(repr=False)


Step = Message | Failure | None
"""A scripted answer. None is the answer without a script."""


class FakeServer:
    """A server in this process whose scores are the share of the query's words in each passage.

    `slots` calls are answered at once; the next ones are refused with RESOURCE_EXHAUSTED. Each call takes `seconds`.
    With `token`, calls without it are refused. `tls` is a key and a certificate in PEM, `client_ca` the authority of
    the clients. `calls` has the calls, in the order in which they came.
    """

    def __init__(
        self,
        *,
        address: str = "127.0.0.1:0",
        slots: int = 64,
        seconds: float = 0.0,
        token: str | None = None,
        tls: tuple[bytes, bytes] | None = None,
        client_ca: bytes | None = None,
    ) -> None:
        self.calls: list[Call] = []
        self._slots = threading.Semaphore(slots)
        self._seconds = seconds
        self._token = token
        self._scripts: dict[str, deque[Step]] = defaultdict(deque)
        self._server = grpc.server(
            ThreadPoolExecutor(max_workers=slots + 64),
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", -1),
                ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
            ],
        )
        for service in {method.service for method, _ in HANDLERS}:
            handlers = {
                method.name: self._handler(method, answer) for method, answer in HANDLERS if method.service == service
            }
            self._server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(f"rerankd.v1.{service}", handlers),)
            )
        host = address.rpartition(":")[0]
        if tls:
            credentials = grpc.ssl_server_credentials([tls], client_ca, client_ca is not None)
            port = self._server.add_secure_port(address, credentials)
        else:
            port = self._server.add_insecure_port(address)
        self.address = f"{host}:{port}"
        """HOST:PORT."""

    def script(self, method: str, *steps: Step) -> None:
        """Answer the next calls of a method, or the next questions of RerankStream, with these steps in turn."""
        if method not in {known.name for known, _ in HANDLERS}:
            raise ValueError(f"unknown method {method!r}")
        self._scripts[method].extend(steps)

    def start(self) -> FakeServer:
        """Listen."""
        self._server.start()
        return self

    def stop(self) -> None:
        """Stop now. Calls in work end with CANCELLED or UNAVAILABLE."""
        self._server.stop(None).wait()

    def __enter__(self) -> FakeServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _handler(self, method: _methods.Method[Any, Any], answer: Answerer) -> grpc.RpcMethodHandler[Any, Any]:
        def unary(message: Any, context: grpc.ServicerContext) -> Any:
            return next(events(message, context))

        def events(message: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            request_id = self._request_id(context)
            try:
                self._check(context)
                answers = self._answer(method, answer, message, context)
            except Failure as failure:
                _abort(context, failure, request_id)
            context.send_initial_metadata(request_id)
            yield from answers

        def stream(messages: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            request_id = self._request_id(context)
            context.send_initial_metadata(request_id)
            try:
                self._check(context)
                for message in messages:
                    yield self._question(message, context)
            except Failure as failure:
                _abort(context, failure, request_id)

        codec = {
            "request_deserializer": method.request.FromString,
            "response_serializer": method.answer.SerializeToString,
        }
        if method.request_stream:
            return grpc.stream_stream_rpc_method_handler(stream, **codec)
        if method.answer_stream:
            return grpc.unary_stream_rpc_method_handler(events, **codec)
        return grpc.unary_unary_rpc_method_handler(unary, **codec)

    def _request_id(self, context: grpc.ServicerContext) -> RequestId:
        sent = text(metadata(context.invocation_metadata()).get(REQUEST_ID, ""))
        return ((REQUEST_ID, sent or f"fake-{len(self.calls)}"),)

    def _check(self, context: grpc.ServicerContext) -> None:
        sent = metadata(context.invocation_metadata()).get("authorization")
        if self._token is not None and sent != f"Bearer {self._token}":
            raise Failure("UNAUTHENTICATED", "a valid token is needed")

    def _answer(
        self, method: _methods.Method[Any, Any], answer: Answerer, message: Any, context: grpc.ServicerContext
    ) -> list[Message]:
        self.calls.append(Call(method.name, message, metadata(context.invocation_metadata())))
        if not self._slots.acquire(blocking=False):
            raise Failure("RESOURCE_EXHAUSTED", "no slot is free", retry_after=self._seconds or 0.01)
        try:
            time.sleep(self._seconds)
            step = self._next(method.name)
            return answer(message) if step is None else [step]
        finally:
            self._slots.release()

    def _question(self, message: rerank_pb2.RerankStreamRequest, context: grpc.ServicerContext) -> Message:
        self.calls.append(Call("RerankStream", message, metadata(context.invocation_metadata())))
        time.sleep(self._seconds)
        answer = rerank_pb2.RerankStreamResponse(request_id=message.request_id)
        try:
            step = self._next("RerankStream")
            answer.response.CopyFrom(step if isinstance(step, rerank_pb2.RerankResponse) else rank(message.request))
        except Break:
            raise
        except Failure as failure:
            answer.error.code, answer.error.message = failure.status.value[0], failure.message
        return answer

    def _next(self, name: str) -> Message | None:
        """The next scripted answer. Raises a scripted failure."""
        try:
            step = self._scripts[name].popleft()
        except IndexError:
            return None
        if isinstance(step, Failure):
            raise step
        return step


def rank(request: rerank_pb2.RerankRequest) -> rerank_pb2.RerankResponse:
    """Rank by the share of the query's words that a passage has."""
    if not request.query.strip():
        raise Failure("INVALID_ARGUMENT", "query: must not be empty", field="query")
    if not request.passages:
        raise Failure("INVALID_ARGUMENT", "passages: at least one is needed", field="passages")
    wanted = _words(request.query)
    shares = [
        len(wanted & _words(f"{passage.title} {passage.text}")) / max(1, len(wanted)) for passage in request.passages
    ]
    order = sorted(range(len(shares)), key=lambda index: -shares[index])[: request.top_n or None]
    results = [
        rerank_pb2.RankedPassage(
            id=request.passages[index].id or str(index),
            original_index=index,
            rank=position,
            score=0.25 + 0.5 * shares[index],
            utility=shares[index],
            stage=rerank_pb2.STAGE_ALONE,
        )
        for position, index in enumerate(order)
    ]
    answer = rerank_pb2.RerankResponse(results=results, model=MODEL, none_helps=not any(shares))
    answer.usage.tokens = sum(len(passage.text.split()) for passage in request.passages)
    answer.context_order.original_indices.extend(order)
    if request.method == rerank_pb2.METHOD_MOI:
        weights = [1 / len(shares)] * len(shares)
        answer.position_bias.append(rerank_pb2.PositionBias(weights=weights))
    if request.HasField("compression"):
        _compress(request, order, answer.compression)
    return answer


def context(message: rerank_pb2.BuildContextRequest) -> list[Message]:
    """Write passages, best first, while their words fit. Copies are near-duplicates."""
    ranked, left = rank(message.request), message.max_tokens or 1024
    separator = message.separator if message.HasField("separator") else "\n\n"
    answer, seen = rerank_pb2.BuildContextResponse(model=MODEL, reader=MODEL), dict[str, int]()
    for result in ranked.results:
        passage = message.request.passages[result.original_index]
        template = message.template or ("[{n}] {title}\n{text}" if passage.title else "[{n}] {text}")
        fields = {"n": len(answer.passages) + 1, "id": result.id, "title": passage.title}
        before, after = (part.format(**fields) for part in template.split("{text}"))
        begun = (answer.text + separator if answer.text else "") + before
        tokens = len(f"{before}{passage.text}{after}".split())
        found = {"id": result.id, "original_index": result.original_index}
        if passage.text in seen and message.request.dedup.mode != rerank_pb2.DEDUP_MODE_OFF:
            reason = rerank_pb2.LEFT_OUT_REASON_DUPLICATE
            answer.left_out.add(**found, reason=reason, duplicate_of=seen[passage.text])
        elif tokens > left:
            answer.left_out.add(**found, reason=rerank_pb2.LEFT_OUT_REASON_BUDGET)
        else:
            start = len(begun.encode())
            end = start + len(passage.text.encode())
            answer.passages.add(**found, start=start, end=end, score=result.score, utility=result.utility)
            answer.text = f"{begun}{passage.text}{after}"
            answer.tokens += tokens
            left -= tokens
            seen[passage.text] = result.original_index
    answer.characters = len(answer.text)
    answer.usage.CopyFrom(ranked.usage)
    answer.context_order.original_indices.extend(passage.original_index for passage in answer.passages)
    return [answer]


def watch(message: rerank_pb2.WatchRerankRequest) -> list[Message]:
    """The plan, one step, and the ranking."""
    final = rank(message.request)
    tokens = final.usage.tokens
    return [
        rerank_pb2.WatchRerankResponse(planned=rerank_pb2.Planned(tokens=tokens, naive_tokens=tokens)),
        rerank_pb2.WatchRerankResponse(progress=rerank_pb2.Progress(tokens_done=tokens, tokens_total=tokens)),
        rerank_pb2.WatchRerankResponse(final=final),
    ]


def warm(message: rerank_pb2.WarmPassagesRequest) -> list[Message]:
    """A message per passage. Nothing is cached, so each is new."""
    tokens = [len(passage.text.split()) for passage in message.passages]
    return [
        rerank_pb2.WarmPassagesResponse(passages=done, kept=done, tokens=sum(tokens[:done]), model=MODEL)
        for done in range(1, len(tokens) + 1)
    ]


def utility(message: utility_pb2.MeasureUtilityRequest) -> list[Message]:
    """DeltaSePer is 1 for a context that contains a reference, else 0."""
    contexts = [(utility_pb2.CONTEXT_KIND_LIST, 0, list(range(len(message.passages))))]
    if message.measure_each:
        contexts += [(utility_pb2.CONTEXT_KIND_PASSAGE, index, [index]) for index in range(len(message.passages))]
    answer = utility_pb2.MeasureUtilityResponse(model=MODEL)
    for kind, number, indices in contexts:
        found = utility_pb2.Utility(kind=kind, number=number, indices=indices)
        value = max((_contains(message.passages[index], message.references) for index in indices), default=0.0)
        found.semantic_entropy_reduction.value = value
        if message.references:
            found.delta_seper_soft.value = value
            found.delta_seper_soft.standard_error = 0.0
        answer.utilities.append(found)
    return [answer]


def labels(message: utility_pb2.EvaluateRetrievalRequest) -> list[Message]:
    """Every annotator gives 1 to a passage that contains a reference, else 0; every metric is the reciprocal rank."""
    values = [_contains(passage, message.references) for passage in message.passages]
    answer = utility_pb2.EvaluateRetrievalResponse(model=MODEL, threshold=0.5)
    scores = []
    for annotator in message.annotators or [utility_pb2.ANNOTATOR_EXACT_MATCH]:
        answer.labels.append(utility_pb2.PassageLabels(annotator=annotator, labels=values))
        metrics = [
            metrics_pb2.MetricValue(metric=name, value=_reciprocal(values)) for name in message.metrics or ["RR"]
        ]
        scores.append(utility_pb2.AnnotatorScores(annotator=annotator, metrics=metrics))
    answer.rankings.append(utility_pb2.RankingScores(indices=range(len(values)), scores=scores))
    return [answer]


def evaluate(message: metrics_pb2.EvaluateRankingRequest) -> list[Message]:
    """Every metric is the reciprocal rank."""
    answer = metrics_pb2.EvaluateRankingResponse()
    found = []
    for query in message.queries:
        documents = sorted(query.documents, key=lambda document: -document.score)
        found.append(_reciprocal([query.judgements.get(document.id, 0.0) for document in documents]))
        values = [metrics_pb2.MetricValue(metric=name, value=found[-1]) for name in message.metrics]
        answer.queries.append(metrics_pb2.QueryMetrics(id=query.id, values=values))
    for name in message.metrics:
        mean = sum(found) / len(found) if found else None
        answer.summary.append(metrics_pb2.MetricSummary(metric=name, value=mean, queries=len(found)))
    return [answer]


def info(_: model_pb2.GetServerInfoRequest) -> list[Message]:
    """A server that is ready."""
    return [
        model_pb2.GetServerInfoResponse(
            version="0.0.0",
            generator=model_pb2.ModelInfo(name=MODEL),
            worker=model_pb2.WorkerInfo(ready=True),
            limits=model_pb2.Limits(passages=100),
        )
    ]


def _compress(request: rerank_pb2.RerankRequest, order: Sequence[int], report: rerank_pb2.CompressionReport) -> None:
    """Keep the first words of each passage."""
    ratio = request.compression.ratio if request.compression.HasField("ratio") else 0.5
    for index in order:
        words = request.passages[index].text.split()
        kept = words[: int(ratio * len(words))]
        report.passages.add(
            original_index=index,
            compressed_text=" ".join(kept),
            tokens_before=len(words),
            tokens_after=len(kept),
            dropped=not kept,
        )
        report.tokens_before += len(words)
        report.tokens_after += len(kept)


def _words(given: str) -> set[str]:
    return {word.lower() for word in WORDS.findall(given)}


def _contains(passage: rerank_pb2.Passage, references: Iterable[str]) -> float:
    return float(any(reference.lower() in passage.text.lower() for reference in references))


def _reciprocal(values: Sequence[float]) -> float:
    return next((1 / rank for rank, value in enumerate(values, 1) if value > 0), 0.0)


def _abort(context: grpc.ServicerContext, failure: Failure, request_id: RequestId) -> NoReturn:
    context.set_trailing_metadata((*request_id, *failure.trailers()))
    context.abort(failure.status, failure.message)
    raise failure


HANDLERS: list[tuple[_methods.Method[Any, Any], Answerer]] = [
    (_methods.RERANK, lambda message: [rank(message)]),
    (_methods.WATCH, watch),
    (_methods.STREAM, lambda _: []),
    (_methods.CONTEXT, context),
    (_methods.WARM, warm),
    (_methods.UTILITY, utility),
    (_methods.LABELS, labels),
    (_methods.METRICS, evaluate),
    (_methods.INFO, info),
]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a server until it is stopped."""
    parser = argparse.ArgumentParser(prog="python -m rerankd.testing", description="A server without a model.")
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT")
    parser.add_argument("--seconds", type=float, default=0.0, help="time of each call")
    parser.add_argument("--slots", type=int, default=64, help="calls at once")
    given = parser.parse_args(arguments)
    stopped = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stopped.set())
    with FakeServer(address=given.listen, seconds=given.seconds, slots=given.slots) as server:
        print(server.address, flush=True)
        stopped.wait()


if __name__ == "__main__":
    main()
