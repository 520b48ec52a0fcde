"""The three steps of `fedtune.auto` in a folder whose lock is held; each is left out when it was done before."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis import auto as reading
from analysis.runs import load_run as load
from analysis.runs.mappings import read_yaml
from fedtune.api.auto_result import AutoResult, read_auto
from fedtune.api.export import export
from fedtune.api.run import plan_run
from fedtune.api.search import complete
from fedtune.console import progress
from fedtune.console.auto_progress import AutoDisplay, FreshDisplay
from fedtune.decisions.method_allocation import Allowance
from fedtune.execution import driver
from fedtune.execution.auto_queue import AutoQueue
from fedtune.execution.interrupts import Interrupts
from fedtune.execution.queue import TrialQueue
from fedtune.execution.together import Together
from fedtune.machine import cluster
from fedtune.machine.server_watch import ServerLoss, ServerWatch, kept, patience, resuming
from fedtune.options import RunRequest
from fedtune.record.auto_record import AutoRecord
from fedtune.record.experiment import Experiment
from fedtune.record.provenance import provenance
from fedtune.record.run_directory import create, write_document
from search_spaces import run_folder
from search_spaces.errors import UserError
from search_spaces.metrics import METRICS
from search_spaces.space import Space

if TYPE_CHECKING:
    from fedtune.execution.auto_queue import Begun


class Driven:
    """The three steps in a folder whose lock is held."""

    def __init__(
        self,
        folder: Path,
        record: AutoRecord,
        address: str | None,
        style: progress.Style,
        simulate: Callable[..., Any] | None,
    ) -> None:
        """address: of the cluster that was named when this command was given; those of records are not joined."""
        self.folder, self.record, self.address, self.style, self.simulate = folder, record, address, style, simulate
        self._joined = False
        self._lost = ServerLoss(resuming(folder))

    def result(self) -> AutoResult:
        """Takes the steps that are left."""
        started = time.monotonic()
        finished, interrupted = False, False
        with self._lost, ExitStack() as ray:
            try:
                finished = all(step(ray) for step in (self._search, self._fresh, self._final))
                interrupted = not finished
            except KeyboardInterrupt:
                interrupted = True
        found = read_auto(self.folder)
        return dataclasses.replace(
            found, finished=finished, interrupted=interrupted, seconds=time.monotonic() - started
        )

    # -- the steps: each says whether it came to its end -----------------------------------------------------------

    def _search(self, ray: ExitStack) -> bool:
        runs = [complete_search(self.folder, method.name) for method in self.record.methods]
        queue = auto_queue(self.record, runs)
        if queue.finished and not queue.damaged():
            return True
        lead = dataclasses.replace(runs[0][1], name=self.record.name, address=self.address)
        prices = dict(zip(self._names, self.record.costs(self.record.unit), strict=True))
        watch = AutoDisplay(
            lead,
            self.style,
            prices,
            self.record.search_budget,
            lambda number: queue.home(number).experiment.method,
        )
        return self._driven(ray, self.folder, lead, queue, watch)

    def _fresh(self, ray: ExitStack) -> bool:
        for method in self.record.methods:
            search = self.folder / run_folder.SEARCHES / method.name
            if load(search).best is not None:
                self._run(method.name, run_folder.FRESH, self.record.fresh, 0)
        folders = [self.folder / run_folder.FRESH / name for name in self._names]
        there = [folder for folder in folders if folder.exists()]
        return not there or self._trained(ray, there, "fresh seeds")

    def _final(self, ray: ExitStack) -> bool:
        leader = reading.load(self.folder).leader
        if leader is None:
            return True
        self._run(leader, run_folder.FINAL, self.record.final, self.record.fresh)
        return self._trained(ray, [self.folder / run_folder.FINAL / leader], f"final run of {leader}")

    # -- their parts -----------------------------------------------------------------------------------------------

    @property
    def _names(self) -> list[str]:
        return [method.name for method in self.record.methods]

    def _run(self, method: str, where: str, count: int, after: int) -> None:
        """Makes the run of a method's best configuration below `where`, if it is not there."""
        target = self.folder / where / method
        best = self.folder / run_folder.BEST / f"{method}.yaml"
        if target.exists():
            _write_again(best, Experiment.read(target).source)
            return
        search = self.folder / run_folder.SEARCHES / method
        export(search, best)
        e = Experiment.read(search)
        left = e.address is not None and self.address is None  # so many trials may not fit on this machine
        request = RunRequest(
            str(best),
            name=method,
            seed=self.record.seed,
            runs_dir=str(target.parent),
            data_dir=e.data_dir,
            concurrency=None if left else e.concurrency,
            cpus_per_trial=None if left else e.cpus_per_trial,
            gpus_per_trial=e.gpus_per_trial,
            address=self.address,
        )
        plan = plan_run(request, count, after=after)
        made = provenance(device="cuda" if e.gpus_per_trial else "cpu", **plan.facts)
        create(target, plan.experiment.to_yaml(), plan.space.to_json(), made, plan.experiment.directions)

    def _trained(self, ray: ExitStack, folders: Sequence[Path], what: str) -> bool:
        """Drives final runs to their end."""
        runs = [(folder, *complete(folder, Experiment.read(folder))) for folder in folders]
        queue = Together([TrialQueue(*run) for run in runs])
        if queue.finished and not queue.damaged():
            return True
        trials = sum(run[1].trials for run in runs)
        named = f"{self.record.name}: {what}"
        lead = dataclasses.replace(runs[0][1], name=named, trials=trials, address=self.address)
        watch = progress.ProgressDisplay(lead, self.style)
        if len(runs) > 1:
            watch = FreshDisplay(lead, self.style, lambda n: (queue.home(n).experiment, queue.home(n).number))
        return self._driven(ray, self.folder, lead, queue, watch)

    def _driven(
        self,
        ray: ExitStack,
        folder: Path,
        lead: Experiment,
        queue: Together,
        watch: progress.ProgressDisplay,
    ) -> bool:
        """One session of Ray Tune, in a Ray that stays for the next one."""
        with watch, Interrupts() as interrupts, kept(self._lost.again):
            if not self._joined:
                ray.enter_context(
                    cluster.joined(
                        lead.address, trials=lead.concurrency, cpus=lead.cpus_per_trial, gpus=lead.gpus_per_trial
                    )
                )
                # Between two sessions too: until Ray has been left, whatever waits for a server may wait for ever.
                ray.enter_context(ServerWatch(self._lost.note, patience=patience(lead.address)))
                self._joined = True
            interrupts.check()
            outcome = driver.drive_queue(folder, lead, queue, watch, lost=self._lost, simulate=self.simulate)
            interrupts.check()
        return outcome.finished


def _write_again(best: Path, source: Mapping[str, Any]) -> None:
    """Writes the exported configuration `source`, which a run was made from, to its file where that says something
    else: it is damaged or gone."""
    try:
        found = read_yaml(best)
    except UserError:
        found = {}
    if source and found != source:
        best.parent.mkdir(exist_ok=True)
        write_document(best, source)


def complete_search(folder: Path, method: str) -> tuple[Path, Experiment, Space]:
    """The search of a method below `folder`."""
    search = folder / run_folder.SEARCHES / method
    return (search, *complete(search, Experiment.read(search)))


def auto_queue(record: AutoRecord, runs: Sequence[Begun]) -> AutoQueue:
    """The queue over the searches of all methods, which are in the order of the record."""
    allowance = Allowance(
        costs=record.costs(record.cost),
        rounds=record.rounds,
        least=record.least,
        equal=record.equal,
        sign=1.0 if METRICS[record.metric].direction == "maximize" else -1.0,
    )
    return AutoQueue(runs, allowance, record.search_budget).priced(record.costs(record.unit))
