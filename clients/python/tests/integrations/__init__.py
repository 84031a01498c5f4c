"""Tests of the adapters against their frameworks, and what they share."""

from collections.abc import Callable
from typing import Any

QUERY = "who wrote it?"
TEXTS = ["Rye absorbs water.", "Eliot wrote it.", "It has eight parts."]
SCORES = [0.25, 0.25 + 0.5 * 2 / 3, 0.25 + 0.5 / 3]
"""The scores that FakeServer gives the texts."""

Example = Callable[..., dict[str, Any]]
