"""One call of Ray Tune: which trial it starts next and with what share of the machine, what is done with every result,
and what becomes of a trial that ran out of memory or whose process died.

Ray places trials on cores, GPUs and machines and reuses their processes. Its logs, checkpoints, retries and restore are
not used; the run directory is the only state. A trial that ran out of memory, or whose process died, is put back and
goes on from its last checkpoint, in the first case with a larger share, without the study seeing a failure.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ray import tune
from ray.tune.search import Searcher

from fedtune.console.progress import ProgressDisplay
from fedtune.decisions.confirmation import late
from fedtune.decisions.prices import forecast
from fedtune.execution.outcome import may_go_on
from fedtune.execution.queue import Proposal, Queue
from fedtune.execution.ray_hooks import (
    EndedTrials,
    InOrder,
    LeaveTune,
    SessionEnd,
    SilentReporter,
    UnsavedSearcher,
    folder_name,
)
from fedtune.execution.retries import Death, Retries
from fedtune.execution.shares import PATIENCE, Shares
from fedtune.execution.trackers import Tracker
from fedtune.machine import cluster
from fedtune.machine.resources import Share, of_process
from fedtune.machine.server_watch import ServerWatch
from fedtune.record.experiment import Placement, datasets
from fedtune.record.provenance import begun_with, ran_on
from fedtune.record.run_directory import token, trial_folder, write_document
from search_spaces import run_folder
from search_spaces.errors import UserError

if TYPE_CHECKING:
    from trainables.own_code import Code
    from trainables.worker.job import Ending, Job


def _of_each(result: Mapping[str, Any]) -> list[tuple[int, Mapping[str, Any]]]:
    """The results of a process's trials, by their places in its bundle."""
    return [(0, result), *result.get("beside", ())]


