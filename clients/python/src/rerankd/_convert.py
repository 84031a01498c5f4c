"""Plain data to messages, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rerankd import types
from rerankd.v1 import metrics_pb2, model_pb2, rerank_pb2, utility_pb2

if TYPE_CHECKING:
    from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

KEYS = {"id", "text", "title", "score"}
KINDS = {
    utility_pb2.CONTEXT_KIND_LIST: "list",
    utility_pb2.CONTEXT_KIND_PASSAGE: "passage",
    utility_pb2.CONTEXT_KIND_PREFIX: "prefix",
    utility_pb2.CONTEXT_KIND_WITHOUT: "without",
    utility_pb2.CONTEXT_KIND_SUBSET: "subset",
}


def passages(given: Sequence[types.PassageLike], scores: Iterable[float] | None = None) -> tuple[types.Passage, ...]:
    """Passages with their scores."""
    if isinstance(given, str | Mapping):
        raise TypeError(f"passages: a list of passages is needed, not one {type(given).__name__}")
    found = tuple(_passage(at, passage) for at, passage in enumerate(given))
    if scores is None:
        return found
    numbers = [_number(f"scores[{at}]", score) for at, score in enumerate(scores)]
    if len(numbers) != len(found):
        raise ValueError(f"scores: {len(numbers)} given for {len(found)} passages")
    return tuple(replace(passage, score=score) for passage, score in zip(found, numbers, strict=True))


def rerank_request(request: types.Request, texts: Sequence[types.Passage]) -> rerank_pb2.RerankRequest:
    """The message of a request. Its fields replace those of `options`."""
    message = rerank_pb2.RerankRequest()
    if request.options is not None:
        if not isinstance(request.options, rerank_pb2.RerankRequest):
            raise TypeError(f"options: a RerankRequest message is needed, not {type(request.options).__name__}")
        message.CopyFrom(request.options)
    message.query = _text("query", request.query)
    del message.passages[:]
    message.passages.extend(passage_messages(texts))
    if request.method is not None:
        message.method = value(rerank_pb2.Method, "METHOD", request.method)
    if request.top_n:
        message.top_n = request.top_n
    if request.only_helpful:
        message.only_helpful = True
    if request.auto_k:
        message.auto_k = True
    if request.latency_budget_ms is not None:
        message.latency_budget_ms = request.latency_budget_ms
    if request.instruction:
        message.instruction = request.instruction
    if request.compression is not None:
        message.compression.CopyFrom(compression(request.compression))
    if request.dedup:
        message.dedup.mode = value(rerank_pb2.DedupMode, "DEDUP_MODE", request.dedup)
    return message


def passage_messages(texts: Sequence[types.Passage]) -> list[rerank_pb2.Passage]:
    """The messages of passages."""
    return [
        rerank_pb2.Passage(id=passage.id, text=passage.text, title=passage.title, retriever_score=passage.score)
        for passage in texts
    ]


def compression(given: types.Compression) -> rerank_pb2.Compression:
    """The message of a compression."""
    if not isinstance(given, types.Compression):
        raise TypeError(f"compression: a Compression is needed, not {type(given).__name__}")
    message = rerank_pb2.Compression(target_tokens=given.target_tokens, ratio=given.ratio)
    if given.method:
        message.method = value(rerank_pb2.CompressionMethod, "COMPRESSION_METHOD", given.method)
    if given.unit:
        message.unit = value(rerank_pb2.CompressionUnit, "COMPRESSION_UNIT", given.unit)
    return message


def ranking(
    request: types.Request, texts: tuple[types.Passage, ...], answer: rerank_pb2.RerankResponse, request_id: str
) -> types.Ranking:
    """A ranking from its message."""
    compressed = None
    if answer.HasField("compression"):
        report = answer.compression
        compressed = types.Compressed(
            tuple(
                types.CompressedPassage(
                    passage.original_index,
                    passage.compressed_text,
                    passage.tokens_before,
                    passage.tokens_after,
                    passage.dropped,
                )
                for passage in report.passages
            ),
            report.tokens_before,
            report.tokens_after,
            tuple(answer.warnings),
        )
    return types.Ranking(
        results=tuple(_result(result, texts) for result in answer.results),
        query=request.query,
        context_order=tuple(answer.context_order.original_indices),
        none_helps=answer.none_helps if answer.HasField("none_helps") else None,
        warnings=tuple(answer.warnings),
        usage=usage(answer.usage),
        model=answer.model,
        request_id=request_id,
        position_bias=tuple(tuple(bias.weights) for bias in answer.position_bias),
        compressed=compressed,
        passages=texts,
        proto=answer,
    )


def context_request(
    request: types.Request,
    texts: Sequence[types.Passage],
    max_tokens: int,
    template: str,
    separator: str | None,
    max_per_source: int,
    tokenizer: str,
    options: rerank_pb2.BuildContextRequest | None,
) -> rerank_pb2.BuildContextRequest:
    """The message of a context. Arguments replace the fields of `options`."""
    message = rerank_pb2.BuildContextRequest()
    if options is not None:
        message.CopyFrom(options)
    ranking = replace(request, options=message.request)
    message.request.CopyFrom(rerank_request(ranking, texts))
    if max_tokens:
        message.max_tokens = max_tokens
    if template:
        message.template = template
    if separator is not None:
        message.separator = separator
    if max_per_source:
        message.max_per_source = max_per_source
    if tokenizer:
        message.tokenizer = tokenizer
    return message


def context(answer: rerank_pb2.BuildContextResponse, request_id: str) -> types.Context:
    """A context. Its spans become characters."""
    data = answer.text.encode()

    def characters(end: int) -> int:
        return len(data[:end].decode())

    return types.Context(
        text=answer.text,
        tokens=answer.tokens,
        passages=tuple(
            types.ContextPassage(
                passage.id,
                passage.original_index,
                characters(passage.start),
                characters(passage.end),
                passage.score,
                passage.utility,
                tuple(passage.duplicates),
                passage.cut,
                passage.compressed,
            )
            for passage in answer.passages
        ),
        left_out=tuple(
            types.LeftOut(
                passage.id,
                passage.original_index,
                _known(rerank_pb2.LeftOutReason, "LEFT_OUT_REASON", passage.reason),
                passage.duplicate_of if passage.HasField("duplicate_of") else None,
            )
            for passage in answer.left_out
        ),
        warnings=tuple(answer.warnings),
        usage=usage(answer.usage),
        model=answer.model,
        reader=answer.reader,
        request_id=request_id,
        proto=answer,
    )


def event(
    request: types.Request, texts: tuple[types.Passage, ...], answer: rerank_pb2.WatchRerankResponse, request_id: str
) -> types.Event | None:
    """An event, or None for a kind that this version does not know."""
    kind = answer.WhichOneof("event")
    if kind == "planned":
        return types.Planned(answer.planned.tokens, answer.planned.naive_tokens)
    if kind == "progress":
        return types.Progress(answer.progress.tokens_done, answer.progress.tokens_total)
    if kind == "interim":
        return types.Interim(tuple(answer.interim.original_indices), answer.interim.observations)
    if kind == "final":
        return ranking(request, texts, answer.final, request_id)
    return None


def warmed(answer: rerank_pb2.WarmPassagesResponse) -> types.Warmed:
    """The last message of WarmPassages."""
    return types.Warmed(answer.passages, answer.present, answer.kept, answer.tokens, answer.model)


def utility_request(
    question: str,
    given: Sequence[types.PassageLike],
    references: Iterable[str],
    each: bool,
    samples: int,
    options: utility_pb2.MeasureUtilityRequest | None,
) -> utility_pb2.MeasureUtilityRequest:
    """The message of a measurement."""
    message = utility_pb2.MeasureUtilityRequest()
    if options is not None:
        message.CopyFrom(options)
    message.question = question
    del message.passages[:], message.references[:]
    message.passages.extend(passage_messages(passages(given)))
    message.references.extend(_texts("references", references))
    message.measure_list = True
    message.measure_each = each or message.measure_each
    message.sampling.samples = samples
    return message


def utility(answer: utility_pb2.MeasureUtilityResponse, request_id: str) -> types.Utility:
    """Measured utilities."""
    contexts = tuple(
        types.ContextUtility(
            KINDS.get(found.kind, "unknown"),
            found.number,
            tuple(found.indices),
            _measured(found.delta_seper_soft) if found.HasField("delta_seper_soft") else None,
            _measured(found.semantic_entropy_reduction) if found.HasField("semantic_entropy_reduction") else None,
        )
        for found in answer.utilities
    )
    return types.Utility(contexts, tuple(answer.warnings), usage(answer.usage), answer.model, request_id, answer)


def labels_request(
    question: str,
    given: Sequence[types.PassageLike],
    references: Iterable[str],
    annotators: Iterable[str],
    metrics: Iterable[str],
    options: utility_pb2.EvaluateRetrievalRequest | None,
) -> utility_pb2.EvaluateRetrievalRequest:
    """The message of an evaluation."""
    message = utility_pb2.EvaluateRetrievalRequest()
    if options is not None:
        message.CopyFrom(options)
    message.question = question
    del message.passages[:], message.references[:], message.annotators[:], message.metrics[:]
    message.passages.extend(passage_messages(passages(given)))
    message.references.extend(_texts("references", references))
    names = _texts("annotators", annotators)
    message.annotators.extend(value(utility_pb2.Annotator, "ANNOTATOR", name) for name in names)
    message.metrics.extend(_texts("metrics", metrics))
    return message


def labels(
    answer: utility_pb2.EvaluateRetrievalResponse, names: Sequence[str], request_id: str
) -> types.RetrievalLabels:
    """Labels by annotator."""
    scores = answer.rankings[0].scores if answer.rankings else ()
    return types.RetrievalLabels(
        {_annotator(found.annotator): tuple(found.labels) for found in answer.labels},
        {_annotator(found.annotator): _values(found.metrics, names) for found in scores},
        tuple(answer.warnings),
        usage(answer.usage),
        answer.model,
        request_id,
        answer,
    )


def metrics_request(
    run: Mapping[str, Mapping[str, float] | Sequence[str]],
    judgements: Mapping[str, Mapping[str, float]],
    metrics: Iterable[str],
    options: metrics_pb2.EvaluateRankingRequest | None,
) -> metrics_pb2.EvaluateRankingRequest:
    """The message of an evaluation. A query of the run without judgements is left out."""
    message = metrics_pb2.EvaluateRankingRequest()
    if options is not None:
        message.CopyFrom(options)
    del message.queries[:], message.metrics[:]
    message.metrics.extend(_texts("metrics", metrics))
    for query, judged in judgements.items():
        found = run.get(query, ())
        if isinstance(found, Mapping):
            documents = [metrics_pb2.RankedDocument(id=key, score=float(score)) for key, score in found.items()]
        else:
            documents = [metrics_pb2.RankedDocument(id=key) for key in _texts("run", found)]
        values = {key: float(label) for key, label in judged.items()}
        message.queries.append(metrics_pb2.RankedQuery(id=query, documents=documents, judgements=values))
    return message


def metrics(answer: metrics_pb2.EvaluateRankingResponse, names: Sequence[str]) -> types.Metrics:
    """Rank metrics by the caller's names, which the server may write in another way."""
    summary = list(zip(names, answer.summary, strict=False))
    return types.Metrics(
        {name: found.value if found.HasField("value") else None for name, found in summary},
        {name: (found.interval.low, found.interval.high) for name, found in summary if found.HasField("interval")},
        {query.id: _values(query.values, names) for query in answer.queries},
        answer,
    )


