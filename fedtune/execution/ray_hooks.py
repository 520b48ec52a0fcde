"""What Ray Tune asks and tells while it runs trials: a `Searcher` for the next one, a `Stopper` for whether to end, a
scheduler that is told why a process died. They hand on to a session. A `ProgressReporter` keeps Tune silent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ray.tune import ProgressReporter
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher
from ray.tune.stopper import Stopper


class Session(Protocol):
    """Who answers."""

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None: ...

    def result(self, trial_id: str, result: Mapping[str, Any]) -> None: ...

    def complete(self, trial_id: str, result: Mapping[str, Any] | None, error: bool) -> None: ...

    def failed(self, trial_id: str, said: str) -> None:
        """Called before `complete`, with what Ray says of a process that died."""

    def must_end(self) -> bool:
        """May raise what is to end Tune at once; it lets no `Exception` out."""


class AskSession(Searcher):
    """The next trial is what the session suggests."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session

    def suggest(self, trial_id: str) -> Any:  # Ray declares no `FINISHED`
        return self._session.suggest(trial_id)

    def set_search_properties(self, *args: Any, **kwargs: Any) -> bool:
        return True

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self._session.result(trial_id, result)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self._session.complete(trial_id, result, error)

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).touch()

    def restore(self, checkpoint_path: str) -> None:
        raise NotImplementedError("a run is resumed from its own directory")

    def __reduce__(self) -> Any:  # Ray pickles its configuration once at the start and never reads it back here
        return Searcher, ()


class InOrder(FIFOScheduler):
    """Trials start in their order, as without a scheduler; of all that Tune calls, only a scheduler hears of a death
    before the searcher does."""

    def __init__(self, session: Session) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._session = session

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        try:
            said = Path(trial.error_file).read_text(errors="replace")
        except (OSError, TypeError):  # (None where Tune has written no such file)
            said = ""
        self._session.failed(trial.trial_id, said)

    def __reduce__(self) -> Any:
        return FIFOScheduler, ()


class StopWithSession(Stopper):
    """No trial is stopped from here; all end when the session must."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._session.must_end()

    def __reduce__(self) -> Any:
        return dict, ()


class SilentReporter(ProgressReporter):
    """Tune reports nothing. The one that it takes by itself in a notebook clears the cell's output, and ours with it,
    even where Tune is told to be silent."""

    def should_report(self, trials: Sequence[Any], done: bool = False) -> bool:
        return False

    def report(self, trials: Sequence[Any], done: bool, *sys_info: str) -> None: ...
