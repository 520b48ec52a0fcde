"""`fedtune.status` and `fedtune.dashboard`: look at a run while it goes on, or after it."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from analysis.runs import load
from fedtune.api.search import Best
from fedtune.record.experiment import Experiment
from fedtune.record.run_directory import is_driven
from fedtune.trials.racing import is_over, spent
from search_spaces import run_folder


def status(run: str | Path) -> dict[str, Any]:
    """How far a run has come, read from its directory alone.

    `state` is running (a process works on it), finished, or resumable. `running` lists the trials that have begun and
    not ended, with their round."""
    found = load(run)
    folder, experiment, trials = found.path, Experiment.of(found), found.frozen
    counts = Counter(trial.state.name for trial in trials)
    driven = is_driven(folder)
    best = None if found.best is None else Best.of(found, found.best)
    running = [
        {
            "trial": trial.number,
            "round": found.completed(trial.number),
            "rounds": experiment.rounds,
            "params": dict(trial.params),
        }
        for trial in trials
        if trial.state.name == "RUNNING"
    ]
    return {
        "run": str(folder),
        "kind": experiment.kind,
        "method": experiment.method,
        "space": experiment.space,
        "state": "running" if driven else "finished" if is_over(trials, experiment) else "resumable",
        "trials": experiment.trials,
        "seed_rounds": {"spent": spent(trials, experiment), "budget": experiment.budget} if experiment.races else None,
        "done": counts["COMPLETE"],
        "pruned": counts["PRUNED"],
        "failed": counts["FAIL"],
        "running": running,
        "best": None
        if best is None
        else {"trial": best.number, "values": dict(best.values), "params": dict(best.params)}
        | {"estimate": None if best.estimate is None else dataclasses.asdict(best.estimate)},
        "audit": None if found.audit is None else dataclasses.asdict(found.audit),
        "grace": None if found.grace is None else dataclasses.asdict(found.grace),
        "errors": [
            {"trial": t.number, "error": t.user_attrs.get("error", "")} for t in trials if t.state.name == "FAIL"
        ],
    }


def dashboard(run: str | Path, *, port: int = 8080) -> None:
    """Opens optuna-dashboard on a run's study; does not return. Raises `UserError` where it is not installed."""
    from search_spaces.errors import UserError, sentence

    study = load(run).path / run_folder.STUDY
    if not 1 <= port <= 65535:
        raise UserError(sentence("port", "a whole number in [1, 65535]", port, "--port"))
    if importlib.util.find_spec("optuna_dashboard") is None:
        raise UserError("optuna-dashboard is not installed. Install it with `pip install 'fedtune[dashboard]'`.")
    code = "import sys; from optuna_dashboard._cli import main; sys.exit(main())"
    os.execv(sys.executable, [sys.executable, "-c", code, f"sqlite:///{study}", "--port", str(port)])
