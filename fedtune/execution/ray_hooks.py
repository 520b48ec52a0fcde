"""What Ray Tune asks besides the next trial: a `Stopper` whether to end, a scheduler that is told why a process died
and takes back what was asked of a machine that is gone, a `ProgressReporter` that keeps Tune silent, how a searcher is
saved, and a `Callback` that lets go of trials which have ended."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ray.tune import ProgressReporter
from ray.tune.experiment import Trial
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher
from ray.tune.stopper import Stopper

from fedtune.execution.interrupts import Interrupts
from fedtune.machine.server_watch import ServerLoss
from fedtune.record.journal import NotWritten
from search_spaces.files import cannot_write


class LeaveTune(BaseException):
    """Ends Tune at once, without its cleaning up; no `except Exception` in between keeps it."""


class InOrder(FIFOScheduler):
    """Trials are asked for in their order, as without a scheduler, but a process that falls free is for the trial that
    was added last. Tune's own scheduler has it take the place of one that is still starting for an earlier trial: where
    trials take less time than a process needs to start, as on a GPU, all of them would take turns in one.

    Of all that Tune calls, only a scheduler hears of a death before the searcher does, and can take back what was asked
    for: it leaves what Ray has `said` of a process that died with the searcher, and has it name those of the trials
    that have yet to start which it is to `take_back`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        #: Trials that have yet to start, in their order. (Tune's own scheduler goes through all that ever were.)
        self._waiting: dict[str, Any] = {}
        #: Those for which Tune starts no process yet.
        self._added: set[str] = set()

    def on_trial_add(self, tune_controller: Any, trial: Any) -> None:
        self._waiting[trial.trial_id] = trial
        self._added.add(trial.trial_id)

    def choose_trial_to_run(self, tune_controller: Any) -> Any:
        self._waiting = {name: trial for name, trial in self._waiting.items() if trial.status == Trial.PENDING}
        for name in tune_controller.search_alg.searcher.take_back(tuple(self._waiting)):
            trial = self._waiting.pop(name)
            if trial in tune_controller._staged_trials:  # else Tune would keep a process ready for it
                tune_controller._unstage_trial_with_resources(trial)
            tune_controller.stop_trial(trial)
        added = [trial for name, trial in self._waiting.items() if name in self._added]
        self._added.clear()
        return next(iter(added or self._waiting.values()), None)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        try:
            said = Path(trial.error_file).read_text(errors="replace")
        except (OSError, TypeError):  # (None where Tune has written no such file)
            said = ""
        tune_controller.search_alg.searcher.said[trial.trial_id] = said

    def __reduce__(self) -> Any:
        return FIFOScheduler, ()


class SessionEnd(Stopper):
    """Whether a session must end: `out_of_time` at its deadline, by a `failure` that is to be raised, by Ctrl-C, or as
    Ray's servers are gone. No trial is stopped from here; all end together."""

    def __init__(self, folder: Path, deadline: float | None, interrupts: Interrupts, lost: ServerLoss) -> None:
        """folder: where everything is written. deadline: in the seconds of `time.monotonic`."""
        self.folder, self.deadline, self.interrupts, self.lost = folder, deadline, interrupts, lost
        self.failure: BaseException | None = None
        self.out_of_time = False

    def is_within(self, seconds: float) -> bool:
        """Whether the deadline is no further away than so many seconds."""
        return self.deadline is not None and time.monotonic() >= self.deadline - seconds

    @contextlib.contextmanager
    def keeping_failures(self) -> Iterator[None]:
        """An exception in the block must not surface inside Ray, where it would be buried: it ends the session."""
        try:
            yield
        except (OSError, NotWritten) as error:
            why = error.why if isinstance(error, NotWritten) else error.strerror or str(error)
            fix = f"What was written is kept; free some space and go on with `{self.lost.again}`."
            self.failure = cannot_write(self.folder, why, fix)
        except Exception as error:
            self.failure = error

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        """Raises `LeaveTune` where Tune could not end; lets no `Exception` out."""
        if self.lost.server is not None:
            raise LeaveTune
        self.out_of_time = self.out_of_time or self.is_within(0.0)
        return self.out_of_time or self.failure is not None or self.interrupts.pending

    def __reduce__(self) -> Any:
        return dict, ()


class SilentReporter(ProgressReporter):
    """Tune reports nothing. The one that it takes by itself in a notebook clears the cell's output, and ours with it,
    even where Tune is told to be silent."""

    def should_report(self, trials: Sequence[Any], done: bool = False) -> bool:
        return False

    def report(self, trials: Sequence[Any], done: bool, *sys_info: str) -> None: ...


class UnsavedSearcher(Searcher):
    """Tune keeps nothing of a search: a run is resumed from its own directory."""

    def set_search_properties(self, *args: Any, **kwargs: Any) -> bool:
        return True

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).touch()

    def restore(self, checkpoint_path: str) -> None:
        raise NotImplementedError("a run is resumed from its own directory")

    def __reduce__(self) -> Any:  # Ray pickles its configuration once at the start and never reads it back here
        return Searcher, ()


class EndedTrials(TrialProgressCallback):
    """Takes the place of what prints every result of Tune's, and prints nothing. Lets go of what a trial of Tune holds
    that has ended: its request, its results with the statistics that Tune makes of them, and its folder. Tune keeps the
    trial itself until a session ends, however many there are, and nobody asks it for any of this; the run directory has
    it all. For the same reason no table is made of all trials in the end."""

    def __init__(self) -> None:
        super().__init__()
        #: One description of where Tune writes, for all of them: that of the first, whose folder stays.
        self._storage: Any = None

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None: ...

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._let_go(trial)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._let_go(trial)

    def on_experiment_end(self, trials: list[Any], **info: Any) -> None:
        """Raises `LeaveTune`: the processes of all trials have ended, and Tune would make its result of them."""
        if sys.exc_info()[0] is None:  # else Tune failed, which is to be told
            raise LeaveTune

    def _let_go(self, trial: Any) -> None:
        if self._storage is None:
            self._storage = trial.storage
        elif trial.storage is not self._storage:
            shutil.rmtree(trial.local_path, ignore_errors=True)
        # (A process may die of which Tune awaits no more than its end. What it says goes to the folder that is left.)
        trial.set_storage(self._storage)
        for held in (trial.config, trial.evaluated_params, trial.metric_analysis, trial.metric_n_steps):
            held.clear()
        # (Where there is no result, Tune asks the trial's process for one.)
        trial.run_metadata.last_result = {"done": True}
        trial.set_experiment_tag("")


def folder_name(trial: Any) -> str:
    """The name of the folder that Tune makes for a trial. Tune itself would write its whole request into it."""
    return str(trial.trial_id)
