"""The measures of the evaluation frameworks: a value and its explanation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rerankd.aio import AsyncRerankd
    from rerankd.client import Rerankd
    from rerankd.types import RetrievalLabels, Utility

Scored = tuple[float, str]


@dataclass(frozen=True)
class DeltaSePer:
    """How far the contexts move the generator to the reference answer."""

    samples: int
    name: ClassVar[str] = "delta_seper"
    lowest: ClassVar[float] = -1.0

    def ask(self, client: Any, question: str, contexts: Sequence[str], reference: str) -> Any:
        """Call the server."""
        return client.utility(question, contexts, [reference], samples=self.samples)

    def read(self, answer: Utility) -> Scored:
        """The value of an answer."""
        found = answer.delta_seper
        if found is None:
            raise ValueError("the server has measured no DeltaSePer")
        error = "" if found.standard_error is None else f" (standard error {found.standard_error:.3f})"
        return found.value, f"The contexts move {answer.model} to the reference by {found.value:+.3f}{error}."


@dataclass(frozen=True)
class ERag:
    """The mean quality of the generator's answers from each context alone."""

    annotator: str
    name: ClassVar[str] = "erag"
    lowest: ClassVar[float] = 0.0

    def ask(self, client: Any, question: str, contexts: Sequence[str], reference: str) -> Any:
        """Call the server."""
        return client.labels(question, contexts, [reference], annotators=[self.annotator])

    def read(self, answer: RetrievalLabels) -> Scored:
        """The value of an answer."""
        labels = answer.labels[self.annotator]
        shown = ", ".join(f"{label:g}" for label in labels)
        return sum(labels) / len(labels), f"Labels of the contexts by {answer.model} ({self.annotator}): {shown}."


Measure = DeltaSePer | ERag
NONE = (0.0, "No context was retrieved.")


def measure(kind: Measure, client: Rerankd, question: str, contexts: Sequence[str], reference: str) -> Scored:
    """Measure the contexts of a question."""
    return kind.read(kind.ask(client, question, contexts, reference)) if contexts else NONE


async def ameasure(
    kind: Measure, client: AsyncRerankd, question: str, contexts: Sequence[str], reference: str
) -> Scored:
    """`measure` as a coroutine."""
    return kind.read(await kind.ask(client, question, contexts, reference)) if contexts else NONE
