"""AsyncRerankd, which shares all conversions with Rerankd."""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import pytest

import rerankd
from rerankd import AsyncRerankd, Ranking, Request, Rerankd
from rerankd.testing import Break, Failure, FakeServer

T = TypeVar("T")


def run(server: FakeServer, use: Callable[[AsyncRerankd], Awaitable[T]]) -> T:
    async def main() -> T:
        async with AsyncRerankd(server.address, timeout=10) as client:
            return await use(client)

    return asyncio.run(asyncio.wait_for(main(), 30))


def test_both_clients_have_the_same_methods() -> None:
    for name, method in inspect.getmembers(Rerankd, inspect.isfunction):
        if not name.startswith("_"):
            other = inspect.signature(getattr(AsyncRerankd, name))
            assert list(inspect.signature(method).parameters.values())[2:] == list(other.parameters.values())[2:], name


def test_every_method(server: FakeServer) -> None:
    async def use(client: AsyncRerankd) -> None:
        assert [result.index for result in await client.rerank("rye", ["wheat", "rye"])] == [1, 0]
        events = [event async for event in client.watch("rye", ["wheat", "rye"], top_n=1)]
        assert isinstance(events[-1], Ranking)
        assert (await client.warm(["a", "b"])).kept == 2
        assert (await client.utility("q", ["Eliot"], ["Eliot"])).delta_seper
        assert (await client.labels("q", ["Eliot"], ["Eliot"])).labels["exact-match"] == (1.0,)
        assert (await client.metrics({"q": ["a"]}, {"q": {"a": 1}}, ["RR"]))["RR"] == 1.0
        assert (await client.compress("q", ["one two"])).texts() == ["one"]
        assert (await client.context("one", ["one two", "six"], max_tokens=3)).text == "[1] one two"
        assert (await client.info()).ready

    run(server, use)


def test_errors_and_retries(server: FakeServer) -> None:
    async def use(client: AsyncRerankd) -> None:
        server.script("Rerank", Failure("RESOURCE_EXHAUSTED", "busy", retry_after=0.05), Break("CANCELLED"))
        assert await client.rerank("q", ["a"])
        with pytest.raises(rerankd.InvalidRequest) as raised:
            await client.rerank("", ["a"], request_id="id-1")
        assert (raised.value.field, raised.value.request_id) == ("query", "id-1")
        server.script("WatchRerank", Failure("RESOURCE_EXHAUSTED", "busy", retry_after=0.05))
        assert len([event async for event in client.watch("q", ["a"])]) == 3
        server.script("Rerank", Failure("RESOURCE_EXHAUSTED", "busy", retry_after=60))
        with pytest.raises(rerankd.Overloaded):
            await client.rerank("q", ["a"])

    run(server, use)


def test_cancellation_is_the_callers() -> None:
    with FakeServer(seconds=1) as server:

        async def use(client: AsyncRerankd) -> None:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(client.rerank("q", ["a"]), 0.1)

        run(server, use)


def requests(count: int) -> list[Request]:
    return [Request(f"word{at}", [f"word{at}", "other"]) for at in range(count)]


@pytest.mark.parametrize("ordered", [False, True])
def test_many(server: FakeServer, ordered: bool) -> None:
    server.script("RerankStream", None, None, Break(), None, Break("CANCELLED"), Failure("UNAVAILABLE", "loading"))

    async def use(client: AsyncRerankd) -> None:
        answers = [answer async for answer in client.rerank_many(requests(30), ordered=ordered)]
        assert sorted(answer.index for answer in answers) == list(range(30))
        assert all(answer.result()[0].text == f"word{answer.index}" for answer in answers)
        assert [answer.index for answer in answers] == list(range(30)) or not ordered

    run(server, use)


def test_many_from_an_asynchronous_source_that_waits(server: FakeServer) -> None:
    server.script("RerankStream", Break())

    async def use(client: AsyncRerankd) -> None:
        seen = asyncio.Semaphore(1)

        async def source() -> AsyncIterator[Request]:
            for request in requests(5):
                await asyncio.wait_for(seen.acquire(), 10)
                yield request
            raise KeyError("mine")

        found = []
        with pytest.raises(KeyError, match="mine"):
            async for answer in client.rerank_many(source()):
                found.append(answer.index)
                seen.release()
        assert found == list(range(5))

    run(server, use)


def test_many_stopped_early(server: FakeServer) -> None:
    async def use(client: AsyncRerankd) -> None:
        async for answer in client.rerank_many(requests(1000)):
            assert answer.ranking
            break
        assert (await client.info()).ready

    run(server, use)


def test_many_that_fails_for_good(server: FakeServer) -> None:
    # Several times, because grpc.aio may lose the status (grpc/grpc#36066).
    server.script("RerankStream", *[Break("UNAUTHENTICATED", "no token")] * 4)

    async def use(client: AsyncRerankd) -> None:
        with pytest.raises(rerankd.Unauthenticated):
            [answer async for answer in client.rerank_many(requests(3))]

    run(server, use)


def test_event_loops_one_after_the_other_and_at_once(server: FakeServer) -> None:
    client = AsyncRerankd(server.address, timeout=10)

    async def ask() -> list[int]:
        rankings = await asyncio.gather(*(client.rerank("rye", ["wheat", "rye"]) for _ in range(20)))
        return [ranking[0].index for ranking in rankings]

    assert asyncio.run(ask()) == [1] * 20
    assert asyncio.run(ask()) == [1] * 20
    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda: found.append(asyncio.run(ask()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [[1] * 20] * 4


def test_the_synchronous_client_under_a_running_loop(client: Rerankd) -> None:
    async def main() -> bool:
        return client.info().ready

    assert asyncio.run(main())


def test_more_calls_than_slots() -> None:
    with FakeServer(slots=16, seconds=0.02) as server:

        async def use(client: AsyncRerankd) -> None:
            rankings = await asyncio.gather(*(client.rerank("rye", ["wheat", "rye"]) for _ in range(100)))
            assert [ranking[0].index for ranking in rankings] == [1] * 100

        run(server, use)
