"""`fedtune.status` and `fedtune.dashboard`: looking at a run while it is driven, or after."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from fedtune.api.search import best_of
from fedtune.record.experiment import Experiment
from fedtune.record.run_directory import folder_of, is_driven
from fedtune.record.study import open_study
from search_spaces import run_folder


def status(run: str | Path) -> dict[str, Any]:
    """How a run stands, read from its directory alone.

    `state` is running (a process drives it), finished, or resumable; `running` lists the trials under way with their round."""
    folder = folder_of(run)
    experiment = Experiment.read(folder)
    trials = open_study(folder).get_trials(deepcopy=False)
    counts = Counter(trial.state.name for trial in trials)
    ended = sum(count for state, count in counts.items() if state != "RUNNING")
    driven = is_driven(folder)
    best = best_of(trials, experiment)
    running = [
        {"trial": trial.number, "round": _rounds(folder, trial.number), "rounds": experiment.rounds, "params": dict(trial.params)}
        for trial in trials if trial.state.name == "RUNNING"
    ]
    return {
        "run": str(folder), "kind": experiment.kind, "method": experiment.method, "space": experiment.space,
        "state": "running" if driven else "finished" if ended >= experiment.trials else "resumable",
        "trials": experiment.trials, "done": counts["COMPLETE"], "pruned": counts["PRUNED"], "failed": counts["FAIL"], "running": running,
        "best": None if best is None else {"trial": best.number, "values": dict(best.values), "params": dict(best.params)},
        "errors": [{"trial": t.number, "error": t.user_attrs.get("error", "")} for t in trials if t.state.name == "FAIL"],
    }


def _rounds(folder: Path, number: int) -> int:
    """Rounds on record, from the last whole line."""
    path = folder / run_folder.trial_folder(number) / run_folder.ROUNDS
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 65536))
            lines = file.read().split(b"\n")[:-1]
        return int(json.loads(lines[-1])["round"]) if lines else 0
    except (OSError, ValueError, KeyError):
        return 0


def dashboard(run: str | Path, *, port: int = 8080) -> None:
    """Opens optuna-dashboard on a run's study; does not return. Raises `UserError` where it is not installed."""
    from search_spaces.errors import UserError, sentence

    folder = folder_of(run)
    Experiment.read(folder)
    if not 1 <= port <= 65535:
        raise UserError(sentence("port", "a whole number in [1, 65535]", port, "--port"))
    if importlib.util.find_spec("optuna_dashboard") is None:
        raise UserError("optuna-dashboard is not installed. Install it with `pip install 'fedtune[dashboard]'`.")
    study = folder / run_folder.STUDY
    if not study.is_file():
        raise UserError(f"{folder} is not a run: it holds no {run_folder.STUDY}.")
    code = "import sys; from optuna_dashboard._cli import main; sys.exit(main())"
    os.execv(sys.executable, [sys.executable, "-c", code, f"sqlite:///{study}", "--port", str(port)])