def info(answer: model_pb2.GetServerInfoResponse) -> types.ServerInfo:
    """Properties of the server."""
    return types.ServerInfo(answer.version, answer.generator.name, answer.worker.ready, answer)


def usage(answer: rerank_pb2.Usage) -> types.Usage:
    """The cost of a call."""
    return types.Usage(answer.tokens, answer.cached_tokens, answer.queue_ms, answer.total_ms)


def value(enum: EnumTypeWrapper, prefix: str, name: str) -> Any:
    """The number of an enum's value. Its type is the enum's, which messages ask for.

    >>> value(rerank_pb2.Method, "METHOD", "query-generation") == rerank_pb2.METHOD_QUERY_GENERATION
    True
    """
    wanted = name.upper().replace("-", "_").removeprefix(f"{prefix}_")
    number = dict(enum.items()).get(f"{prefix}_{wanted}")
    if number is None:
        known = ", ".join(_name(key, prefix) for key in enum.keys() if not key.endswith("_UNSPECIFIED"))  # noqa: SIM118
        raise ValueError(f"{prefix.lower().replace('_', ' ')}: {name!r} is not one of {known}")
    return number


def _passage(at: int, given: types.PassageLike) -> types.Passage:
    if isinstance(given, str):
        return types.Passage(given)
    if isinstance(given, types.Passage):
        return given
    if not isinstance(given, Mapping):
        raise TypeError(f"passages[{at}]: a text, a mapping or a Passage is needed, not {type(given).__name__}")
    if other := set(given) - KEYS:
        raise ValueError(f"passages[{at}]: unknown key {min(map(str, other))!r}; known are id, score, text, title")
    score = given.get("score")
    return types.Passage(
        text=_scalar(f"passages[{at}].text", given.get("text")),
        title=_scalar(f"passages[{at}].title", given.get("title")),
        id=_scalar(f"passages[{at}].id", given.get("id")),
        score=None if score is None else _number(f"passages[{at}].score", score),
    )


