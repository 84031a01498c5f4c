"""RAGAS: metrics of retrieved contexts. They need no language model of RAGAS; the server's generator answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rerankd.integrations import _metrics
from rerankd.integrations._shared import ADDRESS, clients, needs

with needs("ragas"):
    from ragas.metrics.collections.base import BaseMetric
    from ragas.metrics.result import MetricResult

if TYPE_CHECKING:
    from rerankd.client import Rerankd


class _Metric(BaseMetric):
    def __init__(self, client: Rerankd | str, kind: _metrics.Measure) -> None:
        super().__init__(name=kind.name, allowed_values=(kind.lowest, 1.0))
        # The first keeps a launched server running.
        self._clients, self._kind = clients(client), kind

    async def ascore(self, user_input: str, retrieved_contexts: list[str], reference: str) -> MetricResult:
        """Measure the contexts of a question."""
        value, reason = await _metrics.ameasure(self._kind, self._clients[1], user_input, retrieved_contexts, reference)
        return MetricResult(value=value, reason=reason)


class DeltaSePer(_Metric):
    """How far the contexts move the generator to the reference, in [-1, 1]."""

    def __init__(self, client: Rerankd | str = ADDRESS, *, samples: int = 10) -> None:
        super().__init__(client, _metrics.DeltaSePer(samples))


class ERag(_Metric):
    """The mean of the contexts' eRAG labels, in [0, 1]: the quality of the answer from each context alone."""

    def __init__(self, client: Rerankd | str = ADDRESS, *, annotator: str = "token-f1") -> None:
        super().__init__(client, _metrics.ERag(annotator))
