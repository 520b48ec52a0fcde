"""A run's report: `build` reads the run directory and writes one offline page into it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from analysis.auto import Auto, load_one
from analysis.labels import Labels
from analysis.report import sections, summary
from analysis.report.across import side_by_side
from analysis.report.anonymous import anonymous as without_names
from analysis.report.anonymous import without_places
from analysis.report.answer import answer
from analysis.report.auto import head
from analysis.report.best import best
from analysis.report.conditions import condition_title, under_conditions, what_changes
from analysis.report.details import details
from analysis.report.nothing import nothing
from analysis.report.page import Page, escape, write
from analysis.report.stopping import stopping
from analysis.report.trials import trials_html, trials_table
from analysis.runs import Paths, Run, load_all, names
from analysis.runs.study import no_collection
from search_spaces import run_folder
from search_spaces.files import shown

#: Called with a few words on what is being done.
Tell = Callable[[str], object]


def build(
    run: Paths,
    output: str | os.PathLike[str] | None = None,
    *,
    anonymous: bool = False,
    tell: Tell = lambda doing: None,
) -> Path:
    """Writes the report of one run (or of several, one below the other, after a comparison) and returns its path.

    With `anonymous` it names neither the machine nor its system, the command line, addresses or paths. `tell` is called
    with a few words before every step.

    Without `output` it is `report.html` in the run directory; for several runs, in the folder that holds the first.
    Raises `UserError` where a path is no run directory or the page cannot be written."""
    tell("reading the run")
    with no_collection():
        if (auto := load_one(run)) is not None:
            return _build_auto(auto, output, anonymous, tell)
        runs = load_all(run)
        target = (
            Path(output)
            if output is not None
            else (runs[0].path if len(runs) == 1 else runs[0].path.parent) / run_folder.REPORT
        )
        return write(target, document([without_names(one) for one in runs] if anonymous else runs, tell))


#: `fedtune.report`.
report = build


def _build_auto(auto: Auto, output: str | os.PathLike[str] | None, anonymous: bool, tell: Tell) -> Path:
    """The report of a search over several methods: the leaderboard, then the leader's final run and every search."""
    target = auto.path / run_folder.REPORT if output is None else Path(output)
    if anonymous:  # the reasons why methods were left out may name paths
        auto = dataclasses.replace(auto, record=without_places(auto.record))
    page = Page(f"{auto.name} · fedtune")
    head(page, auto, auto.name if anonymous else shown(auto.path))
    parts = {row.method: auto.searches[row.method] for row in auto.rows}
    if auto.final is not None:
        parts = {f"final run of {auto.leader}": auto.final} | parts
    for i, (name, run) in enumerate(parts.items()):
        _run(page, without_names(run) if anonymous else run, name, f"r{i + 1}-", tell)
    versions = next(iter(auto.searches.values())).provenance.get("versions") or {}
    return write(
        target,
        page.html(f"Made by fedtune {versions.get('fedtune', '')} from {auto.name}. This page needs no network."),
    )


def document(runs: Sequence[Run], tell: Tell = lambda doing: None) -> str:
    """The report's HTML."""
    page = Page(f"{names(runs)[0]} · fedtune" if len(runs) == 1 else f"{len(runs)} runs · fedtune")
    if len(runs) > 1:
        tell("comparing the runs")
        side_by_side(page, runs)
    for i, (run, name) in enumerate(zip(runs, names(runs), strict=True)):
        _run(page, run, name, "" if len(runs) == 1 else f"r{i + 1}-", tell)
    tell("writing the page")
    versions = runs[0].provenance.get("versions") or {}
    return page.html(
        f"Made by fedtune {versions.get('fedtune', '')} from {', '.join(names(runs))}. This page needs no network."
    )


def _run(page: Page, run: Run, name: str, prefix: str, tell: Tell) -> None:
    labels = Labels.of([run], markup=False)
    first = prefix == ""
    source = run.space.get("source")
    page.add(
        f'<h1 id="{prefix}run"{"" if first else " class=run-title"}>{escape(run.method_title)}: '
        f"{escape(run.title)}</h1>"
        + f'<p class="lead">Run <code>{escape(name)}</code>'
        + (f" · space: {escape(source)}" if source else "")
        + f" · {'final runs' if run.kind == 'run' else summary.searched(run, labels)}</p>",
        f"{prefix}run",
        "" if first else name,
    )
    for text in summary.notices(run):
        page.add(f'<p class="notice">{escape(text)}</p>')
    tell(f"estimating the winner of {name}")
    # Under several conditions there is no winner of all.
    if run.ranked:
        (under_conditions if run.crossed else answer)(page, run, labels, prefix)
    else:
        nothing(page, run, prefix)
    page.add(summary.facts(run, labels, page.told))
    best(page, run, labels, prefix)
    what_changes(page, run, labels, prefix)
    for condition in run.conditions:
        part = run.within(condition) if run.crossed else run
        stopping(page, part, labels, prefix, condition_title(labels, condition) if run.crossed else "")
    skipped = sections.figure_cards(page, run, prefix, tell)
    sections.published(page, run, prefix)
    page.tables[f"{prefix}trials"] = trials_table(run)
    page.details[prefix] = details(run, labels)
    page.card(f"{prefix}trials", "All trials", trials_html(run, f"{prefix}trials"), "Trials" if first else "")
    sections.failures(page, run, prefix)
    sections.provenance(page, run, prefix, skipped)
