"""Several runs on one page: their curves overlaid, the numbers and paired tests beneath."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from analysis.compare import Comparison, compare
from analysis.figures import figure
from analysis.labels import Labels
from analysis.report.page import Page, escape, html_table, write
from analysis.report.terms import KEYS, explained
from analysis.runs import Run, names
from search_spaces.errors import UserError


def write_figure(comparison: Comparison, output: str | os.PathLike[str]) -> Path:
    """Writes one offline page with the runs' curves and below them the table of `comparison`; returns its path."""
    page = Page("Runs side by side")
    page.add(f'<h1>Runs side by side</h1><p class="lead">{escape(", ".join(names(comparison.runs)))}</p>')
    _curves(page, comparison.runs, "Curves", comparison.metrics)
    _numbers(page, comparison)
    attacked(page, comparison.runs)
    return write(Path(output), page.html())


def over_rounds(page: Page, runs: Sequence[Run]) -> None:
    """Adds the curves and the numbers of runs with one chosen configuration each, or why there are none."""
    if _curves(page, runs) and all(run.best is not None for run in runs):
        _numbers(page, compare(runs))


def attacked(page: Page, runs: Sequence[Run]) -> None:
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
        page.card(name, table.title, html_table(table) + terms, name.capitalize())
