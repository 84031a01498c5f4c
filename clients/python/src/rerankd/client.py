"""The synchronous client."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any

import grpc

from rerankd import _convert, _methods, _stream, types
from rerankd._base import Base
from rerankd._base import request_id as request_id_of
from rerankd.channel import Deadline, connect, headers
from rerankd.errors import RerankdError, from_rpc

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from typing_extensions import Self

    from rerankd._methods import A, Method, Q
    from rerankd.launch import LocalServer
    from rerankd.v1 import metrics_pb2, rerank_pb2, utility_pb2


class Rerankd(Base):
    """A client of one server, or of several equal ones.

    `target` is HOST:PORT, a list of them, which are called in turn, or a target of grpcio such as `dns:///NAME:PORT`.
    `token` is a bearer token, or a function that returns one for each call. `tls` is True for the public authorities,
    or a `TLS` with files. `timeout` is the deadline of a call in seconds, with its repetitions; `math.inf` for none.

    Threads may share a client. It opens its connections in the process that uses it, so it may be pickled, and used
    after a fork. `AsyncRerankd` says when a fork does not work.

    >>> from rerankd.testing import FakeServer
    >>> with FakeServer() as server, Rerankd([server.address], timeout=5) as client:
    ...     client.info().ready
    True
    """

    _server: LocalServer | None = None

    @classmethod
    def launch(
        cls,
        model: str | os.PathLike[str] | None = None,
        *,
        binary: str | os.PathLike[str] | None = None,
        settings: Mapping[str, object] | None = None,
        wait: float = 120.0,
        timeout: float = 60.0,
    ) -> Self:
        """Start a server on this machine and return its client. `close` stops the server.

        `rerankd.LocalServer` explains the arguments. The server also ends with this client and with this process.
        Copies of the client in other processes call the server, but do not stop it.
        """
        from rerankd.launch import LocalServer

        server = LocalServer(model, binary=binary, settings=settings, wait=wait)
        client = cls(server.address, timeout=timeout)
        client._server = server
        return client

    def _open(self) -> None:
        # By process. A lock could be held by another thread during a fork.
        self._channels: dict[int, grpc.Channel] = {}

    def rerank(
        self,
        query: str,
        passages: Sequence[types.PassageLike],
        *,
        scores: Iterable[float] | None = None,
        method: str | None = None,
        top_n: int = 0,
        only_helpful: bool = False,
        auto_k: bool = False,
        latency_budget_ms: float | None = None,
        instruction: str = "",
        compression: types.Compression | None = None,
        dedup: str = "",
        priority: int | str = "normal",
        timeout: float | None = None,
        request_id: str | None = None,
        options: rerank_pb2.RerankRequest | None = None,
    ) -> types.Ranking:
        """Rank passages, best first.

        `scores` are the retriever's, higher for better passages; the default method fuses them with its own.
        Without them, pass the passages in the retriever's order. `method` is a name such as `moi` or
        `query-generation`. `top_n` returns only the best, `only_helpful` leaves out passages that are no better
        than none, and `auto_k` chooses the number. `dedup` is `one-place`, for the best of near-duplicates
        only, or `push-down`. `priority` is `low`, `normal`, `high`, or 0 (most urgent) to 9. `options` has any
        other field of the protocol; arguments replace its fields.

        >>> from rerankd.testing import FakeServer
        >>> with FakeServer() as server, Rerankd(server.address) as client:
        ...     ranking = client.rerank("who wrote it?", ["Rye.", {"id": "e", "text": "Eliot wrote it."}], top_n=1)
        >>> [(result.rank, result.id) for result in ranking]
        [(0, 'e')]
        """
        request = types.Request(
            query,
            passages,
            scores=scores,
            method=method,
            top_n=top_n,
            only_helpful=only_helpful,
            auto_k=auto_k,
            latency_budget_ms=latency_budget_ms,
            instruction=instruction,
            compression=compression,
            dedup=dedup,
            options=options,
        )
        texts = _convert.passages(passages, scores)
        message = _convert.rerank_request(request, texts)
        answer, found = self._call(_methods.RERANK, message, timeout, priority, request_id)
        return _convert.ranking(request, texts, answer, found)

    def rerank_many(
        self,
        requests: Iterable[types.Request | tuple[str, Iterable[types.PassageLike]]],
        *,
        ordered: bool = False,
        priority: int | str = "normal",
        timeout: float | None = None,
    ) -> Iterator[types.Answer]:
        """Rank the passages of many queries on one stream.

        Returns one answer per request, its error included, as they are ready or, with `ordered`, in the order of the
        requests. If the stream breaks, requests without an answer are sent again. `timeout` covers all requests; by
        default there is none. Requests are read in another thread, a few ahead of their answers.

        >>> from rerankd import Request
        >>> from rerankd.testing import FakeServer
        >>> asked = [Request("rye", ["Eliot.", "Rye."]), ("Eliot", ["Eliot.", "Rye."])]
        >>> with FakeServer() as server, Rerankd(server.address) as client:
        ...     [answer.result()[0].text for answer in client.rerank_many(asked, ordered=True)]
        ['Rye.', 'Eliot.']
        """
        deadline = Deadline(float("inf") if timeout is None else timeout)
        feed, order, patience = _Feed(requests), _stream.Order(ordered), self._patience()
        while True:
            sent = headers(self._config, priority, None)
            call = self._stream_stream(_methods.STREAM)(feed.messages(), timeout=deadline.grpc(), metadata=sent)
            try:
                for message in call:
                    patience.reached()
                    answer = feed.answer(message, request_id_of(call.initial_metadata()))
                    if answer is not None:
                        patience.answered()
                        yield from order.ready(answer)
                if feed.done():
                    if feed.failure is not None:
                        raise feed.failure
                    return
                error = _stream.incomplete()
            except grpc.RpcError as failed:
                error = from_rpc(failed)
            except RerankdError as failed:
                error = failed
            finally:
                # Also ends the thread that reads the requests, if the caller stops early.
                feed.restart()
                call.cancel()
            pause = patience.pause(error)
            if pause >= deadline.left():
                raise error
            time.sleep(pause)

    def watch(
        self,
        query: str,
        passages: Sequence[types.PassageLike],
        *,
        priority: int | str = "normal",
        timeout: float | None = None,
        request_id: str | None = None,
        **options: Any,
    ) -> Iterator[types.Event]:
        """Rank passages and return events on the way: the planned cost, progress, interim orders, and the ranking.

        `options` are those of `Request`. Closing the iterator cancels the work.

        >>> from rerankd.testing import FakeServer
        >>> with FakeServer() as server, Rerankd(server.address) as client:
        ...     [type(event).__name__ for event in client.watch("rye", ["Rye."])]
        ['Planned', 'Progress', 'Ranking']
        """
        request = types.Request(query, passages, **options)
        texts = _convert.passages(passages, request.scores)
        message = _methods.WATCH.request(request=_convert.rerank_request(request, texts))
        for answer, found in self._events(_methods.WATCH, message, timeout, priority, request_id):
            event = _convert.event(request, texts, answer, found)
            if event is not None:
                yield event

    def context(
        self,
        query: str,
        passages: Sequence[types.PassageLike],
        *,
        max_tokens: int = 0,
        template: str = "",
        separator: str | None = None,
        max_per_source: int = 0,
        tokenizer: str = "",
        scores: Iterable[float] | None = None,
        method: str | None = None,
        top_n: int = 0,
        only_helpful: bool = False,
        compression: types.Compression | None = None,
        dedup: str = "",
        priority: int | str = "normal",
        timeout: float | None = None,
        request_id: str | None = None,
        options: rerank_pb2.BuildContextRequest | None = None,
    ) -> types.Context:
        """Write the most valuable passages that fit `max_tokens` (1,024 by default) as the context of a prompt.

        Tokens are those of the server's generator or of the server's `tokenizer` of that name, numbers and separators
        included. `template` says how a passage is
        written, with `{n}`, `{id}`, `{title}` and `{text}`. `max_per_source` bounds passages with the same title.
        Near-duplicates are left out unless `dedup` is `off`. The other arguments are those of `rerank`. `options` has
        any other field of the protocol; arguments replace its fields.

        >>> from rerankd.testing import FakeServer
        >>> with FakeServer() as server, Rerankd(server.address) as client:
        ...     context = client.context("who wrote it?", ["Rye grows.", "Eliot wrote it."], max_tokens=4)
        >>> print(context)
        [1] Eliot wrote it.
        >>> [(passage.index, passage.reason) for passage in context.left_out]
        [(0, 'budget')]
        """
        request = types.Request(
            query,
            passages,
            method=method,
            top_n=top_n,
            only_helpful=only_helpful,
            compression=compression,
            dedup=dedup,
        )
        texts = _convert.passages(passages, scores)
        message = _convert.context_request(
            request, texts, max_tokens, template, separator, max_per_source, tokenizer, options
        )
        answer, found = self._call(_methods.CONTEXT, message, timeout, priority, request_id)
        return _convert.context(answer, found)

    def warm(self, passages: Sequence[types.PassageLike], *, timeout: float | None = None) -> types.Warmed:
        """Let the server read up to 10,000 passages ahead of time. Cached passages cost nothing.

        >>> from rerankd.testing import FakeServer
        >>> with FakeServer() as server, Rerankd(server.address) as client:
        ...     client.warm(["Rye.", "Eliot."]).kept
        2
        """
        message = _methods.WARM.request(passages=_convert.passage_messages(_convert.passages(passages)))
        last = _methods.WARM.answer()
        for answer, _ in self._events(_methods.WARM, message, timeout, "normal", None):
            last = answer
        return _convert.warmed(last)

    def utility(
        self,
        question: str,
        passages: Sequence[types.PassageLike],
        references: Iterable[str] = (),
        *,
        each: bool = False,
        samples: int = 10,
        priority: int | str = "normal",
        timeout: float | None = None,
        request_id: str | None = None,
        options: utility_pb2.MeasureUtilityRequest | None = None,
    ) -> types.Utility:
        """Measure how far the passages move the generator to the reference answers (DeltaSePer).

        `each` also measures every passage alone. Without references only entropies are measured.

        >>> from rerankd.testing import FakeServer
        >>> with FakeServer() as server, Rerankd(server.address) as client:
        ...     client.utility("who wrote it?", ["Eliot wrote it."], ["Eliot"]).delta_seper.value
        1.0
        """
        message = _convert.utility_request(question, passages, references, each, samples, options)
        answer, found = self._call(_methods.UTILITY, message, timeout, priority, request_id)
        return _convert.utility(answer, found)

    def labels(
        self,
        question: str,
        passages: Sequence[types.PassageLike],
        references: Iterable[str] = (),
        *,
        annotators: Iterable[str] = ("exact-match",),
        metrics: Iterable[str] = (),
        priority: int | str = "normal",
        timeout: float | None = None,
        request_id: str | None = None,
        options: utility_pb2.EvaluateRetrievalRequest | None = None,
    ) -> types.RetrievalLabels:
        """Label each passage by the quality of the generator's answer from it alone (eRAG).

        >>> from rerankd.testing import FakeServer
        >>> with FakeServer() as server, Rerankd(server.address) as client:
        ...     client.labels("who wrote it?", ["Rye.", "Eliot wrote it."], ["Eliot"]).labels["exact-match"]
        (0.0, 1.0)
        """
        message = _convert.labels_request(question, passages, references, annotators, metrics, options)
        answer, found = self._call(_methods.LABELS, message, timeout, priority, request_id)
        return _convert.labels(answer, message.metrics, found)

    def metrics(
        self,
        run: Mapping[str, Mapping[str, float] | Sequence[str]],
        judgements: Mapping[str, Mapping[str, float]],
        metrics: Iterable[str],
        *,
        timeout: float | None = None,
        options: metrics_pb2.EvaluateRankingRequest | None = None,
    ) -> types.Metrics:
        """Compute rank metrics, as trec_eval does. Needs no model.

        `run` has the scores of documents by query, or the documents in order. Only queries with judgements count; one
        that the run lacks counts as an empty list.

        >>> from rerankd.testing import FakeServer
        >>> with FakeServer() as server, Rerankd(server.address) as client:
        ...     client.metrics({"q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 1}}, ["RR"])["RR"]
        0.5
        """
        message = _convert.metrics_request(run, judgements, metrics, options)
        answer, _ = self._call(_methods.METRICS, message, timeout, "normal", None)
        return _convert.metrics(answer, message.metrics)

    def compress(
        self,
        query: str,
        passages: Sequence[types.PassageLike],
        *,
        ratio: float | None = None,
        target_tokens: int = 0,
        method: str = "",
        unit: str = "",
        rank: str | None = "query-generation",
        top_n: int = 0,
        priority: int | str = "normal",
        timeout: float | None = None,
        request_id: str | None = None,
    ) -> types.Compressed:
        """Shorten passages for a prompt, to `ratio` of their tokens (0.5 by default) or to `target_tokens`.

        Passages are ranked by the method `rank` first. To compress a ranking that you need as well, pass `compression`
        to `rerank`.

        >>> from rerankd.testing import FakeServer
        >>> with FakeServer() as server, Rerankd(server.address) as client:
        ...     client.compress("who wrote it?", ["Eliot wrote it in 1871."]).texts()
        ['Eliot wrote']
        """
        ranking = self.rerank(
            query,
            passages,
            method=rank,
            top_n=top_n,
            compression=types.Compression(ratio, target_tokens, method, unit),
            priority=priority,
            timeout=timeout,
            request_id=request_id,
        )
        if ranking.compressed is None:
            raise ValueError("the server's answer has no compression")
        return ranking.compressed

    def info(self, *, timeout: float | None = None) -> types.ServerInfo:
        """Version, models and limits of the server."""
        answer, _ = self._call(_methods.INFO, _methods.INFO.request(), timeout, "normal", None)
        return _convert.info(answer)

    def close(self) -> None:
        """Close the connections of this process, and stop a launched server. A later call opens new connections."""
        channel = self._channels.pop(os.getpid(), None)
        if channel is not None:
            channel.close()
        if self._server is not None:
            self._server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _channel(self) -> grpc.Channel:
        channel = self._channels.get(os.getpid())
        if channel is None:
            new = connect(self._config)
            channel = self._channels.setdefault(os.getpid(), new)
            if channel is not new:
                new.close()
        return channel

    def _stream_stream(self, method: Method[Q, A]) -> grpc.StreamStreamMultiCallable[Q, A]:
        return self._channel().stream_stream(method.path, method.request.SerializeToString, method.answer.FromString)

    def _call(
        self,
        method: Method[Q, A],
        message: Q,
        timeout: float | None,
        priority: int | str,
        request_id: str | None,
    ) -> tuple[A, str]:
        """Call, and call again while the server asks for it. Returns the answer and the id of the call."""
        deadline = Deadline(self._config.timeout if timeout is None else timeout)
        attempt = 0
        while True:
            sent = headers(self._config, priority, request_id)
            stub = self._channel().unary_unary(method.path, method.request.SerializeToString, method.answer.FromString)
            try:
                answer, call = stub.with_call(message, timeout=deadline.grpc(), metadata=sent)
                return answer, request_id_of(call.initial_metadata())
            except grpc.RpcError as failed:
                time.sleep(self._pause(from_rpc(failed), attempt, deadline))
            attempt += 1

    def _events(
        self,
        method: Method[Q, A],
        message: Q,
        timeout: float | None,
        priority: int | str,
        request_id: str | None,
    ) -> Iterator[tuple[A, str]]:
        """The messages of a stream. It is opened again only if it fails before the first message."""
        deadline = Deadline(self._config.timeout if timeout is None else timeout)
        attempt, begun = 0, False
        while True:
            sent = headers(self._config, priority, request_id)
            stub = self._channel().unary_stream(method.path, method.request.SerializeToString, method.answer.FromString)
            call = stub(message, timeout=deadline.grpc(), metadata=sent)
            try:
                for answer in call:
                    begun = True
                    yield answer, request_id_of(call.initial_metadata())
                return
            except grpc.RpcError as failed:
                error = from_rpc(failed)
                if begun:
                    raise error from None
                time.sleep(self._pause(error, attempt, deadline))
            finally:
                call.cancel()
            attempt += 1


class _Feed:
    """Hands the requests to grpcio, which reads them in its own thread."""

    def __init__(self, requests: Iterable[types.Request | tuple[str, Iterable[types.PassageLike]]]) -> None:
        self.failure: Exception | None = None
        self._source = iter(requests)
        self._ended = False
        self._questions = _stream.Questions()
        # The source may block, so the lock of the source is not that of the questions.
        self._reading, self._lock = threading.Lock(), threading.Lock()

    def messages(self) -> Iterator[rerank_pb2.RerankStreamRequest]:
        """The requests of a stream: those without an answer, then new ones."""
        # Read now: grpcio may begin with the iterator after the stream has ended.
        return self._messages(self._questions.generation)

    def _messages(self, generation: int) -> Iterator[rerank_pb2.RerankStreamRequest]:
        while True:
            with self._lock:
                if generation != self._questions.generation:
                    return
                question = self._questions.unsent.popleft() if self._questions.unsent else None
            if question is not None:
                yield question.message
            elif not self._read(generation):
                return

    def _read(self, generation: int) -> bool:
        """Read a request. False if there is none."""
        with self._reading:
            with self._lock:
                if self._questions.unsent or generation != self._questions.generation:
                    return True
            if self._ended:
                return False
            try:
                request = _stream.as_request(next(self._source))
                with self._lock:
                    self._questions.add(request)
            except StopIteration:
                self._ended = True
            except Exception as failure:
                self._ended, self.failure = True, failure
            return not self._ended

    def answer(self, message: rerank_pb2.RerankStreamResponse, request_id: str) -> types.Answer | None:
        with self._lock:
            return self._questions.answer(message, request_id)

    def restart(self) -> None:
        with self._lock:
            self._questions.restart()

    def done(self) -> bool:
        with self._lock:
            return self._ended and not self._questions.open
