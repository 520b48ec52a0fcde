"""Several runs on one page: their curves overlaid, the numbers and paired tests beneath."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from analysis.compare import Comparison, compare
from analysis.figures import figure, methods
from analysis.labels import Labels
from analysis.report.page import Page, escape, html_table, write
from analysis.report.terms import KEYS, explained
from analysis.runs import Run, names


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
    if _curves(page, runs):
        _numbers(page, compare(runs))


def attacked(page: Page, runs: Sequence[Run]) -> None:
    """Adds what attacks rebuilt of clients' images, where runs were attacked."""
    found = figure("attack")
    if found.needs(runs) is None:
        page.figure("attack", found.title, found.draw(runs, Labels.of(runs)), found.read, "Attack")


def _curves(page: Page, runs: Sequence[Run], section: str = "", metrics: Sequence[str] = ()) -> bool:
    """Adds the overlaid curves of these metrics (of the accuracies where none are given), or the sentence why they
    cannot be drawn; whether they were drawn."""
    curves = figure("methods")
    reason = curves.needs(runs)
    if reason is None and not methods.shared_metrics(runs, metrics):
        reason = f"Not every run measured {' and '.join(metrics)}, so there are no curves to lay over each other."
    if reason is not None:
        page.card("methods", curves.title, f"<p>{escape(reason)}</p>", section)
        return False
    page.figure(
        "methods", curves.title, methods.plot(methods.data(runs, metrics), Labels.of(runs)), curves.read, "Curves"
    )
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
