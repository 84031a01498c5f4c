from rerankd.v1 import citation_pb2 as _citation_pb2
from rerankd.v1 import model_pb2 as _model_pb2
from rerankd.v1 import rerank_pb2 as _rerank_pb2
from rerankd.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FinishReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINISH_REASON_UNSPECIFIED: _ClassVar[FinishReason]
    FINISH_REASON_END_OF_TURN: _ClassVar[FinishReason]
    FINISH_REASON_STOP_STRING: _ClassVar[FinishReason]
    FINISH_REASON_LENGTH: _ClassVar[FinishReason]

class EquivalenceRule(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EQUIVALENCE_RULE_UNSPECIFIED: _ClassVar[EquivalenceRule]
    EQUIVALENCE_RULE_STRICT: _ClassVar[EquivalenceRule]
    EQUIVALENCE_RULE_LOOSE: _ClassVar[EquivalenceRule]
    EQUIVALENCE_RULE_THRESHOLD: _ClassVar[EquivalenceRule]
FINISH_REASON_UNSPECIFIED: FinishReason
FINISH_REASON_END_OF_TURN: FinishReason
FINISH_REASON_STOP_STRING: FinishReason
FINISH_REASON_LENGTH: FinishReason
EQUIVALENCE_RULE_UNSPECIFIED: EquivalenceRule
EQUIVALENCE_RULE_STRICT: EquivalenceRule
EQUIVALENCE_RULE_LOOSE: EquivalenceRule
EQUIVALENCE_RULE_THRESHOLD: EquivalenceRule

class SamplingOptions(_message.Message):
    __slots__ = ("samples", "max_tokens", "temperature", "top_k", "top_p", "min_p", "stop", "seed")
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    samples: int
    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    stop: _containers.RepeatedScalarFieldContainer[str]
    seed: int
    def __init__(self, samples: _Optional[int] = ..., max_tokens: _Optional[int] = ..., temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., stop: _Optional[_Iterable[str]] = ..., seed: _Optional[int] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("text", "log_likelihood", "token_log_probabilities", "finish_reason")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    LOG_LIKELIHOOD_FIELD_NUMBER: _ClassVar[int]
    TOKEN_LOG_PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    FINISH_REASON_FIELD_NUMBER: _ClassVar[int]
    text: str
    log_likelihood: float
    token_log_probabilities: _containers.RepeatedScalarFieldContainer[float]
    finish_reason: FinishReason
    def __init__(self, text: _Optional[str] = ..., log_likelihood: _Optional[float] = ..., token_log_probabilities: _Optional[_Iterable[float]] = ..., finish_reason: _Optional[_Union[FinishReason, str]] = ...) -> None: ...

class SampleRequest(_message.Message):
    __slots__ = ("question", "passages", "sampling", "truncation", "task", "labels")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    question: str
    passages: _containers.RepeatedCompositeFieldContainer[_rerank_pb2.Passage]
    sampling: SamplingOptions
    truncation: _rerank_pb2.Truncation
    task: _task_pb2.Task
    labels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, question: _Optional[str] = ..., passages: _Optional[_Iterable[_Union[_rerank_pb2.Passage, _Mapping]]] = ..., sampling: _Optional[_Union[SamplingOptions, _Mapping]] = ..., truncation: _Optional[_Union[_rerank_pb2.Truncation, _Mapping]] = ..., task: _Optional[_Union[_task_pb2.Task, str]] = ..., labels: _Optional[_Iterable[str]] = ...) -> None: ...

class SampledAnswer(_message.Message):
    __slots__ = ("number", "answer")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    number: int
    answer: Answer
    def __init__(self, number: _Optional[int] = ..., answer: _Optional[_Union[Answer, _Mapping]] = ...) -> None: ...

class SamplesDone(_message.Message):
    __slots__ = ("usage", "model", "model_sha256", "adapter", "label_probabilities", "warnings")
    USAGE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    LABEL_PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    usage: _rerank_pb2.Usage
    model: str
    model_sha256: str
    adapter: _model_pb2.AdapterInfo
    label_probabilities: _containers.RepeatedCompositeFieldContainer[_task_pb2.LabelProbability]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, usage: _Optional[_Union[_rerank_pb2.Usage, _Mapping]] = ..., model: _Optional[str] = ..., model_sha256: _Optional[str] = ..., adapter: _Optional[_Union[_model_pb2.AdapterInfo, _Mapping]] = ..., label_probabilities: _Optional[_Iterable[_Union[_task_pb2.LabelProbability, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class SampleResponse(_message.Message):
    __slots__ = ("sampled", "progress", "done")
    SAMPLED_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    sampled: SampledAnswer
    progress: _rerank_pb2.Progress
    done: SamplesDone
    def __init__(self, sampled: _Optional[_Union[SampledAnswer, _Mapping]] = ..., progress: _Optional[_Union[_rerank_pb2.Progress, _Mapping]] = ..., done: _Optional[_Union[SamplesDone, _Mapping]] = ...) -> None: ...

class EntailmentPair(_message.Message):
    __slots__ = ("premise", "hypothesis")
    PREMISE_FIELD_NUMBER: _ClassVar[int]
    HYPOTHESIS_FIELD_NUMBER: _ClassVar[int]
    premise: str
    hypothesis: str
    def __init__(self, premise: _Optional[str] = ..., hypothesis: _Optional[str] = ...) -> None: ...

class EntailmentVerdict(_message.Message):
    __slots__ = ("entailment", "neutral", "contradiction")
    ENTAILMENT_FIELD_NUMBER: _ClassVar[int]
    NEUTRAL_FIELD_NUMBER: _ClassVar[int]
    CONTRADICTION_FIELD_NUMBER: _ClassVar[int]
    entailment: float
    neutral: float
    contradiction: float
    def __init__(self, entailment: _Optional[float] = ..., neutral: _Optional[float] = ..., contradiction: _Optional[float] = ...) -> None: ...

class EntailRequest(_message.Message):
    __slots__ = ("pairs", "question")
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    pairs: _containers.RepeatedCompositeFieldContainer[EntailmentPair]
    question: str
    def __init__(self, pairs: _Optional[_Iterable[_Union[EntailmentPair, _Mapping]]] = ..., question: _Optional[str] = ...) -> None: ...

class EntailResponse(_message.Message):
    __slots__ = ("verdicts", "judged_pairs", "model", "model_sha256")
    VERDICTS_FIELD_NUMBER: _ClassVar[int]
    JUDGED_PAIRS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    verdicts: _containers.RepeatedCompositeFieldContainer[EntailmentVerdict]
    judged_pairs: int
    model: str
    model_sha256: str
    def __init__(self, verdicts: _Optional[_Iterable[_Union[EntailmentVerdict, _Mapping]]] = ..., judged_pairs: _Optional[int] = ..., model: _Optional[str] = ..., model_sha256: _Optional[str] = ...) -> None: ...

class ClusterRequest(_message.Message):
    __slots__ = ("texts", "question", "rule", "threshold")
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    question: str
    rule: EquivalenceRule
    threshold: float
    def __init__(self, texts: _Optional[_Iterable[str]] = ..., question: _Optional[str] = ..., rule: _Optional[_Union[EquivalenceRule, str]] = ..., threshold: _Optional[float] = ...) -> None: ...

class ClusterResponse(_message.Message):
    __slots__ = ("cluster_of", "founders", "judged_pairs")
    CLUSTER_OF_FIELD_NUMBER: _ClassVar[int]
    FOUNDERS_FIELD_NUMBER: _ClassVar[int]
    JUDGED_PAIRS_FIELD_NUMBER: _ClassVar[int]
    cluster_of: _containers.RepeatedScalarFieldContainer[int]
    founders: _containers.RepeatedScalarFieldContainer[int]
    judged_pairs: int
    def __init__(self, cluster_of: _Optional[_Iterable[int]] = ..., founders: _Optional[_Iterable[int]] = ..., judged_pairs: _Optional[int] = ...) -> None: ...
