"""Several runs under conditions of the experiment on one page: a metric against a condition and against the round,
boxes, pivot tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from analysis.cells import Cells
from analysis.figures import factor, rounds, spread
from analysis.labels import Labels
from analysis.pivot import Pivot
from analysis.report.comparison import attacked
from analysis.report.page import Page, escape, write
from analysis.runs import names

TITLE = "Runs under conditions"


def write_page(found: Cells, tables: Sequence[Pivot], output: str | os.PathLike[str]) -> Path:
    """Writes one offline page with the figures and the tables of these cells; returns its path."""
    page = Page(TITLE)
    page.add(f'<h1>{TITLE}</h1><p class="lead">{escape(", ".join(names(found.runs)))}</p>')
    add(page, found, tables)
    attacked(page, found.runs)
    return write(Path(output), page.html())


def add(page: Page, found: Cells, tables: Sequence[Pivot]) -> None:
    """Adds the figures and the tables."""
    labels, metrics = Labels.of(found.runs), [table.metric for table in tables]
    drawn = factor.drawing(found, metrics)
    if len(drawn.values) > 1:
        figure, card = factor.plot(drawn, labels), factor.FIGURE
        page.figure("factor", card.title, figure, card.read, "Figure")
    over_rounds = rounds.drawing(found, metrics)
    if over_rounds.panels:
        curves = rounds.FIGURE
        page.figure("rounds", curves.title, rounds.plot(over_rounds, labels), curves.read, "Curves")
    for i, table in enumerate(tables):
        page.card(f"table-{i}", table.title, table.html(), "Tables" if i == 0 else "")
    boxes = spread.plot(spread.drawing(found, metrics), labels)
    page.figure("boxes", spread.FIGURE.title, boxes, spread.FIGURE.read, "Boxes")
