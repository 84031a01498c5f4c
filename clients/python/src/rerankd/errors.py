"""Errors by kind.

>>> from rerankd.testing import FakeServer
>>> from rerankd import InvalidRequest, Rerankd
>>> with FakeServer() as server, Rerankd(server.address) as client:
...     try:
...         client.rerank("", ["a passage"])
...     except InvalidRequest as error:
...         print(error.field)
query
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import DecodeError

from rerankd import _details_pb2 as details

if TYPE_CHECKING:
    from collections.abc import Iterable

DETAILS = "grpc-status-details-bin"
REQUEST_ID = "x-request-id"


class RerankdError(Exception):
    """The server, or the connection to it, refused a call.

    `code` is the gRPC status. `field` is the path of the field at fault, such as `passages[2].text`. `retry_after` is
    the number of seconds after which the server expects to answer. Both are absent if the server did not send them.
    """

    def __init__(
        self,
        message: str,
        code: grpc.StatusCode,
        *,
        field: str | None = None,
        retry_after: float | None = None,
        request_id: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.field = field
        self.retry_after = retry_after
        self.request_id = request_id

    def __str__(self) -> str:
        return f"{self.message} ({self.code.name})"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.code.name, self.field, self.retry_after, self.request_id)


class InvalidRequest(RerankdError):
    """A field is wrong. A second attempt fails again."""


class TooLong(InvalidRequest):
    """The prompt does not fit the context of the model, or the message is larger than the server allows."""


class NotSetUp(RerankdError):
    """The server has no model, calibration or cache for this request."""


class Unauthenticated(RerankdError):
    """The token is missing or not valid."""


class ResourceExhausted(RerankdError):
    """The server is busy, or the request is too large. Its subclasses tell which.

    An answer of `rerank_many` may have this class itself, because errors on a stream have no details.
    """


class Overloaded(ResourceExhausted):
    """The server is busy. Another attempt may succeed after `retry_after` seconds, or on another server."""


class QuotaExceeded(ResourceExhausted):
    """The request needs more tokens, or more judged pairs, than the server or the request allows."""


class DeadlineExceeded(RerankdError):
    """The deadline passed, or the server could not meet it."""


class Unavailable(RerankdError):
    """No server was reached, the server stopped, or its model is loading."""


class InternalError(RerankdError):
    """A fault of the server. Its log has more, under `request_id`."""


_CLASSES: dict[grpc.StatusCode, type[RerankdError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: TooLong,
    grpc.StatusCode.FAILED_PRECONDITION: NotSetUp,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    # The server stopped before the call ended. A call that the caller cancels does not get here.
    grpc.StatusCode.CANCELLED: Unavailable,
    grpc.StatusCode.INTERNAL: InternalError,
    grpc.StatusCode.UNKNOWN: InternalError,
}
_CODES = {code.value[0]: code for code in grpc.StatusCode}


_HINTS = {
    "Connection refused": "is the server running? `rerankd serve` listens on 127.0.0.1:50051",
    "Deadline Exceeded": "pass a longer `timeout`",
}
"""The next step for messages of grpcio."""


def from_rpc(error: grpc.RpcError) -> RerankdError:
    """Convert an error of grpcio, with the details that the server sent."""
    # Raised errors are also a grpc.Call or a grpc.aio.AioRpcError. Both have these methods.
    call: Any = error
    code: grpc.StatusCode = call.code()
    message: str = call.details() or code.name.lower()
    message = "; ".join([message, *(hint for part, hint in _HINTS.items() if part in message)])
    trailers = metadata(call.trailing_metadata())
    request_id = text(trailers.get(REQUEST_ID, "") or metadata(call.initial_metadata()).get(REQUEST_ID, ""))
    kind = _CLASSES.get(code, RerankdError)
    field: str | None = None
    retry_after: float | None = None
    for name, value in _details(trailers.get(DETAILS, b"")):
        if name == "google.rpc.RetryInfo":
            retry_after = details.RetryInfo.FromString(value).retry_delay.ToTimedelta().total_seconds()
            kind = Overloaded if kind is ResourceExhausted else kind
        elif name == "google.rpc.QuotaFailure":
            kind = QuotaExceeded
        elif name == "google.rpc.BadRequest":
            violations = details.BadRequest.FromString(value).field_violations
            field = violations[0].field if violations else None
        elif name == "google.rpc.ErrorInfo" and details.ErrorInfo.FromString(value).reason == "TOO_LONG":
            kind = TooLong
    return kind(message, code, field=field, retry_after=retry_after, request_id=request_id)


def from_code(number: int, message: str) -> RerankdError:
    """Convert the error of a question on a stream."""
    code = _CODES.get(number, grpc.StatusCode.UNKNOWN)
    return _CLASSES.get(code, RerankdError)(message, code)


def metadata(pairs: Iterable[Any] | None) -> dict[str, str | bytes]:
    """Metadata of a call as a dictionary. The last of repeated keys counts."""
    # Older versions of grpc.aio have a class with keys here, of which dict() would ask the values by pair.
    return dict(iter(pairs or ()))


def text(value: str | bytes) -> str:
    """Metadata as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _details(value: str | bytes) -> list[tuple[str, bytes]]:
    try:
        status = details.Status.FromString(value if isinstance(value, bytes) else value.encode())
    except DecodeError:
        # A proxy may put anything here. The code and the message remain.
        return []
    return [(detail.type_url.rpartition("/")[2], detail.value) for detail in status.details]


def _rebuild(
    kind: type[RerankdError], message: str, code: str, field: str | None, retry_after: float | None, request_id: str
) -> RerankdError:
    return kind(message, grpc.StatusCode[code], field=field, retry_after=retry_after, request_id=request_id)
