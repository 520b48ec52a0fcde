"""Drives a run: reads what has been recorded, runs on Ray what is left (`ray_session.py`), and says how it ended.

The queue says which trial comes next (`queue.py`), and a trial itself says when it ends: `trainables/tune.py` asks the
rule of `early_stopping.py` after every round.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtune.console.progress import ProgressDisplay
from fedtune.execution.extend_rounds import go_on
from fedtune.execution.imported_trials import settle
from fedtune.execution.interrupts import Interrupts
from fedtune.execution.queue import TrialQueue
from fedtune.execution.race_queue import queue_of
from fedtune.execution.ray_session import TuneSession
from fedtune.execution.together import Together
from fedtune.machine import cluster
from fedtune.machine.server_watch import ServerLoss, kept, resuming
from fedtune.record.experiment import Experiment
from fedtune.record.provenance import went_on
from search_spaces.space import Space


@dataclass
class Outcome:
    """How a session of driving ended."""

    finished: bool
    interrupted: bool = False
    out_of_time: bool = False


def drive(
    folder: Path,
    experiment: Experiment,
    space: Space,
    watch: ProgressDisplay,
    *,
    simulate: Callable[..., Any] | None = None,
) -> Outcome:
    """Runs what is left of the run in `folder`, whose experiment and space these are. The caller holds the run's lock.

    Raises `UserError` where the disk is full, more is asked for than the machine has, or Ray's servers do not
    start or die. `simulate` replaces the engine in tests."""
    go_on(folder, experiment)
    queue = queue_of(folder, experiment, space)
    if experiment.taken:
        settle(queue, folder, experiment)
    return drive_queue(folder, experiment, queue, watch, simulate=simulate)


def drive_queue(
    folder: Path,
    experiment: Experiment,
    queue: TrialQueue | Together,
    watch: ProgressDisplay,
    *,
    lost: ServerLoss | None = None,
    simulate: Callable[..., Any] | None = None,
) -> Outcome:
    """Runs what is left in `queue`, of one run or of several below `folder`; `experiment` says how trials are placed.
    `lost` is that of a caller who leaves Ray later, or whom another command than `resume` continues. Raises as
    `drive`."""
    deadline = None if experiment.time is None else time.monotonic() + experiment.time
    again = queue.damaged()
    for trial in queue.trials():
        home = queue.home(trial.number)
        if trial.number in again:
            queue.again(trial.number, None)
        elif trial.state.is_finished():
            own = trial.user_attrs.get("rounds", 0) if home.number >= home.experiment.taken else 0
            watch.past(trial.number, trial.state.name, trial.values, home.space.values(trial.params), own)
    if queue.finished:
        return Outcome(finished=True)
    for one in queue.folders:
        elsewhere = went_on(one)
        if elsewhere is not None:
            watch.say(elsewhere)
    with ServerLoss(resuming(folder)) as own:
        return _fitted(folder, experiment, queue, watch, deadline, lost or own, simulate)


def _fitted(
    folder: Path,
    experiment: Experiment,
    queue: TrialQueue | Together,
    watch: ProgressDisplay,
    deadline: float | None,
    lost: ServerLoss,
    simulate: Callable[..., Any] | None,
) -> Outcome:
    """One session of Ray Tune."""
    lost.check()
    ray = cluster.joined(
        experiment.address,
        trials=experiment.concurrency,
        cpus=experiment.cpus_per_trial,
        gpus=experiment.gpus_per_trial,
    )
    with Interrupts() as interrupts, kept(lost.again), ray as scratch:
        interrupts.check()
        session = TuneSession(folder, experiment, queue, watch, deadline, interrupts, lost, simulate)
        session.fit(scratch)
    if session.failure is not None:
        raise session.failure
    ended = queue.finished
    return Outcome(ended, session.interrupted and not ended, session.out_of_time and not ended)
