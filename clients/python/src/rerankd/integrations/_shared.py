"""Common parts of the adapters."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from rerankd.aio import AsyncRerankd
from rerankd.client import Rerankd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rerankd.types import Passage, Ranking, Result

Item = TypeVar("Item")
ADDRESS = "127.0.0.1:50051"


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Name the extra if an import in this block fails."""
    try:
        yield
    except ImportError as missing:
        raise ImportError(f"{missing}. Install it: pip install 'rerankd[{extra}]'", name=missing.name) from missing


def clients(given: Rerankd | str) -> tuple[Rerankd, AsyncRerankd]:
    """Both clients of a server, from its address or one of them."""
    client = given if isinstance(given, Rerankd) else Rerankd(given)
    other = AsyncRerankd.__new__(AsyncRerankd)
    other.__setstate__(client.__getstate__())
    return client, other


def rerank(
    client: Rerankd, query: str, items: Sequence[Item], passage: Callable[[Item], Passage], **options: Any
) -> list[tuple[Item, Result]]:
    """The returned items, best first. `passage` converts an item; `options` are those of `Rerankd.rerank`."""
    if not items:
        return []
    return _pairs(items, client.rerank(query, [passage(item) for item in items], **options))


async def arerank(
    client: AsyncRerankd, query: str, items: Sequence[Item], passage: Callable[[Item], Passage], **options: Any
) -> list[tuple[Item, Result]]:
    """`rerank` as a coroutine."""
    if not items:
        return []
    return _pairs(items, await client.rerank(query, [passage(item) for item in items], **options))


def descending(ranking: Ranking) -> Iterator[tuple[int, float]]:
    """The index and score of each result, for a framework that sorts by score.

    Results can have equal scores, which frameworks order by id or input. So each score is lowered below the last one.
    """
    last = 2.0
    for result in ranking:
        # Frameworks compare in single precision, whose numbers below 1 are up to 2**-24 apart.
        last = min(result.score, last - 2**-23)
        yield result.index, last


def _pairs(items: Sequence[Item], ranking: Ranking) -> list[tuple[Item, Result]]:
    return [(items[result.index], result) for result in ranking]
