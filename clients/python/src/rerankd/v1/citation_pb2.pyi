from rerankd.v1 import rerank_pb2 as _rerank_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CheckCitationsRequest(_message.Message):
    __slots__ = ("answer", "passages", "question", "threshold", "skip_out_of_range")
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    SKIP_OUT_OF_RANGE_FIELD_NUMBER: _ClassVar[int]
    answer: str
    passages: _containers.RepeatedCompositeFieldContainer[_rerank_pb2.Passage]
    question: str
    threshold: float
    skip_out_of_range: bool
    def __init__(self, answer: _Optional[str] = ..., passages: _Optional[_Iterable[_Union[_rerank_pb2.Passage, _Mapping]]] = ..., question: _Optional[str] = ..., threshold: _Optional[float] = ..., skip_out_of_range: bool = ...) -> None: ...

class CheckedCitation(_message.Message):
    __slots__ = ("number", "exists", "precise", "entailment")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    PRECISE_FIELD_NUMBER: _ClassVar[int]
    ENTAILMENT_FIELD_NUMBER: _ClassVar[int]
    number: int
    exists: bool
    precise: bool
    entailment: float
    def __init__(self, number: _Optional[int] = ..., exists: bool = ..., precise: bool = ..., entailment: _Optional[float] = ...) -> None: ...

class CheckedStatement(_message.Message):
    __slots__ = ("text", "citations", "supported", "entailment")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CITATIONS_FIELD_NUMBER: _ClassVar[int]
    SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    ENTAILMENT_FIELD_NUMBER: _ClassVar[int]
    text: str
    citations: _containers.RepeatedCompositeFieldContainer[CheckedCitation]
    supported: bool
    entailment: float
    def __init__(self, text: _Optional[str] = ..., citations: _Optional[_Iterable[_Union[CheckedCitation, _Mapping]]] = ..., supported: bool = ..., entailment: _Optional[float] = ...) -> None: ...

class CheckCitationsResponse(_message.Message):
    __slots__ = ("statements", "recall", "precision", "citations", "judged_pairs", "warnings", "model", "model_sha256")
    STATEMENTS_FIELD_NUMBER: _ClassVar[int]
    RECALL_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    CITATIONS_FIELD_NUMBER: _ClassVar[int]
    JUDGED_PAIRS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    statements: _containers.RepeatedCompositeFieldContainer[CheckedStatement]
    recall: float
    precision: float
    citations: int
    judged_pairs: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    model: str
    model_sha256: str
    def __init__(self, statements: _Optional[_Iterable[_Union[CheckedStatement, _Mapping]]] = ..., recall: _Optional[float] = ..., precision: _Optional[float] = ..., citations: _Optional[int] = ..., judged_pairs: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ..., model: _Optional[str] = ..., model_sha256: _Optional[str] = ...) -> None: ...
