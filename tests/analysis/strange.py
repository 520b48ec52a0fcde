"""Runs that went wrong or were written to do harm: half-finished, without a trial, all trials failed, one trial, and
with texts that are code elsewhere in every place where a run has a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from optuna.trial import TrialState

from analysis.runs.mappings import read_json, read_yaml
from fedtune.record.run_directory import write_document
from search_spaces import run_folder
from tests import study_file
from tests.analysis import synthetic

#: Ends a script, an attribute and a line; colours and renames a terminal; turns round what follows.
EVIL = "</script><img src=x onerror=alert(1)>&\"'\x1b[31m\x1b]0;t\x07\u202e"
#: The same without what no folder's name can have.
FOLDER = EVIL.replace("/", "")


def half(folder: Path) -> Path:
    """Five trials of the twelve that were planned."""
    return synthetic.write(folder, cells=5, failures=False)


def empty(folder: Path) -> Path:
    """Nothing has begun."""
    return synthetic.write(folder, cells=0)


def one(folder: Path) -> Path:
    return synthetic.write(folder, trials=1, failures=False)


def crashed(folder: Path, error: str = "RuntimeError: the data set has no images", **changes: Any) -> Path:
    """Every trial failed in its first rounds."""
    synthetic.write(folder, **{"trials": 3, "rounds": 3, "failures": False} | changes)
    return failed(folder, error)


def failed(folder: Path, error: str) -> Path:
    """Says of every trial of a run that it failed."""

    def changed(trial: dict[str, Any]) -> None:
        trial.update(state=TrialState.FAIL, value=None, values=None)
        trial["user_attrs"].update(error=error, stop_reason="error")

    study_file.change(folder / run_folder.STUDY, changed)
    return folder


def hostile(parent: Path, *, varied: bool = False, failed: bool = False) -> Path:
    """A run with `EVIL` as folder, title, space, method's title, option, data set and error of its failed trial, and as
    a condition of the experiment."""
    item = {"key": "merge_op", "symbol": EVIL, "kind": "choice", "log": False, "grid": None, "options": ["mul", EVIL]}
    before = dict(synthetic.SEARCH["merge_op"])
    synthetic.SEARCH["merge_op"] = before | item
    try:
        settings: dict[str, Any] = {
            "keys": ("alpha", "lr", "merge_op"),
            "points": [
                {"alpha": a, "lr": r, "merge_op": m} for a in (0.3, 0.6) for r in (0.01, 0.03) for m in ("mul", EVIL)
            ],
            "varied": ("merge_op",) if varied else (),
            "trials": 8,
            "rounds": 3,
            "title": EVIL,
            "fixed": {"dataset": EVIL},
            "figures": (),
        }
        folder = parent / FOLDER
        crashed(folder, f"RuntimeError: {EVIL}", **settings) if failed else synthetic.write(folder, **settings)
    finally:
        synthetic.SEARCH["merge_op"] = before
    provenance = folder / run_folder.PROVENANCE
    provenance.write_text(json.dumps(read_json(provenance) | {"method_title": EVIL, EVIL: EVIL}))
    experiment = folder / run_folder.EXPERIMENT
    write_document(experiment, read_yaml(experiment) | {"space": EVIL})
    (folder / run_folder.trial_folder(0) / run_folder.LOG).write_text(f"line\n{EVIL}\n")
    study_file.with_error(folder, f"RuntimeError: {EVIL}")
    return folder
