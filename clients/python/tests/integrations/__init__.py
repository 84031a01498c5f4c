"""Tests of the adapters against their frameworks, and what they share."""

from collections.abc import Callable, Mapping
from ctypes import c_float
from typing import Any

QUERY = "who wrote it?"
TEXTS = ["Rye absorbs water.", "Eliot wrote it.", "It has eight parts."]
SCORES = [0.25, 0.25 + 0.5 * 2 / 3, 0.25 + 0.5 / 3]
"""The scores that FakeServer gives the texts."""

Example = Callable[..., dict[str, Any]]


def best_first(scores: Mapping[str, float]) -> list[str]:
    """Documents as trec_eval orders them: in single precision, equal scores by descending id."""
    return sorted(scores, key=lambda name: (c_float(scores[name]).value, name), reverse=True)
