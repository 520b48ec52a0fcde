"""What a driver does for each report and each proposal, on 32 to 1,024 slots."""

from __future__ import annotations

import dataclasses
import heapq
import math
import random
import statistics
import tempfile
import time
from array import array
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.measure import say
from benchmarks.results import Case, Goal
from benchmarks.worker import memory

TITLE = "Many slots"
TEXT = """
One search by arrival on declared slots, with the default sampler and early stopping and one seed for each trial. Its driver works as ever (proposals,
study, run directory); in place of Ray a clock hands it the rounds of trials that compute nothing. By that clock a round takes 10 to 100 s, the same for
all rounds of a trial. The driver's own seconds pass on it as well: it answers one trial after the other, and a trial waits for its answer before the
next round. They are seconds of the processor, so neither what else the machine computes nor waiting for the disk counts. *Busy* is the part of the
slots' time that trials spend in rounds, until the last one has been proposed. What Ray itself needs for a report is not in these figures.
"""
#: Slots and trials.
SIZES = ((32, 256), (32, 10_000), (128, 384), (512, 768), (1024, 1280))
#: A search of so many trials is a long one, whose last proposals have a goal of their own: the mean of so many.
LONG, LAST = 10_000, 1000
ROUNDS = 9
#: Seconds of a round.
SHORTEST, LONGEST = 10.0, 100.0


def run(quick: bool) -> Case:
    case = Case("slots", TITLE, TEXT, quick=quick)
    Driver(4, 6).run()  # imports, of which a search has the same number on any slots
    rows = []
    for slots, trials in ((4, 8),) if quick else SIZES:
        found = Driver(slots, trials).run()
        report, end, proposal = (1000 * statistics.fmean(found.took[name]) for name in ("report", "end", "proposal"))
        longest, busy = 1000 * max(found.took["proposal"]), 100 * found.busy()
        rows.append([slots, trials, report, end, proposal, longest, 1000 / report, busy, found.grown, found.study])
        of = f"{slots} slots, {trials:,} trials" if trials == LONG else f"{slots} slots"
        if trials == LONG:
            last = 1000 * statistics.fmean(found.took["proposal"][-LAST:])
            text = f"A proposal beside {slots} trials, mean of the last {LAST:,} of {LONG:,}"
            case.goals.append(Goal(text, 50, last, least=False, unit=" ms"))
        elif slots == 32:
            case.goals.append(Goal("A proposal beside 32 trials, mean", 50, proposal, least=False, unit=" ms"))
        case.goals.append(Goal(f"Reports a second, {of}", 200, 1000 / report))
        case.goals.append(Goal(f"Busy while trials are left, {of}", 95, busy, unit=" %"))
        say(f"  {of}: report {report:.2f} ms, end {end:.2f} ms, proposal {proposal:.1f} ms, busy {busy:.1f} %")
    columns = ("slots", "trials", "ms per report", "per end", "per proposal", "longest", "reports/s", "busy, %")
    case.table("The driver of one search", (*columns, "MiB", "MiB of the study"), rows)
    case.notes.append(
        "MiB are what the driver's process has more at the end of the search than at its beginning, and what a process "
        "has more when it has read the study of that search and nothing else; pages of libraries are left out, of which "
        "a process has the less the more others have them. In the first are the working memory of the model that "
        "proposes, which a search of 300 trials needs as well, and the notes of the clock: when each round began and "
        "ended, and what each call took, 24 bytes for each round."
    )
    return case


def of_study(folder: Path) -> float:
    """MiB that this process has more when it has read the study of a run."""
    from fedtune.record.journal import StudyFile, create_study

    with tempfile.TemporaryDirectory(prefix="fedtune-bench-") as other:
        create_study(Path(other), "empty", ["maximize"])
        StudyFile(Path(other))  # imports
    before = memory()["own"]
    study = StudyFile(folder)
    grown = memory()["own"] - before
    assert study.trials()
    return grown


