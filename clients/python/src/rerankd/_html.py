"""A ranking as HTML, for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rerankd.types import Ranking, Result

LONGEST = 160
CELL = 'style="text-align:left;vertical-align:top"'


def ranking(of: Ranking) -> str:
    """A table with a bar for each score, and the position bias below it."""
    heads = "".join(f"<th {CELL}>{head}</th>" for head in ("place", "score", "utility", "id", "passage"))
    body = "".join(_row(result) for result in of.results)
    caption = f"{len(of.results)} of {len(of.passages)} passages for <b>{escape(of.query)}</b>, by {escape(of.model)}"
    notes = "".join(f"<li>{escape(warning)}</li>" for warning in of.warnings)
    return (
        f'<div><div style="text-align:left">{caption}</div>'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
        f"{''.join(_bias(weights) for weights in of.position_bias)}{f'<ul>{notes}</ul>' if notes else ''}</div>"
    )


def _row(result: Result) -> str:
    error = f" ± {result.standard_error:.2f}" if result.standard_error is not None else ""
    signals = ", ".join(
        f"{name} {value:+.2f}"
        for name, value in (
            ("model", result.signals.model),
            ("embedding", result.signals.embedding),
            ("retriever", result.signals.source),
        )
        if value is not None
    )
    title = f"<b>{escape(_short(result.passage.title))}</b> " if result.passage.title else ""
    cells = (
        str(result.rank + 1),
        f'<span title="{escape(signals)}">{_bar(result.score)} {result.score:.3f}</span>',
        f"{result.utility:.2f}{error}",
        escape(result.id),
        title + escape(_short(result.text)),
    )
    return "<tr>" + "".join(f"<td {CELL}>{cell}</td>" for cell in cells) + "</tr>"


def _bias(weights: Iterable[float]) -> str:
    weights = tuple(weights)
    most = max(weights, default=0.0) or 1.0
    bars = "".join(
        f'<span title="position {at}: {weight:.3f}" style="display:inline-block;width:12px;margin-right:2px;'
        f'background:#8da0cb;height:{max(1, round(32 * weight / most))}px"></span>'
        for at, weight in enumerate(weights, 1)
    )
    return (
        f'<div style="text-align:left">position bias, prompts of {len(weights)} '
        f'<span style="display:inline-flex;align-items:flex-end;height:32px">{bars}</span></div>'
    )


def _bar(share: float) -> str:
    width = round(80 * min(1.0, max(0.0, share)))
    return f'<span style="display:inline-block;height:10px;background:#66c2a5;width:{width}px"></span>'


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
