"""The client for asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import grpc
import grpc.aio

from rerankd import _convert, _methods, _stream, types
from rerankd._base import Base
from rerankd._base import request_id as request_id_of
from rerankd.channel import Deadline, connect_aio, headers
from rerankd.errors import RerankdError, from_rpc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rerankd._methods import A, Method, Q
    from rerankd.v1 import metrics_pb2, rerank_pb2, utility_pb2

    Requests = (
        Iterable[types.Request | tuple[str, Iterable[types.PassageLike]]]
        | AsyncIterable[types.Request | tuple[str, Iterable[types.PassageLike]]]
    )


class AsyncRerankd(Base):
    """`Rerankd` with coroutines: the same arguments, methods and errors.

    Several event loops, in threads or one after the other, may share a client. It opens a channel for each. Iterators
    are asynchronous: `async for answer in client.rerank_many(requests)`.

    A process that has used this class cannot fork children that call a server, because grpc.aio keeps a thread. Both
    clients raise RuntimeError in such a child. Start it with the method `spawn`.

    >>> import asyncio
    >>> from rerankd.testing import FakeServer
    >>> async def best(address):
    ...     async with AsyncRerankd(address) as client:
    ...         return (await client.rerank("who wrote it?", ["Rye absorbs water.", "Eliot wrote it."]))[0].text
    >>> with FakeServer() as server:
    ...     asyncio.run(best(server.address))
    'Eliot wrote it.'
    """

    def _open(self) -> None:
        # By event loop, with the process that opened it.
        self._channels: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[int, grpc.aio.Channel]] = WeakKeyDictionary()

    async def rerank(
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
        """Rank passages, best first. `Rerankd.rerank` explains the arguments."""
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
        answer, found = await self._call(_methods.RERANK, message, timeout, priority, request_id)
        return _convert.ranking(request, texts, answer, found)

    async def rerank_many(
        self,
        requests: Requests,
        *,
        ordered: bool = False,
        priority: int | str = "normal",
        timeout: float | None = None,
    ) -> AsyncIterator[types.Answer]:
        """Rank the passages of many queries on one stream, as `Rerankd.rerank_many` does.

        `requests` may be an asynchronous iterator. Requests are read a few ahead of their answers.
        """
        deadline = Deadline(float("inf") if timeout is None else timeout)
        feed, order, patience = _Feed(requests), _stream.Order(ordered), self._patience()
        try:
            while True:
                sent = headers(self._config, priority, None)
                call = self._stream_stream(_methods.STREAM)(feed.messages(), timeout=deadline.grpc(), metadata=sent)
                try:
                    async for message in call:
                        patience.reached()
                        answer = feed.questions.answer(message, request_id_of(await call.initial_metadata()))
                        if answer is not None:
                            patience.answered()
                            for ready in order.ready(answer):
                                yield ready
                    if feed.done():
                        if feed.failure is not None:
                            raise feed.failure
                        return
                    error = _stream.incomplete()
                except grpc.RpcError as failed:
                    error = _stream.with_status(from_rpc(failed))
                except RerankdError as failed:
                    error = failed
                finally:
                    feed.questions.restart()
                    call.cancel()
                pause = patience.pause(error)
                if pause >= deadline.left():
                    raise error
                await asyncio.sleep(pause)
        finally:
            feed.close()

    async def watch(
        self,
        query: str,
        passages: Sequence[types.PassageLike],
        *,
        priority: int | str = "normal",
        timeout: float | None = None,
        request_id: str | None = None,
        **options: Any,
    ) -> AsyncIterator[types.Event]:
        """Rank passages and return events on the way, as `Rerankd.watch` does."""
        request = types.Request(query, passages, **options)
        texts = _convert.passages(passages, request.scores)
        message = _methods.WATCH.request(request=_convert.rerank_request(request, texts))
        async for answer, found in self._events(_methods.WATCH, message, timeout, priority, request_id):
            event = _convert.event(request, texts, answer, found)
            if event is not None:
                yield event

    async def context(
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
        """Write the most valuable passages that fit a prompt. `Rerankd.context` explains the arguments."""
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
        answer, found = await self._call(_methods.CONTEXT, message, timeout, priority, request_id)
        return _convert.context(answer, found)

    async def warm(self, passages: Sequence[types.PassageLike], *, timeout: float | None = None) -> types.Warmed:
        """Let the server read up to 10,000 passages ahead of time."""
        message = _methods.WARM.request(passages=_convert.passage_messages(_convert.passages(passages)))
        last = _methods.WARM.answer()
        async for answer, _ in self._events(_methods.WARM, message, timeout, "normal", None):
            last = answer
        return _convert.warmed(last)

    async def utility(
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
        """Measure how far the passages move the generator to the reference answers (DeltaSePer)."""
        message = _convert.utility_request(question, passages, references, each, samples, options)
        answer, found = await self._call(_methods.UTILITY, message, timeout, priority, request_id)
        return _convert.utility(answer, found)

    async def labels(
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
        """Label each passage by the quality of the generator's answer from it alone (eRAG)."""
        message = _convert.labels_request(question, passages, references, annotators, metrics, options)
        answer, found = await self._call(_methods.LABELS, message, timeout, priority, request_id)
        return _convert.labels(answer, message.metrics, found)

    async def metrics(
        self,
        run: Mapping[str, Mapping[str, float] | Sequence[str]],
        judgements: Mapping[str, Mapping[str, float]],
        metrics: Iterable[str],
        *,
        timeout: float | None = None,
        options: metrics_pb2.EvaluateRankingRequest | None = None,
    ) -> types.Metrics:
        """Compute rank metrics, as `Rerankd.metrics` does."""
        message = _convert.metrics_request(run, judgements, metrics, options)
        answer, _ = await self._call(_methods.METRICS, message, timeout, "normal", None)
        return _convert.metrics(answer, message.metrics)

    async def compress(
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
        """Shorten passages for a prompt, as `Rerankd.compress` does."""
        ranking = await self.rerank(
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

    async def info(self, *, timeout: float | None = None) -> types.ServerInfo:
        """Version, models and limits of the server."""
        answer, _ = await self._call(_methods.INFO, _methods.INFO.request(), timeout, "normal", None)
        return _convert.info(answer)

    async def close(self) -> None:
        """Close the channel of the running event loop. A later call opens a new one."""
        process, channel = self._channels.pop(asyncio.get_running_loop(), (0, None))
        if channel is not None and process == os.getpid():
            await channel.close()

    async def __aenter__(self) -> AsyncRerankd:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _channel(self) -> grpc.aio.Channel:
        loop = asyncio.get_running_loop()
        process, channel = self._channels.get(loop, (0, None))
        if channel is None or process != os.getpid():
            channel = connect_aio(self._config)
            self._channels[loop] = os.getpid(), channel
        return channel

    def _stream_stream(self, method: Method[Q, A]) -> grpc.aio.StreamStreamMultiCallable[Q, A]:
        return self._channel().stream_stream(method.path, method.request.SerializeToString, method.answer.FromString)

    async def _call(
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
            call = stub(message, timeout=deadline.grpc(), metadata=sent)
            try:
                answer = await call
                return answer, request_id_of(await call.initial_metadata())
            except grpc.RpcError as failed:
                await asyncio.sleep(self._pause(from_rpc(failed), attempt, deadline))
            attempt += 1

    async def _events(
        self,
        method: Method[Q, A],
        message: Q,
        timeout: float | None,
        priority: int | str,
        request_id: str | None,
    ) -> AsyncIterator[tuple[A, str]]:
        """The messages of a stream. It is opened again only if it fails before the first message."""
        deadline = Deadline(self._config.timeout if timeout is None else timeout)
        attempt, begun = 0, False
        while True:
            sent = headers(self._config, priority, request_id)
            stub = self._channel().unary_stream(method.path, method.request.SerializeToString, method.answer.FromString)
            call = stub(message, timeout=deadline.grpc(), metadata=sent)
            try:
                async for answer in call:
                    begun = True
                    yield answer, request_id_of(await call.initial_metadata())
                return
            except grpc.RpcError as failed:
                error = from_rpc(failed)
                if begun:
                    raise error from None
                await asyncio.sleep(self._pause(error, attempt, deadline))
            finally:
                call.cancel()
            attempt += 1


class _Feed:
    """Hands the requests to grpcio. A broken stream cancels neither the caller's iterator nor what it has returned."""

    def __init__(self, requests: Requests) -> None:
        self.failure: Exception | None = None
        self.questions = _stream.Questions()
        self._source = aiter(requests) if isinstance(requests, AsyncIterable) else _asynchronous(requests)
        self._ended = False
        self._reading: asyncio.Task[None] | None = None

    def messages(self) -> AsyncIterator[rerank_pb2.RerankStreamRequest]:
        """The requests of a stream: those without an answer, then new ones."""
        # Read now: grpcio may begin with the iterator after the stream has ended.
        return self._messages(self.questions.generation)

    async def _messages(self, generation: int) -> AsyncIterator[rerank_pb2.RerankStreamRequest]:
        while generation == self.questions.generation:
            if self.questions.unsent:
                yield self.questions.unsent.popleft().message
            elif self._ended:
                return
            else:
                if self._reading is None or self._reading.done():
                    self._reading = asyncio.create_task(self._read())
                await asyncio.wait({self._reading})

    async def _read(self) -> None:
        try:
            self.questions.add(_stream.as_request(await anext(self._source)))
        except StopAsyncIteration:
            self._ended = True
        except Exception as failure:
            self._ended, self.failure = True, failure

    def done(self) -> bool:
        return self._ended and not self.questions.open

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()


async def _asynchronous(
    requests: Iterable[types.Request | tuple[str, Iterable[types.PassageLike]]],
) -> AsyncIterator[types.Request | tuple[str, Iterable[types.PassageLike]]]:
    for request in requests:
        yield request
