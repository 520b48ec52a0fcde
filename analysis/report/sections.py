"""The sections of one run's report, in the order in which they stand on the page."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from analysis import style
from analysis.figures._common import finals
from analysis.figures._registry import figures
from analysis.labels import Labels, duration, number
from analysis.published import papers
from analysis.report.page import Page, command, definition, escape, html_table
from analysis.runs import Run, when
from analysis.stats import summarise
from analysis.tables import Column, Table
from search_spaces import run_folder
from search_spaces.metrics import twin


def searched(run: Run, labels: Labels) -> str:
    if not run.keys:
        return "no parameter searched"
    return "searched " + escape(", ".join(labels.symbol(k) for k in run.keys[:6])) + (f" and {len(run.keys) - 6} more" if len(run.keys) > 6 else "")


def notices(run: Run, labels: Labels) -> list[str]:
    """What a reader must know before looking at any number."""
    found = []
    if run.selects_on_test:
        found.append(
            "Trials were selected on test data, as the paper did. The best value is therefore optimistic; "
            "without --paper, searches select on a validation share."
        )
    running = int(run.trials["state"].isin(["RUNNING", "WAITING"]).sum())
    if running:
        found.append(
            f"{running} {'trial is' if running == 1 else 'trials are'} unfinished: the search is still going on or was interrupted. "
            f"`fedtune resume {_shown_path(run)}` continues it."
        )
    if run.best is None:
        found.append("No trial has completed yet, so there is no best configuration.")
    return found


def facts(run: Run, labels: Labels) -> str:
    facts: list[tuple[str, str, str, bool]] = []
    final = run.kind == "run"
    if run.best is not None:
        for metric in run.metrics:
            shown = list(dict.fromkeys([metric, twin(metric)]))
            for m in shown:
                values = run.over_seeds(m)
                text = _spread(labels, m, values) if values else labels.shown(m, run.trials.set_index("number")["value"].get(run.best))
                if final and m.startswith("val_"):
                    continue
                if m == metric or values:
                    note = f"{len(values)} fresh seeds" if final else f"trial {run.best}, " + ("selected on" if m == metric else "only reported")
                    facts.append((labels.metric(m, split=True, unit=False), text, note, final or m == metric))
        values = run.over_seeds("local_accuracy")
        if values and not {"local_accuracy", "val_local_accuracy"} & set(run.metrics):
            facts.append(
                (
                    labels.metric("local_accuracy", split=True, unit=False),
                    _spread(labels, "local_accuracy", values),
                    f"{len(values)} fresh seeds" if final else f"trial {run.best}, only reported",
                    False,
                )
            )
    kinds = pd.Series([style.outcome(s, r) for s, r in zip(run.trials["state"], run.trials["stop_reason"], strict=True)], dtype=object).value_counts()
    counted = ", ".join(f"{kinds[k]} {style.OUTCOMES[k][2]}" for k in style.OUTCOMES if k in kinds)
    facts.append(("Trials", str(len(run.trials)), counted, False))
    rounds, seeds = run.value("rounds"), run.experiment.get("seeds")
    used = sorted(run.rounds["seed"].unique().tolist()) if len(run.rounds) else []
    spent = run.trials["rounds"].sum()
    facts.append(("Rounds per trial", number(rounds), f"{int(spent)} rounds run in all", False))
    facts.append(
        (
            "Seeds per trial",
            str(len(used) if used and run.kind != "run" else seeds if isinstance(seeds, int) else len(used)),
            "seed " + ", ".join(map(str, used[:6])) if used else "",
            False,
        )
    )
    facts.append(
        (
            "Data set",
            str(run.value("dataset", "–")),
            " · ".join(f"{k} {number(run.value(k))}" for k in ("clients", "omega", "rho") if run.value(k) is not None),
            False,
        )
    )
    start, end = pd.to_datetime(run.trials["start"]).min(), pd.to_datetime(run.trials["end"]).max()
    wall = (end - start).total_seconds() if pd.notna(start) and pd.notna(end) else None
    facts.append(("Time", duration(wall), f"{duration(float(run.trials['seconds'].sum()))} in trials" if run.trials["seconds"].notna().any() else "", False))
    strategy = " · ".join(str(v) for v in (run.experiment.get("sampler"), run.experiment.get("scheduler")) if v)
    if strategy and run.kind != "run":
        facts.append(("Sampler · scheduler", strategy, f"search seed {run.experiment['seed']}" if "seed" in run.experiment else "", False))
    return (
        '<dl class="facts">'
        + "".join(
            f'<div class="fact{" key" if key else ""}"><dt>{escape(title)}</dt><dd>{escape(text)}'
            + (f"<small>{escape(small)}</small>" if small else "")
            + "</dd></div>"
            for title, text, small, key in facts
        )
        + "</dl>"
    )


def _spread(labels: Labels, metric: str, values: dict[int, float]) -> str:
    found = summarise(list(values.values()))
    scale = labels.scale(metric)
    return f"{found.shown(scale)} %" if scale == 100 else labels.shown(metric, found.mean)


def _shown_path(run: Run) -> str:
    try:
        relative = os.path.relpath(run.path)
    except ValueError:  # another drive
        return str(run.path)
    return str(run.path) if relative.startswith("..") else relative


def rerun_command(run: Run, seeds: int = 3) -> str:
    """The command that exports the best configuration and runs it on fresh seeds."""
    return f"fedtune export {shlex.quote(_shown_path(run))} -o best.yaml && fedtune run best.yaml --seeds {seeds}"


def best(page: Page, run: Run, labels: Labels, prefix: str) -> None:
    if run.best is None:
        return
    values = run.parameters(run.best)
    known = {item["key"]: item for item in run.searched}
    rows = [
        {
            "parameter": labels.parameter(k),
            "value": values[k],
            "searched": _range(known.get(k, {}), run.sampler),
            "meaning": " ".join(filter(None, [known.get(k, {}).get("doc"), f"({known[k]['source']})" if known.get(k, {}).get("source") else ""])),
        }
        for k in run.keys
        if k in values
    ]
    searched = (
        html_table(
            Table(
                [
                    Column("parameter", "parameter", right=False),
                    Column("value", "value"),
                    Column("searched", "searched", str),
                    Column("meaning", "meaning", str, right=False),
                ],
                rows,
            )
        )
        if rows
        else ""
    )
    rest = {k: v for k, v in run.config(run.best).items() if k not in values}
    fixed = (
        f"<details><summary>{len(rest)} further settings</summary>{definition({k: number(v, 6) for k, v in sorted(rest.items())})}</details>" if rest else ""
    )
    last = finals(run)
    wanted = [*run.metrics, "val_global_accuracy", "global_accuracy", "val_local_accuracy", "local_accuracy", "amp", "wlp", "fm"]
    measured = [m for m in dict.fromkeys(wanted) if m in last.columns and run.over_seeds(m)]
    results = definition(
        [
            (
                labels.metric(m, split=True) + (" · selected on" if m in run.metrics and run.kind != "run" else ""),
                summarise(list(run.over_seeds(m).values())).shown(labels.scale(m), 2 if labels.scale(m) == 100 else 4),
            )
            for m in measured
        ]
    )
    if run.kind == "run":
        run_again = "<h3>How it was run</h3>" + command(_text(run.provenance.get("command") or "fedtune run best.yaml", "command"))
        title = "Configuration"
    else:
        run_again = (
            "<h3>Run it again on fresh seeds</h3>" + command(rerun_command(run)) + '<p class="small">Final numbers come from seeds the search never saw.</p>'
        )
        title = f"Best configuration: trial {run.best}" if len(run.directions) == 1 else f"A best configuration: trial {run.best}"
    front = (
        f'<p class="small">Trials {", ".join(map(str, run.front))} are Pareto-optimal: no other one is better in every objective.</p>'
        if len(run.directions) > 1
        else ""
    )
    seeds = len(run.over_seeds(measured[0])) if measured else 0
    spread = " ± standard deviation" if seeds > 1 else ""
    measured_over = f'<p class="small">Last round, mean{spread} over {seeds} seed{"s" if seeds != 1 else ""}</p>'
    columns = f'<div class="two"><div>{searched}{fixed}</div><div>{measured_over}{results}</div></div>'
    page.card(f"{prefix}best", title, columns + front + run_again, "Best" if not prefix else "")


def _range(item: Mapping[str, Any], sampler: str) -> str:
    if item.get("grid") and (sampler == "grid" or item.get("options")):
        return ", ".join(number(v) for v in item["grid"])
    if item.get("options"):
        return ", ".join(map(str, item["options"]))
    if item.get("low") is not None and item.get("high") is not None:
        return f"{number(item['low'])} to {number(item['high'])}" + (", log" if item.get("log") else "")
    return "yes, no" if item.get("kind") == "flag" else ""


def figure_cards(page: Page, run: Run, labels: Labels, prefix: str) -> list[tuple[str, str]]:
    """Draws every figure that can be drawn, those the space names first; returns (title, reason) of the others."""
    known = {n: f for n, f in figures().items() if not f.many}
    asked = [n for n in run.space.get("figures") or [] if n in known]
    skipped = []
    for name in dict.fromkeys([*asked, *known]):
        figure = known[name]
        reason = figure.needs([run])
        if reason is not None:
            skipped.append((figure.title, reason))
            continue
        drawn = figure.draw([run], Labels.of([run]))
        page.figure(f"{prefix}{name}", figure.title, drawn, figure.read, name.capitalize() if not prefix else "")
    return skipped


def published(page: Page, run: Run, prefix: str) -> None:
    name = run.space.get("published")
    if not name:
        return
    lines = papers.published(str(name))
    verdicts = papers.compare(run, lines)
    if not verdicts:
        page.card(f"{prefix}paper", "Beside the paper", f"<p>The paper's numbers {escape(name)} have no line for {escape(run.method)}.</p>", "")
        return
    theirs = {v.published.dataset for v in verdicts}
    here = run.value("dataset", "another data set")
    inner = html_table(_verdict_table(verdicts)).replace("<table>", '<table class="verdicts">')
    if all(v.verdict == papers.OTHER_DATA for v in verdicts):
        lead = f"<p>This run used {escape(here)}, the paper {escape(', '.join(sorted(theirs)))}: not comparable."
        lead += " <code>--paper</code> runs the paper's setting.</p>"
        inner = f"{lead}<details><summary>What the paper reports ({len(verdicts)} lines)</summary>{inner}</details>"
    page.card(f"{prefix}paper", "Beside the paper", inner, "Paper" if not prefix else "")


def _verdict_table(verdicts: Sequence[papers.Verdict]) -> Table:
    """Published numbers, ours, and what may be said."""
    labels = Labels()
    rows = [
        {
            "table": v.published.table,
            "what": v.what,
            "metric": labels.metric(v.published.metric, unit=False),
            "theirs": v.theirs,
            "ours": v.ours,
            "verdict": v.verdict + (f" ({v.reason})" if v.reason else ""),
        }
        for v in verdicts
    ]
    titles = {"table": "published in", "what": "setting", "metric": "metric", "theirs": "paper", "ours": "here", "verdict": "verdict"}
    notes = [n[0].upper() + n[1:] + "." for n in dict.fromkeys(v.published.note for v in verdicts if v.published.note)]
    return Table([Column(k, title, str, right=False) for k, title in titles.items()], rows, notes=notes)


def failures(page: Page, run: Run, prefix: str) -> None:
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
    page.card(f"{prefix}failures", f"Failures ({len(failed)})", html_table(table), "Failures" if not prefix else "")


def provenance(page: Page, run: Run, prefix: str, skipped: Sequence[tuple[str, str]]) -> None:
    rows = {}
    for key, value in run.provenance.items():
        if value is not None:
            rows[key] = _text(value, key)
    request = {k: _text(v, k) for k, v in run.experiment.items() if v not in (None, {}, [])}
    inner = f"<h3>Where it was made</h3>{definition(rows)}" if rows else "<p>No provenance was recorded.</p>"
    inner += f"<details><summary>The request ({run_folder.EXPERIMENT})</summary>{definition(request)}</details>"
    if skipped:
        inner += f"<details><summary>{len(skipped)} figure{'s' if len(skipped) != 1 else ''} not drawn</summary>{definition(list(skipped))}</details>"
    page.card(f"{prefix}provenance", "Provenance", inner, "Provenance" if not prefix else "")


def _text(value: Any, key: str = "") -> str:
    """A recorded value on one line."""
    if isinstance(value, dict):
        return ", ".join(f"{k} {_text(v)}" for k, v in value.items())
    if isinstance(value, list):
        return shlex.join(map(str, value)) if key == "command" else ", ".join(map(_text, value))
    return when(value) if key in ("started", "finished", "created") else number(value, 8)
