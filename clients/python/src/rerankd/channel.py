"""Addresses, credentials and channels."""

from __future__ import annotations

import ipaddress
import json
import math
import os
import random
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from rerankd.errors import DeadlineExceeded, Overloaded, RerankdError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PORT = 50051
SCHEMES = ("dns:", "ipv4:", "ipv6:", "unix:", "unix-abstract:", "xds:", "vsock:")


@dataclass(frozen=True)
class TLS:
    """Files of a TLS connection, in PEM. Without `ca`, the public authorities hold.

    `server_name` is the name in the server's certificate, if it is not the host of the address.
    """

    ca: str | os.PathLike[str] | None = None
    cert: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    server_name: str = ""

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files."""
        ca, key, cert = (Path(path).read_bytes() if path else None for path in (self.ca, self.key, self.cert))
        return grpc.ssl_channel_credentials(ca, key, cert)


@dataclass(frozen=True)
class Retry:
    """How often a call is repeated.

    grpcio sends a call up to `attempts` times, at most 5, if no server is reached. With `wait`, a call that the server
    refuses for now is sent again after the delay that it names, until the deadline; a call that breaks in the middle is
    sent again up to twice.
    """

    attempts: int = 4
    wait: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= 5:
            raise ValueError(f"attempts: {self.attempts} given, 1 to 5 allowed")

    def pause(self, error: RerankdError, attempt: int, left: float, servers: int) -> float | None:
        """Seconds until the next attempt, or None to give up. `attempt` counts from 0."""
        if not self.wait:
            return None
        if isinstance(error, Overloaded | Unavailable) and error.retry_after is not None:
            # Another server may have a free slot now. Callers that were refused together return at different times.
            wait = max(0.01, error.retry_after) * random.uniform(1.0, 1.25)  # noqa: S311
            pause = 0.0 if attempt < servers - 1 else wait
        elif isinstance(error, Unavailable) and attempt < min(2, self.attempts - 1):
            # grpcio does not repeat a call of which it has received headers, nor one that the server has cancelled.
            pause = self.backoff(attempt)
        else:
            return None
        return pause if pause < left else None

    def backoff(self, attempt: int) -> float:
        """Seconds to wait without advice of the server."""
        return float(min(1.0, 0.1 * 2**attempt) * random.uniform(0.8, 1.2))  # noqa: S311


@dataclass(frozen=True)
class Config:
    """The settings of a client. They survive pickling; channels do not."""

    addresses: tuple[str, ...]
    token: str | Callable[[], str] | None
    tls: TLS | None
    timeout: float
    retry: Retry

    @property
    def servers(self) -> int:
        """The number of servers, or 2 if it is not known because the addresses of a name may change."""
        first = self.addresses[0]
        named = first.startswith(("dns:", "xds:")) or (bool(_names([first])) and not _loopback(first))
        return max(len(self.addresses), first.count(",") + 1, 2 if named else 1)


def configure(
    target: str | Sequence[str],
    token: str | Callable[[], str] | None,
    tls: bool | TLS,
    timeout: float,
    retry: Retry,
) -> Config:
    """Check the settings of a client."""
    given = [target] if isinstance(target, str) else list(target)
    if not given:
        raise ValueError("target: at least one address is needed")
    secure = any(address.startswith("https://") for address in given)
    addresses = tuple(_address(address) for address in given)
    if len(addresses) > 1 and any(address.startswith(SCHEMES) for address in addresses):
        raise ValueError("target: give several addresses as HOST:PORT, or one target with a scheme")
    if timeout <= 0:
        raise ValueError("timeout: must be above 0")
    settings = tls if isinstance(tls, TLS) else TLS() if tls or secure else None
    if settings and len(addresses) > 1 and not settings.server_name and not _names(addresses):
        raise ValueError("tls: several IP addresses need TLS(server_name=...), the name in their certificates")
    return Config(addresses, token, settings, timeout, retry)


class _Asyncio:
    """The process that has used grpc.aio. Its thread stays in grpcio, which then cannot prepare a fork."""

    process: int | None = None


def connect(config: Config) -> grpc.Channel:
    """Open a channel for this process."""
    _check_fork()
    target, options = resolve(config), channel_options(config)
    if config.tls:
        return grpc.secure_channel(target, config.tls.credentials(), options)
    return grpc.insecure_channel(target, options)


def connect_aio(config: Config) -> grpc.aio.Channel:
    """Open a channel for the running event loop."""
    _check_fork()
    _Asyncio.process = os.getpid()
    target, options = resolve(config), channel_options(config)
    if config.tls:
        return grpc.aio.secure_channel(target, config.tls.credentials(), options)
    return grpc.aio.insecure_channel(target, options)


def _check_fork() -> None:
    if _Asyncio.process not in (None, os.getpid()):
        raise RuntimeError(
            "this process was forked from one that has used AsyncRerankd, where calls of grpcio may wait forever: "
            "start it with the method 'spawn', or use only Rerankd before the fork"
        )


def resolve(config: Config) -> str:
    """The target for grpcio.

    Several hosts become a list of IP addresses now, because grpcio takes lists of addresses only. Give one name as
    `dns:///NAME:PORT` if its addresses change.
    """
    if len(config.addresses) == 1:
        return config.addresses[0]
    found = []
    for address in config.addresses:
        host, port = _split(address)
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        # A list has one family. A name that has both is reached by IPv4.
        family = min((info[0] for info in infos), key=lambda family: family != socket.AF_INET)
        found.append((family, [str(info[4][0]) for info in infos if info[0] == family], port))
    families = {family for family, _, _ in found}
    if len(families) > 1:
        raise ValueError("target: IPv4 and IPv6 addresses cannot be mixed")
    if families == {socket.AF_INET}:
        return "ipv4:" + ",".join(f"{host}:{port}" for _, hosts, port in found for host in hosts)
    return "ipv6:" + ",".join(f"[{host}]:{port}" for _, hosts, port in found for host in hosts)


def channel_options(config: Config) -> list[tuple[str, object]]:
    """Balancing, retries, and limits that the server sets instead of the client."""
    policy: dict[str, object] = {"loadBalancingConfig": [{"round_robin": {}}]}
    if config.retry.attempts > 1:
        backoff = {"initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2}
        again = {"maxAttempts": config.retry.attempts, "retryableStatusCodes": ["UNAVAILABLE"], **backoff}
        policy["methodConfig"] = [{"name": [{}], "retryPolicy": again}]
    options: list[tuple[str, object]] = [
        ("grpc.service_config", json.dumps(policy)),
        ("grpc.max_receive_message_length", -1),
        # A stream without a deadline must notice that the other machine is gone.
        ("grpc.keepalive_time_ms", 60_000),
    ]
    name = config.tls.server_name if config.tls else ""
    if not name and ("," in config.addresses[0] or len(config.addresses) > 1):
        # Without this option grpcio sends the whole list as the name of the host, which servers refuse.
        name = next(iter(_names(config.addresses)), "rerankd")
    if name:
        options.append(("grpc.default_authority", name))
    if all(_loopback(address) for address in config.addresses):
        options.append(("grpc.enable_http_proxy", 0))
    return options


def headers(config: Config, priority: int | str, request_id: str | None) -> tuple[tuple[str, str], ...]:
    """Metadata of a call."""
    found = []
    if config.token is not None:
        token = config.token() if callable(config.token) else config.token
        found.append(("authorization", f"Bearer {token}"))
    if isinstance(priority, int):
        found.append(("x-rerankd-priority", str(priority)))
    elif priority != "normal":
        found.append(("rerankd-priority", priority))
    if request_id:
        found.append(("x-request-id", request_id))
    return tuple(found)


class Deadline:
    """The time that is left for a call and its repetitions. An infinite timeout means no deadline."""

    def __init__(self, timeout: float) -> None:
        self.end = time.monotonic() + timeout

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.end - time.monotonic()

    def grpc(self) -> float | None:
        """The timeout of the next attempt, as grpcio wants it."""
        left = self.left()
        if left <= 0:
            raise DeadlineExceeded("the deadline passed before the call was sent", grpc.StatusCode.DEADLINE_EXCEEDED)
        return None if math.isinf(left) else left


def _address(address: str) -> str:
    if address.startswith(SCHEMES):
        return address
    plain = address.removeprefix("https://").removeprefix("http://").rstrip("/")
    host, port = _split(plain)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _split(address: str) -> tuple[str, int]:
    """Host and port of `host:port`, `[::1]:port` or `host`."""
    host, colon, port = address.rpartition(":")
    if not colon or (address.startswith("[") and address.endswith("]")):
        host, port = address, str(PORT)
    if not host or not port.isdecimal() or "/" in host or (":" in host and not host.startswith("[")):
        raise ValueError(f"target: {address!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _names(addresses: Sequence[str]) -> list[str]:
    """The hosts that are names."""
    return [_split(address)[0] for address in addresses if not address.startswith(SCHEMES) and not _ip(address)]


def _ip(address: str) -> bool:
    try:
        ipaddress.ip_address(_split(address)[0])
    except ValueError:
        return False
    return True


def _loopback(address: str) -> bool:
    if address.startswith(SCHEMES):
        return address.startswith("unix")
    host = _split(address)[0]
    return host == "localhost" or (_ip(address) and ipaddress.ip_address(host).is_loopback)
