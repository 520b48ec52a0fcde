"""One trial: a configuration simulated over its seeds, a round per step, alone in its process or in a bundle of trials
that go round by round together. Whoever hosts its process drives it.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from search_spaces import own_files
from search_spaces.errors import EnvironmentFault, UserError
from trainables import own_code
from trainables.simulation.replicates import Replicates, step_together
from trainables.worker import environment, home, process
from trainables.worker.job import Ending, Job
from trainables.worker.rounds_jsonl import Damaged, Row
from trainables.worker.trial_folder import TrialFolder
from trainables.worker.trial_values import TrialValues


class SimulatedTrial:
    """A trial that goes on where its folder says, to be stepped until a result says `done`.

    A result holds `number`, `round`, `values` (of the job's metrics, or None in a round without evaluation), a `note`
    where there is something to tell and, with `done`, also `ending`."""

    def __init__(self, job: Job, on_gpu: bool, ask: Callable[..., Any], node: str = "") -> None:
        """on_gpu: whether this process was given a GPU or a part of one. ask: calls a method of an actor: by its name,
        the method's name, and what it is given. Raises what that raises, and `OSError` where the actor cannot be
        reached. node: Ray's name for this machine, empty where no Ray runs."""
        self._job, self._on_gpu, self._ask, self._node = job, on_gpu, ask, node
        self._simulation: Any = None
        self._folder: TrialFolder | None = None
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
            # The test set is measured only where the trial may end.
            if job.values.get("eval_test") == "end" and isinstance(self._simulation, Replicates):
                self._simulation.may_end(job.rule.may_stop)
                written, rows = rows, self._simulation.planned(rows)
                if rows != written:
                    self._folder.rewrite(rows)
            self._take_up(rows)

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

    def take(self, rows: Sequence[Row] | BaseException, seconds: float, printed: str) -> dict[str, Any]:
        """As `step`, of a round that was run in a bundle and gave these rows, or ended so. seconds: its part of the
        time; printed: what all of the bundle has printed."""
        started = time.monotonic()
        with self._guarded():
            print(printed, end="")
            if isinstance(rows, BaseException):
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
        stays = self._reason == "completed" and self._job.extendable
        self._folder.save_checkpoint(self._simulation, last=self._reason is not None, stays=stays)

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
            except own_files.RAISED as error:
                if process.is_told_to_end(error):
                    raise
                self._reason, self._error = "error", own_code.told(error)
                if process.is_out_of_memory(error):
                    self._reason, self._out_of_memory = "interrupted", True
                if self._folder is not None:
                    with contextlib.suppress(OSError):
                        traceback.print_exc(file=self._folder.log)
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.log.flush()


def bundled_round(trials: Mapping[int, SimulatedTrial]) -> dict[int, dict[str, Any]]:
    """By place the results of those trials whose next round is run together; none where there are not two."""
    federations = {place: own for place, trial in trials.items() if (own := trial.federations) is not None}
    if len(federations) < 2:
        return {}
    started, printed = time.monotonic(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        rows = dict(zip(federations, step_together(list(federations.values())), strict=True))
    seconds = (time.monotonic() - started) / len(federations)
    return {place: trials[place].take(rows[place], seconds, printed.getvalue()) for place in federations}
