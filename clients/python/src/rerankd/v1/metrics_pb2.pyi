from rerankd.v1 import rerank_pb2 as _rerank_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TieRule(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TIE_RULE_UNSPECIFIED: _ClassVar[TieRule]
    TIE_RULE_INPUT_ORDER: _ClassVar[TieRule]
    TIE_RULE_TREC_EVAL: _ClassVar[TieRule]

class CorrelationKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CORRELATION_KIND_UNSPECIFIED: _ClassVar[CorrelationKind]
    CORRELATION_KIND_KENDALL_B: _ClassVar[CorrelationKind]
    CORRELATION_KIND_KENDALL_C: _ClassVar[CorrelationKind]
    CORRELATION_KIND_SPEARMAN: _ClassVar[CorrelationKind]
    CORRELATION_KIND_PEARSON: _ClassVar[CorrelationKind]

class AlphaMeasure(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ALPHA_MEASURE_UNSPECIFIED: _ClassVar[AlphaMeasure]
    ALPHA_MEASURE_F: _ClassVar[AlphaMeasure]
    ALPHA_MEASURE_FE: _ClassVar[AlphaMeasure]
    ALPHA_MEASURE_T: _ClassVar[AlphaMeasure]
    ALPHA_MEASURE_T_PRIME: _ClassVar[AlphaMeasure]
TIE_RULE_UNSPECIFIED: TieRule
TIE_RULE_INPUT_ORDER: TieRule
TIE_RULE_TREC_EVAL: TieRule
CORRELATION_KIND_UNSPECIFIED: CorrelationKind
CORRELATION_KIND_KENDALL_B: CorrelationKind
CORRELATION_KIND_KENDALL_C: CorrelationKind
CORRELATION_KIND_SPEARMAN: CorrelationKind
CORRELATION_KIND_PEARSON: CorrelationKind
ALPHA_MEASURE_UNSPECIFIED: AlphaMeasure
ALPHA_MEASURE_F: AlphaMeasure
ALPHA_MEASURE_FE: AlphaMeasure
ALPHA_MEASURE_T: AlphaMeasure
ALPHA_MEASURE_T_PRIME: AlphaMeasure

class Resampling(_message.Message):
    __slots__ = ("resamples", "seed", "confidence")
    RESAMPLES_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    resamples: int
    seed: int
    confidence: float
    def __init__(self, resamples: _Optional[int] = ..., seed: _Optional[int] = ..., confidence: _Optional[float] = ...) -> None: ...

class Interval(_message.Message):
    __slots__ = ("low", "high")
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    low: float
    high: float
    def __init__(self, low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class RankedDocument(_message.Message):
    __slots__ = ("id", "score", "label")
    ID_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    id: str
    score: float
    label: float
    def __init__(self, id: _Optional[str] = ..., score: _Optional[float] = ..., label: _Optional[float] = ...) -> None: ...

class RankedQuery(_message.Message):
    __slots__ = ("id", "documents", "judgements", "missed_labels")
    class JudgementsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    JUDGEMENTS_FIELD_NUMBER: _ClassVar[int]
    MISSED_LABELS_FIELD_NUMBER: _ClassVar[int]
    id: str
    documents: _containers.RepeatedCompositeFieldContainer[RankedDocument]
    judgements: _containers.ScalarMap[str, float]
    missed_labels: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, id: _Optional[str] = ..., documents: _Optional[_Iterable[_Union[RankedDocument, _Mapping]]] = ..., judgements: _Optional[_Mapping[str, float]] = ..., missed_labels: _Optional[_Iterable[float]] = ...) -> None: ...

class EvaluateRankingRequest(_message.Message):
    __slots__ = ("queries", "metrics", "threshold", "graded", "tie_rule", "resampling")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    GRADED_FIELD_NUMBER: _ClassVar[int]
    TIE_RULE_FIELD_NUMBER: _ClassVar[int]
    RESAMPLING_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedCompositeFieldContainer[RankedQuery]
    metrics: _containers.RepeatedScalarFieldContainer[str]
    threshold: float
    graded: bool
    tie_rule: TieRule
    resampling: Resampling
    def __init__(self, queries: _Optional[_Iterable[_Union[RankedQuery, _Mapping]]] = ..., metrics: _Optional[_Iterable[str]] = ..., threshold: _Optional[float] = ..., graded: bool = ..., tie_rule: _Optional[_Union[TieRule, str]] = ..., resampling: _Optional[_Union[Resampling, _Mapping]] = ...) -> None: ...

class MetricValue(_message.Message):
    __slots__ = ("metric", "value")
    METRIC_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    metric: str
    value: float
    def __init__(self, metric: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class QueryMetrics(_message.Message):
    __slots__ = ("id", "values")
    ID_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    id: str
    values: _containers.RepeatedCompositeFieldContainer[MetricValue]
    def __init__(self, id: _Optional[str] = ..., values: _Optional[_Iterable[_Union[MetricValue, _Mapping]]] = ...) -> None: ...

class MetricSummary(_message.Message):
    __slots__ = ("metric", "value", "interval", "queries")
    METRIC_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    metric: str
    value: float
    interval: Interval
    queries: int
    def __init__(self, metric: _Optional[str] = ..., value: _Optional[float] = ..., interval: _Optional[_Union[Interval, _Mapping]] = ..., queries: _Optional[int] = ...) -> None: ...

class EvaluateRankingResponse(_message.Message):
    __slots__ = ("queries", "summary", "tie_rule")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    TIE_RULE_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedCompositeFieldContainer[QueryMetrics]
    summary: _containers.RepeatedCompositeFieldContainer[MetricSummary]
    tie_rule: TieRule
    def __init__(self, queries: _Optional[_Iterable[_Union[QueryMetrics, _Mapping]]] = ..., summary: _Optional[_Iterable[_Union[MetricSummary, _Mapping]]] = ..., tie_rule: _Optional[_Union[TieRule, str]] = ...) -> None: ...

class Series(_message.Message):
    __slots__ = ("name", "values")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    name: str
    values: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, name: _Optional[str] = ..., values: _Optional[_Iterable[float]] = ...) -> None: ...

class CorrelateRequest(_message.Message):
    __slots__ = ("target", "series", "kinds", "resampling")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    RESAMPLING_FIELD_NUMBER: _ClassVar[int]
    target: _containers.RepeatedScalarFieldContainer[float]
    series: _containers.RepeatedCompositeFieldContainer[Series]
    kinds: _containers.RepeatedScalarFieldContainer[CorrelationKind]
    resampling: Resampling
    def __init__(self, target: _Optional[_Iterable[float]] = ..., series: _Optional[_Iterable[_Union[Series, _Mapping]]] = ..., kinds: _Optional[_Iterable[_Union[CorrelationKind, str]]] = ..., resampling: _Optional[_Union[Resampling, _Mapping]] = ...) -> None: ...

class Correlation(_message.Message):
    __slots__ = ("series", "kind", "value", "p_value", "interval", "pairs")
    SERIES_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    P_VALUE_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    series: str
    kind: CorrelationKind
    value: float
    p_value: float
    interval: Interval
    pairs: int
    def __init__(self, series: _Optional[str] = ..., kind: _Optional[_Union[CorrelationKind, str]] = ..., value: _Optional[float] = ..., p_value: _Optional[float] = ..., interval: _Optional[_Union[Interval, _Mapping]] = ..., pairs: _Optional[int] = ...) -> None: ...

class CorrelateResponse(_message.Message):
    __slots__ = ("correlations",)
    CORRELATIONS_FIELD_NUMBER: _ClassVar[int]
    correlations: _containers.RepeatedCompositeFieldContainer[Correlation]
    def __init__(self, correlations: _Optional[_Iterable[_Union[Correlation, _Mapping]]] = ...) -> None: ...

class ScoredList(_message.Message):
    __slots__ = ("relevant", "cutoff", "positives", "response_score")
    RELEVANT_FIELD_NUMBER: _ClassVar[int]
    CUTOFF_FIELD_NUMBER: _ClassVar[int]
    POSITIVES_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_SCORE_FIELD_NUMBER: _ClassVar[int]
    relevant: _containers.RepeatedScalarFieldContainer[bool]
    cutoff: int
    positives: int
    response_score: float
    def __init__(self, relevant: _Optional[_Iterable[bool]] = ..., cutoff: _Optional[int] = ..., positives: _Optional[int] = ..., response_score: _Optional[float] = ...) -> None: ...

class ChooseAlphaRequest(_message.Message):
    __slots__ = ("lists", "measure", "correlation")
    LISTS_FIELD_NUMBER: _ClassVar[int]
    MEASURE_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_FIELD_NUMBER: _ClassVar[int]
    lists: _containers.RepeatedCompositeFieldContainer[ScoredList]
    measure: AlphaMeasure
    correlation: CorrelationKind
    def __init__(self, lists: _Optional[_Iterable[_Union[ScoredList, _Mapping]]] = ..., measure: _Optional[_Union[AlphaMeasure, str]] = ..., correlation: _Optional[_Union[CorrelationKind, str]] = ...) -> None: ...

class ChooseAlphaResponse(_message.Message):
    __slots__ = ("alpha", "correlation", "p_value", "lists")
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_FIELD_NUMBER: _ClassVar[int]
    P_VALUE_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    alpha: float
    correlation: float
    p_value: float
    lists: int
    def __init__(self, alpha: _Optional[float] = ..., correlation: _Optional[float] = ..., p_value: _Optional[float] = ..., lists: _Optional[int] = ...) -> None: ...

class ScoredOrder(_message.Message):
    __slots__ = ("passages", "score")
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    passages: _containers.RepeatedScalarFieldContainer[int]
    score: float
    def __init__(self, passages: _Optional[_Iterable[int]] = ..., score: _Optional[float] = ...) -> None: ...

class FitMoiRequest(_message.Message):
    __slots__ = ("passages", "orders", "objective", "score_domain", "softmax_temperature", "sigma2", "position_prior", "monotone", "lam", "rho", "one_passage_scores")
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    SCORE_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    SOFTMAX_TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    SIGMA2_FIELD_NUMBER: _ClassVar[int]
    POSITION_PRIOR_FIELD_NUMBER: _ClassVar[int]
    MONOTONE_FIELD_NUMBER: _ClassVar[int]
    LAM_FIELD_NUMBER: _ClassVar[int]
    RHO_FIELD_NUMBER: _ClassVar[int]
    ONE_PASSAGE_SCORES_FIELD_NUMBER: _ClassVar[int]
    passages: int
    orders: _containers.RepeatedCompositeFieldContainer[ScoredOrder]
    objective: _rerank_pb2.Objective
    score_domain: _rerank_pb2.ScoreDomain
    softmax_temperature: float
    sigma2: float
    position_prior: _containers.RepeatedScalarFieldContainer[float]
    monotone: bool
    lam: float
    rho: float
    one_passage_scores: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, passages: _Optional[int] = ..., orders: _Optional[_Iterable[_Union[ScoredOrder, _Mapping]]] = ..., objective: _Optional[_Union[_rerank_pb2.Objective, str]] = ..., score_domain: _Optional[_Union[_rerank_pb2.ScoreDomain, str]] = ..., softmax_temperature: _Optional[float] = ..., sigma2: _Optional[float] = ..., position_prior: _Optional[_Iterable[float]] = ..., monotone: bool = ..., lam: _Optional[float] = ..., rho: _Optional[float] = ..., one_passage_scores: _Optional[_Iterable[float]] = ...) -> None: ...

class FitMoiResponse(_message.Message):
    __slots__ = ("utilities", "standard_errors", "ranking", "outranks_next", "position_bias", "diagnostics")
    UTILITIES_FIELD_NUMBER: _ClassVar[int]
    STANDARD_ERRORS_FIELD_NUMBER: _ClassVar[int]
    RANKING_FIELD_NUMBER: _ClassVar[int]
    OUTRANKS_NEXT_FIELD_NUMBER: _ClassVar[int]
    POSITION_BIAS_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTICS_FIELD_NUMBER: _ClassVar[int]
    utilities: _containers.RepeatedScalarFieldContainer[float]
    standard_errors: _containers.RepeatedScalarFieldContainer[float]
    ranking: _containers.RepeatedScalarFieldContainer[int]
    outranks_next: _containers.RepeatedScalarFieldContainer[float]
    position_bias: _rerank_pb2.PositionBias
    diagnostics: _rerank_pb2.FitDiagnostics
    def __init__(self, utilities: _Optional[_Iterable[float]] = ..., standard_errors: _Optional[_Iterable[float]] = ..., ranking: _Optional[_Iterable[int]] = ..., outranks_next: _Optional[_Iterable[float]] = ..., position_bias: _Optional[_Union[_rerank_pb2.PositionBias, _Mapping]] = ..., diagnostics: _Optional[_Union[_rerank_pb2.FitDiagnostics, _Mapping]] = ...) -> None: ...
