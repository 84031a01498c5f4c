"""DeepEval: metrics of retrieved contexts. They need no language model of DeepEval; the server's generator answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rerankd.integrations import _metrics
from rerankd.integrations._shared import ADDRESS, clients, needs

with needs("deepeval"):
    from deepeval.metrics import BaseMetric

if TYPE_CHECKING:
    from deepeval.test_case import LLMTestCase

    from rerankd.client import Rerankd


class _Metric(BaseMetric):
    def __init__(self, client: Rerankd | str, kind: _metrics.Measure, threshold: float) -> None:
        # DeepEval copies a metric by the arguments of its constructor, which it reads from attributes of their names.
        self.client, self.threshold = client, threshold
        self._clients, self._kind = clients(client), kind

    def measure(self, test_case: LLMTestCase, *_: Any, **__: Any) -> float:
        """Measure the retrieval context of a test case."""
        return self._keep(_metrics.measure(self._kind, self._clients[0], *_inputs(test_case)))

    async def a_measure(self, test_case: LLMTestCase, *_: Any, **__: Any) -> float:
        """Measure the retrieval context of a test case."""
        return self._keep(await _metrics.ameasure(self._kind, self._clients[1], *_inputs(test_case)))

    def _keep(self, found: _metrics.Scored) -> float:
        self.error = None
        self.score, self.reason = found
        self.success = self.is_successful()
        return found[0]

    def is_successful(self) -> bool:
        """True if the score reaches the threshold."""
        return self.error is None and self.score is not None and self.score >= (self.threshold or 0)

    @property
    def __name__(self) -> str:
        return self._kind.name


class DeltaSePer(_Metric):
    """How far the retrieval context moves the generator to the expected output, in [-1, 1]."""

    def __init__(self, client: Rerankd | str = ADDRESS, *, threshold: float = 0.1, samples: int = 10) -> None:
        super().__init__(client, _metrics.DeltaSePer(samples), threshold)
        self.samples = samples


class ERag(_Metric):
    """The mean of the contexts' eRAG labels, in [0, 1]: the quality of the answer from each context alone."""

    def __init__(self, client: Rerankd | str = ADDRESS, *, threshold: float = 0.1, annotator: str = "token-f1") -> None:
        super().__init__(client, _metrics.ERag(annotator), threshold)
        self.annotator = annotator


def _inputs(case: LLMTestCase) -> tuple[str, list[str], str]:
    if case.retrieval_context is None or case.expected_output is None:
        raise ValueError("the test case needs retrieval_context and expected_output")
    # An element is a text, or an object with a text and its source.
    texts = [context if isinstance(context, str) else context.context for context in case.retrieval_context]
    return case.input, texts, case.expected_output
