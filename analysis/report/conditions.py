"""The cards of a run under several conditions of the experiment: what is best under each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.labels import Labels, number, unit_in_files
from analysis.next_commands import export_command
from analysis.report.page import Page
from analysis.report.summary import spread
from analysis.report.terms import explained
from analysis.report.winner_card import NOT_TRIED, fresh, resume, stops, stops_cost, told, unfinished
from analysis.runs import Run
from analysis.runs.conditions import holds, named, show
from analysis.runs.final_runs import FinalRun, final_runs
from analysis.stats import summarise
from analysis.tables.table import Column, Table
from search_spaces import shell
from search_spaces.metrics import twin


def under_conditions(page: Page, run: Run, labels: Labels, prefix: str) -> None:
    """Adds the first card of a run under several conditions: its results, how sure they are, and what to do next."""
    table = by_condition(run, labels)
    if table.rows:
        title = "Best configuration under each condition" if run.keys else "Results under each condition"
        measured = [metric for metric in run.finals.columns if run.finals[metric].notna().any()]
        terms = explained(page.told, measured, (str(item["key"]) for item in run.varied), labels)
        inner = table.html() + terms + _told(run, labels)
        page.card(f"{prefix}conditions", title, inner, "Conditions" if not prefix else "")


def by_condition(run: Run, labels: Labels) -> Table:
    """A row per condition that has a completed trial: the best trial's values, its estimate, and its results."""
    varied = [str(item["key"]) for item in run.varied]
    selected, tested = run.metrics[0], twin(run.metrics[0])
    rows = []
    for condition, part, best in _best_of_each(run):
        said = part.estimate
        row = {key: number(condition.get(key)) for key in varied}
        row |= {key: number(part.parameters(best).get(key)) for key in run.keys}
        row |= {metric: _result(part, metric, labels) for metric in (selected, tested)}
        row["interval"] = "–" if said is None else _interval(labels, selected, said.low, said.high)
        row["tied"] = "–" if said is None else f"{len(said.tied)} of {said.configurations}"
        rows.append(row | {"trial": best})
    columns = [Column(key, labels.symbol(key), str) for key in (*varied, *run.keys)]
    columns += [Column(m, labels.metric(m, split=True, unit=False), str) for m in dict.fromkeys((tested, selected))]
    if run.keys:
        columns.append(Column("interval", "90 % interval of its mean", str))
        columns.append(Column("tied", "not told from the best", str))
    return Table([*columns, Column("trial", "trial")], rows, notes=_notes(run, labels, selected))


def conditions_recorded(run: Run, labels: Labels) -> Table:
    """The same for files: every number by itself and as recorded, so that accuracies are fractions."""
    varied = [str(item["key"]) for item in run.varied]
    metrics = list(dict.fromkeys((twin(run.metrics[0]), run.metrics[0])))
    rows = []
    for condition, part, best in _best_of_each(run):
        values, said = part.parameters(best), part.estimate
        row = {key: condition.get(key) for key in varied} | {key: values.get(key) for key in run.keys}
        for metric in metrics:
            over = summarise(list(part.over_seeds(metric).values()))
            row |= {metric: over.mean, f"{metric}:std": over.std}
        if said is not None:
            row |= {"low": said.low, "high": said.high, "tied": len(said.tied), "configurations": said.configurations}
        rows.append(row | {"trial": best})
    columns = [Column(key, labels.symbol(key)) for key in (*varied, *run.keys)]
    for metric in metrics:
        columns += [Column(key, key, unit=unit_in_files(metric)) for key in (metric, f"{metric}:std")]
    if run.keys:
        columns += [Column(key, key, unit=unit_in_files(run.metrics[0])) for key in ("low", "high")]
        columns += [Column(key, key) for key in ("tied", "configurations")]
    return Table([*columns, Column("trial", "trial")], rows)


def _best_of_each(run: Run) -> Iterator[tuple[Mapping[str, Any], Run, int]]:
    """Every condition that has a completed trial, the part of the run under it, and the best trial there."""
    for condition in run.conditions:
        part = run.within(condition)
        if part.best is not None:
            yield condition, part, part.best


def _notes(run: Run, labels: Labels, selected: str) -> list[str]:
    notes = ["Conditions are not compared: under one the data may just be easier than under another."]
    if run.keys:
        by = labels.metric(selected, split=True, unit=False)
        notes.append(
            f"The best one is chosen by its estimate of {by}, and the interval is that of its mean over all seeds. "
            "Behind it stands how many configurations cannot be told from the best, itself included."
        )
    return notes


def _result(part: Run, metric: str, labels: Labels) -> str:
    values = part.over_seeds(metric)
    return spread(labels, metric, values) if values else "–"


def _interval(labels: Labels, metric: str, low: float, high: float) -> str:
    return f"{labels.shown(metric, low)} to {labels.shown(metric, high)}"


def _told(run: Run, labels: Labels) -> str:
    """What is known of the best ones on fresh seeds, what was stopped early and what that cost, and the next command;
    nothing of a final run."""
    if run.kind == "run":
        return ""
    finals = _finals(run)
    parts = [(condition_title(labels, condition), run.within(condition)) for condition in run.conditions]
    known = [
        f"{title}: {line}"
        for (title, part), mine in zip(parts, finals, strict=True)
        for line in fresh(part, labels, mine)
    ]
    lacking = [title for (title, part), mine in zip(parts, finals, strict=True) if part.best is not None and not mine]
    if known and lacking:
        known.append(f"Not tried yet: {'; '.join(lacking)}.")
    cost = [f"{title}: {line}" for title, part in parts for line in stops_cost(part)]
    rows = [("On fresh seeds", known or [NOT_TRIED]), ("Stopped early", [*stops(run), *cost])]
    return told(rows, next_under_conditions(run, finals))


def _finals(run: Run) -> list[list[FinalRun]]:
    """The final runs of the search, by condition."""
    every = final_runs(run)
    return [
        [final for final in every if holds(condition, run.trial(final.trial).params)] for condition in run.conditions
    ]


def next_under_conditions(run: Run, finals: Sequence[Sequence[FinalRun]]) -> tuple[str, str]:
    """The command that a reader should give next, and why. `finals`: the final runs by condition."""
    if unfinished(run):
        return resume(run)
    shown = []
    for place, (condition, mine) in enumerate(zip(run.conditions, finals, strict=True), start=1):
        best = run.within(condition).best
        of_best = [final.run.shown for final in mine if final.trial == best]
        if best is not None and not of_best:
            chosen = [word for key, value in condition.items() for word in ("--where", f"{key}={show(value)}")]
            why = (
                "A search flatters what it chooses. Final numbers come from seeds that it never saw; this trains the "
                f"best configuration of {named(condition)}."
            )
            return export_command(run.shown, *chosen, output=f"best-{place}.yaml"), why
        shown += of_best[:1]
    by = [word for item in run.varied for word in ("--by", str(item["key"]))]
    return (
        shell.join(["fedtune", "compare", *shown, *by]),
        "The best configuration of every condition has been trained on fresh seeds; this sets them side by side.",
    )


def condition_title(labels: Labels, condition: Mapping[str, Any]) -> str:
    """`ω = 0.1, digits` for a heading."""
    return ", ".join(f"{labels.symbol(key)} = {number(value)}" for key, value in condition.items())
