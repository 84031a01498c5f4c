"""The settings of both clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rerankd import _stream
from rerankd.channel import TLS, Config, Retry, configure
from rerankd.errors import REQUEST_ID, metadata, text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rerankd.channel import Deadline
    from rerankd.errors import RerankdError


class Base:
    """The settings of a client. Only they are pickled."""

    def __init__(
        self,
        target: str | Sequence[str] = "127.0.0.1:50051",
        *,
        token: str | Callable[[], str] | None = None,
        tls: bool | TLS = False,
        timeout: float = 60.0,
        retry: Retry = Retry(),  # noqa: B008 - it is frozen
    ) -> None:
        self._config = configure(target, token, tls, timeout, retry)
        self._open()

    def _open(self) -> None:
        """Prepare to open channels."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._config.addresses)})"

    def __getstate__(self) -> Config:
        return self._config

    def __setstate__(self, state: Config) -> None:
        self._config = state
        self._open()

    def _patience(self) -> _stream.Patience:
        return _stream.Patience(self._config.retry, self._config.timeout)

    def _pause(self, error: RerankdError, attempt: int, deadline: Deadline) -> float:
        """Seconds until the next attempt. Raises the error if there is none."""
        pause = self._config.retry.pause(error, attempt, deadline.left(), self._config.servers)
        if pause is None:
            raise error from None
        return pause


def request_id(pairs: Iterable[Any] | None) -> str:
    """The id of a call, from the metadata of its answer."""
    return text(metadata(pairs).get(REQUEST_ID, ""))