def _scalar(path: str, given: Any) -> str:
    """A text, or a number as text; empty for None. Data frames have numpy's numbers."""
    if isinstance(given, Mapping | list | tuple | bytes):
        raise TypeError(f"{path}: a text is needed, not {type(given).__name__}")
    return "" if given is None else str(given)


def _text(path: str, given: Any) -> str:
    if not isinstance(given, str):
        raise TypeError(f"{path}: a text is needed, not {type(given).__name__}")
    return given


def _number(path: str, given: Any) -> float:
    try:
        return float(given)
    except (TypeError, ValueError):
        raise TypeError(f"{path}: a number is needed, not {given!r}") from None


def _result(result: rerank_pb2.RankedPassage, texts: Sequence[types.Passage]) -> types.Result:
    signals = result.signals
    return types.Result(
        id=result.id,
        index=result.original_index,
        rank=result.rank,
        score=result.score,
        utility=result.utility,
        passage=texts[result.original_index],
        standard_error=result.standard_error if result.HasField("standard_error") else None,
        outranks_next=result.outranks_next if result.HasField("outranks_next") else None,
        stage="" if not result.stage else _known(rerank_pb2.Stage, "STAGE", result.stage),
        signals=types.Signals(
            signals.model if signals.HasField("model") else None,
            signals.embedding if signals.HasField("embedding") else None,
            signals.source if signals.HasField("source") else None,
        ),
        tokens_cut=result.tokens_cut,
        duplicates=tuple(result.duplicates),
    )


def _measured(found: utility_pb2.Measured) -> types.Measured:
    return types.Measured(found.value, found.standard_error if found.HasField("standard_error") else None)


def _values(found: Iterable[metrics_pb2.MetricValue], names: Sequence[str]) -> dict[str, float | None]:
    """Metrics by the caller's names. Without names, the server has chosen the metrics and names them."""
    items = list(found)
    keys = names or [item.metric for item in items]
    return {name: item.value if item.HasField("value") else None for name, item in zip(keys, items, strict=False)}


def _annotator(number: int) -> str:
    return _known(utility_pb2.Annotator, "ANNOTATOR", number)


def _known(enum: EnumTypeWrapper, prefix: str, number: int) -> str:
    """The name of a value. A value of a newer server is its number."""
    return next((_name(key, prefix) for key, found in enum.items() if found == number), str(number))


def _name(key: str, prefix: str) -> str:
    return key.removeprefix(f"{prefix}_").lower().replace("_", "-")


def _texts(name: str, given: Iterable[str]) -> list[str]:
    """A list of strings; a single string is a mistake."""
    if isinstance(given, str):
        raise TypeError(f"{name}: a list of strings is needed, not one string")
    return list(given)
