"""Several runs on one page.

Under conditions of the experiment these are a metric against a condition and against the round, boxes, and pivot
tables; else the runs' curves, with the numbers and paired tests beneath.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from analysis.figures import factor, figure, rounds, spread
from analysis.figures._common import shared_metrics
from analysis.labels import Labels
from analysis.report.page import Page, escape, write
from analysis.report.terms import KEYS, explained
from analysis.runs import Run, run_names
from analysis.tables.cells import Cells, cells, varied
from analysis.tables.compare import Comparison, compare
from analysis.tables.differences import notes_under_conditions
from analysis.tables.pivot import Pivot, pivot, printed
from search_spaces.errors import UserError

TITLE = "Runs under conditions"


def side_by_side(page: Page, runs: Sequence[Run]) -> None:
    """The head of a report of several runs: under conditions of the experiment where one of them varies any, else their
    curves over rounds and the paired tests."""
    page.add("<h1>Runs side by side</h1>")
    if varied(runs):
        _under_conditions(page, runs)
    else:
        _over_rounds(page, runs)
    _add_attack(page, runs)


def write_page(found: Cells, tables: Sequence[Pivot], output: str | os.PathLike[str]) -> Path:
    """Writes one offline page with the figures and the tables of these cells; returns its path."""
    page = Page(TITLE)
    page.add(f'<h1>{TITLE}</h1><p class="lead">{escape(", ".join(run_names(found.runs)))}</p>')
    _add_conditions(page, found, tables)
    _add_attack(page, found.runs)
    return write(Path(output), page.html())


def _add_conditions(page: Page, found: Cells, tables: Sequence[Pivot]) -> None:
    """Adds the figures and the tables."""
    labels, metrics = Labels.of(found.runs), [table.metric for table in tables]
    drawn = factor.drawing(found, metrics)
    if len(drawn.values) > 1:
        figure, card = factor.plot(drawn, labels), factor.FIGURE
        page.figure("factor", card.title, figure, card.read, "Figure")
    drawn_rounds = rounds.drawing(found, metrics)
    if drawn_rounds.panels:
        curves = rounds.FIGURE
        page.figure("rounds", curves.title, rounds.plot(drawn_rounds, labels), curves.read, "Curves")
    about = notes_under_conditions(found)
    for i, table in enumerate(tables):
        shown = [table.metric, *([table.bracket] if table.bracket else [])]
        terms = explained(page.told, shown, found.by, Labels.of(found.runs, markup=False))
        inner = printed([table], notes=about if i == 0 else ()).html() + terms
        page.card(f"table-{i}", table.title, inner, "Tables" if i == 0 else "")
    boxes = spread.plot(spread.drawing(found, metrics), labels)
    page.figure("boxes", spread.FIGURE.title, boxes, spread.FIGURE.read, "Boxes")


def _under_conditions(page: Page, runs: Sequence[Run]) -> None:
    """The figures and tables of these runs, or the sentences why they cannot be set side by side."""
    metrics = shared_metrics(runs)
    try:
        if not metrics:
            raise UserError(f"{', '.join(run_names(runs))} have no metric that each of them measured.")
        found = cells(runs, factor.conditions(runs), factor.variants(runs))
    except UserError as error:
        why = "".join(f"<p>{escape(problem)}</p>" for problem in error.problems)
        page.card("factor", factor.FIGURE.title, why, "Conditions")
        return
    there = {cell.run for cell in found.cells}
    if missing := [name for name in run_names(runs) if name not in there]:
        has = "has" if len(missing) == 1 else "have"
        page.add(f'<p class="notice">{escape(", ".join(missing))} {has} no completed trial yet.</p>')
    _add_conditions(page, found, [pivot(found, metric) for metric in metrics])


def write_figure(comparison: Comparison, output: str | os.PathLike[str]) -> Path:
    """Writes one offline page with the runs' curves and below them the table of `comparison`; returns its path."""
    page = Page("Runs side by side")
    page.add(f'<h1>Runs side by side</h1><p class="lead">{escape(", ".join(run_names(comparison.runs)))}</p>')
    _curves(page, comparison.runs, "Curves", comparison.metrics)
    _numbers(page, comparison)
    _add_attack(page, comparison.runs)
    return write(Path(output), page.html())


def _over_rounds(page: Page, runs: Sequence[Run]) -> None:
    """Adds the curves and the numbers of runs with one chosen configuration each, or why there are none."""
    if _curves(page, runs) and all(run.best is not None for run in runs):
        _numbers(page, compare(runs))


def _add_attack(page: Page, runs: Sequence[Run]) -> None:
    """Adds what attacks rebuilt of clients' images, where runs were attacked."""
    found = figure("attack")
    if found.needs(runs) is None:
        page.figure("attack", found.title, found.draw(runs, Labels.of(runs)), found.read, "Attack")


def _curves(page: Page, runs: Sequence[Run], section: str = "", metrics: Sequence[str] = ()) -> bool:
    """Adds the overlaid curves of these metrics (of the accuracies where none are given), or the sentence why they
    cannot be drawn; whether they were drawn."""
    curves = figure("rounds")
    try:
        reason = curves.needs(runs)
        drawn = None if reason is not None else curves.draw(runs, Labels.of(runs), metrics)
    except UserError as error:
        reason, drawn = " ".join(error.problems), None
    if drawn is None:
        page.card("rounds", curves.title, f"<p>{escape(str(reason))}</p>", section)
        return False
    page.figure("rounds", curves.title, drawn, curves.read, "Curves")
    return True


def _numbers(page: Page, comparison: Comparison) -> None:
    for name, table in (
        ("numbers", comparison.table()),
        ("tests", comparison.tests()),
        ("settings", comparison.settings()),
    ):
        if table is None:
            continue
        differing = [key for key in comparison.differences() if key in KEYS] if name == "settings" else []
        terms = explained(page.told, comparison.metrics, differing)
        page.card(name, table.title, table.html() + terms, name.capitalize())
