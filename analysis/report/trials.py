"""The table of all trials, as text, as a file and for the page's sortable table; and what the page opens of one trial:
its curve, its clients' accuracies and the end of its log.

(Its configuration and values stand in the table of trials, which the page has anyway.)"""

from __future__ import annotations

import json
import os
from typing import Any

import pandas as pd

from analysis import style
from analysis.figures._common import sample
from analysis.labels import Labels, number, unit_in_files
from analysis.report.anonymous import AnonymousRun
from analysis.report.page import escape
from analysis.runs import Run
from analysis.runs.race import first_of, is_repeated
from analysis.runs.rounds import by_seed
from analysis.runs.shapes import is_number
from analysis.stats import summarise
from analysis.tables.table import Column, Table, finite
from search_spaces import client_columns, files, run_folder
from search_spaces.errors import visible
from search_spaces.metrics import twin

#: Trials of which the page holds details at most, evenly spread and always with the best ones; bytes read of a file's
#: end; lines shown of a log.
LIMIT, TAIL, LINES = 200, 1 << 16, 15


def trials(run: Run) -> Table:
    """Every trial as a row: number, outcome, rounds, seconds, searched parameters, the metrics shown in figures with
    their spread over seeds, and where its values come from, if any trial's do not come from the sampler. Accuracies are
    fractions, and shown in per cent."""
    last = run.finals
    wanted = [
        m for m in dict.fromkeys([*run.metrics, *(twin(m) for m in run.metrics), "local_accuracy"]) if m in last.columns
    ]
    labels = Labels.of([run], markup=False)
    seeds = {t.number: t.user_attrs.get("seed") for t in run.frozen}
    further = {
        t.number: f"trial {of}, to its end"
        if is_repeated(t, run.frozen)
        else f"trial {of}, {'confirmed on ' if t.user_attrs.get(run_folder.CONFIRMS) else ''}a further seed"
        for t in run.frozen
        if (of := first_of(t)) is not None
    }
    spreads = {m: found for m in wanted if (found := _spread(run, m))}
    keys = [*(str(item["key"]) for item in run.varied if run.crossed), *run.keys]
    rows = []
    for t in run.trials.to_dict("records"):
        row = {
            "trial": t["number"],
            "outcome": style.OUTCOMES[style.outcome(t["state"], t["stop_reason"])][2],
            "rounds": t["rounds"],
            "seconds": t["seconds"],
            "origin": f"result of {t['origin']}" if t["taken"] else t["origin"] or further.get(t["number"], ""),
            "seed": seeds.get(t["number"]),
        }
        row |= {k: (None if pd.isna(t[k]) else t[k]) for k in keys}
        row |= {m: float(last[m].get(t["number"], float("nan"))) for m in wanted}
        row |= {f"{m}:std": found[t["number"]] for m, found in spreads.items() if t["number"] in found}
        rows.append(row)
    columns = [Column("trial", "trial"), Column("outcome", "outcome", right=False)]
    for m in wanted:
        show = _percent if labels.scale(m) == 100 else number
        unit = unit_in_files(m)
        columns.append(Column(m, labels.metric(m, split=True), show, unit=unit))
        columns += [Column(f"{m}:std", "± over seeds", show, unit=unit)] if m in spreads else []
    columns += [Column(k, labels.symbol(k), right=labels.numeric(k)) for k in keys]
    if run.single:
        columns.append(Column("seed", "seed", str))
    columns += [Column("rounds", "rounds"), Column("seconds", "seconds", lambda v: number(v, 3), unit="s")]
    if any(row["origin"] for row in rows):
        columns.append(Column("origin", "comes from", right=False))
    return Table(columns, rows, f"Trials of {run.name}")


def _percent(value: float | None) -> str:
    return "–" if value is None or value != value else f"{100 * value:.2f}"


def _spread(run: Run, metric: str) -> dict[int, float]:
    """The standard deviation over seeds of a metric's last value, of every trial with several seeds."""
    measured = by_seed(run.lines, metric)
    return {trial: summarise(list(values.values())).std for trial, values in measured.items() if len(values) > 1}


