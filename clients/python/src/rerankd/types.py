"""Requests and answers as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

from rerankd import _html

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

    from rerankd.errors import RerankdError
    from rerankd.v1 import metrics_pb2, model_pb2, rerank_pb2, utility_pb2


@dataclass(frozen=True)
class Passage:
    """A passage. `score` is the retriever's score, higher for better passages. An empty `id` becomes the index."""

    text: str
    title: str = ""
    id: str = ""
    score: float | None = None


PassageLike = str | Mapping[str, Any] | Passage
"""A text, a mapping with the fields of `Passage`, or a `Passage`."""


@dataclass(frozen=True)
class Compression:
    """How the returned passages are shortened: to `ratio` of their tokens, or to `target_tokens` in total.

    `method` is `long-llm-lingua` or `selective-context`; `unit` is `sentence`, `phrase` or `token`. The server's
    defaults hold for empty values.
    """

    ratio: float | None = None
    target_tokens: int = 0
    method: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Request:
    """A query, its passages, and how to rank them. `Rerankd.rerank` takes the same arguments and explains them."""

    query: str
    passages: Sequence[PassageLike]
    scores: Iterable[float] | None = field(default=None, kw_only=True)
    method: str | None = field(default=None, kw_only=True)
    top_n: int = field(default=0, kw_only=True)
    only_helpful: bool = field(default=False, kw_only=True)
    auto_k: bool = field(default=False, kw_only=True)
    latency_budget_ms: float | None = field(default=None, kw_only=True)
    instruction: str = field(default="", kw_only=True)
    compression: Compression | None = field(default=None, kw_only=True)
    dedup: str = field(default="", kw_only=True)
    options: rerank_pb2.RerankRequest | None = field(default=None, kw_only=True, repr=False)
    id: str = field(default="", kw_only=True)
    """The caller's name for this request in `rerank_many`. It is not sent."""


@dataclass(frozen=True)
class Signals:
    """Contribution of each model to the value that orders the passages. Absent values took no part."""

    model: float | None = None
    embedding: float | None = None
    source: float | None = None


