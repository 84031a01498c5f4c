"""Client of rerankd, which reranks passages by asking the generator that will read them.

>>> from rerankd import Rerankd
>>> from rerankd.testing import FakeServer
>>> with FakeServer() as server, Rerankd(server.address) as client:
...     client.rerank("who wrote it?", ["Rye absorbs water.", "Eliot wrote it."])[0].text
'Eliot wrote it.'

`FakeServer` answers without a model, so that the examples run anywhere. `Rerankd()` calls 127.0.0.1:50051.
"""

import os as _os

# Without it, a child of a process that has used grpcio waits forever in its first call. grpcio reads the variable when
# it is imported, so a program that imports grpc first and forks must set it itself.
_os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "1")

from rerankd.aio import AsyncRerankd
from rerankd.channel import TLS, Retry
from rerankd.client import Rerankd
from rerankd.errors import (
    DeadlineExceeded,
    InternalError,
    InvalidRequest,
    NotSetUp,
    Overloaded,
    QuotaExceeded,
    RerankdError,
    ResourceExhausted,
    TooLong,
    Unauthenticated,
    Unavailable,
)
from rerankd.launch import LaunchFailed, LocalServer
from rerankd.types import (
    Answer,
    Compressed,
    CompressedPassage,
    Compression,
    Context,
    ContextPassage,
    ContextUtility,
    Interim,
    LeftOut,
    Measured,
    Metrics,
    Passage,
    Planned,
    Progress,
    Ranking,
    Request,
    Result,
    RetrievalLabels,
    ServerInfo,
    Signals,
    Usage,
    Utility,
    Warmed,
)

__all__ = [
    "TLS",
    "Answer",
    "AsyncRerankd",
    "Compressed",
    "CompressedPassage",
    "Compression",
    "Context",
    "ContextPassage",
    "ContextUtility",
    "DeadlineExceeded",
    "Interim",
    "InternalError",
    "InvalidRequest",
    "LaunchFailed",
    "LeftOut",
    "LocalServer",
    "Measured",
    "Metrics",
    "NotSetUp",
    "Overloaded",
    "Passage",
    "Planned",
    "Progress",
    "QuotaExceeded",
    "Ranking",
    "Request",
    "Rerankd",
    "RerankdError",
    "ResourceExhausted",
    "Result",
    "RetrievalLabels",
    "Retry",
    "ServerInfo",
    "Signals",
    "TooLong",
    "Unauthenticated",
    "Unavailable",
    "Usage",
    "Utility",
    "Warmed",
]
