"""The methods of rerankd.v1 that the clients call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from rerankd.v1 import metrics_pb2, model_pb2, rerank_pb2, utility_pb2

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


@dataclass(frozen=True)
class Method(Generic[Q, A]):
    """A method: its service, its name, and its messages. Streams are named by the side that sends many messages."""

    service: str
    name: str
    request: type[Q]
    answer: type[A]
    request_stream: bool = False
    answer_stream: bool = False

    @property
    def path(self) -> str:
        """The path of the call."""
        return f"/rerankd.v1.{self.service}/{self.name}"


RERANK = Method("RerankService", "Rerank", rerank_pb2.RerankRequest, rerank_pb2.RerankResponse)
WATCH = Method(
    "RerankService", "WatchRerank", rerank_pb2.WatchRerankRequest, rerank_pb2.WatchRerankResponse, answer_stream=True
)
STREAM = Method(
    "RerankService",
    "RerankStream",
    rerank_pb2.RerankStreamRequest,
    rerank_pb2.RerankStreamResponse,
    request_stream=True,
    answer_stream=True,
)
CONTEXT = Method("RerankService", "BuildContext", rerank_pb2.BuildContextRequest, rerank_pb2.BuildContextResponse)
WARM = Method(
    "RerankService", "WarmPassages", rerank_pb2.WarmPassagesRequest, rerank_pb2.WarmPassagesResponse, answer_stream=True
)
UTILITY = Method(
    "UtilityService", "MeasureUtility", utility_pb2.MeasureUtilityRequest, utility_pb2.MeasureUtilityResponse
)
LABELS = Method(
    "UtilityService", "EvaluateRetrieval", utility_pb2.EvaluateRetrievalRequest, utility_pb2.EvaluateRetrievalResponse
)
METRICS = Method(
    "MetricsService", "EvaluateRanking", metrics_pb2.EvaluateRankingRequest, metrics_pb2.EvaluateRankingResponse
)
INFO = Method("ModelService", "GetServerInfo", model_pb2.GetServerInfoRequest, model_pb2.GetServerInfoResponse)