@dataclass(frozen=True)
class Result:
    """A ranked passage.

    `score` is in (0, 1) and descends with `rank`. `utility` is the model's own value, in nats for the default method:
    log P(query | passage) - log P(query | no passage). `stage` is `retriever`, `alone` or `together`. `duplicates` has
    the indices of its near-duplicates, with `dedup`.
    """

    id: str
    index: int
    rank: int
    score: float
    utility: float
    passage: Passage
    standard_error: float | None = None
    outranks_next: float | None = None
    stage: str = ""
    signals: Signals = Signals()
    tokens_cut: int = 0
    duplicates: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The text of the passage."""
        return self.passage.text


@dataclass(frozen=True)
class Usage:
    """The cost of a call."""

    tokens: int = 0
    cached_tokens: int = 0
    queue_ms: float = 0.0
    total_ms: float = 0.0


@dataclass(frozen=True)
class CompressedPassage:
    """A passage after compression. Its text is empty if it was dropped."""

    index: int
    text: str
    tokens_before: int
    tokens_after: int
    dropped: bool = False


@dataclass(frozen=True)
class Compressed(Sequence[CompressedPassage]):
    """Compressed passages in the order in which the generator should read them."""

    passages: tuple[CompressedPassage, ...]
    tokens_before: int
    tokens_after: int
    warnings: tuple[str, ...] = ()

    def texts(self) -> list[str]:
        """The texts that are left, without dropped passages."""
        return [passage.text for passage in self.passages if not passage.dropped]

    @overload
    def __getitem__(self, at: int) -> CompressedPassage: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[CompressedPassage, ...]: ...
    def __getitem__(self, at: int | slice) -> CompressedPassage | tuple[CompressedPassage, ...]:
        return self.passages[at]

    def __len__(self) -> int:
        return len(self.passages)


@dataclass(frozen=True, eq=False)
class Ranking(Sequence[Result]):
    """Results, best first, and what the server says about them.

    >>> from rerankd.testing import FakeServer
    >>> from rerankd import Rerankd
    >>> with FakeServer() as server, Rerankd(server.address) as client:
    ...     ranking = client.rerank("who wrote it?", ["Rye absorbs water.", "Eliot wrote it."])
    >>> [result.index for result in ranking]
    [1, 0]
    >>> ranking[0].text
    'Eliot wrote it.'

    `context_order` has the indices of the returned passages in the order in which the server's generator reads them
    best. `none_helps` is absent if the method cannot tell. `position_bias` has the weight of each position for every
    length of prompt that was fitted. `proto` is the whole answer.
    """

    results: tuple[Result, ...]
    query: str
    context_order: tuple[int, ...]
    none_helps: bool | None
    warnings: tuple[str, ...]
    usage: Usage
    model: str
    request_id: str
    position_bias: tuple[tuple[float, ...], ...]
    compressed: Compressed | None = field(repr=False)
    passages: tuple[Passage, ...] = field(repr=False)
    proto: rerank_pb2.RerankResponse = field(repr=False)

    @overload
    def __getitem__(self, at: int) -> Result: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Result, ...]: ...
    def __getitem__(self, at: int | slice) -> Result | tuple[Result, ...]:
        return self.results[at]

    def __len__(self) -> int:
        return len(self.results)

    def scores(self) -> list[float | None]:
        """The scores in the order of the request. A passage that was not returned has None."""
        scores: list[float | None] = [None] * len(self.passages)
        for result in self.results:
            scores[result.index] = result.score
        return scores

    def context(self) -> list[Passage]:
        """The returned passages in the order in which the generator should read them."""
        return [self.passages[index] for index in self.context_order]

    def to_pandas(self) -> pd.DataFrame:
        """A row per result, best first. Needs pandas."""
        import pandas as pd

        rows = [
            {
                "rank": result.rank,
                "id": result.id,
                "index": result.index,
                "score": result.score,
                "utility": result.utility,
                "standard_error": result.standard_error,
                "outranks_next": result.outranks_next,
                "stage": result.stage,
                "title": result.passage.title,
                "text": result.passage.text,
            }
            for result in self.results
        ]
        return pd.DataFrame(rows, columns=list(rows[0]) if rows else None)

    def _repr_html_(self) -> str:
        return _html.ranking(self)


@dataclass(frozen=True)
class ContextPassage:
    """A passage of a context: `context.text[start:end]` is its text.

    `duplicates` has the indices of the near-duplicates that it stands for. `cut` says that the end of its text was cut
    to fit, `compressed` that it was compressed.
    """

    id: str
    index: int
    start: int
    end: int
    score: float
    utility: float
    duplicates: tuple[int, ...] = ()
    cut: bool = False
    compressed: bool = False


@dataclass(frozen=True)
class LeftOut:
    """A passage that is not in a context.

    `reason` is `budget`, `duplicate`, `source`, `ranking` or `empty`. `duplicate_of` is the index of the passage that
    it repeats.
    """

    id: str
    index: int
    reason: str
    duplicate_of: int | None = None


@dataclass(frozen=True, eq=False)
class Context:
    """A context for a prompt, which `str` returns as text.

    `tokens` counts the text as a whole by the tokenizer of the generator `reader`. The text is empty if no passage fits
    or is wanted; `warnings` say why.
    """

    text: str
    tokens: int
    passages: tuple[ContextPassage, ...]
    left_out: tuple[LeftOut, ...]
    warnings: tuple[str, ...]
    usage: Usage
    model: str
    reader: str
    request_id: str
    proto: rerank_pb2.BuildContextResponse = field(repr=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Planned:
    """The server has planned its prompts. `naive_tokens` would be the cost without shared prefixes."""

    tokens: int
    naive_tokens: int


@dataclass(frozen=True)
class Progress:
    """The server has evaluated some of the tokens."""

    tokens_done: int
    tokens_total: int


@dataclass(frozen=True)
class Interim:
    """The order by the scores so far, as indices of the request, best first."""

    order: tuple[int, ...]
    observations: int


Event = Planned | Progress | Interim | Ranking
"""An event of `watch`. The last one is the ranking."""


@dataclass(frozen=True)
class Answer:
    """The answer to a request of `rerank_many`: a ranking or an error. `index` counts the requests from 0."""

    index: int
    request: Request
    ranking: Ranking | None = None
    error: RerankdError | None = None

    def result(self) -> Ranking:
        """The ranking. Raises the error if there is none."""
        if self.ranking is None:
            if self.error is None:
                raise ValueError("the answer has neither a ranking nor an error")
            raise self.error
        return self.ranking


@dataclass(frozen=True)
class Warmed:
    """The passages that `warm` has processed: `present` were cached already, `kept` are cached now."""

    passages: int
    present: int
    kept: int
    tokens: int
    model: str


@dataclass(frozen=True)
class Measured:
    """A measure, with its standard error over the samples if they show it."""

    value: float
    standard_error: float | None = None


@dataclass(frozen=True)
class ContextUtility:
    """The utility of one context: `list`, or `passage` with the index of the passage in `number`.

    `delta_seper` is in [-1, 1], above 0 if the context moves the generator to the references; absent without
    references. `entropy_reduction` is in nats, above 0 if the context makes the generator surer.
    """

    kind: str
    number: int
    indices: tuple[int, ...]
    delta_seper: Measured | None
    entropy_reduction: Measured | None


@dataclass(frozen=True)
class Utility:
    """How far passages move the generator's belief to the reference answers.

    `delta_seper` and `entropy_reduction` are those of the whole list; `each` has every passage alone, if requested.
    """

    contexts: tuple[ContextUtility, ...]
    warnings: tuple[str, ...]
    usage: Usage
    model: str
    request_id: str
    proto: utility_pb2.MeasureUtilityResponse = field(repr=False)

    @property
    def whole(self) -> ContextUtility | None:
        """The utility of the whole list."""
        return next((context for context in self.contexts if context.kind == "list"), None)

    @property
    def each(self) -> tuple[ContextUtility, ...]:
        """The utility of every passage alone, in the order of the request."""
        return tuple(context for context in self.contexts if context.kind == "passage")

    @property
    def delta_seper(self) -> Measured | None:
        """DeltaSePer of the whole list."""
        return self.whole.delta_seper if self.whole else None

    @property
    def entropy_reduction(self) -> Measured | None:
        """Reduction of the semantic entropy by the whole list, in nats."""
        return self.whole.entropy_reduction if self.whole else None


@dataclass(frozen=True)
class RetrievalLabels:
    """Labels of passages by the quality of the generator's answer from each alone (eRAG), by annotator.

    `metrics` has the rank metrics of the order of the request, by annotator and name. A metric that is not defined has
    None.
    """

    labels: Mapping[str, tuple[float, ...]]
    metrics: Mapping[str, Mapping[str, float | None]]
    warnings: tuple[str, ...]
    usage: Usage
    model: str
    request_id: str
    proto: utility_pb2.EvaluateRetrievalResponse = field(repr=False)


@dataclass(frozen=True)
class Metrics:
    """Rank metrics by name: means, their bootstrap intervals, and the values of every query."""

    means: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float, float]]
    queries: Mapping[str, Mapping[str, float | None]]
    proto: metrics_pb2.EvaluateRankingResponse = field(repr=False)

    def __getitem__(self, name: str) -> float | None:
        return self.means[name]


@dataclass(frozen=True)
class ServerInfo:
    """Properties of the server. `proto` has limits, calibrations and the other models."""

    version: str
    model: str
    ready: bool
    proto: model_pb2.GetServerInfoResponse = field(repr=False)
