"""Errors by kind, their details, and what is tried again."""

import pickle
import time

import grpc
import pytest

import rerankd
from rerankd import Overloaded, Rerankd, Retry
from rerankd.errors import RerankdError, from_code
from rerankd.testing import Break, Failure, FakeServer


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Failure("INVALID_ARGUMENT", "passages: 101 given", field="passages"), rerankd.InvalidRequest),
        (Failure("INVALID_ARGUMENT", "too long", field="passages[0]", too_long=True), rerankd.TooLong),
        (Failure("OUT_OF_RANGE", "message too long"), rerankd.TooLong),
        (Failure("FAILED_PRECONDITION", "no model"), rerankd.NotSetUp),
        (Failure("UNAUTHENTICATED", "no token"), rerankd.Unauthenticated),
        (Failure("RESOURCE_EXHAUSTED", "busy", retry_after=60), rerankd.Overloaded),
        (Failure("RESOURCE_EXHAUSTED", "too many tokens", quota=True), rerankd.QuotaExceeded),
        (Failure("RESOURCE_EXHAUSTED", "no details"), rerankd.ResourceExhausted),
        (Failure("DEADLINE_EXCEEDED", "late"), rerankd.DeadlineExceeded),
        (Failure("UNAVAILABLE", "loading", retry_after=60), rerankd.Unavailable),
        (Failure("INTERNAL", "fault"), rerankd.InternalError),
        (Failure("UNIMPLEMENTED", "older server"), rerankd.RerankdError),
    ],
)
def test_kinds(client: Rerankd, server: FakeServer, failure: Failure, kind: type[RerankdError]) -> None:
    # grpcio repeats UNAVAILABLE itself.
    attempts = 4 if failure.code == "UNAVAILABLE" else 1
    server.script("Rerank", *[failure] * attempts)
    with pytest.raises(kind) as raised:
        client.rerank("q", ["a"], request_id="id-1")
    error = raised.value
    assert type(error) is kind
    assert (error.code.name, error.message) == (failure.code, failure.message)
    assert (error.field, error.retry_after) == (failure.field, failure.retry_after)
    assert error.request_id == "id-1"
    assert error.__cause__ is None
    assert len(server.calls) == attempts


def test_an_error_has_the_id_of_its_call(client: Rerankd) -> None:
    with pytest.raises(rerankd.InvalidRequest) as raised:
        client.rerank("", ["a"], request_id="id-1")
    assert raised.value.request_id == "id-1"


def test_errors_are_pickled() -> None:
    error = Overloaded("busy", grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after=2.0, request_id="a")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is Overloaded
    assert (str(copy), copy.retry_after, copy.request_id) == (str(error), 2.0, "a")


def test_codes_of_streams() -> None:
    assert type(from_code(3, "query: empty")) is rerankd.InvalidRequest
    assert type(from_code(99, "unknown")) is rerankd.InternalError


def test_retry_info_is_followed(client: Rerankd, server: FakeServer) -> None:
    server.script("Rerank", Failure("RESOURCE_EXHAUSTED", "busy", retry_after=0.2))
    before = time.monotonic()
    assert client.rerank("q", ["a"])
    assert 0.2 <= time.monotonic() - before < 2
    assert len(server.calls) == 2


def test_a_model_that_loads_is_waited_for(client: Rerankd, server: FakeServer) -> None:
    # grpcio repeats UNAVAILABLE itself, four times here.
    server.script("GetServerInfo", *[Failure("UNAVAILABLE", "loading", retry_after=0.1)] * 6)
    assert client.info().ready
    assert len(server.calls) == 7


def test_nothing_is_repeated_behind_the_deadline(client: Rerankd, server: FakeServer) -> None:
    server.script("Rerank", Failure("RESOURCE_EXHAUSTED", "busy", retry_after=30))
    before = time.monotonic()
    with pytest.raises(Overloaded) as raised:
        client.rerank("q", ["a"], timeout=1)
    assert raised.value.retry_after == 30
    assert time.monotonic() - before < 1


def test_retries_can_be_turned_off(server: FakeServer) -> None:
    with Rerankd(server.address, retry=Retry(attempts=1, wait=False)) as client:
        server.script("Rerank", Failure("RESOURCE_EXHAUSTED", "busy", retry_after=0.01))
        with pytest.raises(Overloaded):
            client.rerank("q", ["a"])
        server.script("Rerank", Failure("UNAVAILABLE", "stopping"))
        with pytest.raises(rerankd.Unavailable):
            client.rerank("q", ["a"])
    assert len(server.calls) == 2


def test_cancelled_by_the_server_is_repeated(client: Rerankd, server: FakeServer) -> None:
    server.script("Rerank", Break("CANCELLED"))
    assert client.rerank("q", ["a"])


def test_the_deadline_passes() -> None:
    with FakeServer(seconds=1) as server, Rerankd(server.address, timeout=0.2) as client:
        with pytest.raises(rerankd.DeadlineExceeded):
            client.rerank("q", ["a"])


def test_no_server() -> None:
    before = time.monotonic()
    with Rerankd("127.0.0.1:1") as client, pytest.raises(rerankd.Unavailable):
        client.info()
    assert time.monotonic() - before < 10


def test_watch_is_repeated_before_its_first_event_only(client: Rerankd, server: FakeServer) -> None:
    server.script("WatchRerank", Failure("RESOURCE_EXHAUSTED", "busy", retry_after=0.01))
    assert len(list(client.watch("q", ["a"]))) == 3
    with pytest.raises(rerankd.InvalidRequest):
        list(client.watch("", ["a"]))
