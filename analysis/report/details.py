"""What the page opens of one trial: its curve, its clients' accuracies and the end of its log.

(Its configuration and values stand in the table of trials, which the page has anyway.)"""

from __future__ import annotations

import json
import os
from typing import Any

from analysis.figures._common import sample
from analysis.labels import Labels
from analysis.report.anonymous import AnonymousRun
from analysis.runs import Run
from analysis.runs.lines import LISTS
from analysis.runs.shapes import is_number
from analysis.tables import finite
from search_spaces import files, run_folder
from search_spaces.errors import visible

#: Trials of which the page holds details at most, evenly spread and always with the best ones; bytes read of a file's
#: end; lines shown of a log.
LIMIT, TAIL, LINES = 200, 1 << 16, 15


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
    try:
        row = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    found = {}
    for name, title in zip(LISTS, ("global", "local"), strict=True):
        listed = row.get(name) if isinstance(row, dict) else None
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
