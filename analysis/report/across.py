"""Several runs under conditions of the experiment on one page: a metric against a condition and against the round,
boxes, pivot tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from analysis.cells import Cells, cells, varied
from analysis.differences import notes_under_conditions
from analysis.figures import factor, rounds, spread
from analysis.figures._common import shared_metrics
from analysis.labels import Labels
from analysis.pivot import Pivot, pivot, sheet
from analysis.report.comparison import attacked, over_rounds
from analysis.report.page import Page, escape, write
from analysis.report.terms import explained
from analysis.runs import Run, names
from search_spaces.errors import UserError

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
    about = notes_under_conditions(found)
    for i, table in enumerate(tables):
        shown = [table.metric, *([table.bracket] if table.bracket else [])]
        terms = explained(page.told, shown, found.by, Labels.of(found.runs, markup=False))
        inner = sheet([table], notes=about if i == 0 else ()).html() + terms
        page.card(f"table-{i}", table.title, inner, "Tables" if i == 0 else "")
    boxes = spread.plot(spread.drawing(found, metrics), labels)
    page.figure("boxes", spread.FIGURE.title, boxes, spread.FIGURE.read, "Boxes")


def side_by_side(page: Page, runs: Sequence[Run]) -> None:
    """The head of a report of several runs: under conditions of the experiment where one of them varies any, else their
    curves over rounds and the paired tests."""
    page.add("<h1>Runs side by side</h1>")
    if varied(runs):
        _under_conditions(page, runs)
    else:
        over_rounds(page, runs)
    attacked(page, runs)


def _under_conditions(page: Page, runs: Sequence[Run]) -> None:
    """The figures and tables of these runs, or the sentences why they cannot be set side by side."""
    metrics = shared_metrics(runs)
    try:
        if not metrics:
            raise UserError(f"{', '.join(names(runs))} have no metric that each of them measured.")
        found = cells(runs, factor.conditions(runs), factor.variants(runs))
    except UserError as error:
        why = "".join(f"<p>{escape(problem)}</p>" for problem in error.problems)
        page.card("factor", factor.FIGURE.title, why, "Conditions")
        return
    there = {cell.run for cell in found.cells}
    if missing := [name for name in names(runs) if name not in there]:
        has = "has" if len(missing) == 1 else "have"
        page.add(f'<p class="notice">{escape(", ".join(missing))} {has} no completed trial yet.</p>')
    add(page, found, [pivot(found, metric) for metric in metrics])