class TuneSession(UnsavedSearcher):
    """One call of Tune, and the searcher that it asks for the next trial, which asks the queue.

    Afterwards: `interrupted` by Ctrl-C, or what `end` says."""

    def __init__(
        self,
        queue: Queue,
        watch: ProgressDisplay,
        placement: Placement,
        end: SessionEnd,
        servers: ServerWatch,
        simulate: Callable[..., Any] | None,
    ) -> None:
        super().__init__()
        self.queue, self.watch, self.placement = queue, watch, placement
        self.end, self.servers, self.simulate = end, servers, simulate
        first = queue.parts[0]
        self.trackers = [Tracker(name, first.folder, watch.say) for name in first.experiment.log]
        self.interrupted = False
        #: By Ray's name of a process its trials that have not ended, by their places in its bundle, and its share.
        self._live: dict[str, dict[int, int]] = {}
        self._held: dict[str, Share] = {}
        #: Those that were put back: their memory did not suffice or their process died, so they go on by themselves.
        self._apart: set[int] = set()
        self._shares = Shares(placement, cards=cluster.cards)
        #: How trials go on whose processes died, and what Ray said of each that did, by its name there.
        self._retries = Retries(self._shares)
        self.said: dict[str, str] = {}
        self._codes: dict[tuple[str, Any], tuple[Code, ...]] = {}
        self._environment = begun_with(first.folder)
        #: On a cluster the actor that writes for machines which do not see the run directory.
        self._home: Any = None

    def fit(self, scratch: Path, forks: bool) -> None:
        """Calls Tune, which writes its files to `scratch`. forks: whether Ray's processes are forks of a loaded one.
        Raises `ServersLost` where Ray's servers died."""
        from trainables.tune import Trial, resources
        from trainables.worker.environment import Token

        with token(self.end.folder) as (path, content), contextlib.suppress(LeaveTune):
            self._environment = dataclasses.replace(self._environment, token=Token(str(path), content), forks=forks)
            if self.placement.address is not None:
                named = sorted({name for part in self.queue.parts for name in datasets(part.experiment, part.space)})
                where = [str(part.folder) for part in self.queue.parts], named, self.queue.parts[0].experiment.data_dir
                self._home = cluster.run_home(home := f"fedtune-{content}", *where)
                self._environment = dataclasses.replace(self._environment, home=home)
            tune.Tuner(
                tune.with_resources(Trial, resources),
                tune_config=tune.TuneConfig(
                    search_alg=self,
                    scheduler=InOrder(),
                    num_samples=-1,
                    reuse_actors=True,
                    trial_dirname_creator=folder_name,
                ),
                run_config=tune.RunConfig(
                    name="trials",
                    storage_path=str(scratch),
                    verbose=0,
                    progress_reporter=SilentReporter(),
                    stop=self.end,
                    callbacks=[EndedTrials()],
                    failure_config=tune.FailureConfig(max_failures=0),
                    checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=0, checkpoint_at_end=False),
                ),
            ).fit()
        self._home = None
        # Tune returns from Ctrl-C as if it had finished.
        self.interrupted = not self.queue.finished and not self.end.out_of_time and self.end.failure is None
        with contextlib.suppress(Exception):  # a note for readers, not worth failing for on a full disk
            self.queue.interrupt()
        self.end.lost.check()
        for tracker in self.trackers:
            tracker.close()

    def suggest(self, trial_id: str) -> Any:  # Ray declares no `FINISHED`
        if self.end.stop_all():
            return Searcher.FINISHED
        if self.end.is_within(late(self.placement.time or 0.0)):
            self.queue.set_late()
        at_once, size = min(self.placement.concurrency, self._room()), self.placement.bundle
        if len(self._live) >= self._shares.processes(at_once, size) or self.end.failure is not None:
            return None
        if not self._shares.room(self.queue.next_share(), self._running()):
            return None
        size = self._shares.together(size, [self._held[name] for name in self._live])
        jobs: list[Job] = []
        with self.end.keeping_failures():
            alone = self.queue.goes_on in self._apart
            while len(jobs) < (1 if alone else size) and len(self._running()) < at_once:
                if jobs and self.queue.goes_on in self._apart or (proposal := self.queue.propose()) is None:
                    break
                jobs.append(self._job(proposal))
                self._live.setdefault(trial_id, {})[len(jobs) - 1] = proposal.number
                self.watch.started(proposal.number, proposal.values)
                for tracker in self.trackers:
                    tracker.start(proposal.number, proposal.own, proposal.part.folder, proposal.values)
            self.watch.expect(self._forecast)
        if not jobs:
            # A trial that runs may yet be put back, and one that has said `FINISHED` is not asked again.
            over = self.end.failure is not None or not self._live and self.queue.exhausted
            return Searcher.FINISHED if over else None
        held = self._held[trial_id] = of_process([self._shares[number] for number in self._live[trial_id].values()])
        first, *others = (dataclasses.replace(job, gpu_share=held.gpus) for job in jobs)
        return {"job": dataclasses.replace(first, beside=tuple(others))}

    def _running(self) -> list[int]:
        """The trials that have not ended."""
        return [number for numbers in self._live.values() for number in numbers.values()]

    def _forecast(self) -> tuple[Mapping[int, float], float] | None:
        return forecast(self.queue.history, self._running())

    def _room(self) -> int:
        """How many trials of the usual share all machines have room for now, at least one, which then waits for a
        machine. On which of several machines or GPUs they have it is printed and recorded."""
        known, slots = bool(self._shares.slots), self._shares.count()
        if slots is not None and (len(slots) > 1 or known or (self.placement.gpus > 0 and slots[0].gpus > 1)):
            self.watch.say(cluster.told(slots, self.placement.gpus, self.placement.by_kind))
            if not any(one.slots for one in slots):
                self.watch.say(f"The search waits {PATIENCE / 60:g} minutes for a machine with room for a trial.")
            with self.end.keeping_failures():
                for part in self.queue.parts:
                    ran_on(part.folder, [one._asdict() for one in slots])
        return max(1, sum(one.slots for one in self._shares.slots))

    def take_back(self, waiting: Sequence[str]) -> list[str]:
        """Of the trials that have yet to start, by Ray's names, those that are not asked for any more, as the machines
        are gone on which they could be. They wait to be asked for on others."""
        if self.placement.address is None:
            return []
        self._room()
        found: list[str] = []
        with self.end.keeping_failures():
            found = self._shares.lost({n: (*self._live[n].values(),) for n in waiting}, self._held, self.end.lost.again)
            for name in found:
                del self._held[name]
            for number in (number for name in found for number in self._live.pop(name).values()):
                self._shares.started(number)
                self.queue.again(number, None)
                self.watch.put_back(number)
                self.watch.say(f"Trial {number} waited for a machine that is gone; it is placed on another one.")
        return found

    def _job(self, proposal: Proposal) -> Any:
        from trainables.worker.job import Job

        share = self._shares.begin(proposal.number, proposal.share, self._running())
        e = proposal.part.experiment
        complete = {**e.values, **proposal.values}
        folder = trial_folder(proposal.part.folder, proposal.own)
        write_document(folder / run_folder.CONFIG, complete)
        self._retries.begin(proposal.number, folder, len(proposal.seeds))
        return Job(
            number=proposal.own,
            folder=str(folder),
            method=e.method,
            values=complete,
            seeds=proposal.seeds,
            ended=proposal.ended,
            extendable=may_go_on(proposal.part, complete),
            metrics=e.metric,
            signs=e.signs,
            rule=proposal.rule,
            threads=e.threads,
            cpus=share.cpus,
            gpu_share=share.gpus,
            gpu_kind=f"{cluster.KIND}{share.kind}" if share.kind else None,
            data_dir=e.data_dir,
            keep_models=e.kind == "run",
            keep_images=e.keep_images,
            environment=self._environment,
            code=self._code(e.method, complete),
            simulate=self.simulate,
        )

    def _code(self, method: str, values: Mapping[str, Any]) -> tuple[Code, ...]:
        """The user's own files of a trial, as they were when the first trial with them began."""
        if self.simulate is not None:
            return ()
        from trainables import registry

        of = method, values.get("model")
        if of not in self._codes:
            self._codes[of] = registry.own_codes(method, values)
        return self._codes[of]

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        for place, one in _of_each(result):
            number = self._live.get(trial_id, {}).get(place)
            if number is None or "round" not in one:
                continue
            self._shares.started(number)
            self.watch.say_once(one.get("note"))
            with self.end.keeping_failures():
                self.queue.report(number, one["round"], one.get("values"))
            self.watch.round(number, one["round"], one.get("values"))
            for tracker in self.trackers:
                tracker.round(number)
            if (ending := one.get("ending")) is not None:  # it leaves its bundle
                del self._live[trial_id][place]
                self._ended(number, ending)

    def on_trial_complete(self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False) -> None:
        if trial_id not in self._live or error and (self.end.interrupts.pending or self.servers.lost()):
            return  # no process outlives its server, or a signal to all: its trials stay to be resumed
        from trainables.worker.job import Ending

        results, said = dict(_of_each(result or {})), self.said.pop(trial_id, "")
        for place, number in tuple(self._live[trial_id].items()):
            one = results.get(place, {})
            self.watch.say_once(one.get("note"))
            ending, died = one.get("ending"), None
            if error:
                died = self._retries.note(number, said, self._home)
                ending = Ending("interrupted", died.round, "its process died")
            if ending is None:
                continue  # ended from here, by a deadline or Ctrl-C: it stays to be resumed
            del self._live[trial_id][place]
            self._ended(number, ending, died)
        if not self._live[trial_id]:
            del self._live[trial_id], self._held[trial_id]
        self.watch.expect(self._forecast)

    def _ended(self, number: int, ending: Ending, died: Death | None = None) -> None:
        """Takes in how a trial ended, or that its process died."""
        self._shares.started(number)
        with self.end.keeping_failures():
            if died is not None or ending.out_of_memory:
                if (goes_on := self._retries.goes_on(number, ending, died)) is not None:
                    self._apart.add(number)
                    self.queue.again(number, goes_on.share)
                    self.watch.put_back(number)
                    self.watch.say(goes_on.told)
                    return
                if died is not None and not self._retries.is_own_doing(number):
                    raise self._retries.from_outside(number, self.end.lost.again)
                why = self._retries.given_up(number, ending, died)
                ending = dataclasses.replace(ending, stop_reason="error", error=why)
            self.queue.finish(number, ending)
            if ending.stop_reason == "interrupted":
                raise UserError(
                    f"{ending.error} The search stopped and keeps what was written; no trial was scored by this. Then "
                    f"go on with `{self.end.lost.again}`."
                )
            self.queue.tidy(number)
            self._retries.end(number)
        trial = self.queue.trial(number)
        for tracker in self.trackers:
            tracker.end(number, failed=trial.state.name == "FAIL")
        # Ray tells of a trial's last round with its end only.
        self.watch.round(number, int(trial.user_attrs.get("rounds", 0)), None)
        self.watch.finished(number, trial.state.name, trial.values, trial.user_attrs.get("error"))