class Driver:
    """A search whose trials run on a clock."""

    def __init__(self, slots: int, trials: int) -> None:
        self.slots, self.trials = slots, trials
        self.draw = random.Random(0)
        #: By this clock: now, the ends of the rounds that run, and all rounds with their beginnings and ends.
        self.now = self.last_proposal = 0.0
        self.running: list[tuple[float, str, int]] = []
        self.begins, self.ends = array("d"), array("d")
        #: Seconds of the driver's calls by their kind; MiB of the driver, and of its study alone.
        self.took: dict[str, array[float]] = defaultdict(lambda: array("d"))
        self.grown = self.study = 0.0
        self.jobs: dict[str, Any] = {}
        self.lengths: dict[str, float] = {}
        #: How many trials have begun.
        self.begun = 0
        self.curves: dict[str, dict[int, tuple[float, ...]]] = {}

    def run(self) -> Driver:
        from fedtune.console.progress import ProgressDisplay
        from fedtune.decisions.history import Part
        from fedtune.execution.interrupts import Interrupts
        from fedtune.execution.queue import Queue
        from fedtune.execution.ray_hooks import SessionEnd
        from fedtune.execution.ray_session import TuneSession
        from fedtune.machine import cluster
        from fedtune.machine.server_watch import ServerLoss
        from trainables.worker.memory import keep_memory

        keep_memory()  # as the driver does
        with tempfile.TemporaryDirectory(prefix="fedtune-bench-") as made:
            planned = self.planned(Path(made) / "run")
            planned.create()
            part = Part(planned.folder, planned.experiment, planned.space)
            watch, servers = ProgressDisplay(planned.experiment, "quiet"), mock.Mock()
            declared = [cluster.Slots("declared", "127.0.0.1", self.slots, 0, "", self.slots)]
            with mock.patch.object(cluster, "slot_map", return_value=declared):
                end = SessionEnd(planned.folder, None, Interrupts(), ServerLoss("fedtune resume"))
                placement = planned.experiment.placement
                session = TuneSession(Queue([part]), watch, placement, end, servers, None)
                before = memory()["own"]
                self.drive(session)
                self.grown = memory()["own"] - before
            assert session.queue.finished and session.end.failure is None, session.end.failure
            with ProcessPoolExecutor(1, get_context("spawn")) as apart:
                self.study = apart.submit(of_study, planned.folder).result()
        return self

    def planned(self, folder: Path) -> Any:
        from fedtune.options import SearchRequest
        from fedtune.planning.plan import plan

        asked = SearchRequest(
            method="fedavg",
            set={"local_steps": 2},
            trials=self.trials,
            rounds=ROUNDS,
            seeds=1,
            race=False,
            confirm=False,
            slots=self.slots,
            order="arrival",
            name=folder,
        )
        found = plan(asked)
        on_all = dataclasses.replace(found.experiment, concurrency=self.slots)
        return dataclasses.replace(found, experiment=on_all)

    def drive(self, session: Any) -> None:
        from trainables.worker.job import Ending

        self.fill(session)
        while self.running:
            ends, trial, round_ = heapq.heappop(self.running)
            self.now = max(self.now, ends)
            job, curve = self.jobs[trial], self.curves[trial]
            curve[round_] = (self.value(job, round_),)
            told: dict[str, Any] = {"round": round_, "values": curve[round_]}
            stopped = job.rule.stops(round_, curve)
            if stopped or round_ == ROUNDS:
                ending = Ending("scheduler" if stopped else "completed", round_, None, dict(curve), 1.0)
                self.timed("end", session.on_trial_complete, trial, told | {"ending": ending}, False)
                del self.jobs[trial], self.curves[trial], self.lengths[trial]
                self.fill(session)
            else:
                self.timed("report", session.on_trial_result, trial, told)
                self.begin_round(trial, round_ + 1)

    def fill(self, session: Any) -> None:
        """Proposes for every free slot."""
        while len(self.jobs) < self.slots and self.begun < self.trials:
            trial = str(self.begun)
            self.begun += 1
            self.jobs[trial] = self.timed("proposal", session.suggest, trial)["job"]
            self.curves[trial] = {}
            self.lengths[trial] = SHORTEST * (LONGEST / SHORTEST) ** self.draw.random()
            self.last_proposal = self.now
            self.begin_round(trial, 1)

    def begin_round(self, trial: str, round_: int) -> None:
        self.begins.append(self.now)
        self.ends.append(self.now + self.lengths[trial])
        heapq.heappush(self.running, (self.ends[-1], trial, round_))

    def timed(self, kind: str, call: Callable[..., Any], *given: Any) -> Any:
        """What a call of the driver returns; its processor's seconds pass."""
        began = time.process_time()
        answer = call(*given)
        self.took[kind].append(time.process_time() - began)
        self.now += self.took[kind][-1]
        return answer

    def value(self, job: Any, round_: int) -> float:
        """The accuracy of a trial after a round: best at a learning rate of 0.1, with a noise of its own."""
        noise = random.Random(f"{job.number} {round_}").gauss(0.0, 0.01)
        return (0.9 - 0.2 * (math.log10(float(job.values["lr"])) + 1) ** 2) * (1 - 0.5**round_) + noise

    def busy(self) -> float:
        """The part of the slots' time that passes in rounds, until the last trial has been proposed."""
        until = self.last_proposal
        rounds = zip(self.begins, self.ends, strict=True)
        return sum(min(end, until) - begin for begin, end in rounds if begin < until) / (self.slots * until)