def trials_table(run: Run) -> dict[str, Any]:
    """What the page's script needs for drawing the sortable table."""
    table = trials(run)
    kinds = [style.outcome(s, r) for s, r in zip(run.trials["state"], run.trials["stop_reason"], strict=True)]
    best = {run.within(condition).best for condition in run.conditions} if run.crossed else {run.best}
    rows = [
        {
            "raw": [finite(row.get(c.key)) for c in table.columns],
            "text": [visible(cell) for cell in cells],
            "state": kind,
            "best": row["trial"] in best,
        }
        for row, cells, kind in zip(table.rows, table.cells(), kinds, strict=True)
    ]
    at = next((i for i, c in enumerate(table.columns) if c.key == run.metrics[0]), -1)
    return {
        "columns": [{"title": visible(c.title), "right": c.right, "dot": c.key == "outcome"} for c in table.columns],
        "rows": rows,
        "sort": at,
        "up": not run.maximise,
    }


def trials_html(run: Run, name: str) -> str:
    """Where the page's script puts that table."""
    kinds = {style.outcome(s, r) for s, r in zip(run.trials["state"], run.trials["stop_reason"], strict=True)}
    options = '<option value="">all outcomes</option>' + "".join(
        f'<option value="{k}">{escape(style.OUTCOMES[k][2])}</option>' for k in style.OUTCOMES if k in kinds
    )
    return (
        '<p class="small"><span class="screen">Press a heading to sort.</span> Values are from each trial\'s last '
        "round, so those of trials stopped early are from an earlier one.</p>"
        f'<div class="trials" data-table="{escape(name)}"><div class="scroll" tabindex="0" role="region" '
        'aria-label="Trials">'
        "<table><thead><tr></tr></thead><tbody></tbody></table></div>"
        '<div class="pager"><button type="button" aria-label="Earlier rows">‹ back</button><span class="status" '
        'role="status"></span>'
        '<button type="button" aria-label="Later rows">next ›</button>'
        f'<select aria-label="Show only">{options}</select></div></div>'
    )


def details(run: Run, labels: Labels) -> dict[str, Any]:
    """By trial number what the page's script shows of it; the metric of the curves, and its unit, under `metric`."""
    metric = run.metrics[0]
    scale = labels.scale(metric)
    kept = sample([t.number for t in run.frozen], LIMIT, keep=list(run.ranked[:50]))
    curves: dict[int, Any] = {}
    if metric in run.curves.columns:
        drawn = run.curves[run.curves["trial"].isin(kept) & run.curves[metric].notna()]
        for trial, part in drawn.groupby("trial"):
            values = [finite(value) for value in (scale * part[metric]).round(2)]
            curves[int(str(trial))] = [part["round"].tolist(), values]
    return {"metric": labels.metric(metric, split=True), "of": len(run.frozen)} | {
        str(n): {
            "curve": curves.get(n),
            "clients": _clients(run, n),
            "log": _log(run, n),
        }
        for n in kept
    }


def _clients(run: Run, trial: int) -> dict[str, list[float | None]]:
    """Accuracies by client in the last round of the last seed, in per cent: `global` (the global model on the client's
    label mix) and `local` (the client's own model; null where it did not train)."""
    lines = _end(run, trial, run_folder.ROUNDS).splitlines()
    found = {}
    try:
        row = json.loads(lines[-1]) if lines else {}
        held = {name: client_columns.unpacked(row.get(name)) for name in client_columns.NAMES}
    except (ValueError, AttributeError):
        return {}
    for name, title in zip(client_columns.NAMES, ("global", "local"), strict=True):
        listed = held[name]
        if isinstance(listed, list) and listed:
            found[title] = [finite(round(100 * v, 2)) if is_number()(v) else None for v in listed[:200]]
    return found


def _log(run: Run, trial: int) -> str:
    """The last lines; none on an anonymous page, as they may name anything."""
    if isinstance(run, AnonymousRun):
        return ""
    return visible("\n".join(_end(run, trial, run_folder.LOG).splitlines()[-LINES:]))[-3000:]


def _end(run: Run, trial: int, name: str) -> str:
    """The last `TAIL` bytes of a trial's file; empty where there is none."""
    try:
        with os.fdopen(files.open_plain(run.path / run_folder.trial_folder(trial) / name), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            return file.read(TAIL).decode("utf-8", errors="replace")
    except OSError:
        return ""
