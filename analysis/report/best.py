"""The card of the best configuration: its values, its results, and how to run it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analysis.again import export_command
from analysis.labels import Labels, number, size
from analysis.report.page import Page, command, definition, escape, html_table
from analysis.report.terms import explained
from analysis.report.values import one_line, trials_named
from analysis.runs import Run
from analysis.stats import summarise
from analysis.tables import Column, Table


def best(page: Page, run: Run, labels: Labels, prefix: str) -> None:
    """Adds the card, where there is a best configuration."""
    if run.best is None:
        return
    measured = _measured(run)
    seeds = len(run.over_seeds(measured[0])) if measured else 0
    over = f"mean{' ± standard deviation' if seeds > 1 else ''} over {seeds} seed{'s' if seeds != 1 else ''}"
    results = f'<p class="small">Last round, {over}</p>{_results(run, labels, measured)}'
    results += explained(page.told, measured) + _traffic(run) + _required(run)
    settings = _searched(run, run.best, labels) + _fixed(run, run.best)
    columns = f'<div class="two"><div>{settings}</div><div>{results}</div></div>'
    if run.kind == "run":
        title = "Configuration"
    else:
        title = f"{'Best' if len(run.directions) == 1 else 'A best'} configuration: {trials_named(run)}"
    page.card(f"{prefix}best", title, columns + _again(run), "Best" if not prefix else "")


def _searched(run: Run, trial: int, labels: Labels) -> str:
    """The searched parameters: their values, where they were searched, and what they mean."""
    values = run.parameters(trial)
    known = {item["key"]: item for item in run.searched}
    rows = [
        {
            "parameter": labels.parameter(key),
            "value": values[key],
            "searched": _range(known.get(key, {}), run.sampler),
            "meaning": _meaning(known.get(key, {})),
        }
        for key in run.keys
        if key in values
    ]
    columns = [
        Column("parameter", "parameter", right=False),
        Column("value", "value"),
        Column("searched", "searched", str),
        Column("meaning", "meaning", str, right=False),
    ]
    return html_table(Table(columns, rows)) if rows else ""


def _meaning(item: Mapping[str, Any]) -> str:
    source = f"({item['source']})" if item.get("source") else ""
    return " ".join(filter(None, [item.get("doc"), source]))


def _range(item: Mapping[str, Any], sampler: str) -> str:
    if item.get("grid") and (sampler == "grid" or item.get("options")):
        return ", ".join(number(v) for v in item["grid"])
    if item.get("options"):
        return ", ".join(map(str, item["options"]))
    if item.get("low") is not None and item.get("high") is not None:
        return f"{number(item['low'])} to {number(item['high'])}" + (", log" if item.get("log") else "")
    return "yes, no" if item.get("kind") == "flag" else ""


def _fixed(run: Run, trial: int) -> str:
    """Every other setting of the trial, folded away."""
    values = run.parameters(trial)
    rest = {k: number(v, 6) for k, v in sorted(run.config(trial).items()) if k not in values}
    if not rest:
        return ""
    return f"<details><summary>{len(rest)} further settings</summary>{definition(rest)}</details>"


def _measured(run: Run) -> list[str]:
    """The metrics to show: what was selected on, then accuracies and fairness, as far as they were measured."""
    shown = ("val_global_accuracy", "global_accuracy", "val_local_accuracy", "local_accuracy", "amp", "wlp", "fm")
    last = run.finals
    return [m for m in dict.fromkeys([*run.metrics, *shown]) if m in last.columns and run.over_seeds(m)]


def _results(run: Run, labels: Labels, measured: Sequence[str]) -> str:
    rows = []
    for metric in measured:
        selected = " · selected on" if metric in run.metrics and run.kind != "run" else ""
        scale = labels.scale(metric)
        value = summarise(list(run.over_seeds(metric).values())).shown(scale, 2 if scale == 100 else 4)
        rows.append((labels.metric(metric, split=True) + selected, value))
    return definition(rows)


def _required(run: Run) -> str:
    """Whether it keeps what was required."""
    said = "".join(f"<p>{escape(one.sentence())}</p>" for one in run.kept)
    return f"<h3>What was required</h3>{said}" if said else ""


def _traffic(run: Run) -> str:
    """What crossed the wire in all rounds, on average over the seeds."""
    mine = run.rounds[run.rounds["trial"].isin(run.chosen)]
    if not {"bytes_up", "bytes_down"} <= set(mine.columns) or mine.empty:
        return ""
    sums = mine.groupby(["trial", "seed"])[["bytes_up", "bytes_down"]].sum().mean()
    up, down = size(float(sums["bytes_up"])), size(float(sums["bytes_down"]))
    return f'<p class="small">Sent in all rounds of one seed: {up} by the clients, {down} by the server.</p>'


def _again(run: Run) -> str:
    """How a final run was made, or how to make one of this search."""
    if run.kind == "run":
        line = one_line(run.provenance.get("command") or "fedtune run best.yaml", "command")
        return "<h3>How it was run</h3>" + command(line)
    why = '<p class="small">Final numbers come from seeds the search never saw.</p>'
    return "<h3>Run it again on fresh seeds</h3>" + command(export_command(run.shown)) + why
