"""One trial: a configuration simulated over its seeds, a round per step, alone in its process or beside others. Whoever
hosts its process drives it.

The trial's folder is the truth (`trainables.worker.trial_folder`): a trial that starts in a folder with a
checkpoint goes on from there. Its rows are written by `trainables.worker.rounds_jsonl`.

A trial never raises. A configuration that is impossible, raises or diverges ends with `done` and a `stop_reason`; the
process stays alive for the next trial, and retries are left for processes that really died. Every stop rule is
asked here, after the round it concerns. What is no configuration's fault ends the trial as `interrupted`, to be
resumed: a full disk, data that are gone or changed, other libraries, a machine without the run directory; and so does
memory that does not suffice, to be continued with a larger share of the machine.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import itertools
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from search_spaces.errors import EnvironmentFault, UserError
from trainables import own_code
from trainables.simulation.replicates import Replicates, step_together
from trainables.worker import environment, home, memory, process
from trainables.worker.job import Ending, Job
from trainables.worker.rounds_jsonl import Damaged, Row
from trainables.worker.trial_folder import TrialFolder
from trainables.worker.trial_values import TrialValues


class HostedTrials:
    """What a process hosts: a trial after the other or, where a job has others `beside` it, bundles of trials that go
    round by round together.

    A trial of a bundle that ends leaves it, and the others go on. `step` returns the first trial's result, of which
    `done` says whether all have ended; `beside` are the others' places (1, 2, …) and results. Of a trial that has ended
    before there is no more result. The arguments are those of `SimulatedTrial`."""

    def __init__(self, ask: Callable[..., Any], node: str = "") -> None:
        self._given = ask, node
        self._trials: list[SimulatedTrial] = []
        self._going: dict[int, SimulatedTrial] = {}
        memory.keep_memory()
        process.spare_imports()

    def begin(self, job: Job, on_gpu: bool) -> None:
        """As `SimulatedTrial.begin`, with the jobs beside this one."""
        self.release()
        jobs = (job, *job.beside)
        self._trials += [SimulatedTrial(*self._given) for _ in jobs[len(self._trials) :]]
        self._going = dict(enumerate(self._trials[: len(jobs)]))
        for trial, own in zip(self._going.values(), jobs, strict=True):
            trial.begin(own, on_gpu=on_gpu)

    def step(self) -> dict[str, Any]:
        """A round of every trial that goes on."""
        together = self._together() if len(self._going) > 1 else {}
        found = {place: together.get(place) or trial.step() for place, trial in self._going.items()}
        self._going = {place: trial for place, trial in self._going.items() if not found[place]["done"]}
        if self._going and len(self._going) < len(found):  # a trial that ended has let go of the process's log
            next(iter(self._going.values())).tell_crashes()
        result = found.pop(0, {}) | {"done": not self._going}
        return result | {"beside": list(found.items())} if found else result

    def _together(self) -> dict[int, dict[str, Any]]:
        """By place the results of those trials whose next round is run together; none where there are not two."""
        federations = {place: trial.federations for place, trial in self._going.items()}
        bundled = {place: own for place, own in federations.items() if own is not None}
        if len(bundled) < 2:
            return {}
        started, printed = time.monotonic(), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            rows = dict(zip(bundled, step_together(list(bundled.values())), strict=True))
        seconds = (time.monotonic() - started) / len(bundled)
        return {place: self._going[place].take(rows[place], seconds, printed.getvalue()) for place in bundled}

    def release(self) -> None:
        """Lets go of all trials."""
        for trial in self._trials:
            trial.release()


class SimulatedTrial:
    """The trials that a process simulates, one after another.

    Trials that are begun with `begin` and whose `step` is called until its result says `done`. A result holds `number`,
    `round`, `values` (of the job's metrics, or None in a round without evaluation), a `note` where there is something
    to tell and, with `done`, also `ending`.

    ask: calls a method of an actor: by its name, the method's name, and what it is given. Raises what that raises, and
    `OSError` where the actor cannot be reached. node: Ray's name for this machine, empty where no Ray runs."""

    def __init__(self, ask: Callable[..., Any], node: str = "") -> None:
        self._ask, self._node = ask, node
        self._simulation: Any = None
        self._folder: TrialFolder | None = None

    def release(self) -> None:
        """Lets go of the trial's folder and of memory that a neighbour may need."""
        if self._simulation is None and self._folder is None:
            return  # after its last round already
        self._simulation = None
        process.release()
        if self._folder is not None:
            process.tell_crashes(None)
            self._folder.close()
            self._folder = None

    def step(self) -> dict[str, Any]:
        """A round of the trial. After the last one the process is kept for the next trial, but neither its memory nor
        its hold on the folder."""
        if self._reason is None:
            with self._guarded():
                started = time.monotonic()
                self._record(self._simulation.step())
                self._seconds += time.monotonic() - started
        return self._told()

    @property
    def federations(self) -> Replicates | None:
        """What can go through its next round together with others; None where there is no such round or federation."""
        return self._simulation if self._reason is None and isinstance(self._simulation, Replicates) else None

    def take(self, rows: Sequence[Row] | Exception, seconds: float, printed: str) -> dict[str, Any]:
        """As `step`, of a round that was run in a bundle and gave these rows, or ended so. seconds: its part of the
        time; printed: what all of the bundle has printed."""
        started = time.monotonic()
        with self._guarded():
            print(printed, end="")
            if isinstance(rows, Exception):
                raise rows
            self._record(rows)
            self._seconds += seconds + time.monotonic() - started
        return self._told()

    def tell_crashes(self) -> None:
        """A crash of the process is told in this trial's log."""
        process.tell_crashes(None if self._folder is None else self._folder.log)

    def _told(self) -> dict[str, Any]:
        """The result of a round that has ended."""
        result = self._result()
        if result["done"]:
            self.release()
        return result

    # -- the trial's life ------------------------------------------------------------------------------------------

    def begin(self, job: Job, on_gpu: bool) -> None:
        """Begins a trial, or takes it up from its folder. on_gpu: whether this process was given a GPU or a part of
        one."""
        self.release()
        self._job, self._on_gpu = job, on_gpu
        self._reason: str | None = None
        self._error: str | None = None
        self._out_of_memory = False
        self._note: str | None = None
        self._completed = 0
        self._values = TrialValues(job.metrics, job.signs)
        self._seconds = 0.0
        with self._guarded():
            job.environment.check_folder()
            job.environment.check_versions()
            self._folder = self._opened(job)
            process.tell_crashes(self._folder.log)
            process.set_threads(job.threads)
            own_code.given(job.code)
            simulate = functools.partial(
                job.simulate or Replicates,
                job.method,
                job.values,
                job.seeds,
                device=self._device(),
                data_dir=job.data_dir,
            )
            self._simulation = simulate()
            job.environment.check_data(job.values.get("dataset"), self._simulation.partition())
            try:
                rows = self._folder.resume(self._simulation, job.seeds, ended=job.ended)
            except Damaged as why:
                self._note = f"Trial {job.number} starts again from round 0, as {why}."
                self._folder.start_over(why)
                self._simulation = simulate()
                rows = self._folder.resume(self._simulation, job.seeds)
            if self._note is None and self._folder.note is not None:
                self._note = f"Trial {job.number} goes on; {self._folder.note}."
            if job.keep_models:
                self._simulation.keep_models()
            if job.keep_images:
                self._folder.save_images(None, self._simulation.keep_images())
            if job.values.get("eval_test") == "end":  # the test set is measured only where the trial may end
                self._simulation.may_end(job.rule.may_stop)
                rows = self._simulation.planned(rows)
                self._folder.rewrite(rows)
            self._take_up(rows)

    def _opened(self, job: Job) -> TrialFolder:
        """The trial's folder, or where this machine does not see it one here that is sent home."""
        there = job.environment
        if there.sees_folder or there.home is None:
            return TrialFolder(Path(job.folder))
        self._note = (
            f"The machine {socket.gethostname()} does not see the run directory; rounds and checkpoints of its trials "
            "are sent home."
        )
        ask = functools.partial(self._ask, there.home)
        if "dataset" in job.values and job.simulate is None:
            home.bring(ask, str(job.values["dataset"]), job.data_dir)
        return home.SentFolder(ask, job.folder, self._node)

    def _device(self) -> str:
        if not self._on_gpu:
            return "cpu"
        process.use_gpu(self._job.gpu_share)
        return "cuda"

    def _take_up(self, rows: Sequence[Row]) -> None:
        """Goes on from the rows of earlier sessions."""
        last: list[Row] = []
        for _, of_round in itertools.groupby(rows, key=lambda row: row["round"]):
            last = list(of_round)
            self._values.add(last)
            self._seconds += sum(row.get("seconds") or 0.0 for row in last)
        self._completed = self._simulation.round
        if self._completed:
            self._decide(last)

    def _record(self, rows: Sequence[Row]) -> None:
        """Takes in the rows of a round."""
        assert self._folder is not None
        self._folder.append(rows)
        self._completed = self._simulation.round
        improved = self._values.add(rows)
        self._decide(rows)
        if improved and self._job.keep_models:
            self._keep_models(self._folder, improved)
        if self._job.keep_images:
            self._folder.save_images(self._completed, self._simulation.images())
        if self._reason == "completed" and self._job.keep_models:
            self._folder.save_confusion(self._simulation.confusion())
        self._folder.save_checkpoint(self._simulation, last=self._reason is not None)

    def _decide(self, last: Sequence[Row]) -> None:
        """Whether the trial ends here, from the last round's rows."""
        broken = self._values.broken(last)
        if broken is not None:
            self._reason = "diverged"
            self._error = f"{broken} stopped being a finite number in round {self._completed}."
        elif self._completed >= self._simulation.rounds:
            self._reason = "completed"
        elif self._job.rule.stops(self._completed, self._values.signed):
            self._reason = "scheduler"

    def _keep_models(self, folder: TrialFolder, seeds: Sequence[int]) -> None:
        """Saves the global models of these seeds, where the method has one, and those that are the clients' own."""
        found, personal = self._simulation.models(), self._simulation.personal_models()
        for seed in seeds:
            row = self._values.of_last_round(seed)
            measured = {k: v for k, v in row.items() if isinstance(v, (int, float)) and k not in ("round", "seed")}
            chosen = {"selected_by": self._job.metrics[0], "metrics": measured}
            if seed in found:
                params, card = found[seed]
                folder.save_model(seed, params, card.noting(chosen))
            if of_clients := personal.get(seed):
                noted = {"selected_by": chosen["selected_by"], "kept_in_round": row["round"]}
                folder.save_clients(seed, {c: (params, card.noting(noted)) for c, (params, card) in of_clients.items()})

    # -- what is reported ------------------------------------------------------------------------------------------

    def _result(self) -> dict[str, Any]:
        curve = self._values.curve
        result: dict[str, Any] = {
            "number": self._job.number,
            "round": self._completed,
            "values": curve.get(self._completed),
            "done": self._reason is not None,
        }
        if self._note is not None:
            result["note"], self._note = self._note, None
        if self._reason is not None:
            node = self._node if self._out_of_memory else ""
            result["ending"] = Ending(
                self._reason, self._completed, self._error, curve, self._seconds, self._out_of_memory, node
            )
        return result

    @contextlib.contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turns whatever happens inside into a stop reason; what is printed goes to the trial's log."""
        log = self._folder.log if self._folder is not None else io.StringIO()
        with contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            try:
                yield
            except EnvironmentFault as error:
                self._reason, self._error = "interrupted", " ".join(error.problems)
            except UserError as error:
                self._reason, self._error = "error", " ".join(error.problems)
            except OSError as error:
                self._reason, self._error = "interrupted", environment.disk(self._job.folder, error)
                self._out_of_memory = error.errno == errno.ENOMEM
            except Exception as error:
                self._reason, self._error = "error", own_code.told(error)
                if process.is_out_of_memory(error):
                    self._reason, self._out_of_memory = "interrupted", True
                if self._folder is not None:
                    with contextlib.suppress(OSError):
                        traceback.print_exc(file=self._folder.log)
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.log.flush()
