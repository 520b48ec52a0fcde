"""What Ray Tune asks besides the next trial: a `Stopper` whether to end, a scheduler that is told why a process died, a
`ProgressReporter` that keeps Tune silent, and how a searcher is saved."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ray.tune import ProgressReporter
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
    """Trials start in their order, as without a scheduler; of all that Tune calls, only a scheduler hears of a death
    before the searcher does."""

    def __init__(self, said: dict[str, str]) -> None:
        """said: where to write what Ray says of a process that died, by the trial's name there."""
        super().__init__()  # type: ignore[no-untyped-call]
        self._said = said

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        try:
            said = Path(trial.error_file).read_text(errors="replace")
        except (OSError, TypeError):  # (None where Tune has written no such file)
            said = ""
        self._said[trial.trial_id] = said

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
