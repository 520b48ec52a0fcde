"""A run's report: `build` reads the run directory and writes one offline page into it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from analysis.auto import Auto, load_one
from analysis.auto import explained as columns_explained
from analysis.labels import Labels
from analysis.next_commands import run_command
from analysis.report import sections, summary
from analysis.report.anonymous import anonymous as without_names
from analysis.report.anonymous import without_places
from analysis.report.comparison import side_by_side
from analysis.report.conditions import under_conditions
from analysis.report.page import Page, check_place, command, definition, escape, write
from analysis.report.terms import explained
from analysis.report.trials import details, trials_html, trials_table
from analysis.report.winner_card import no_result_card, winner_card
from analysis.runs import Paths, Run, load_runs, run_names
from analysis.runs.study import no_collection
from search_spaces import run_folder
from search_spaces.files import check_ending, shown
from search_spaces.shell import quote

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
    Raises `UserError` where a path is no run directory, `output` is none of a page or the page cannot be written."""
    if output is not None:
        check_place(Path(output))
        check_ending(Path(output), (".html", ".htm"), "-o")
    tell("reading the run")
    with no_collection():
        if (auto := load_one(run)) is not None:
            return _build_auto(auto, output, anonymous, tell)
        runs = load_runs(run)
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
    _auto_head(page, auto, auto.name if anonymous else shown(auto.path))
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
    page = Page(f"{run_names(runs)[0]} · fedtune" if len(runs) == 1 else f"{len(runs)} runs · fedtune")
    if len(runs) > 1:
        tell("comparing the runs")
        side_by_side(page, runs)
    for i, (run, name) in enumerate(zip(runs, run_names(runs), strict=True)):
        _run(page, run, name, "" if len(runs) == 1 else f"r{i + 1}-", tell)
    tell("writing the page")
    versions = runs[0].provenance.get("versions") or {}
    return page.html(
        f"Made by fedtune {versions.get('fedtune', '')} from {', '.join(run_names(runs))}. This page needs no network."
    )


def _run(page: Page, run: Run, name: str, prefix: str, tell: Tell) -> None:
    labels = Labels.of([run], markup=False)
    first = prefix == ""
    source = run.space.get("source")
    page.add(
        f'<h1 id="{prefix}run"{"" if first else " class=run-title"}>{escape(run.heading)}</h1>'
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
        (under_conditions if run.crossed else winner_card)(page, run, labels, prefix)
    else:
        no_result_card(page, run, labels, prefix)
    page.add(summary.facts(run, labels, page.told))
    sections.best_card(page, run, labels, prefix)
    skipped = sections.figure_cards(page, run, prefix, tell)
    page.tables[f"{prefix}trials"] = trials_table(run)
    page.details[prefix] = details(run, labels)
    page.card(f"{prefix}trials", "All trials", trials_html(run, f"{prefix}trials"), "Trials" if first else "")
    sections.failures_card(page, run, prefix)
    sections.provenance_card(page, run, prefix, skipped)


def _auto_head(page: Page, auto: Auto, folder: str) -> None:
    """Adds everything about all methods together: the leaderboard, budgets, expected bests, and what was left out.
    `folder` is the run's as a reader would type it."""
    record, leader = auto.record, auto.leader
    labels = Labels(markup=False)
    metric = labels.metric(auto.metric, unit=False)
    page.add(
        f'<h1 id="auto">{escape(_auto_title(auto))}</h1><p class="lead">Run <code>{escape(auto.name)}</code> · '
        f"{len(auto.searches)} method{'s' * (len(auto.searches) > 1)} · selected by {escape(metric)}</p>",
        "auto",
        "Auto",
    )
    if leader is None:
        page.add('<p class="notice">No trial has ended with all its rounds yet, so there is no leader.</p>')
    elif not auto.over:
        page.add('<p class="notice">The search, the fresh seeds or the final run have not ended yet.</p>')
    if not auto.over:
        page.add(f'{command(f"fedtune resume {quote(folder)}")}<p class="small">This goes on with what is missing.</p>')
    elif leader is not None:
        best = os.path.join(folder, run_folder.BEST, f"{leader}.yaml")
        why = "The next command trains the leader's best configuration on further seeds; its final run stands below."
        page.add(f'{command(run_command(best))}<p class="small">{escape(why)}</p>')
    said = "".join(f'<p class="small">{escape(line)}</p>' for line in columns_explained(auto))
    asked = [one.metric for run in auto.searches.values() for one in run.requirements]
    said += explained(page.told, [auto.metric, *asked])
    page.card("leaderboard", "Leaderboard", auto.table().html() + said, "Leaderboard")
    for name, figure in auto.drawable().items():
        page.figure(f"auto-{name}", figure.title, figure.draw(auto.rows, auto.metric), figure.read, figure.link)
    configurations = [(row.method, str(row.record()["configuration"])) for row in auto.rows if row.trial is not None]
    page.card("configurations", "Best configurations", definition(configurations), "Configurations")
    if auto.excluded:
        page.card("left-out", "Left out", definition(list(auto.excluded.items())), "Left out")
    shares = [
        ("search", f"{record.search_budget:.4g} {record.unit}"),
        ("fresh seeds", f"{record.fresh_budget:.4g} {record.unit}"),
        ("final run", f"{record.final_budget:.4g} {record.unit}"),
        ("compared at equal", record.cost),
        (
            "minimum of a method",
            "the same part for all" if record.equal else f"{record.least} trials of {record.rounds} rounds",
        ),
    ]
    costs = [
        (f"a trial of {item.name}", f"{item.costs[record.cost] * record.rounds:.4g} {record.cost}")
        for item in record.methods
    ]
    page.card("budget", "Planned budget", definition([*shares, *costs]), "")


def _auto_title(auto: Auto) -> str:
    if auto.leader is None:
        return "Search over several methods"
    leader, others = auto.rows[0], [row for row in auto.rows[1:] if row.fresh]
    if not leader.fresh or not others:
        return f"{leader.title} leads"
    told = ["all others"] if len(others) == len(auto.rows) - 1 else [row.title for row in others]
    *titles, last = [row.title for row in auto.tied] or told
    names = f"{', '.join(titles)} and {last}" if titles else last
    return f"{leader.title} leads, {'not ' * bool(auto.tied)}told from {names} on {len(leader.fresh)} fresh seeds"
