from rerankd.v1 import model_pb2 as _model_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Method(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    METHOD_UNSPECIFIED: _ClassVar[Method]
    METHOD_CASCADE: _ClassVar[Method]
    METHOD_MOI: _ClassVar[Method]
    METHOD_QUERY_GENERATION: _ClassVar[Method]
    METHOD_LISTWISE_BAYES: _ClassVar[Method]
    METHOD_YES_NO: _ClassVar[Method]
    METHOD_CROSS_ENCODER: _ClassVar[Method]
    METHOD_EMBEDDING: _ClassVar[Method]
    METHOD_RETRIEVER: _ClassVar[Method]
    METHOD_CONTEXT_CITE: _ClassVar[Method]
    METHOD_BAYES_SALIENCY: _ClassVar[Method]
    METHOD_LONG_LLM_LINGUA: _ClassVar[Method]
    METHOD_PAIRWISE: _ClassVar[Method]
    METHOD_PAIRWISE_SLIDING: _ClassVar[Method]
    METHOD_SETWISE: _ClassVar[Method]
    METHOD_FIRST: _ClassVar[Method]
    METHOD_LISTWISE: _ClassVar[Method]
    METHOD_PERMUTATION_SELF_CONSISTENCY: _ClassVar[Method]
    METHOD_SELF_CONSISTENCY: _ClassVar[Method]
    METHOD_ANSWER_LIKELIHOOD: _ClassVar[Method]
    METHOD_LEAVE_ONE_OUT: _ClassVar[Method]
    METHOD_SEMANTIC_UTILITY: _ClassVar[Method]

class FusionMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FUSION_MODE_UNSPECIFIED: _ClassVar[FusionMode]
    FUSION_MODE_OFF: _ClassVar[FusionMode]
    FUSION_MODE_ON: _ClassVar[FusionMode]
    FUSION_MODE_BM25: _ClassVar[FusionMode]

class FusionScaling(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FUSION_SCALING_UNSPECIFIED: _ClassVar[FusionScaling]
    FUSION_SCALING_FLOOR: _ClassVar[FusionScaling]
    FUSION_SCALING_MIN_MAX: _ClassVar[FusionScaling]
    FUSION_SCALING_STANDARD: _ClassVar[FusionScaling]
    FUSION_SCALING_RECIPROCAL_RANK: _ClassVar[FusionScaling]

class FusionSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FUSION_SOURCE_UNSPECIFIED: _ClassVar[FusionSource]
    FUSION_SOURCE_RETRIEVER: _ClassVar[FusionSource]
    FUSION_SOURCE_BM25: _ClassVar[FusionSource]

class Stage(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STAGE_UNSPECIFIED: _ClassVar[Stage]
    STAGE_RETRIEVER: _ClassVar[Stage]
    STAGE_ALONE: _ClassVar[Stage]
    STAGE_TOGETHER: _ClassVar[Stage]

class CompressionMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPRESSION_METHOD_UNSPECIFIED: _ClassVar[CompressionMethod]
    COMPRESSION_METHOD_SELECTIVE_CONTEXT: _ClassVar[CompressionMethod]
    COMPRESSION_METHOD_LONG_LLM_LINGUA: _ClassVar[CompressionMethod]

class CompressionUnit(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPRESSION_UNIT_UNSPECIFIED: _ClassVar[CompressionUnit]
    COMPRESSION_UNIT_SENTENCE: _ClassVar[CompressionUnit]
    COMPRESSION_UNIT_PHRASE: _ClassVar[CompressionUnit]
    COMPRESSION_UNIT_TOKEN: _ClassVar[CompressionUnit]

class DedupMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEDUP_MODE_UNSPECIFIED: _ClassVar[DedupMode]
    DEDUP_MODE_ONE_PLACE: _ClassVar[DedupMode]
    DEDUP_MODE_PUSH_DOWN: _ClassVar[DedupMode]
    DEDUP_MODE_OFF: _ClassVar[DedupMode]

class Design(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DESIGN_UNSPECIFIED: _ClassVar[Design]
    DESIGN_RANDOM: _ClassVar[Design]
    DESIGN_CYCLIC: _ClassVar[Design]
    DESIGN_LATIN: _ClassVar[Design]
    DESIGN_TRIE: _ClassVar[Design]
    DESIGN_PRUNED: _ClassVar[Design]
    DESIGN_PREFIX: _ClassVar[Design]
    DESIGN_ADAPTIVE: _ClassVar[Design]

class BudgetPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BUDGET_POLICY_UNSPECIFIED: _ClassVar[BudgetPolicy]
    BUDGET_POLICY_REFUSE: _ClassVar[BudgetPolicy]
    BUDGET_POLICY_FIT: _ClassVar[BudgetPolicy]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_QUERY_LIKELIHOOD: _ClassVar[Outcome]
    OUTCOME_JOINT: _ClassVar[Outcome]

class ScoreDomain(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SCORE_DOMAIN_UNSPECIFIED: _ClassVar[ScoreDomain]
    SCORE_DOMAIN_LOG_WINSOR_Z: _ClassVar[ScoreDomain]
    SCORE_DOMAIN_LOG_Z: _ClassVar[ScoreDomain]
    SCORE_DOMAIN_RANK_NORMAL: _ClassVar[ScoreDomain]
    SCORE_DOMAIN_SOFTMAX: _ClassVar[ScoreDomain]

class Objective(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OBJECTIVE_UNSPECIFIED: _ClassVar[Objective]
    OBJECTIVE_REGULARISED: _ClassVar[Objective]
    OBJECTIVE_PAPER: _ClassVar[Objective]

class TruncationMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRUNCATION_MODE_UNSPECIFIED: _ClassVar[TruncationMode]
    TRUNCATION_MODE_PASSAGES: _ClassVar[TruncationMode]
    TRUNCATION_MODE_OFF: _ClassVar[TruncationMode]

class Orientation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ORIENTATION_UNSPECIFIED: _ClassVar[Orientation]
    ORIENTATION_ONE_PASSAGE_SCORES: _ClassVar[Orientation]
    ORIENTATION_CALLER_PRIOR: _ClassVar[Orientation]
    ORIENTATION_DEFAULT_PRIOR: _ClassVar[Orientation]
    ORIENTATION_LENGTHS: _ClassVar[Orientation]
    ORIENTATION_NONE: _ClassVar[Orientation]
    ORIENTATION_SUBSETS: _ClassVar[Orientation]

class ContextOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CONTEXT_ORDER_UNSPECIFIED: _ClassVar[ContextOrder]
    CONTEXT_ORDER_BY_POSITION_BIAS: _ClassVar[ContextOrder]
    CONTEXT_ORDER_DESCENDING: _ClassVar[ContextOrder]
    CONTEXT_ORDER_REVERSE: _ClassVar[ContextOrder]
    CONTEXT_ORDER_GIVEN: _ClassVar[ContextOrder]

class ArrangementGround(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ARRANGEMENT_GROUND_UNSPECIFIED: _ClassVar[ArrangementGround]
    ARRANGEMENT_GROUND_REQUESTED: _ClassVar[ArrangementGround]
    ARRANGEMENT_GROUND_ANSWER_PROFILE: _ClassVar[ArrangementGround]
    ARRANGEMENT_GROUND_QUESTION_PROFILE: _ClassVar[ArrangementGround]
    ARRANGEMENT_GROUND_NO_PROFILE: _ClassVar[ArrangementGround]
    ARRANGEMENT_GROUND_EFFECT_WITHIN_ERROR: _ClassVar[ArrangementGround]

class LeftOutReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEFT_OUT_REASON_UNSPECIFIED: _ClassVar[LeftOutReason]
    LEFT_OUT_REASON_BUDGET: _ClassVar[LeftOutReason]
    LEFT_OUT_REASON_DUPLICATE: _ClassVar[LeftOutReason]
    LEFT_OUT_REASON_SOURCE: _ClassVar[LeftOutReason]
    LEFT_OUT_REASON_RANKING: _ClassVar[LeftOutReason]
    LEFT_OUT_REASON_EMPTY: _ClassVar[LeftOutReason]
METHOD_UNSPECIFIED: Method
METHOD_CASCADE: Method
METHOD_MOI: Method
METHOD_QUERY_GENERATION: Method
METHOD_LISTWISE_BAYES: Method
METHOD_YES_NO: Method
METHOD_CROSS_ENCODER: Method
METHOD_EMBEDDING: Method
METHOD_RETRIEVER: Method
METHOD_CONTEXT_CITE: Method
METHOD_BAYES_SALIENCY: Method
METHOD_LONG_LLM_LINGUA: Method
METHOD_PAIRWISE: Method
METHOD_PAIRWISE_SLIDING: Method
METHOD_SETWISE: Method
METHOD_FIRST: Method
METHOD_LISTWISE: Method
METHOD_PERMUTATION_SELF_CONSISTENCY: Method
METHOD_SELF_CONSISTENCY: Method
METHOD_ANSWER_LIKELIHOOD: Method
METHOD_LEAVE_ONE_OUT: Method
METHOD_SEMANTIC_UTILITY: Method
FUSION_MODE_UNSPECIFIED: FusionMode
FUSION_MODE_OFF: FusionMode
FUSION_MODE_ON: FusionMode
FUSION_MODE_BM25: FusionMode
FUSION_SCALING_UNSPECIFIED: FusionScaling
FUSION_SCALING_FLOOR: FusionScaling
FUSION_SCALING_MIN_MAX: FusionScaling
FUSION_SCALING_STANDARD: FusionScaling
FUSION_SCALING_RECIPROCAL_RANK: FusionScaling
FUSION_SOURCE_UNSPECIFIED: FusionSource
FUSION_SOURCE_RETRIEVER: FusionSource
FUSION_SOURCE_BM25: FusionSource
STAGE_UNSPECIFIED: Stage
STAGE_RETRIEVER: Stage
STAGE_ALONE: Stage
STAGE_TOGETHER: Stage
COMPRESSION_METHOD_UNSPECIFIED: CompressionMethod
COMPRESSION_METHOD_SELECTIVE_CONTEXT: CompressionMethod
COMPRESSION_METHOD_LONG_LLM_LINGUA: CompressionMethod
COMPRESSION_UNIT_UNSPECIFIED: CompressionUnit
COMPRESSION_UNIT_SENTENCE: CompressionUnit
COMPRESSION_UNIT_PHRASE: CompressionUnit
COMPRESSION_UNIT_TOKEN: CompressionUnit
DEDUP_MODE_UNSPECIFIED: DedupMode
DEDUP_MODE_ONE_PLACE: DedupMode
DEDUP_MODE_PUSH_DOWN: DedupMode
DEDUP_MODE_OFF: DedupMode
DESIGN_UNSPECIFIED: Design
DESIGN_RANDOM: Design
DESIGN_CYCLIC: Design
DESIGN_LATIN: Design
DESIGN_TRIE: Design
DESIGN_PRUNED: Design
DESIGN_PREFIX: Design
DESIGN_ADAPTIVE: Design
BUDGET_POLICY_UNSPECIFIED: BudgetPolicy
BUDGET_POLICY_REFUSE: BudgetPolicy
BUDGET_POLICY_FIT: BudgetPolicy
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_QUERY_LIKELIHOOD: Outcome
OUTCOME_JOINT: Outcome
SCORE_DOMAIN_UNSPECIFIED: ScoreDomain
SCORE_DOMAIN_LOG_WINSOR_Z: ScoreDomain
SCORE_DOMAIN_LOG_Z: ScoreDomain
SCORE_DOMAIN_RANK_NORMAL: ScoreDomain
SCORE_DOMAIN_SOFTMAX: ScoreDomain
OBJECTIVE_UNSPECIFIED: Objective
OBJECTIVE_REGULARISED: Objective
OBJECTIVE_PAPER: Objective
TRUNCATION_MODE_UNSPECIFIED: TruncationMode
TRUNCATION_MODE_PASSAGES: TruncationMode
TRUNCATION_MODE_OFF: TruncationMode
ORIENTATION_UNSPECIFIED: Orientation
ORIENTATION_ONE_PASSAGE_SCORES: Orientation
ORIENTATION_CALLER_PRIOR: Orientation
ORIENTATION_DEFAULT_PRIOR: Orientation
ORIENTATION_LENGTHS: Orientation
ORIENTATION_NONE: Orientation
ORIENTATION_SUBSETS: Orientation
CONTEXT_ORDER_UNSPECIFIED: ContextOrder
CONTEXT_ORDER_BY_POSITION_BIAS: ContextOrder
CONTEXT_ORDER_DESCENDING: ContextOrder
CONTEXT_ORDER_REVERSE: ContextOrder
CONTEXT_ORDER_GIVEN: ContextOrder
ARRANGEMENT_GROUND_UNSPECIFIED: ArrangementGround
ARRANGEMENT_GROUND_REQUESTED: ArrangementGround
ARRANGEMENT_GROUND_ANSWER_PROFILE: ArrangementGround
ARRANGEMENT_GROUND_QUESTION_PROFILE: ArrangementGround
ARRANGEMENT_GROUND_NO_PROFILE: ArrangementGround
ARRANGEMENT_GROUND_EFFECT_WITHIN_ERROR: ArrangementGround
LEFT_OUT_REASON_UNSPECIFIED: LeftOutReason
LEFT_OUT_REASON_BUDGET: LeftOutReason
LEFT_OUT_REASON_DUPLICATE: LeftOutReason
LEFT_OUT_REASON_SOURCE: LeftOutReason
LEFT_OUT_REASON_RANKING: LeftOutReason
LEFT_OUT_REASON_EMPTY: LeftOutReason

class Arrangement(_message.Message):
    __slots__ = ("original_indices", "order", "ground", "profile_passages", "profile_observations", "profile_origin", "profile_subject")
    ORIGINAL_INDICES_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    GROUND_FIELD_NUMBER: _ClassVar[int]
    PROFILE_PASSAGES_FIELD_NUMBER: _ClassVar[int]
    PROFILE_OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    PROFILE_ORIGIN_FIELD_NUMBER: _ClassVar[int]
    PROFILE_SUBJECT_FIELD_NUMBER: _ClassVar[int]
    original_indices: _containers.RepeatedScalarFieldContainer[int]
    order: ContextOrder
    ground: ArrangementGround
    profile_passages: int
    profile_observations: int
    profile_origin: _model_pb2.ProfileOrigin
    profile_subject: _model_pb2.ProfileSubject
    def __init__(self, original_indices: _Optional[_Iterable[int]] = ..., order: _Optional[_Union[ContextOrder, str]] = ..., ground: _Optional[_Union[ArrangementGround, str]] = ..., profile_passages: _Optional[int] = ..., profile_observations: _Optional[int] = ..., profile_origin: _Optional[_Union[_model_pb2.ProfileOrigin, str]] = ..., profile_subject: _Optional[_Union[_model_pb2.ProfileSubject, str]] = ...) -> None: ...

class Passage(_message.Message):
    __slots__ = ("id", "text", "title", "retriever_score")
    ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    RETRIEVER_SCORE_FIELD_NUMBER: _ClassVar[int]
    id: str
    text: str
    title: str
    retriever_score: float
    def __init__(self, id: _Optional[str] = ..., text: _Optional[str] = ..., title: _Optional[str] = ..., retriever_score: _Optional[float] = ...) -> None: ...

class MoiOptions(_message.Message):
    __slots__ = ("design", "orders", "outcome", "score_domain", "softmax_temperature", "objective", "sigma2", "position_prior", "monotone", "seed", "depth", "shared_columns", "copies", "prune_length", "variable_pruning", "budget_policy", "settle_top", "settle_probability", "rounds")
    DESIGN_FIELD_NUMBER: _ClassVar[int]
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    SCORE_DOMAIN_FIELD_NUMBER: _ClassVar[int]
    SOFTMAX_TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    SIGMA2_FIELD_NUMBER: _ClassVar[int]
    POSITION_PRIOR_FIELD_NUMBER: _ClassVar[int]
    MONOTONE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    SHARED_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    PRUNE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    VARIABLE_PRUNING_FIELD_NUMBER: _ClassVar[int]
    BUDGET_POLICY_FIELD_NUMBER: _ClassVar[int]
    SETTLE_TOP_FIELD_NUMBER: _ClassVar[int]
    SETTLE_PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    design: Design
    orders: int
    outcome: Outcome
    score_domain: ScoreDomain
    softmax_temperature: float
    objective: Objective
    sigma2: float
    position_prior: _containers.RepeatedScalarFieldContainer[float]
    monotone: bool
    seed: int
    depth: int
    shared_columns: int
    copies: int
    prune_length: int
    variable_pruning: bool
    budget_policy: BudgetPolicy
    settle_top: int
    settle_probability: float
    rounds: int
    def __init__(self, design: _Optional[_Union[Design, str]] = ..., orders: _Optional[int] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., score_domain: _Optional[_Union[ScoreDomain, str]] = ..., softmax_temperature: _Optional[float] = ..., objective: _Optional[_Union[Objective, str]] = ..., sigma2: _Optional[float] = ..., position_prior: _Optional[_Iterable[float]] = ..., monotone: bool = ..., seed: _Optional[int] = ..., depth: _Optional[int] = ..., shared_columns: _Optional[int] = ..., copies: _Optional[int] = ..., prune_length: _Optional[int] = ..., variable_pruning: bool = ..., budget_policy: _Optional[_Union[BudgetPolicy, str]] = ..., settle_top: _Optional[int] = ..., settle_probability: _Optional[float] = ..., rounds: _Optional[int] = ...) -> None: ...

class Truncation(_message.Message):
    __slots__ = ("mode", "max_passage_tokens")
    MODE_FIELD_NUMBER: _ClassVar[int]
    MAX_PASSAGE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    mode: TruncationMode
    max_passage_tokens: int
    def __init__(self, mode: _Optional[_Union[TruncationMode, str]] = ..., max_passage_tokens: _Optional[int] = ...) -> None: ...

class Background(_message.Message):
    __slots__ = ("documents", "frequencies")
    class FrequenciesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    FREQUENCIES_FIELD_NUMBER: _ClassVar[int]
    documents: int
    frequencies: _containers.ScalarMap[str, int]
    def __init__(self, documents: _Optional[int] = ..., frequencies: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Fusion(_message.Message):
    __slots__ = ("mode", "weight", "scaling", "background", "embedding_weight")
    MODE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    SCALING_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    mode: FusionMode
    weight: float
    scaling: FusionScaling
    background: Background
    embedding_weight: float
    def __init__(self, mode: _Optional[_Union[FusionMode, str]] = ..., weight: _Optional[float] = ..., scaling: _Optional[_Union[FusionScaling, str]] = ..., background: _Optional[_Union[Background, _Mapping]] = ..., embedding_weight: _Optional[float] = ...) -> None: ...

class FusionReport(_message.Message):
    __slots__ = ("source", "scaling", "weight", "embedding_weight")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCALING_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    source: FusionSource
    scaling: FusionScaling
    weight: float
    embedding_weight: float
    def __init__(self, source: _Optional[_Union[FusionSource, str]] = ..., scaling: _Optional[_Union[FusionScaling, str]] = ..., weight: _Optional[float] = ..., embedding_weight: _Optional[float] = ...) -> None: ...

class Example(_message.Message):
    __slots__ = ("passage", "query", "passage_title")
    PASSAGE_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    PASSAGE_TITLE_FIELD_NUMBER: _ClassVar[int]
    passage: str
    query: str
    passage_title: str
    def __init__(self, passage: _Optional[str] = ..., query: _Optional[str] = ..., passage_title: _Optional[str] = ...) -> None: ...

class Dedup(_message.Message):
    __slots__ = ("mode", "similarity")
    MODE_FIELD_NUMBER: _ClassVar[int]
    SIMILARITY_FIELD_NUMBER: _ClassVar[int]
    mode: DedupMode
    similarity: float
    def __init__(self, mode: _Optional[_Union[DedupMode, str]] = ..., similarity: _Optional[float] = ...) -> None: ...

class RerankRequest(_message.Message):
    __slots__ = ("query", "passages", "method", "moi", "top_n", "score_threshold", "return_passages", "truncation", "context_order", "utility", "fusion", "only_helpful", "latency_budget_ms", "instruction", "examples", "compression", "scorer", "auto_k", "token_budget", "dedup")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    MOI_FIELD_NUMBER: _ClassVar[int]
    TOP_N_FIELD_NUMBER: _ClassVar[int]
    SCORE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    RETURN_PASSAGES_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ORDER_FIELD_NUMBER: _ClassVar[int]
    UTILITY_FIELD_NUMBER: _ClassVar[int]
    FUSION_FIELD_NUMBER: _ClassVar[int]
    ONLY_HELPFUL_FIELD_NUMBER: _ClassVar[int]
    LATENCY_BUDGET_MS_FIELD_NUMBER: _ClassVar[int]
    INSTRUCTION_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    SCORER_FIELD_NUMBER: _ClassVar[int]
    AUTO_K_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BUDGET_FIELD_NUMBER: _ClassVar[int]
    DEDUP_FIELD_NUMBER: _ClassVar[int]
    query: str
    passages: _containers.RepeatedCompositeFieldContainer[Passage]
    method: Method
    moi: MoiOptions
    top_n: int
    score_threshold: float
    return_passages: bool
    truncation: Truncation
    context_order: ContextOrder
    utility: InlineUtility
    fusion: Fusion
    only_helpful: bool
    latency_budget_ms: float
    instruction: str
    examples: _containers.RepeatedCompositeFieldContainer[Example]
    compression: Compression
    scorer: str
    auto_k: bool
    token_budget: int
    dedup: Dedup
    def __init__(self, query: _Optional[str] = ..., passages: _Optional[_Iterable[_Union[Passage, _Mapping]]] = ..., method: _Optional[_Union[Method, str]] = ..., moi: _Optional[_Union[MoiOptions, _Mapping]] = ..., top_n: _Optional[int] = ..., score_threshold: _Optional[float] = ..., return_passages: bool = ..., truncation: _Optional[_Union[Truncation, _Mapping]] = ..., context_order: _Optional[_Union[ContextOrder, str]] = ..., utility: _Optional[_Union[InlineUtility, _Mapping]] = ..., fusion: _Optional[_Union[Fusion, _Mapping]] = ..., only_helpful: bool = ..., latency_budget_ms: _Optional[float] = ..., instruction: _Optional[str] = ..., examples: _Optional[_Iterable[_Union[Example, _Mapping]]] = ..., compression: _Optional[_Union[Compression, _Mapping]] = ..., scorer: _Optional[str] = ..., auto_k: bool = ..., token_budget: _Optional[int] = ..., dedup: _Optional[_Union[Dedup, _Mapping]] = ...) -> None: ...

class Compression(_message.Message):
    __slots__ = ("method", "unit", "ratio", "target_tokens", "ratio_spread")
    METHOD_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    TARGET_TOKENS_FIELD_NUMBER: _ClassVar[int]
    RATIO_SPREAD_FIELD_NUMBER: _ClassVar[int]
    method: CompressionMethod
    unit: CompressionUnit
    ratio: float
    target_tokens: int
    ratio_spread: float
    def __init__(self, method: _Optional[_Union[CompressionMethod, str]] = ..., unit: _Optional[_Union[CompressionUnit, str]] = ..., ratio: _Optional[float] = ..., target_tokens: _Optional[int] = ..., ratio_spread: _Optional[float] = ...) -> None: ...

class CompressedPassage(_message.Message):
    __slots__ = ("original_index", "compressed_text", "tokens_before", "tokens_after", "dropped")
    ORIGINAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    COMPRESSED_TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_AFTER_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    original_index: int
    compressed_text: str
    tokens_before: int
    tokens_after: int
    dropped: bool
    def __init__(self, original_index: _Optional[int] = ..., compressed_text: _Optional[str] = ..., tokens_before: _Optional[int] = ..., tokens_after: _Optional[int] = ..., dropped: bool = ...) -> None: ...

class CompressionReport(_message.Message):
    __slots__ = ("passages", "method", "unit", "tokens_before", "tokens_after", "tokens_evaluated")
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_BEFORE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_AFTER_FIELD_NUMBER: _ClassVar[int]
    TOKENS_EVALUATED_FIELD_NUMBER: _ClassVar[int]
    passages: _containers.RepeatedCompositeFieldContainer[CompressedPassage]
    method: CompressionMethod
    unit: CompressionUnit
    tokens_before: int
    tokens_after: int
    tokens_evaluated: int
    def __init__(self, passages: _Optional[_Iterable[_Union[CompressedPassage, _Mapping]]] = ..., method: _Optional[_Union[CompressionMethod, str]] = ..., unit: _Optional[_Union[CompressionUnit, str]] = ..., tokens_before: _Optional[int] = ..., tokens_after: _Optional[int] = ..., tokens_evaluated: _Optional[int] = ...) -> None: ...

class InlineUtility(_message.Message):
    __slots__ = ("references", "samples", "max_tokens", "seed")
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    references: _containers.RepeatedScalarFieldContainer[str]
    samples: int
    max_tokens: int
    seed: int
    def __init__(self, references: _Optional[_Iterable[str]] = ..., samples: _Optional[int] = ..., max_tokens: _Optional[int] = ..., seed: _Optional[int] = ...) -> None: ...

class OrderUtility(_message.Message):
    __slots__ = ("original_indices", "delta_seper_soft", "delta_seper_soft_error", "delta_seper_hard", "semantic_entropy_reduction")
    ORIGINAL_INDICES_FIELD_NUMBER: _ClassVar[int]
    DELTA_SEPER_SOFT_FIELD_NUMBER: _ClassVar[int]
    DELTA_SEPER_SOFT_ERROR_FIELD_NUMBER: _ClassVar[int]
    DELTA_SEPER_HARD_FIELD_NUMBER: _ClassVar[int]
    SEMANTIC_ENTROPY_REDUCTION_FIELD_NUMBER: _ClassVar[int]
    original_indices: _containers.RepeatedScalarFieldContainer[int]
    delta_seper_soft: float
    delta_seper_soft_error: float
    delta_seper_hard: float
    semantic_entropy_reduction: float
    def __init__(self, original_indices: _Optional[_Iterable[int]] = ..., delta_seper_soft: _Optional[float] = ..., delta_seper_soft_error: _Optional[float] = ..., delta_seper_hard: _Optional[float] = ..., semantic_entropy_reduction: _Optional[float] = ...) -> None: ...

class InlineUtilityReport(_message.Message):
    __slots__ = ("given", "arranged", "seper_without", "judged_pairs")
    GIVEN_FIELD_NUMBER: _ClassVar[int]
    ARRANGED_FIELD_NUMBER: _ClassVar[int]
    SEPER_WITHOUT_FIELD_NUMBER: _ClassVar[int]
    JUDGED_PAIRS_FIELD_NUMBER: _ClassVar[int]
    given: OrderUtility
    arranged: OrderUtility
    seper_without: float
    judged_pairs: int
    def __init__(self, given: _Optional[_Union[OrderUtility, _Mapping]] = ..., arranged: _Optional[_Union[OrderUtility, _Mapping]] = ..., seper_without: _Optional[float] = ..., judged_pairs: _Optional[int] = ...) -> None: ...

class RankedPassage(_message.Message):
    __slots__ = ("id", "original_index", "rank", "score", "utility", "standard_error", "outranks_next", "tokens_cut", "passage", "stage", "signals", "duplicates")
    ID_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    UTILITY_FIELD_NUMBER: _ClassVar[int]
    STANDARD_ERROR_FIELD_NUMBER: _ClassVar[int]
    OUTRANKS_NEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_CUT_FIELD_NUMBER: _ClassVar[int]
    PASSAGE_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    SIGNALS_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    id: str
    original_index: int
    rank: int
    score: float
    utility: float
    standard_error: float
    outranks_next: float
    tokens_cut: int
    passage: Passage
    stage: Stage
    signals: Signals
    duplicates: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, id: _Optional[str] = ..., original_index: _Optional[int] = ..., rank: _Optional[int] = ..., score: _Optional[float] = ..., utility: _Optional[float] = ..., standard_error: _Optional[float] = ..., outranks_next: _Optional[float] = ..., tokens_cut: _Optional[int] = ..., passage: _Optional[_Union[Passage, _Mapping]] = ..., stage: _Optional[_Union[Stage, str]] = ..., signals: _Optional[_Union[Signals, _Mapping]] = ..., duplicates: _Optional[_Iterable[int]] = ...) -> None: ...

class Signals(_message.Message):
    __slots__ = ("model", "embedding", "source")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    model: float
    embedding: float
    source: float
    def __init__(self, model: _Optional[float] = ..., embedding: _Optional[float] = ..., source: _Optional[float] = ...) -> None: ...

class PositionBias(_message.Message):
    __slots__ = ("weights",)
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    weights: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, weights: _Optional[_Iterable[float]] = ...) -> None: ...

class FitDiagnostics(_message.Message):
    __slots__ = ("r2", "loo_r2", "jacobian_rank", "rank_needed", "condition", "distinct_orders", "noise_variance", "signal", "identifiable", "prior_dominated", "expected_tau", "orientation", "anchor_correlation", "objective", "converged", "scale_identified")
    R2_FIELD_NUMBER: _ClassVar[int]
    LOO_R2_FIELD_NUMBER: _ClassVar[int]
    JACOBIAN_RANK_FIELD_NUMBER: _ClassVar[int]
    RANK_NEEDED_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    DISTINCT_ORDERS_FIELD_NUMBER: _ClassVar[int]
    NOISE_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    IDENTIFIABLE_FIELD_NUMBER: _ClassVar[int]
    PRIOR_DOMINATED_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_TAU_FIELD_NUMBER: _ClassVar[int]
    ORIENTATION_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_CORRELATION_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    CONVERGED_FIELD_NUMBER: _ClassVar[int]
    SCALE_IDENTIFIED_FIELD_NUMBER: _ClassVar[int]
    r2: float
    loo_r2: float
    jacobian_rank: int
    rank_needed: int
    condition: float
    distinct_orders: int
    noise_variance: float
    signal: float
    identifiable: bool
    prior_dominated: bool
    expected_tau: float
    orientation: Orientation
    anchor_correlation: float
    objective: float
    converged: bool
    scale_identified: bool
    def __init__(self, r2: _Optional[float] = ..., loo_r2: _Optional[float] = ..., jacobian_rank: _Optional[int] = ..., rank_needed: _Optional[int] = ..., condition: _Optional[float] = ..., distinct_orders: _Optional[int] = ..., noise_variance: _Optional[float] = ..., signal: _Optional[float] = ..., identifiable: bool = ..., prior_dominated: bool = ..., expected_tau: _Optional[float] = ..., orientation: _Optional[_Union[Orientation, str]] = ..., anchor_correlation: _Optional[float] = ..., objective: _Optional[float] = ..., converged: bool = ..., scale_identified: bool = ...) -> None: ...

class DesignReport(_message.Message):
    __slots__ = ("design", "observations", "blocks", "shared_blocks", "depth", "rounds")
    DESIGN_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    SHARED_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    DEPTH_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    design: Design
    observations: int
    blocks: int
    shared_blocks: int
    depth: int
    rounds: int
    def __init__(self, design: _Optional[_Union[Design, str]] = ..., observations: _Optional[int] = ..., blocks: _Optional[int] = ..., shared_blocks: _Optional[int] = ..., depth: _Optional[int] = ..., rounds: _Optional[int] = ...) -> None: ...

class Usage(_message.Message):
    __slots__ = ("tokens", "naive_tokens", "cached_tokens", "steps", "tokenise_ms", "queue_ms", "score_ms", "fit_ms", "total_ms", "pairs", "embedding_tokens")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    NAIVE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    TOKENISE_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_MS_FIELD_NUMBER: _ClassVar[int]
    SCORE_MS_FIELD_NUMBER: _ClassVar[int]
    FIT_MS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_MS_FIELD_NUMBER: _ClassVar[int]
    PAIRS_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_TOKENS_FIELD_NUMBER: _ClassVar[int]
    tokens: int
    naive_tokens: int
    cached_tokens: int
    steps: int
    tokenise_ms: float
    queue_ms: float
    score_ms: float
    fit_ms: float
    total_ms: float
    pairs: int
    embedding_tokens: int
    def __init__(self, tokens: _Optional[int] = ..., naive_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., steps: _Optional[int] = ..., tokenise_ms: _Optional[float] = ..., queue_ms: _Optional[float] = ..., score_ms: _Optional[float] = ..., fit_ms: _Optional[float] = ..., total_ms: _Optional[float] = ..., pairs: _Optional[int] = ..., embedding_tokens: _Optional[int] = ...) -> None: ...

class RerankResponse(_message.Message):
    __slots__ = ("results", "position_bias", "diagnostics", "design", "usage", "warnings", "model", "model_sha256", "context_order", "utility", "fusion", "none_helps", "score_calibrated", "adapter", "compression", "none_relevant")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    POSITION_BIAS_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTICS_FIELD_NUMBER: _ClassVar[int]
    DESIGN_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ORDER_FIELD_NUMBER: _ClassVar[int]
    UTILITY_FIELD_NUMBER: _ClassVar[int]
    FUSION_FIELD_NUMBER: _ClassVar[int]
    NONE_HELPS_FIELD_NUMBER: _ClassVar[int]
    SCORE_CALIBRATED_FIELD_NUMBER: _ClassVar[int]
    ADAPTER_FIELD_NUMBER: _ClassVar[int]
    COMPRESSION_FIELD_NUMBER: _ClassVar[int]
    NONE_RELEVANT_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[RankedPassage]
    position_bias: _containers.RepeatedCompositeFieldContainer[PositionBias]
    diagnostics: FitDiagnostics
    design: DesignReport
    usage: Usage
    warnings: _containers.RepeatedScalarFieldContainer[str]
    model: str
    model_sha256: str
    context_order: Arrangement
    utility: InlineUtilityReport
    fusion: FusionReport
    none_helps: bool
    score_calibrated: bool
    adapter: _model_pb2.AdapterInfo
    compression: CompressionReport
    none_relevant: float
    def __init__(self, results: _Optional[_Iterable[_Union[RankedPassage, _Mapping]]] = ..., position_bias: _Optional[_Iterable[_Union[PositionBias, _Mapping]]] = ..., diagnostics: _Optional[_Union[FitDiagnostics, _Mapping]] = ..., design: _Optional[_Union[DesignReport, _Mapping]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ..., model: _Optional[str] = ..., model_sha256: _Optional[str] = ..., context_order: _Optional[_Union[Arrangement, _Mapping]] = ..., utility: _Optional[_Union[InlineUtilityReport, _Mapping]] = ..., fusion: _Optional[_Union[FusionReport, _Mapping]] = ..., none_helps: bool = ..., score_calibrated: bool = ..., adapter: _Optional[_Union[_model_pb2.AdapterInfo, _Mapping]] = ..., compression: _Optional[_Union[CompressionReport, _Mapping]] = ..., none_relevant: _Optional[float] = ...) -> None: ...

class WatchRerankRequest(_message.Message):
    __slots__ = ("request",)
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request: RerankRequest
    def __init__(self, request: _Optional[_Union[RerankRequest, _Mapping]] = ...) -> None: ...

class Planned(_message.Message):
    __slots__ = ("tokens", "naive_tokens", "path_cells")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    NAIVE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PATH_CELLS_FIELD_NUMBER: _ClassVar[int]
    tokens: int
    naive_tokens: int
    path_cells: int
    def __init__(self, tokens: _Optional[int] = ..., naive_tokens: _Optional[int] = ..., path_cells: _Optional[int] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("tokens_done", "tokens_total")
    TOKENS_DONE_FIELD_NUMBER: _ClassVar[int]
    TOKENS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    tokens_done: int
    tokens_total: int
    def __init__(self, tokens_done: _Optional[int] = ..., tokens_total: _Optional[int] = ...) -> None: ...

class InterimOrder(_message.Message):
    __slots__ = ("original_indices", "observations")
    ORIGINAL_INDICES_FIELD_NUMBER: _ClassVar[int]
    OBSERVATIONS_FIELD_NUMBER: _ClassVar[int]
    original_indices: _containers.RepeatedScalarFieldContainer[int]
    observations: int
    def __init__(self, original_indices: _Optional[_Iterable[int]] = ..., observations: _Optional[int] = ...) -> None: ...

class WatchRerankResponse(_message.Message):
    __slots__ = ("planned", "progress", "interim", "final")
    PLANNED_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    INTERIM_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    planned: Planned
    progress: Progress
    interim: InterimOrder
    final: RerankResponse
    def __init__(self, planned: _Optional[_Union[Planned, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., interim: _Optional[_Union[InterimOrder, _Mapping]] = ..., final: _Optional[_Union[RerankResponse, _Mapping]] = ...) -> None: ...

class RerankStreamRequest(_message.Message):
    __slots__ = ("request_id", "request")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    request: RerankRequest
    def __init__(self, request_id: _Optional[str] = ..., request: _Optional[_Union[RerankRequest, _Mapping]] = ...) -> None: ...

class RerankStreamError(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: int
    message: str
    def __init__(self, code: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class RerankStreamResponse(_message.Message):
    __slots__ = ("request_id", "response", "error")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    response: RerankResponse
    error: RerankStreamError
    def __init__(self, request_id: _Optional[str] = ..., response: _Optional[_Union[RerankResponse, _Mapping]] = ..., error: _Optional[_Union[RerankStreamError, _Mapping]] = ...) -> None: ...

class WarmPassagesRequest(_message.Message):
    __slots__ = ("passages",)
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    passages: _containers.RepeatedCompositeFieldContainer[Passage]
    def __init__(self, passages: _Optional[_Iterable[_Union[Passage, _Mapping]]] = ...) -> None: ...

class WarmPassagesResponse(_message.Message):
    __slots__ = ("passages", "present", "kept", "tokens", "model")
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    passages: int
    present: int
    kept: int
    tokens: int
    model: str
    def __init__(self, passages: _Optional[int] = ..., present: _Optional[int] = ..., kept: _Optional[int] = ..., tokens: _Optional[int] = ..., model: _Optional[str] = ...) -> None: ...

class BuildContextRequest(_message.Message):
    __slots__ = ("request", "max_tokens", "max_characters", "template", "separator", "max_per_source", "tokenizer")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MAX_CHARACTERS_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    SEPARATOR_FIELD_NUMBER: _ClassVar[int]
    MAX_PER_SOURCE_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FIELD_NUMBER: _ClassVar[int]
    request: RerankRequest
    max_tokens: int
    max_characters: int
    template: str
    separator: str
    max_per_source: int
    tokenizer: str
    def __init__(self, request: _Optional[_Union[RerankRequest, _Mapping]] = ..., max_tokens: _Optional[int] = ..., max_characters: _Optional[int] = ..., template: _Optional[str] = ..., separator: _Optional[str] = ..., max_per_source: _Optional[int] = ..., tokenizer: _Optional[str] = ...) -> None: ...

class ContextPassage(_message.Message):
    __slots__ = ("id", "original_index", "start", "end", "score", "utility", "duplicates", "cut", "compressed")
    ID_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    UTILITY_FIELD_NUMBER: _ClassVar[int]
    DUPLICATES_FIELD_NUMBER: _ClassVar[int]
    CUT_FIELD_NUMBER: _ClassVar[int]
    COMPRESSED_FIELD_NUMBER: _ClassVar[int]
    id: str
    original_index: int
    start: int
    end: int
    score: float
    utility: float
    duplicates: _containers.RepeatedScalarFieldContainer[int]
    cut: bool
    compressed: bool
    def __init__(self, id: _Optional[str] = ..., original_index: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., score: _Optional[float] = ..., utility: _Optional[float] = ..., duplicates: _Optional[_Iterable[int]] = ..., cut: bool = ..., compressed: bool = ...) -> None: ...

class LeftOutPassage(_message.Message):
    __slots__ = ("id", "original_index", "reason", "duplicate_of")
    ID_FIELD_NUMBER: _ClassVar[int]
    ORIGINAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_OF_FIELD_NUMBER: _ClassVar[int]
    id: str
    original_index: int
    reason: LeftOutReason
    duplicate_of: int
    def __init__(self, id: _Optional[str] = ..., original_index: _Optional[int] = ..., reason: _Optional[_Union[LeftOutReason, str]] = ..., duplicate_of: _Optional[int] = ...) -> None: ...

class BuildContextResponse(_message.Message):
    __slots__ = ("text", "tokens", "characters", "passages", "left_out", "context_order", "usage", "warnings", "model", "reader")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    CHARACTERS_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_ORDER_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    READER_FIELD_NUMBER: _ClassVar[int]
    text: str
    tokens: int
    characters: int
    passages: _containers.RepeatedCompositeFieldContainer[ContextPassage]
    left_out: _containers.RepeatedCompositeFieldContainer[LeftOutPassage]
    context_order: Arrangement
    usage: Usage
    warnings: _containers.RepeatedScalarFieldContainer[str]
    model: str
    reader: str
    def __init__(self, text: _Optional[str] = ..., tokens: _Optional[int] = ..., characters: _Optional[int] = ..., passages: _Optional[_Iterable[_Union[ContextPassage, _Mapping]]] = ..., left_out: _Optional[_Iterable[_Union[LeftOutPassage, _Mapping]]] = ..., context_order: _Optional[_Union[Arrangement, _Mapping]] = ..., usage: _Optional[_Union[Usage, _Mapping]] = ..., warnings: _Optional[_Iterable[str]] = ..., model: _Optional[str] = ..., reader: _Optional[str] = ...) -> None: ...
