"""rerank_many: order, errors, and streams that break."""

import itertools
import threading
from collections.abc import Iterator

import pytest
from conftest import Process

import rerankd
from rerankd import Request, Rerankd
from rerankd.testing import Break, Failure, FakeServer


def requests(count: int) -> Iterator[Request]:
    return (Request(f"word{at}", [f"word{at}", "other"], id=f"id{at}") for at in range(count))


def check(answers: list[rerankd.Answer], count: int) -> None:
    assert sorted(answer.index for answer in answers) == list(range(count))
    for answer in answers:
        assert answer.request.id == f"id{answer.index}"
        assert answer.result()[0].text == f"word{answer.index}"


def test_each_request_has_one_answer(client: Rerankd) -> None:
    check(list(client.rerank_many(requests(50))), 50)
    check(list(client.rerank_many(requests(0))), 0)


def test_ordered(client: Rerankd) -> None:
    answers = list(client.rerank_many(requests(20), ordered=True))
    assert [answer.index for answer in answers] == list(range(20))


def test_an_error_is_the_answer_of_its_request(client: Rerankd) -> None:
    answers = list(client.rerank_many([("", ["a"]), ("a", ["a"])], ordered=True))
    assert isinstance(answers[0].error, rerankd.InvalidRequest)
    with pytest.raises(rerankd.InvalidRequest):
        answers[0].result()
    assert answers[1].result()[0].text == "a"


@pytest.mark.parametrize("ordered", [False, True])
def test_requests_without_an_answer_are_sent_again(client: Rerankd, server: FakeServer, ordered: bool) -> None:
    server.script("RerankStream", *[None] * 3, Break(), *[None] * 3, Break("CANCELLED"), Break())
    answers = list(client.rerank_many(requests(30), ordered=ordered))
    check(answers, 30)
    assert [answer.index for answer in answers] == list(range(30)) or not ordered


def test_a_question_that_the_server_gave_back_is_sent_again(client: Rerankd, server: FakeServer) -> None:
    server.script("RerankStream", Failure("UNAVAILABLE", "loading"), Failure("UNAVAILABLE", "loading"))
    check(list(client.rerank_many(requests(5))), 5)


def test_a_stream_that_fails_for_good_raises(client: Rerankd, server: FakeServer) -> None:
    server.script("RerankStream", Break("UNAUTHENTICATED", "no token"))
    with pytest.raises(rerankd.Unauthenticated):
        list(client.rerank_many(requests(5)))


def test_no_server() -> None:
    with Rerankd("127.0.0.1:1") as client, pytest.raises(rerankd.Unavailable):
        list(client.rerank_many(requests(5)))


def test_an_error_of_the_source_comes_after_the_answers(client: Rerankd) -> None:
    def source() -> Iterator[Request]:
        yield from requests(3)
        raise KeyError("mine")

    found: list[rerankd.Answer] = []
    with pytest.raises(KeyError, match="mine"):
        found.extend(client.rerank_many(source()))
    check(found, 3)


def test_a_source_that_waits_for_answers(client: Rerankd, server: FakeServer) -> None:
    """Each request is made from the answer before it, and the stream breaks while the source waits."""
    server.script("RerankStream", Break())
    seen = threading.Semaphore(1)

    def source() -> Iterator[Request]:
        for request in requests(5):
            assert seen.acquire(timeout=10)
            yield request

    answers = []
    for answer in client.rerank_many(source()):
        answers.append(answer)
        seen.release()
    check(answers, 5)


def test_the_caller_may_stop_early(client: Rerankd) -> None:
    endless = (Request(f"word{at}", ["a"]) for at in itertools.count())
    stream = client.rerank_many(endless)
    assert len(list(itertools.islice(stream, 3))) == 3
    stream.close()  # type: ignore[attr-defined]
    assert client.info().ready


def test_timeout_of_all_requests() -> None:
    with FakeServer(seconds=0.2) as server, Rerankd(server.address) as client:
        with pytest.raises(rerankd.DeadlineExceeded):
            list(client.rerank_many(requests(100), timeout=0.5))


def test_a_server_that_is_killed_and_started_again() -> None:
    with Process("--seconds", "0.02") as first:
        address = first.address
        with Rerankd(address, timeout=30) as client:
            found = []
            for answer in client.rerank_many(requests(40)):
                found.append(answer)
                if len(found) == 10:
                    first.kill()
                    second = Process("--listen", address)
            check(found, 40)
            second.kill()


def test_a_server_that_is_gone_raises_after_the_timeout() -> None:
    with Process("--seconds", "0.02") as process, Rerankd(process.address, timeout=1) as client:
        stream = client.rerank_many(requests(40))
        next(stream)
        process.kill()
        with pytest.raises(rerankd.Unavailable):
            list(stream)
