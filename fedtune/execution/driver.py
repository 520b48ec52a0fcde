"""Drives an experiment: reads what was recorded, runs on Ray what is left (`ray_session.py`), says how it ended.

The queue says which trial comes next (`queue.py`), and a trial itself says when it ends:
`trainables/simulated_trial.py` asks the rule of `early_stopping.py` after every round. An experiment has one stage or
several, one after the other in the same Ray: `fedtune auto` searches, trains on fresh seeds, then trains the leader.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fedtune.console.progress import ProgressDisplay
from fedtune.execution.interrupts import Interrupts
from fedtune.execution.queue import Queue
from fedtune.machine import cluster, fork_server
from fedtune.machine.server_watch import ServerLoss, ServerWatch, kept, patience, resuming
from fedtune.record.experiment import Placement
from fedtune.record.provenance import shared_gpus, went_on
from trainables.worker.memory import keep_memory


class Stage(NamedTuple):
    """A part of an experiment that has to end before the next one begins."""

    queue: Queue
    watch: ProgressDisplay
    placement: Placement


@dataclass(frozen=True)
class Outcome:
    """How a session of driving ended."""

    finished: bool
    interrupted: bool = False
    out_of_time: bool = False


def drive(
    folder: Path,
    stages: Iterable[Callable[[], Stage | None]],
    *,
    again: str | None = None,
    simulate: Callable[..., Any] | None = None,
) -> Outcome:
    """Runs what is left of the experiment in `folder`, whose lock the caller holds. stages: each makes itself when
    the one before it has ended, or says that nothing is left of it. again: the command that goes on, where that is not
    `fedtune resume`. simulate: replaces the engine in tests.

    Raises `UserError` where the disk is full, more is asked for than the machine has, or Ray's servers do not start or
    die."""
    outcome = Outcome(finished=True)
    try:
        with ExitStack() as left:
            driver = _Driver(folder, again or resuming(folder), simulate, left)
            for stage in stages:
                found = stage()
                outcome = Outcome(finished=True) if found is None else driver.run(found)
                if not outcome.finished:
                    break
    except KeyboardInterrupt:
        return Outcome(finished=False, interrupted=True)
    return outcome


class _Driver:
    """A Ray that is joined for the first trial that is left, and stays until the stack is `left`."""

    def __init__(self, folder: Path, again: str, simulate: Callable[..., Any] | None, left: ExitStack) -> None:
        self._folder, self._simulate, self._left, self._interrupts = folder, simulate, left, Interrupts()
        self._lost = left.enter_context(ServerLoss(again, interrupted=lambda: self._interrupts.pending))
        #: Where Ray Tune writes, and the watch over Ray's servers, once it is joined.
        self._joined: tuple[Path, ServerWatch] | None = None
        self._sessions = 0

    def run(self, stage: Stage) -> Outcome:
        """Runs what is left of a stage."""
        queue, watch, placement = stage
        deadline = None if placement.time is None else time.monotonic() + placement.time  # Ray's start counts
        with watch:
            damaged = queue.damaged()
            for number, trial in enumerate(queue.trials()):
                if number in damaged:
                    queue.again(number, None)
                elif trial.state.is_finished():
                    queue.tidy(number)
                    part, own = queue.at(number)
                    rounds = trial.user_attrs.get("rounds", 0) if own >= part.experiment.taken else 0
                    watch.past(number, trial.state.name, trial.values, part.space.values(trial.params), rounds)
            if queue.finished:
                return Outcome(finished=True)
            for part in queue.parts:
                if (elsewhere := went_on(part.folder)) is not None:
                    watch.say(elsewhere)
            with kept(self._lost.again):
                scratch, servers = self._join(placement, lambda text: self._tell_mps(text, queue, watch))
            self._lost.check()
            self._interrupts.check()
            self._sessions += 1
            from fedtune.execution.ray_hooks import SessionEnd
            from fedtune.execution.ray_session import TuneSession  # both bring Ray

            end = SessionEnd(self._folder, deadline, self._interrupts, self._lost)
            session = TuneSession(*stage, end, servers, self._simulate)
            session.fit(scratch / str(self._sessions), fork_server.is_in(scratch))
            if end.failure is not None:
                raise end.failure
            ended = queue.finished
            return Outcome(ended, session.interrupted and not ended, end.out_of_time and not ended)

    def _tell_mps(self, text: str, queue: Queue, watch: ProgressDisplay) -> None:
        watch.say(text)
        for part in queue.parts:
            shared_gpus(part.folder, text)

    def _join(self, place: Placement, tell: Callable[[str], None]) -> tuple[Path, ServerWatch]:
        """Joins Ray, where that was not done yet. From here on signals are noted until Ray has been left."""
        if self._joined is None:
            keep_memory()
            self._left.enter_context(self._interrupts)
            ray = cluster.joined(place.address, trials=place.concurrency, cpus=place.cpus, gpus=place.gpus, tell=tell)
            scratch = self._left.enter_context(ray)
            # Between two sessions too: until Ray has been left, whatever waits for a server may wait for ever.
            servers = ServerWatch(self._lost.note, patience=patience(place.address))
            self._joined = scratch, self._left.enter_context(servers)
        return self._joined
