from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProfileSubject(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROFILE_SUBJECT_UNSPECIFIED: _ClassVar[ProfileSubject]
    PROFILE_SUBJECT_ANSWER: _ClassVar[ProfileSubject]
    PROFILE_SUBJECT_QUESTION: _ClassVar[ProfileSubject]

class ProfileOrigin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PROFILE_ORIGIN_UNSPECIFIED: _ClassVar[ProfileOrigin]
    PROFILE_ORIGIN_CALIBRATED: _ClassVar[ProfileOrigin]
    PROFILE_ORIGIN_LEARNT: _ClassVar[ProfileOrigin]
    PROFILE_ORIGIN_BUILT_IN: _ClassVar[ProfileOrigin]
PROFILE_SUBJECT_UNSPECIFIED: ProfileSubject
PROFILE_SUBJECT_ANSWER: ProfileSubject
PROFILE_SUBJECT_QUESTION: ProfileSubject
PROFILE_ORIGIN_UNSPECIFIED: ProfileOrigin
PROFILE_ORIGIN_CALIBRATED: ProfileOrigin
PROFILE_ORIGIN_LEARNT: ProfileOrigin
PROFILE_ORIGIN_BUILT_IN: ProfileOrigin

class GetPositionBiasRequest(_message.Message):
    __slots__ = ("subject", "passages", "scorer")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    SCORER_FIELD_NUMBER: _ClassVar[int]
    subject: ProfileSubject
    passages: int
    scorer: str
    def __init__(self, subject: _Optional[_Union[ProfileSubject, str]] = ..., passages: _Optional[int] = ..., scorer: _Optional[str] = ...) -> None: ...

class PositionProfile(_message.Message):
    __slots__ = ("subject", "passages", "observations", "means", "standard_errors", "origin")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    MEANS_FIELD_NUMBER: _ClassVar[int]
    STANDARD_ERRORS_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    subject: ProfileSubject
    passages: int
    observations: int
    means: _containers.RepeatedScalarFieldContainer[float]
    standard_errors: _containers.RepeatedScalarFieldContainer[float]
    origin: ProfileOrigin
    def __init__(self, subject: _Optional[_Union[ProfileSubject, str]] = ..., passages: _Optional[int] = ..., observations: _Optional[int] = ..., means: _Optional[_Iterable[float]] = ..., standard_errors: _Optional[_Iterable[float]] = ..., origin: _Optional[_Union[ProfileOrigin, str]] = ...) -> None: ...

class GetPositionBiasResponse(_message.Message):
    __slots__ = ("profiles", "model_sha256", "template_version", "problems", "adapter")
    PROFILES_FIELD_NUMBER: _ClassVar[int]
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    profiles: _containers.RepeatedCompositeFieldContainer[PositionProfile]
    model_sha256: str
    template_version: str
    problems: _containers.RepeatedScalarFieldContainer[str]
    adapter: AdapterInfo
    def __init__(self, profiles: _Optional[_Iterable[_Union[PositionProfile, _Mapping]]] = ..., model_sha256: _Optional[str] = ..., template_version: _Optional[str] = ..., problems: _Optional[_Iterable[str]] = ..., adapter: _Optional[_Union[AdapterInfo, _Mapping]] = ...) -> None: ...

class GetServerInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ModelInfo(_message.Message):
    __slots__ = ("name", "sha256", "description", "bytes", "trained_context", "chat_template", "encoding", "running_sha256", "adapter", "jinja", "yes_no_prompt", "compute")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    TRAINED_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    CHAT_TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    RUNNING_SHA256_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    JINJA_FIELD_NUMBER: _ClassVar[int]
    YES_NO_PROMPT_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_FIELD_NUMBER: _ClassVar[int]
    name: str
    sha256: str
    description: str
    bytes: int
    trained_context: int
    chat_template: bool
    encoding: str
    running_sha256: str
    adapter: AdapterInfo
    jinja: bool
    yes_no_prompt: str
    compute: str
    def __init__(self, name: _Optional[str] = ..., sha256: _Optional[str] = ..., description: _Optional[str] = ..., bytes: _Optional[int] = ..., trained_context: _Optional[int] = ..., chat_template: bool = ..., encoding: _Optional[str] = ..., running_sha256: _Optional[str] = ..., adapter: _Optional[_Union[AdapterInfo, _Mapping]] = ..., jinja: bool = ..., yes_no_prompt: _Optional[str] = ..., compute: _Optional[str] = ...) -> None: ...

class AdapterInfo(_message.Message):
    __slots__ = ("name", "sha256", "scale")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    name: str
    sha256: str
    scale: float
    def __init__(self, name: _Optional[str] = ..., sha256: _Optional[str] = ..., scale: _Optional[float] = ...) -> None: ...

class EntailmentModelInfo(_message.Message):
    __slots__ = ("name", "sha256")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    name: str
    sha256: str
    def __init__(self, name: _Optional[str] = ..., sha256: _Optional[str] = ...) -> None: ...

class RerankerModelInfo(_message.Message):
    __slots__ = ("name", "sha256", "loaded", "description", "output", "max_tokens", "problem", "scored", "scores_sha256")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    LOADED_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    SCORED_FIELD_NUMBER: _ClassVar[int]
    SCORES_SHA256_FIELD_NUMBER: _ClassVar[int]
    name: str
    sha256: str
    loaded: bool
    description: str
    output: str
    max_tokens: int
    problem: str
    scored: int
    scores_sha256: str
    def __init__(self, name: _Optional[str] = ..., sha256: _Optional[str] = ..., loaded: bool = ..., description: _Optional[str] = ..., output: _Optional[str] = ..., max_tokens: _Optional[int] = ..., problem: _Optional[str] = ..., scored: _Optional[int] = ..., scores_sha256: _Optional[str] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("passages", "query_bytes", "passage_bytes", "orders", "tokens_per_request", "message_bytes", "queue_length", "context_tokens", "batch_tokens")
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    QUERY_BYTES_FIELD_NUMBER: _ClassVar[int]
    PASSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_REQUEST_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    QUEUE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BATCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    passages: int
    query_bytes: int
    passage_bytes: int
    orders: int
    tokens_per_request: int
    message_bytes: int
    queue_length: int
    context_tokens: int
    batch_tokens: int
    def __init__(self, passages: _Optional[int] = ..., query_bytes: _Optional[int] = ..., passage_bytes: _Optional[int] = ..., orders: _Optional[int] = ..., tokens_per_request: _Optional[int] = ..., message_bytes: _Optional[int] = ..., queue_length: _Optional[int] = ..., context_tokens: _Optional[int] = ..., batch_tokens: _Optional[int] = ...) -> None: ...

class BuildInfo(_message.Message):
    __slots__ = ("target", "features")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    FEATURES_FIELD_NUMBER: _ClassVar[int]
    target: str
    features: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, target: _Optional[str] = ..., features: _Optional[_Iterable[str]] = ...) -> None: ...

class WorkerInfo(_message.Message):
    __slots__ = ("ready", "active", "waiting", "tokens", "cached_tokens", "tokens_per_second", "abandoned")
    READY_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    ABANDONED_FIELD_NUMBER: _ClassVar[int]
    ready: bool
    active: int
    waiting: int
    tokens: int
    cached_tokens: int
    tokens_per_second: float
    abandoned: int
    def __init__(self, ready: bool = ..., active: _Optional[int] = ..., waiting: _Optional[int] = ..., tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., tokens_per_second: _Optional[float] = ..., abandoned: _Optional[int] = ...) -> None: ...

class RankingCalibration(_message.Message):
    __slots__ = ("method", "fused_with", "fusion_weight", "intercept", "slope", "lists", "passages", "calibration_error", "embedding_sha256", "outranks_per_nat", "model_sha256", "embedding_weight")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    FUSED_WITH_FIELD_NUMBER: _ClassVar[int]
    FUSION_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    INTERCEPT_FIELD_NUMBER: _ClassVar[int]
    SLOPE_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    CALIBRATION_ERROR_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_SHA256_FIELD_NUMBER: _ClassVar[int]
    OUTRANKS_PER_NAT_FIELD_NUMBER: _ClassVar[int]
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    method: str
    fused_with: str
    fusion_weight: float
    intercept: float
    slope: float
    lists: int
    passages: int
    calibration_error: float
    embedding_sha256: str
    outranks_per_nat: float
    model_sha256: str
    embedding_weight: float
    def __init__(self, method: _Optional[str] = ..., fused_with: _Optional[str] = ..., fusion_weight: _Optional[float] = ..., intercept: _Optional[float] = ..., slope: _Optional[float] = ..., lists: _Optional[int] = ..., passages: _Optional[int] = ..., calibration_error: _Optional[float] = ..., embedding_sha256: _Optional[str] = ..., outranks_per_nat: _Optional[float] = ..., model_sha256: _Optional[str] = ..., embedding_weight: _Optional[float] = ...) -> None: ...

class WarmInfo(_message.Message):
    __slots__ = ("states", "bytes", "bytes_limit", "hits", "misses", "evictions", "read_from_disk")
    STATES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    BYTES_LIMIT_FIELD_NUMBER: _ClassVar[int]
    HITS_FIELD_NUMBER: _ClassVar[int]
    MISSES_FIELD_NUMBER: _ClassVar[int]
    EVICTIONS_FIELD_NUMBER: _ClassVar[int]
    READ_FROM_DISK_FIELD_NUMBER: _ClassVar[int]
    states: int
    bytes: int
    bytes_limit: int
    hits: int
    misses: int
    evictions: int
    read_from_disk: int
    def __init__(self, states: _Optional[int] = ..., bytes: _Optional[int] = ..., bytes_limit: _Optional[int] = ..., hits: _Optional[int] = ..., misses: _Optional[int] = ..., evictions: _Optional[int] = ..., read_from_disk: _Optional[int] = ...) -> None: ...

class GetServerInfoResponse(_message.Message):
    __slots__ = ("version", "generator", "limits", "build", "worker", "template_version", "ranking_version", "entailment", "calibrations", "warm", "reranker", "embedding", "scorer")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    GENERATOR_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_VERSION_FIELD_NUMBER: _ClassVar[int]
    RANKING_VERSION_FIELD_NUMBER: _ClassVar[int]
    ENTAILMENT_FIELD_NUMBER: _ClassVar[int]
    CALIBRATIONS_FIELD_NUMBER: _ClassVar[int]
    WARM_FIELD_NUMBER: _ClassVar[int]
    RERANKER_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    SCORER_FIELD_NUMBER: _ClassVar[int]
    version: str
    generator: ModelInfo
    limits: Limits
    build: BuildInfo
    worker: WorkerInfo
    template_version: str
    ranking_version: str
    entailment: EntailmentModelInfo
    calibrations: _containers.RepeatedCompositeFieldContainer[RankingCalibration]
    warm: WarmInfo
    reranker: RerankerModelInfo
    embedding: RerankerModelInfo
    scorer: ScorerInfo
    def __init__(self, version: _Optional[str] = ..., generator: _Optional[_Union[ModelInfo, _Mapping]] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., build: _Optional[_Union[BuildInfo, _Mapping]] = ..., worker: _Optional[_Union[WorkerInfo, _Mapping]] = ..., template_version: _Optional[str] = ..., ranking_version: _Optional[str] = ..., entailment: _Optional[_Union[EntailmentModelInfo, _Mapping]] = ..., calibrations: _Optional[_Iterable[_Union[RankingCalibration, _Mapping]]] = ..., warm: _Optional[_Union[WarmInfo, _Mapping]] = ..., reranker: _Optional[_Union[RerankerModelInfo, _Mapping]] = ..., embedding: _Optional[_Union[RerankerModelInfo, _Mapping]] = ..., scorer: _Optional[_Union[ScorerInfo, _Mapping]] = ...) -> None: ...

class ScorerInfo(_message.Message):
    __slots__ = ("model", "name", "worker", "calibrations", "warm", "context_tokens", "batch_tokens")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    CALIBRATIONS_FIELD_NUMBER: _ClassVar[int]
    WARM_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    BATCH_TOKENS_FIELD_NUMBER: _ClassVar[int]
    model: ModelInfo
    name: str
    worker: WorkerInfo
    calibrations: _containers.RepeatedCompositeFieldContainer[RankingCalibration]
    warm: WarmInfo
    context_tokens: int
    batch_tokens: int
    def __init__(self, model: _Optional[_Union[ModelInfo, _Mapping]] = ..., name: _Optional[str] = ..., worker: _Optional[_Union[WorkerInfo, _Mapping]] = ..., calibrations: _Optional[_Iterable[_Union[RankingCalibration, _Mapping]]] = ..., warm: _Optional[_Union[WarmInfo, _Mapping]] = ..., context_tokens: _Optional[int] = ..., batch_tokens: _Optional[int] = ...) -> None: ...
