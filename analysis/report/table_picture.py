"""A table with labels on several levels as a picture, in the manner of papers: lines above and below, none between
columns. Positions are pixels, and widths are those that the text takes in a wide font, so that nothing overlaps."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go

from analysis import style
from analysis.labels import text
from analysis.tables.typesetting import TextCell, TextTable

#: Of the text, and how wide a character of it is at most on average.
SIZE, CHARACTER = 13, 8.4
#: The same of the notes.
SMALL, NARROW = 11, 7.0
#: Heights of a line in a cell and of a note, what is left and right of a column's text, and the margin around all.
LINE, NOTE, PAD, MARGIN = 20, 17, 11, 14
#: A picture broader than this has what is in brackets below the value.
BROAD = 1000
#: And it is at least so broad, so that its title and notes can be read.
LEAST = 720


@dataclass(frozen=True)
class _Plan:
    """Where everything stands: right edges of the columns, those before the rows first."""

    edges: Sequence[float]
    #: Whether brackets have lines of their own.
    stacked: bool

    def column(self, position: int) -> tuple[float, float]:
        """Left and right edge."""
        return self.edges[position], self.edges[position + 1]


@dataclass(frozen=True)
class _Drawn:
    """The texts and the lines, as Plotly's annotations and shapes."""

    texts: list[dict[str, Any]] = field(default_factory=list)
    rules: list[dict[str, Any]] = field(default_factory=list)


def text_table_picture(table: TextTable) -> go.Figure:
    """The table as a figure of its own size."""
    plan = _plan(table, stacked=False)
    if plan.edges[-1] > BROAD and any(shown.bracket for line in table.cells for shown in line):
        plan = _plan(table, stacked=True)
    drawn = _Drawn()
    width = max(LEAST, plan.edges[-1] + MARGIN)
    y = _paragraphs(drawn, [f"<b>{text(line)}</b>" for line in _wrapped(table.title, width, CHARACTER)], MARGIN, LINE)
    y = _head(drawn, table, plan, y + 6)
    y = _body(drawn, table, plan, y)
    notes = [text(line) for note in table.notes for line in _wrapped(note, width, NARROW)]
    y = _paragraphs(drawn, notes, y + 8, NOTE, small=True)
    figure = style.base(go.Figure())
    # At once: Plotly looks at all that are there whenever one is added.
    figure.update_layout(
        annotations=drawn.texts,
        shapes=drawn.rules,
        width=round(width),
        height=round(y + MARGIN),
        margin={"l": 0, "r": 0, "t": 0, "b": 0},
        xaxis={"visible": False, "range": [0, width], "fixedrange": True},
        yaxis={"visible": False, "range": [y + MARGIN, 0], "fixedrange": True},
    )
    return figure


def _plan(table: TextTable, *, stacked: bool) -> _Plan:
    """Columns as broad as their text, and those below a broad label as broad as it together."""
    count = len(table.sides)
    widths = [_broad([side, *(row[i] for row in table.rows)]) for i, side in enumerate(table.sides)] + [
        _broad([column[-1], *(line for cells in table.cells for line in _lines(cells[i], stacked))])
        for i, column in enumerate(table.columns)
    ]
    for labels in table.head()[:-1]:
        start = count
        for label, span in labels:
            lacking = _broad([label]) - sum(widths[start : start + span])
            for i in range(start, start + span):
                widths[i] += max(0.0, lacking / span)
            start += span
    edges = [float(MARGIN)]
    for width in widths:
        edges.append(edges[-1] + width)
    return _Plan(edges, stacked)


def _broad(texts: Sequence[str]) -> float:
    return CHARACTER * max(map(len, texts)) + 2 * PAD


def _lines(shown: TextCell, stacked: bool) -> list[str]:
    return [part for part in (shown.value, shown.bracket) if part] if stacked else [shown.text]


def _head(drawn: _Drawn, table: TextTable, plan: _Plan, y: float) -> float:
    """The lines above the columns from `y` on; returns where they end."""
    count, right = len(table.sides), plan.edges[-1]
    _rule(drawn, plan.edges[0], right, y, 1.6)
    levels = table.head()
    for level, labels in enumerate(levels):
        last, start, middle = level == len(levels) - 1, count, y + LINE / 2 + 3
        for label, span in labels:
            low, high = plan.edges[start], plan.edges[start + span]
            _write(drawn, f"<b>{text(label)}</b>", (low + high) / 2, middle, "center")
            if not last:
                _rule(drawn, low + PAD / 2, high - PAD / 2, y + LINE + 5, 0.8)
            start += span
        if last:
            for i, side in enumerate(table.sides):
                _write(drawn, f"<b>{text(side)}</b>", plan.edges[i] + PAD, middle, "left")
        y += LINE + 6
    _rule(drawn, plan.edges[0], right, y, 1.0)
    return y


def _body(drawn: _Drawn, table: TextTable, plan: _Plan, y: float) -> float:
    """The rows from `y` on; returns where they end."""
    count, right = len(table.sides), plan.edges[-1]
    for position, (cells, before) in enumerate(zip(table.cells, table.before(), strict=True)):
        if count > 1 and position and before[0][1]:
            _rule(drawn, plan.edges[0], right, y + 1, 0.5)
        tall = max(len(_lines(shown, plan.stacked)) for shown in cells)
        for i, (label, span) in enumerate(before):
            if span:
                _write(drawn, text(label), plan.edges[i] + PAD, y + LINE / 2 + 3, "left")
        for i, shown in enumerate(cells):
            low, high = plan.column(count + i)
            mark: Callable[[str], str] = _bold if shown.best else _under if shown.tied else str
            for down, line in enumerate(_lines(shown, plan.stacked)):
                _write(drawn, mark(text(line)), (low + high) / 2, y + LINE * (down + 0.5) + 3, "center")
        y += LINE * tall + 6
    _rule(drawn, plan.edges[0], right, y, 1.6)
    return y


def _paragraphs(drawn: _Drawn, lines: Sequence[str], y: float, height: float, *, small: bool = False) -> float:
    for line in lines:
        _write(drawn, line, MARGIN, y + height / 2, "left", small=small)
        y += height
    return y


def _wrapped(raw: str, width: float, character: float) -> Iterator[str]:
    yield from textwrap.wrap(raw, max(20, int((width - 2 * MARGIN) / character)))


def _write(drawn: _Drawn, shown: str, x: float, y: float, anchor: str, *, small: bool = False) -> None:
    font = {"size": SMALL if small else SIZE, "color": style.MUTED if small else style.INK}
    place = {"x": x, "y": y, "xref": "x", "yref": "y", "xanchor": anchor, "yanchor": "middle"}
    drawn.texts.append({"text": shown, **place, "showarrow": False, "borderpad": 0, "font": font})


def _rule(drawn: _Drawn, left: float, right: float, y: float, width: float) -> None:
    line = {"color": style.INK, "width": width}
    drawn.rules.append({"type": "line", "x0": left, "x1": right, "y0": y, "y1": y, "line": line})


def _bold(shown: str) -> str:
    return f"<b>{shown}</b>"


def _under(shown: str) -> str:
    return f"<u>{shown}</u>"
