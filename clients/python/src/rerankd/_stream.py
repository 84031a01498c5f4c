"""The questions of `rerank_many`: which are sent, which have an answer, and in which order answers are returned."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc

from rerankd import _convert, types
from rerankd.errors import RerankdError, Unavailable, from_code
from rerankd.v1 import rerank_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rerankd.channel import Retry


@dataclass(frozen=True)
class Question:
    """A request on the stream."""

    index: int
    request: types.Request
    texts: tuple[types.Passage, ...]
    message: rerank_pb2.RerankStreamRequest


@dataclass
class Questions:
    """Questions without an answer. A stream of an earlier `generation` must not take another one."""

    generation: int = 0
    count: int = 0
    unsent: deque[Question] = field(default_factory=deque)
    open: dict[str, Question] = field(default_factory=dict)

    def add(self, request: types.Request) -> None:
        """Number a request and queue it."""
        texts = _convert.passages(request.passages, request.scores)
        key = str(self.count)
        message = rerank_pb2.RerankStreamRequest(request_id=key, request=_convert.rerank_request(request, texts))
        question = Question(self.count, request, texts, message)
        self.count += 1
        self.open[key] = question
        self.unsent.append(question)

    def restart(self) -> None:
        """Queue everything that has no answer, for another stream."""
        self.generation += 1
        self.unsent = deque(sorted(self.open.values(), key=lambda question: question.index))

    def answer(self, message: rerank_pb2.RerankStreamResponse, request_id: str) -> types.Answer | None:
        """The answer to a question. Raises Unavailable if the server gave the question back."""
        question = self.open.get(message.request_id)
        if question is None:
            return None
        error = None
        if message.WhichOneof("outcome") == "error":
            error = from_code(message.error.code, message.error.message)
            if isinstance(error, Unavailable):
                raise error
        del self.open[message.request_id]
        if error is not None:
            error.request_id = request_id
            return types.Answer(question.index, question.request, error=error)
        ranking = _convert.ranking(question.request, question.texts, message.response, request_id)
        return types.Answer(question.index, question.request, ranking=ranking)


class Order:
    """Holds answers back until the earlier ones are there, if they must be in order."""

    def __init__(self, ordered: bool) -> None:
        self._ordered = ordered
        self._next = 0
        self._held: dict[int, types.Answer] = {}

    def ready(self, answer: types.Answer) -> Iterator[types.Answer]:
        """The answers that can be returned now."""
        if not self._ordered:
            yield answer
            return
        self._held[answer.index] = answer
        while self._next in self._held:
            yield self._held.pop(self._next)
            self._next += 1


class Patience:
    """How long a stream is opened again.

    A server that was never reached gets as many attempts as a call. One that has answered may be starting again: it
    gets `seconds` without an answer.
    """

    def __init__(self, retry: Retry, seconds: float) -> None:
        self._retry = retry
        self._seconds = seconds
        self._reached = False
        self._failed = 0
        self._since = 0.0

    def reached(self) -> None:
        """The server sent a message."""
        self._reached = True

    def answered(self) -> None:
        """The server answered a question."""
        self._failed = 0

    def pause(self, error: RerankdError) -> float:
        """Seconds until the next stream. Raises the error if it is final, or has lasted too long."""
        now = time.monotonic()
        if self._failed == 0:
            self._since = now
        self._failed += 1
        pause = self._retry.backoff(self._failed - 1) if error.retry_after is None else error.retry_after
        passing = isinstance(error, Unavailable) or error.retry_after is not None
        patient = self._retry.wait and (self._reached or error.retry_after is not None)
        more = now - self._since + pause < self._seconds if patient else self._failed < self._retry.attempts
        if not (passing and more):
            raise error from None
        return pause


def incomplete() -> RerankdError:
    """The error of a stream that ended well without all answers."""
    return Unavailable("the stream ended before every request was answered", grpc.StatusCode.UNAVAILABLE)


def with_status(error: RerankdError) -> RerankdError:
    """The error of a stream of grpc.aio.

    If the stream ends while a request is written, grpc.aio may report an error of its own instead of the status
    (grpc/grpc#36066). The next stream gets the status, if it lasts.
    """
    if error.code is grpc.StatusCode.INTERNAL and error.message == "Internal error from Core":
        return Unavailable(error.message, error.code)
    return error


def as_request(given: types.Request | tuple[str, Iterable[types.PassageLike]]) -> types.Request:
    """A request, or a pair of query and passages."""
    if isinstance(given, types.Request):
        return given
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise TypeError(f"requests: a Request or a pair (query, passages) is needed, not {given!r:.80}")
    query, passages = given
    return types.Request(query, passages if isinstance(passages, str) else list(passages))
