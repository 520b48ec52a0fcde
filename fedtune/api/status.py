"""`fedtune.status`, `fedtune.runs` and `fedtune.dashboard`: look at a run, or at all runs of a folder, while they go on
or after them."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from analysis.auto import Auto, load_one
from analysis.labels import Labels
from analysis.reproduce.folder import Made, ReproductionRecord, load_made
from analysis.runs import Run
from analysis.runs import load_run as load
from analysis.runs.best import Best, ahead_of, best_by_condition, best_of
from fedtune.api import optuna_study
from fedtune.decisions.race import is_over, spent
from fedtune.record.experiment import Experiment
from fedtune.record.journal import as_journal
from fedtune.record.run_directory import is_driven
from search_spaces import run_folder
from search_spaces.errors import UserError, sentence, short
from search_spaces.files import given
from search_spaces.leftovers import temporary_folder


def status(run: str | Path) -> dict[str, Any]:
    """How far a run has come, read from its directory alone.

    `state` is running (a process works on it), finished, or resumable. `running` lists the trials that have begun and
    not ended, with their round. `best` is the best trial; where trials are under several conditions of the experiment
    there is none in all, and `by_condition` has that of each. `ahead` is a trial that has not ended and leads all the
    same, with its round.

    Of a search over several methods (`fedtune auto`): run, kind, metric, state, the outcome of its trials, leader, and
    the leaderboard's rows. Of a figure or table (`fedtune reproduce`): run, the kind `reproduction`, name, title,
    state, how many of its cells are over, and how many federations have ended or failed."""
    return how_far(opened(run))


def opened(run: str | Path) -> Run | Auto | Made:
    """A run directory, read as what it holds: a run, a search over several methods, or a figure or table."""
    if (several := load_one(run)) is not None:
        return several
    return load_made(run) if ReproductionRecord.is_in(run) else load(run)


def how_far(found: Run | Auto | Made) -> dict[str, Any]:
    """What `status` says of what was read."""
    if isinstance(found, Auto):
        return _of_auto(found)
    return _of_reproduction(found) if isinstance(found, Made) else _of_run(found)


def _of_run(found: Run) -> dict[str, Any]:
    folder, experiment, trials = found.path, Experiment.of(found), found.frozen
    counts = Counter(trial.state.name for trial in trials)
    driven = is_driven(folder)
    best, ahead = best_of(found), ahead_of(found)
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
        "metric": list(experiment.metric),
        "state": "running" if driven else "finished" if is_over(trials, experiment) else "resumable",
        "trials": experiment.trials,
        "seed_rounds": {"spent": spent(trials, experiment), "budget": experiment.budget} if experiment.races else None,
        "done": counts["COMPLETE"],
        "pruned": counts["PRUNED"],
        "failed": counts["FAIL"],
        "running": running,
        "best": None if best is None else _plain(best),
        "ahead": None if ahead is None else _plain(ahead) | {"rounds": experiment.rounds},
        "by_condition": [_plain(one) for one in best_by_condition(found)],
        "errors": [
            {"trial": t.number, "error": t.user_attrs.get("error", "")} for t in trials if t.state.name == "FAIL"
        ],
    }


def _of_auto(found: Auto) -> dict[str, Any]:
    """Of a search over several methods."""
    outcomes = {name: sum(getattr(row, name) for row in found.rows) for name in ("trials", "done", "stopped", "failed")}
    return {
        "run": str(found.path),
        "kind": "auto",
        "metric": [found.metric],
        "state": "running" if is_driven(found.path) else "finished" if found.over else "resumable",
        **outcomes,
        "leader": found.leader,
        "leaderboard": found.table().json(),
    }


def _of_reproduction(made: Made) -> dict[str, Any]:
    """Of a figure or table, all of whose cells are runs of their own."""
    planned = made.planned
    over = sum(is_over(run.frozen, Experiment.of(run)) for run in made.distinct)
    return {
        "run": str(made.path),
        "kind": "reproduction",
        "name": made.reproduction.name,
        "title": made.reproduction.title,
        "state": "running" if is_driven(made.path) else "finished" if over == planned else "resumable",
        "cells": {"over": over, "planned": planned},
        "done": made.done,
        "failed": sum(made.failed.values()),
    }


def _plain(best: Best) -> dict[str, Any]:
    """As `fedtune search --json` has it, where `number` is what all of `status` calls `trial`."""
    plain = best.to_json()
    return {"trial": plain.pop("number"), **plain}


def dashboard(run: str | Path, *, port: int = 8080) -> int:
    """Opens optuna-dashboard on a copy of a run's study, as it is now, until Ctrl-C or SIGTERM; returns its exit code.

    The dashboard has no log-in: whoever reaches the port can change what it shows, so it gets a copy in a folder of
    this user alone, removed in the end. Raises `UserError` where it is not installed."""

    found = load(run)
    if not 1 <= port <= 65535:
        raise UserError(sentence("port", "a whole number in [1, 65535]", port, "--port"))
    if importlib.util.find_spec("optuna_dashboard") is None:
        raise UserError("optuna-dashboard is not installed. Install it with `pip install 'fedtune[dashboard]'`.")
    # -P: a file of the current directory that has a library's name is not taken for it.
    code = "import sys; from optuna_dashboard._cli import main; sys.exit(main())"
    with temporary_folder("fedtune-dashboard") as (folder, held), _sigterm_ends():
        copy = folder / run_folder.STUDY
        copy.write_text(as_shown(found), encoding="utf-8")
        print(
            "This is a copy of the study as it is now: changes are lost in the end. optuna-dashboard has no log-in, so "
            "everybody on this machine can open it.",
            file=sys.stderr,
            flush=True,
        )
        command = [sys.executable, "-P", "-c", code, str(copy), "--port", str(port)]
        # The dashboard holds the folder too: it may outlive this process, where that is killed.
        process = subprocess.Popen(command, pass_fds=(held,))
        try:
            return process.wait()
        except KeyboardInterrupt:
            return 130
        finally:
            process.terminate()
            process.wait()


def as_shown(run: Run) -> str:
    """The journal of the run's study as people read it: objectives and parameters by their titles, and with notes."""
    labels = Labels.of([run], markup=False)
    named = {"study:metric_names": [labels.metric(name, unit=False) for name in run.metrics]}
    told = optuna_study.trials(run, optuna_study.titles(run))
    attributes = named | optuna_study.notes(run, range(len(told)))
    return as_journal(run.name, run.directions, told, attributes, optuna_study.facts(run))


@contextmanager
def _sigterm_ends() -> Iterator[None]:
    """SIGTERM ends as Ctrl-C does, so that nothing is left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


#: What tells a folder of ours: a run, a search over several methods, or a reproduction.
_RECORDS = (run_folder.EXPERIMENT, run_folder.AUTO, run_folder.REPRODUCTION)


def runs(folder: str | Path = "runs") -> list[dict[str, Any]]:
    """The runs in `folder`, by name: what `status` says of each, and `problem`, the sentence that it is refused with
    (None: it can be read; else only run and problem are there).

    A folder without an experiment of ours is left out.

    Raises `UserError` where `folder` is no directory."""
    where = given(folder)
    if not where.is_dir():
        raise UserError(
            f"There is no folder {short(repr(str(folder)))} with runs. The first search makes runs/; --help says more."
        )
    rows: list[dict[str, Any]] = []
    for path in sorted(where.iterdir()):
        if path.is_dir() and any((path / name).exists() for name in _RECORDS):
            try:
                rows.append(status(path) | {"problem": None})
            except UserError as error:
                rows.append({"run": str(path), "problem": str(error)})
    return rows
