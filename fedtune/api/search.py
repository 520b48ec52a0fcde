"""`fedtune.search`: a request is planned, and carried out in its run directory."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.runs import load_run as load
from analysis.runs.best import Best as Best
from analysis.runs.best import ahead_of, best_by_condition, best_of
from fedtune.api.findings import Findings
from fedtune.console import progress
from fedtune.decisions.history import Part
from fedtune.decisions.shared_budget import Clock
from fedtune.execution import driver
from fedtune.execution.queue import Queue
from fedtune.machine import cluster
from fedtune.option import fields_of
from fedtune.options import Mirrored, Progress, SearchRequest
from fedtune.planning.plan import Plan, plan
from fedtune.record.experiment import Experiment
from fedtune.record.mirror import Mirror, check_new
from fedtune.record.run_directory import lock


@dataclass(frozen=True)
class Result(Findings):
    """How far a run has come after a command, and what is to be read of it."""

    folder: Path
    counts: Mapping[str, int]
    best: Best | None
    finished: bool
    interrupted: bool = False
    out_of_time: bool = False
    seconds: float = 0.0
    #: How many of the trials were not run: their results are those of earlier runs.
    taken: int = 0
    #: Where trials are under several conditions of the experiment: the best under each of them, and none in all.
    by_condition: tuple[Best, ...] = ()
    #: A trial that has not ended and is ahead of the best one; `run` and `export` take it in its place.
    ahead: Best | None = None
    #: A sentence where the mirror of the run (`storage`) lacks something.
    unsent: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data for --json."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)} | {
            "folder": str(self.folder),
            "counts": dict(self.counts),
            "best": self.best and self.best.to_json(),
            "by_condition": [best.to_json() for best in self.by_condition],
            "ahead": self.ahead and self.ahead.to_json(),
        }


@fields_of(SearchRequest, cluster.ahead)
def search(request: SearchRequest) -> Result:
    """Searches the hyper-parameters of `method`, selecting by one `metric` or by several, and beginning with what
    earlier runs found (`warm_start`: the directory of one, or several).

    Progress goes to stderr, the run directory to `name`. Raises `UserError`, before anything is created, with
    every problem of the request. Ctrl-C ends it cleanly, and `resume` goes on."""
    return carry_out(plan(request), request)


def carry_out(planned: Plan, shown: Progress) -> Result:
    """Creates the run directory of a plan and drives it to its end.

    Raises `UserError`, before anything is created, where no cluster answers at the plan's address, or the storage of
    the mirror cannot be used."""
    storage = shown.storage if isinstance(shown, Mirrored) else None
    cluster.check_address(planned.experiment.address)
    check_new(storage, planned.folder)
    planned.create()
    command, state = shown.when_done if isinstance(shown, SearchRequest) else None, "failed"
    try:
        with lock(planned.folder):
            made = driven(Part(planned.folder, planned.experiment, planned.space), planned.notes, shown, storage)
        state = "finished" if made.finished else "interrupted" if made.interrupted else "out of time"
    finally:
        if command:
            run_command(command, planned.folder, state)
    return made


def run_command(command: str, folder: Path, state: str) -> None:
    """Runs a command of the user's shell about a run (`--when-done`), which finds the run's folder in FEDTUNE_RUN and
    how it ended in FEDTUNE_STATE. What it prints goes to stderr, so that --json stays JSON."""
    environment = {**os.environ, "FEDTUNE_RUN": str(folder), "FEDTUNE_STATE": state}
    code = subprocess.run(command, shell=True, check=False, env=environment, stdout=2).returncode
    if code:
        print(f"--when-done: the command ended with exit code {code}: {command}", file=sys.stderr)


def result_of(folder: Path, outcome: driver.Outcome, seconds: float = 0.0, unsent: str | None = None) -> Result:
    """The result of a run, read from its directory."""
    run = load(folder)
    counts = dict(Counter(trial.state.name for trial in run.frozen))  # plain, as `asdict` cannot copy a Counter
    ended = outcome.finished, outcome.interrupted, outcome.out_of_time
    several = best_by_condition(run)
    return Result(folder, counts, best_of(run), *ended, seconds, run.taken, several, ahead_of(run), unsent)


def driven(part: Part, notes: Sequence[str], shown: Progress, storage: str | None = None) -> Result:
    """Drives what is left of a run whose lock is held, and tells these notes first. storage: where its mirror is."""
    started, placement = time.monotonic(), part.experiment.placement
    style = progress.style(shown.plain, shown.quiet)
    watch = progress.ProgressDisplay(part.experiment, style, varied=tuple(part.space.vary))
    for note in notes:
        watch.say(note)
    stages = [lambda: driver.Stage(Queue([part]), watch, placement)]
    with mirrored(storage, part.folder, watch.say) as mirror:
        outcome = driver.drive(part.folder, stages, simulate=shown.simulate)
    return result_of(part.folder, outcome, time.monotonic() - started, mirror.unsent)


def mirrored(
    storage: str | None, folder: Path, say: Callable[[str], None]
) -> contextlib.AbstractContextManager[Mirror | NoMirror]:
    """Keeps the mirror of a folder, if there is one. say: prints a line."""
    return contextlib.nullcontext(NoMirror()) if storage is None else Mirror(storage, folder, say)


class NoMirror:
    """In the place of a mirror where none was asked for."""

    unsent: str | None = None


class Speaker:
    """Prints lines beside the progress of whichever stage runs."""

    def __init__(self, style: progress.Style) -> None:
        self._say: Callable[[str], None] = lambda text: progress.tell(text, style)

    def __call__(self, text: str) -> None:
        self._say(text)

    def beside(self, stage: Callable[[], driver.Stage | None]) -> Callable[[], driver.Stage | None]:
        """The stage, beside whose progress lines are printed once it is made."""

        def made() -> driver.Stage | None:
            if (found := stage()) is not None:
                self._say = found.watch.say
            return found

        return made


def stage_of(
    parts: Sequence[Part],
    lead: Experiment,
    style: progress.Style,
    name_of: Callable[[Part, int], str],
    clock: Clock | None = None,
) -> driver.Stage | None:
    """What is left of several runs that are driven together; None where nothing is.

    lead: how all of them are shown and placed; name_of: what a trial is called, by its run and its number there; clock:
    as of `Queue`."""
    queue = Queue(parts, clock=clock)
    if queue.finished and not queue.damaged():
        return None
    watch = progress.ProgressDisplay(lead, style)
    if len(parts) > 1:
        watch = progress.SeveralDisplay(lead, style, lambda number: name_of(*queue.at(number)))
    return driver.Stage(queue, watch, lead.placement)
