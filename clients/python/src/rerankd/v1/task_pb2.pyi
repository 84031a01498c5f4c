from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Task(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_UNSPECIFIED: _ClassVar[Task]
    TASK_SHORT_ANSWER: _ClassVar[Task]
    TASK_FACT_VERIFICATION: _ClassVar[Task]
    TASK_DIALOGUE: _ClassVar[Task]
    TASK_LONG_ANSWER: _ClassVar[Task]
    TASK_CLASSIFICATION: _ClassVar[Task]
TASK_UNSPECIFIED: Task
TASK_SHORT_ANSWER: Task
TASK_FACT_VERIFICATION: Task
TASK_DIALOGUE: Task
TASK_LONG_ANSWER: Task
TASK_CLASSIFICATION: Task

class LabelProbability(_message.Message):
    __slots__ = ("label", "probability")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    PROBABILITY_FIELD_NUMBER: _ClassVar[int]
    label: str
    probability: float
    def __init__(self, label: _Optional[str] = ..., probability: _Optional[float] = ...) -> None: ...

class LabelProbabilities(_message.Message):
    __slots__ = ("labels",)
    LABELS_FIELD_NUMBER: _ClassVar[int]
    labels: _containers.RepeatedCompositeFieldContainer[LabelProbability]
    def __init__(self, labels: _Optional[_Iterable[_Union[LabelProbability, _Mapping]]] = ...) -> None: ...
