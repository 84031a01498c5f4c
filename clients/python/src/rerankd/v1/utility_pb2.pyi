from rerankd.v1 import belief_pb2 as _belief_pb2
from rerankd.v1 import metrics_pb2 as _metrics_pb2
from rerankd.v1 import model_pb2 as _model_pb2
from rerankd.v1 import rerank_pb2 as _rerank_pb2
from rerankd.v1 import task_pb2 as _task_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Weighting(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WEIGHTING_UNSPECIFIED: _ClassVar[Weighting]
    WEIGHTING_MEAN: _ClassVar[Weighting]
    WEIGHTING_SUM: _ClassVar[Weighting]
    WEIGHTING_FREQUENCY: _ClassVar[Weighting]

class ReferenceAggregate(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REFERENCE_AGGREGATE_UNSPECIFIED: _ClassVar[ReferenceAggregate]
    REFERENCE_AGGREGATE_MEAN: _ClassVar[ReferenceAggregate]
    REFERENCE_AGGREGATE_MAX: _ClassVar[ReferenceAggregate]

class ContextKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONTEXT_KIND_UNSPECIFIED: _ClassVar[ContextKind]
    CONTEXT_KIND_LIST: _ClassVar[ContextKind]
    CONTEXT_KIND_PASSAGE: _ClassVar[ContextKind]
    CONTEXT_KIND_PREFIX: _ClassVar[ContextKind]
    CONTEXT_KIND_WITHOUT: _ClassVar[ContextKind]
    CONTEXT_KIND_SUBSET: _ClassVar[ContextKind]

class Annotator(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ANNOTATOR_UNSPECIFIED: _ClassVar[Annotator]
    ANNOTATOR_EXACT_MATCH: _ClassVar[Annotator]
    ANNOTATOR_TOKEN_F1: _ClassVar[Annotator]
    ANNOTATOR_ROUGE_L: _ClassVar[Annotator]
    ANNOTATOR_CONTAINMENT: _ClassVar[Annotator]
    ANNOTATOR_ACCURACY: _ClassVar[Annotator]
    ANNOTATOR_SEPER_SOFT: _ClassVar[Annotator]
    ANNOTATOR_SEPER_HARD: _ClassVar[Annotator]
    ANNOTATOR_DELTA_SEPER_SOFT: _ClassVar[Annotator]
    ANNOTATOR_DELTA_SEPER_HARD: _ClassVar[Annotator]
    ANNOTATOR_CONTAINS_ANSWER: _ClassVar[Annotator]
    ANNOTATOR_PROVENANCE: _ClassVar[Annotator]
    ANNOTATOR_LLM_JUDGEMENT: _ClassVar[Annotator]
    ANNOTATOR_BLEU: _ClassVar[Annotator]
    ANNOTATOR_BERT_SCORE: _ClassVar[Annotator]
    ANNOTATOR_ANSWER_JUDGEMENT: _ClassVar[Annotator]
    ANNOTATOR_ERAG_JUDGEMENT: _ClassVar[Annotator]
WEIGHTING_UNSPECIFIED: Weighting
WEIGHTING_MEAN: Weighting
WEIGHTING_SUM: Weighting
WEIGHTING_FREQUENCY: Weighting
REFERENCE_AGGREGATE_UNSPECIFIED: ReferenceAggregate
REFERENCE_AGGREGATE_MEAN: ReferenceAggregate
REFERENCE_AGGREGATE_MAX: ReferenceAggregate
CONTEXT_KIND_UNSPECIFIED: ContextKind
CONTEXT_KIND_LIST: ContextKind
CONTEXT_KIND_PASSAGE: ContextKind
CONTEXT_KIND_PREFIX: ContextKind
CONTEXT_KIND_WITHOUT: ContextKind
CONTEXT_KIND_SUBSET: ContextKind
ANNOTATOR_UNSPECIFIED: Annotator
ANNOTATOR_EXACT_MATCH: Annotator
ANNOTATOR_TOKEN_F1: Annotator
ANNOTATOR_ROUGE_L: Annotator
ANNOTATOR_CONTAINMENT: Annotator
ANNOTATOR_ACCURACY: Annotator
ANNOTATOR_SEPER_SOFT: Annotator
ANNOTATOR_SEPER_HARD: Annotator
ANNOTATOR_DELTA_SEPER_SOFT: Annotator
ANNOTATOR_DELTA_SEPER_HARD: Annotator
ANNOTATOR_CONTAINS_ANSWER: Annotator
ANNOTATOR_PROVENANCE: Annotator
ANNOTATOR_LLM_JUDGEMENT: Annotator
ANNOTATOR_BLEU: Annotator
ANNOTATOR_BERT_SCORE: Annotator
ANNOTATOR_ANSWER_JUDGEMENT: Annotator
ANNOTATOR_ERAG_JUDGEMENT: Annotator

class MeasureOptions(_message.Message):
    __slots__ = ("weighting", "rule", "threshold", "either_direction", "aggregate", "unconditioned")
    WEIGHTING_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    EITHER_DIRECTION_FIELD_NUMBER: _ClassVar[int]
    AGGREGATE_FIELD_NUMBER: _ClassVar[int]
    UNCONDITIONED_FIELD_NUMBER: _ClassVar[int]
    weighting: Weighting
    rule: _belief_pb2.EquivalenceRule
    threshold: float
    either_direction: bool
    aggregate: ReferenceAggregate
    unconditioned: bool
    def __init__(self, weighting: _Optional[_Union[Weighting, str]] = ..., rule: _Optional[_Union[_belief_pb2.EquivalenceRule, str]] = ..., threshold: _Optional[float] = ..., either_direction: bool = ..., aggregate: _Optional[_Union[ReferenceAggregate, str]] = ..., unconditioned: bool = ...) -> None: ...

class PassageSubset(_message.Message):
    __slots__ = ("indices",)
    INDICES_FIELD_NUMBER: _ClassVar[int]
    indices: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, indices: _Optional[_Iterable[int]] = ...) -> None: ...

class Measured(_message.Message):
    __slots__ = ("value", "standard_error")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    STANDARD_ERROR_FIELD_NUMBER: _ClassVar[int]
    value: float
    standard_error: float
    def __init__(self, value: _Optional[float] = ..., standard_error: _Optional[float] = ...) -> None: ...

class Belief(_message.Message):
    __slots__ = ("seper_soft", "seper_hard", "semantic_entropy", "semantic_entropy_count", "predictive_entropy", "cluster_of", "founders", "weights", "empty_answers", "answers", "semantic_entropy_corrected", "perplexity", "lexical_similarity")
    SEPER_SOFT_FIELD_NUMBER: _ClassVar[int]
    SEPER_HARD_FIELD_NUMBER: _ClassVar[int]
    SEMANTIC_ENTROPY_FIELD_NUMBER: _ClassVar[int]
    SEMANTIC_ENTROPY_COUNT_FIELD_NUMBER: _ClassVar[int]
    PREDICTIVE_ENTROPY_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_OF_FIELD_NUMBER: _ClassVar[int]
    FOUNDERS_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    EMPTY_ANSWERS_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    SEMANTIC_ENTROPY_CORRECTED_FIELD_NUMBER: _ClassVar[int]
    PERPLEXITY_FIELD_NUMBER: _ClassVar[int]
    LEXICAL_SIMILARITY_FIELD_NUMBER: _ClassVar[int]
    seper_soft: Measured
    seper_hard: Measured
    semantic_entropy: Measured
    semantic_entropy_count: Measured
    predictive_entropy: Measured
    cluster_of: _containers.RepeatedScalarFieldContainer[int]
    founders: _containers.RepeatedScalarFieldContainer[int]
    weights: _containers.RepeatedScalarFieldContainer[float]
    empty_answers: int
    answers: _containers.RepeatedCompositeFieldContainer[_belief_pb2.Answer]
    semantic_entropy_corrected: Measured
    perplexity: Measured
    lexical_similarity: Measured
    def __init__(self, seper_soft: _Optional[_Union[Measured, _Mapping]] = ..., seper_hard: _Optional[_Union[Measured, _Mapping]] = ..., semantic_entropy: _Optional[_Union[Measured, _Mapping]] = ..., semantic_entropy_count: _Optional[_Union[Measured, _Mapping]] = ..., predictive_entropy: _Optional[_Union[Measured, _Mapping]] = ..., cluster_of: _Optional[_Iterable[int]] = ..., founders: _Optional[_Iterable[int]] = ..., weights: _Optional[_Iterable[float]] = ..., empty_answers: _Optional[int] = ..., answers: _Optional[_Iterable[_Union[_belief_pb2.Answer, _Mapping]]] = ..., semantic_entropy_corrected: _Optional[_Union[Measured, _Mapping]] = ..., perplexity: _Optional[_Union[Measured, _Mapping]] = ..., lexical_similarity: _Optional[_Union[Measured, _Mapping]] = ...) -> None: ...

class Utility(_message.Message):
    __slots__ = ("kind", "number", "indices", "belief", "delta_seper_soft", "delta_seper_hard", "semantic_entropy_reduction", "semantic_entropy_count_reduction", "predictive_entropy_reduction", "semantic_entropy_corrected_reduction", "perplexity_reduction", "lexical_similarity_increase", "reference_log_likelihoods", "label_probabilities")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    INDICES_FIELD_NUMBER: _ClassVar[int]
    BELIEF_FIELD_NUMBER: _ClassVar[int]
    DELTA_SEPER_SOFT_FIELD_NUMBER: _ClassVar[int]
    DELTA_SEPER_HARD_FIELD_NUMBER: _ClassVar[int]
    SEMANTIC_ENTROPY_REDUCTION_FIELD_NUMBER: _ClassVar[int]
    SEMANTIC_ENTROPY_COUNT_REDUCTION_FIELD_NUMBER: _ClassVar[int]
    PREDICTIVE_ENTROPY_REDUCTION_FIELD_NUMBER: _ClassVar[int]
    SEMANTIC_ENTROPY_CORRECTED_REDUCTION_FIELD_NUMBER: _ClassVar[int]
    PERPLEXITY_REDUCTION_FIELD_NUMBER: _ClassVar[int]
    LEXICAL_SIMILARITY_INCREASE_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_LOG_LIKELIHOODS_FIELD_NUMBER: _ClassVar[int]
    LABEL_PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    kind: ContextKind
    number: int
    indices: _containers.RepeatedScalarFieldContainer[int]
    belief: Belief
    delta_seper_soft: Measured
    delta_seper_hard: Measured
    semantic_entropy_reduction: Measured
    semantic_entropy_count_reduction: Measured
    predictive_entropy_reduction: Measured
    semantic_entropy_corrected_reduction: Measured
    perplexity_reduction: Measured
    lexical_similarity_increase: Measured
    reference_log_likelihoods: _containers.RepeatedScalarFieldContainer[float]
    label_probabilities: _containers.RepeatedCompositeFieldContainer[_task_pb2.LabelProbability]
    def __init__(self, kind: _Optional[_Union[ContextKind, str]] = ..., number: _Optional[int] = ..., indices: _Optional[_Iterable[int]] = ..., belief: _Optional[_Union[Belief, _Mapping]] = ..., delta_seper_soft: _Optional[_Union[Measured, _Mapping]] = ..., delta_seper_hard: _Optional[_Union[Measured, _Mapping]] = ..., semantic_entropy_reduction: _Optional[_Union[Measured, _Mapping]] = ..., semantic_entropy_count_reduction: _Optional[_Union[Measured, _Mapping]] = ..., predictive_entropy_reduction: _Optional[_Union[Measured, _Mapping]] = ..., semantic_entropy_corrected_reduction: _Optional[_Union[Measured, _Mapping]] = ..., perplexity_reduction: _Optional[_Union[Measured, _Mapping]] = ..., lexical_similarity_increase: _Optional[_Union[Measured, _Mapping]] = ..., reference_log_likelihoods: _Optional[_Iterable[float]] = ..., label_probabilities: _Optional[_Iterable[_Union[_task_pb2.LabelProbability, _Mapping]]] = ...) -> None: ...

class MeasureUtilityRequest(_message.Message):
    __slots__ = ("question", "passages", "references", "measure_list", "measure_each", "measure_prefixes", "measure_leave_one_out", "subsets", "sampling", "measure", "return_answers", "truncation", "token_budget", "task", "labels", "score_references")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    MEASURE_LIST_FIELD_NUMBER: _ClassVar[int]
    MEASURE_EACH_FIELD_NUMBER: _ClassVar[int]
    MEASURE_PREFIXES_FIELD_NUMBER: _ClassVar[int]
    MEASURE_LEAVE_ONE_OUT_FIELD_NUMBER: _ClassVar[int]
    SUBSETS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    MEASURE_FIELD_NUMBER: _ClassVar[int]
    RETURN_ANSWERS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BUDGET_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    SCORE_REFERENCES_FIELD_NUMBER: _ClassVar[int]
    question: str
    passages: _containers.RepeatedCompositeFieldContainer[_rerank_pb2.Passage]
    references: _containers.RepeatedScalarFieldContainer[str]
    measure_list: bool
    measure_each: bool
    measure_prefixes: bool
    measure_leave_one_out: bool
    subsets: _containers.RepeatedCompositeFieldContainer[PassageSubset]
    sampling: _belief_pb2.SamplingOptions
    measure: MeasureOptions
    return_answers: bool
    truncation: _rerank_pb2.Truncation
    token_budget: int
    task: _task_pb2.Task
    labels: _containers.RepeatedScalarFieldContainer[str]
    score_references: bool
    def __init__(self, question: _Optional[str] = ..., passages: _Optional[_Iterable[_Union[_rerank_pb2.Passage, _Mapping]]] = ..., references: _Optional[_Iterable[str]] = ..., measure_list: bool = ..., measure_each: bool = ..., measure_prefixes: bool = ..., measure_leave_one_out: bool = ..., subsets: _Optional[_Iterable[_Union[PassageSubset, _Mapping]]] = ..., sampling: _Optional[_Union[_belief_pb2.SamplingOptions, _Mapping]] = ..., measure: _Optional[_Union[MeasureOptions, _Mapping]] = ..., return_answers: bool = ..., truncation: _Optional[_Union[_rerank_pb2.Truncation, _Mapping]] = ..., token_budget: _Optional[int] = ..., task: _Optional[_Union[_task_pb2.Task, str]] = ..., labels: _Optional[_Iterable[str]] = ..., score_references: bool = ...) -> None: ...

class MeasureUtilityResponse(_message.Message):
    __slots__ = ("without_context", "utilities", "usage", "judged_pairs", "warnings", "model", "model_sha256", "adapter", "reference_log_likelihoods_without_context", "label_probabilities_without_context", "task")
    WITHOUT_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    UTILITIES_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    JUDGED_PAIRS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_LOG_LIKELIHOODS_WITHOUT_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    LABEL_PROBABILITIES_WITHOUT_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    without_context: Belief
    utilities: _containers.RepeatedCompositeFieldContainer[Utility]
    usage: _rerank_pb2.Usage
    judged_pairs: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    model: str
    model_sha256: str
    adapter: _model_pb2.AdapterInfo
    reference_log_likelihoods_without_context: _containers.RepeatedScalarFieldContainer[float]
    label_probabilities_without_context: _containers.RepeatedCompositeFieldContainer[_task_pb2.LabelProbability]
    task: _task_pb2.Task
    def __init__(self, without_context: _Optional[_Union[Belief, _Mapping]] = ..., utilities: _Optional[_Iterable[_Union[Utility, _Mapping]]] = ..., usage: _Optional[_Union[_rerank_pb2.Usage, _Mapping]] = ..., judged_pairs: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ..., model: _Optional[str] = ..., model_sha256: _Optional[str] = ..., adapter: _Optional[_Union[_model_pb2.AdapterInfo, _Mapping]] = ..., reference_log_likelihoods_without_context: _Optional[_Iterable[float]] = ..., label_probabilities_without_context: _Optional[_Iterable[_Union[_task_pb2.LabelProbability, _Mapping]]] = ..., task: _Optional[_Union[_task_pb2.Task, str]] = ...) -> None: ...

class MeasureUtilityStreamRequest(_message.Message):
    __slots__ = ("id", "request")
    ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    id: str
    request: MeasureUtilityRequest
    def __init__(self, id: _Optional[str] = ..., request: _Optional[_Union[MeasureUtilityRequest, _Mapping]] = ...) -> None: ...

class QuestionError(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class MeasureUtilityStreamResponse(_message.Message):
    __slots__ = ("id", "response", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: str
    response: MeasureUtilityResponse
    error: QuestionError
    def __init__(self, id: _Optional[str] = ..., response: _Optional[_Union[MeasureUtilityResponse, _Mapping]] = ..., error: _Optional[_Union[QuestionError, _Mapping]] = ...) -> None: ...

class EvaluateRetrievalRequest(_message.Message):
    __slots__ = ("question", "passages", "references", "annotators", "provenance", "metrics", "threshold", "rankings", "end_to_end", "answer_tokens", "sampling", "measure", "return_answers", "truncation", "token_budget", "contexts", "task", "labels", "answers_only")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    ANNOTATORS_FIELD_NUMBER: _ClassVar[int]
    PROVENANCE_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    RANKINGS_FIELD_NUMBER: _ClassVar[int]
    END_TO_END_FIELD_NUMBER: _ClassVar[int]
    ANSWER_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    MEASURE_FIELD_NUMBER: _ClassVar[int]
    RETURN_ANSWERS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BUDGET_FIELD_NUMBER: _ClassVar[int]
    CONTEXTS_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_ONLY_FIELD_NUMBER: _ClassVar[int]
    question: str
    passages: _containers.RepeatedCompositeFieldContainer[_rerank_pb2.Passage]
    references: _containers.RepeatedScalarFieldContainer[str]
    annotators: _containers.RepeatedScalarFieldContainer[Annotator]
    provenance: _containers.RepeatedScalarFieldContainer[float]
    metrics: _containers.RepeatedScalarFieldContainer[str]
    threshold: float
    rankings: _containers.RepeatedCompositeFieldContainer[PassageSubset]
    end_to_end: bool
    answer_tokens: int
    sampling: _belief_pb2.SamplingOptions
    measure: MeasureOptions
    return_answers: bool
    truncation: _rerank_pb2.Truncation
    token_budget: int
    contexts: _containers.RepeatedCompositeFieldContainer[PassageSubset]
    task: _task_pb2.Task
    labels: _containers.RepeatedScalarFieldContainer[str]
    answers_only: bool
    def __init__(self, question: _Optional[str] = ..., passages: _Optional[_Iterable[_Union[_rerank_pb2.Passage, _Mapping]]] = ..., references: _Optional[_Iterable[str]] = ..., annotators: _Optional[_Iterable[_Union[Annotator, str]]] = ..., provenance: _Optional[_Iterable[float]] = ..., metrics: _Optional[_Iterable[str]] = ..., threshold: _Optional[float] = ..., rankings: _Optional[_Iterable[_Union[PassageSubset, _Mapping]]] = ..., end_to_end: bool = ..., answer_tokens: _Optional[int] = ..., sampling: _Optional[_Union[_belief_pb2.SamplingOptions, _Mapping]] = ..., measure: _Optional[_Union[MeasureOptions, _Mapping]] = ..., return_answers: bool = ..., truncation: _Optional[_Union[_rerank_pb2.Truncation, _Mapping]] = ..., token_budget: _Optional[int] = ..., contexts: _Optional[_Iterable[_Union[PassageSubset, _Mapping]]] = ..., task: _Optional[_Union[_task_pb2.Task, str]] = ..., labels: _Optional[_Iterable[str]] = ..., answers_only: bool = ...) -> None: ...

class PassageLabels(_message.Message):
    __slots__ = ("annotator", "labels")
    ANNOTATOR_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    annotator: Annotator
    labels: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, annotator: _Optional[_Union[Annotator, str]] = ..., labels: _Optional[_Iterable[float]] = ...) -> None: ...

class AnnotatorScores(_message.Message):
    __slots__ = ("annotator", "metrics", "end_to_end")
    ANNOTATOR_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    END_TO_END_FIELD_NUMBER: _ClassVar[int]
    annotator: Annotator
    metrics: _containers.RepeatedCompositeFieldContainer[_metrics_pb2.MetricValue]
    end_to_end: float
    def __init__(self, annotator: _Optional[_Union[Annotator, str]] = ..., metrics: _Optional[_Iterable[_Union[_metrics_pb2.MetricValue, _Mapping]]] = ..., end_to_end: _Optional[float] = ...) -> None: ...

class RankingScores(_message.Message):
    __slots__ = ("indices", "scores", "answer", "context", "label_probabilities")
    INDICES_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    LABEL_PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    indices: _containers.RepeatedScalarFieldContainer[int]
    scores: _containers.RepeatedCompositeFieldContainer[AnnotatorScores]
    answer: _belief_pb2.Answer
    context: _containers.RepeatedScalarFieldContainer[int]
    label_probabilities: _containers.RepeatedCompositeFieldContainer[_task_pb2.LabelProbability]
    def __init__(self, indices: _Optional[_Iterable[int]] = ..., scores: _Optional[_Iterable[_Union[AnnotatorScores, _Mapping]]] = ..., answer: _Optional[_Union[_belief_pb2.Answer, _Mapping]] = ..., context: _Optional[_Iterable[int]] = ..., label_probabilities: _Optional[_Iterable[_Union[_task_pb2.LabelProbability, _Mapping]]] = ...) -> None: ...

class EvaluateRetrievalResponse(_message.Message):
    __slots__ = ("labels", "rankings", "passage_answers", "threshold", "usage", "judged_pairs", "warnings", "model", "model_sha256", "adapter", "passage_label_probabilities", "task")
    LABELS_FIELD_NUMBER: _ClassVar[int]
    RANKINGS_FIELD_NUMBER: _ClassVar[int]
    PASSAGE_ANSWERS_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    JUDGED_PAIRS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    PASSAGE_LABEL_PROBABILITIES_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.RepeatedCompositeFieldContainer[PassageLabels]
    rankings: _containers.RepeatedCompositeFieldContainer[RankingScores]
    passage_answers: _containers.RepeatedCompositeFieldContainer[_belief_pb2.Answer]
    threshold: float
    usage: _rerank_pb2.Usage
    judged_pairs: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    model: str
    model_sha256: str
    adapter: _model_pb2.AdapterInfo
    passage_label_probabilities: _containers.RepeatedCompositeFieldContainer[_task_pb2.LabelProbabilities]
    task: _task_pb2.Task
    def __init__(self, labels: _Optional[_Iterable[_Union[PassageLabels, _Mapping]]] = ..., rankings: _Optional[_Iterable[_Union[RankingScores, _Mapping]]] = ..., passage_answers: _Optional[_Iterable[_Union[_belief_pb2.Answer, _Mapping]]] = ..., threshold: _Optional[float] = ..., usage: _Optional[_Union[_rerank_pb2.Usage, _Mapping]] = ..., judged_pairs: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ..., model: _Optional[str] = ..., model_sha256: _Optional[str] = ..., adapter: _Optional[_Union[_model_pb2.AdapterInfo, _Mapping]] = ..., passage_label_probabilities: _Optional[_Iterable[_Union[_task_pb2.LabelProbabilities, _Mapping]]] = ..., task: _Optional[_Union[_task_pb2.Task, str]] = ...) -> None: ...

class EvaluateRetrievalStreamRequest(_message.Message):
    __slots__ = ("id", "request")
    ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    id: str
    request: EvaluateRetrievalRequest
    def __init__(self, id: _Optional[str] = ..., request: _Optional[_Union[EvaluateRetrievalRequest, _Mapping]] = ...) -> None: ...

class EvaluateRetrievalStreamResponse(_message.Message):
    __slots__ = ("id", "response", "error")
    ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    id: str
    response: EvaluateRetrievalResponse
    error: QuestionError
    def __init__(self, id: _Optional[str] = ..., response: _Optional[_Union[EvaluateRetrievalResponse, _Mapping]] = ..., error: _Optional[_Union[QuestionError, _Mapping]] = ...) -> None: ...
