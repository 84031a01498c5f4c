"""Phoenix: evaluators of retrieved contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rerankd.integrations import _metrics
from rerankd.integrations._shared import ADDRESS, clients, needs

with needs("phoenix"):
    from phoenix.evals import Score, create_evaluator

if TYPE_CHECKING:
    from rerankd.client import Rerankd


def delta_seper(client: Rerankd | str = ADDRESS, *, samples: int = 10) -> Any:
    """An evaluator: how far `contexts` move the generator to `reference` for the question `input`, in [-1, 1]."""
    return _evaluator(client, _metrics.DeltaSePer(samples))


def erag(client: Rerankd | str = ADDRESS, *, annotator: str = "token-f1") -> Any:
    """An evaluator: the mean of the eRAG labels of `contexts`, in [0, 1]."""
    return _evaluator(client, _metrics.ERag(annotator))


def _evaluator(given: Rerankd | str, kind: _metrics.Measure) -> Any:
    client = clients(given)[0]

    @create_evaluator(name=kind.name, kind="code")
    def evaluate(input: str, contexts: list[str], reference: str) -> Score:  # noqa: A002 - the name in Phoenix
        value, reason = _metrics.measure(kind, client, input, contexts, reference)
        return Score(name=kind.name, score=value, explanation=reason, kind="code", direction="maximize")

    return evaluate
