"""The cards of one run's report below its summary: the best configuration, the figures, the paper's
numbers, what failed, and where the run was made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from analysis import style
from analysis.figure import Figure
from analysis.figures import figures
from analysis.labels import Labels, number, size
from analysis.next_commands import export_command
from analysis.report.conditions import condition_title
from analysis.report.page import Page, command, definition, escape
from analysis.report.terms import explained
from analysis.runs import Run, when
from analysis.runs.race import trials_named
from analysis.stats import summarise
from analysis.tables.table import Column, Table
from search_spaces import run_folder, shell

#: A figure that is drawn for each condition by itself is drawn for so many at most.
CONDITIONS = 6


def best_card(page: Page, run: Run, labels: Labels, prefix: str) -> None:
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
        title = f"{'Best' if len(run.directions) == 1 else 'A best'} configuration: {trials_named(run.chosen)}"
    page.card(f"{prefix}best", title, columns + _again(run), "Best" if not prefix else "")


def _searched(run: Run, trial: int, labels: Labels) -> str:
    """The searched parameters: their values, where they were searched, and what they mean."""
    values = run.parameters(trial)
    known = {item["key"]: item for item in run.searched}
    rows = "".join(
        f'<tr><th scope="row">{escape(labels.parameter(key))}<small>{escape(_meaning(known.get(key, {})))}</small></th>'
        f'<td class="n">{escape(number(values[key]))}</td>'
        f"<td>{escape(_range(known.get(key, {}), run.record.sampler))}</td></tr>"
        for key in run.keys
        if key in values
    )
    head = '<th scope="col">parameter</th><th scope="col" class="n">value</th><th scope="col">searched</th>'
    table = f'<table class="settings"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<div class="scroll">{table}</div>' if rows else ""


def _meaning(item: Mapping[str, Any]) -> str:
    source = f"({item['source']})" if item.get("source") else ""
    return " ".join(filter(None, [item.get("doc"), source]))


def _range(item: Mapping[str, Any], sampler: str) -> str:
    if item.get("grid") and (sampler == "grid" or item.get("options") or item.get("only")):
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


def figure_cards(page: Page, run: Run, prefix: str, tell: Callable[[str], object]) -> list[tuple[str, str]]:
    """Draws every figure that can be drawn, after the search's surface those that the space names, and calls `tell`
    with each; returns (title, reason) of the others."""
    known = {n: f for n, f in figures().items() if not f.many}
    asked = [n for n in run.space.get("figures") or [] if n in known]
    skipped = []
    for name in dict.fromkeys(["surface", *asked, *known]):
        if f"{prefix}{name}" in page.figures:
            continue  # the first card has it
        figure = known[name]
        tell(f"drawing {figure.title}")
        if run.crossed and not figure.across:
            skipped += _by_condition(page, run, name, figure, prefix)
            continue
        reason = figure.needs([run])
        if reason is not None:
            skipped.append((figure.title, reason))
            continue
        drawn = figure.draw([run], Labels.of([run]))
        page.figure(f"{prefix}{name}", figure.title, drawn, figure.read, "" if prefix else _link(name))
    return skipped


def _by_condition(page: Page, run: Run, name: str, figure: Figure[Any], prefix: str) -> list[tuple[str, str]]:
    """Draws a figure for each condition of the experiment by itself; returns (title, reason) where none can be."""
    labels, parts = Labels.of([run], markup=False), [(c, run.within(c)) for c in run.conditions[:CONDITIONS]]
    reasons = [figure.needs([part]) for _, part in parts]
    drawn = [
        (condition_title(labels, condition), figure.draw([part], Labels.of([part])))
        for (condition, part), reason in zip(parts, reasons, strict=True)
        if reason is None
    ]
    if not drawn:
        return [(figure.title, str(reasons[0]))]
    left = len(run.conditions) - len(parts)
    read = (*figure.read, f"{left} further conditions are not drawn.") if left else figure.read
    page.figures_of(f"{prefix}{name}", figure.title, drawn, read, "" if prefix else _link(name))
    return []


def _link(name: str) -> str:
    """A figure's name as the navigation has it."""
    return name.capitalize().replace("_", " ")


def failures_card(page: Page, run: Run, prefix: str) -> None:
    failed = run.trials[run.trials["state"] == "FAIL"]
    if failed.empty:
        return
    rows = [
        {
            "trial": t["number"],
            "what": style.OUTCOMES[style.outcome(t["state"], t["stop_reason"])][2],
            "why": t["error"] or "no reason was recorded",
            "where": f"{run_folder.trial_folder(t['number'])}/{run_folder.LOG}",
        }
        for t in failed.head(200).to_dict("records")
    ]
    notes = (f"The first 200 of {len(failed)}.",) if len(failed) > 200 else ()
    table = Table(
        [
            Column("trial", "trial"),
            Column("what", "what", str, right=False),
            Column("why", "reason", str, right=False),
            Column("where", "log", str, right=False),
        ],
        rows,
        notes=notes,
    )
    page.card(f"{prefix}failures", f"Failures ({len(failed)})", table.html(), "Failures" if not prefix else "")


def provenance_card(page: Page, run: Run, prefix: str, skipped: Sequence[tuple[str, str]]) -> None:
    rows = {}
    for key, value in run.provenance.items():
        if value is not None:
            rows[key] = one_line(value, key)
    request = {k: one_line(v, k) for k, v in run.experiment.items() if v not in (None, {}, [])}
    inner = f"<h3>Where it was made</h3>{definition(rows)}" if rows else "<p>No provenance was recorded.</p>"
    inner += f"<details><summary>The request ({run_folder.EXPERIMENT})</summary>{definition(request)}</details>"
    if skipped:
        count = f"{len(skipped)} figure{'s' if len(skipped) != 1 else ''}"
        inner += f"<details><summary>{count} not drawn</summary>{definition(list(skipped))}</details>"
    page.card(f"{prefix}provenance", "Provenance", inner, "Provenance" if not prefix else "")


def one_line(value: Any, key: str = "") -> str:
    """What was recorded under `key`, on one line."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {one_line(v, k)}" for k, v in value.items())
    if isinstance(value, list):
        return shell.join(map(str, value)) if key == "command" else ", ".join(map(one_line, value))
    return when(value) if key == "created" else number(value, 8)
