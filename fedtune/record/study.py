"""The run's Optuna study in `study.db`: created, read and written here, and nowhere else.

This is also the only file that knows how Optuna stores a study. `StudyFile` keeps hold of the storage, as Optuna's
`Study` has no public way to add a value or an attribute to a trial that another process simulates.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from analysis.runs.recorded import check_rows, check_trials
from fedtune.record.sampler_state import check_states
from search_spaces import files, run_folder
from search_spaces.errors import UserError
from search_spaces.shell import quote

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial, TrialState

#: What Optuna raises where a value in the database is none that it wrote.
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)

Direction = Literal["maximize", "minimize"]


class NotWritten(UserError):
    """The study cannot be written: `why`, as SQLite says. No trial is scored by it.

    `damaged`: not for lack of space or of permission, but because the file is none that a search wrote."""

    def __init__(self, path: Path, why: str, *, damaged: bool) -> None:
        fix = (
            "The file is damaged; no trial was scored by this. Copy the run directory again or repair the file."
            if damaged
            else f"Free some space and go on with `fedtune resume {quote(str(path.parent))}`."
        )
        super().__init__(*files.cannot_write(path, why, fix).problems)
        self.path, self.why, self.damaged = path, why, damaged


#: What can be done about a run directory that cannot be written.
ELSEWHERE = "Free some space, or choose another place with --runs-dir."


def create_study(folder: Path, name: str, directions: Sequence[Direction]) -> None:
    """Writes an empty study, which is on the disk when this returns. Raises `UserError` where the disk refuses."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    path = folder / run_folder.STUDY
    try:
        with quiet_optuna():
            # An empty file is an empty database. One that SQLite makes would not have the mode that the umask gives.
            os.close(files.open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            storage = _opened(path)
            optuna.create_study(study_name=name, storage=storage, directions=list(directions))
            _close(storage)
        files.sync(path)
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        raise files.cannot_write(folder.parent, _first_line(error), ELSEWHERE) from error


def copy_study(path: Path, copy: Path) -> None:
    """Writes the study in `path`, as it is now, to `copy`, also while a driver writes to it."""
    import sqlite3

    with closing(sqlite3.connect(path, timeout=60)) as study, closing(sqlite3.connect(copy)) as target:
        study.backup(target)


def run_again(folder: Path, trials: Mapping[int, Mapping[str, Any]]) -> None:
    """Makes trials that have ended, by number, running ones without values, each with exactly these user attributes;
    values of rounds stay. All of it in one transaction, which is on the disk when this returns.

    (Optuna has no way back from the end of a trial. No `StudyFile` may be open meanwhile, as it remembers ended ones.)
    Raises `UserError` where the disk refuses."""
    import sqlite3

    path = folder / run_folder.STUDY
    try:
        with closing(sqlite3.connect(path.resolve(), timeout=60)) as study, study:
            ids = dict(study.execute("SELECT number, trial_id FROM trials"))
            for number, attributes in trials.items():
                trial = ids[number]
                study.execute(
                    "UPDATE trials SET state = 'RUNNING', datetime_complete = NULL WHERE trial_id = ?", (trial,)
                )
                study.execute("DELETE FROM trial_values WHERE trial_id = ?", (trial,))
                study.execute("DELETE FROM trial_user_attributes WHERE trial_id = ?", (trial,))
                study.executemany(
                    "INSERT INTO trial_user_attributes (trial_id, key, value_json) VALUES (?, ?, ?)",
                    [(trial, key, json.dumps(value)) for key, value in attributes.items()],
                )
    except sqlite3.OperationalError as error:
        how = f"Free some space and go on with `fedtune resume {quote(str(folder))}`."
        raise files.cannot_write(path, str(error), how) from error


class StudyFile:
    """The study of a run. One process at a time writes it (`fedtune.record.run_directory.lock`)."""

    def __init__(self, folder: Path) -> None:
        """Raises `UserError` where `folder` holds no study, one that cannot be read, or a trial that is none."""
        import sqlite3

        import optuna
        from sqlalchemy.exc import SQLAlchemyError

        self.path = folder / run_folder.STUDY
        self._trial_ids: dict[int, int] = {}
        if not self.path.is_file():
            raise UserError(f"{folder} is not a run: it holds no {run_folder.STUDY}.")
        try:
            with quiet_optuna():
                with closing(sqlite3.connect(self.path.resolve(), timeout=60)) as database:
                    check_rows(self.path, database)
                self._storage = _opened(self.path)
                self.study = optuna.load_study(
                    study_name=None,
                    storage=self._storage,
                    sampler=optuna.samplers.RandomSampler(0),
                    pruner=optuna.pruners.NopPruner(),
                )
            self._id = self._storage.get_study_id_from_name(self.study.study_name)
            trials, objectives = self.trials(), len(self.study.directions)
        except (sqlite3.Error, SQLAlchemyError, optuna.exceptions.StorageInternalError, *_UNREADABLE) as error:
            raise UserError(f"{self.path} is not a study that can be read: {_first_line(error)}.") from error
        check_trials(self.path, objectives, trials)
        check_states(self.path, trials)

    def trials(self) -> list[FrozenTrial]:
        """All trials in order."""
        return self.study.get_trials(deepcopy=False)

    # What writes raises `NotWritten` where SQLite refuses.

    def add(self, trial: FrozenTrial) -> None:
        """One more trial, in one transaction."""
        with self._writing():
            self.study.add_trial(trial)

    def set_value(self, number: int, round_: int, value: float) -> None:
        """The objective of an unfinished trial after a round."""
        with self._writing():
            self._storage.set_trial_intermediate_value(self._trial(number), round_, value)

    def set_attribute(self, number: int, key: str, value: Any) -> None:
        """A user attribute of an unfinished trial."""
        with self._writing():
            self._storage.set_trial_user_attr(self._trial(number), key, value)

    def end(self, number: int, state: TrialState, values: Sequence[float] | None) -> None:
        """Writes how a trial ended, and returns when all of the study is on the disk."""
        with self._writing():
            self.study.tell(number, values=values, state=state)
        files.sync(self.path)

    def close(self) -> None:
        """Lets go of the file."""
        _close(self._storage)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        import optuna
        from sqlalchemy.exc import OperationalError, SQLAlchemyError

        try:
            yield
        except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
            cause = error.__cause__ if isinstance(error, optuna.exceptions.StorageInternalError) else error
            why = str(getattr(cause, "orig", None) or cause or error).splitlines()[0]
            raise NotWritten(self.path, why, damaged=not isinstance(cause, OperationalError)) from error

    def _trial(self, number: int) -> int:
        if number not in self._trial_ids:
            self._trial_ids[number] = self._storage.get_trial_id_from_study_id_trial_number(self._id, number)
        return self._trial_ids[number]


def _opened(path: Path) -> optuna.storages.RDBStorage:
    """The storage in the file `path`. A transaction waits for the disk (10 ms, some 30 times per trial) only where
    `create_study` and `StudyFile.end` ask for it. SQLite's promise against killed processes does not need that; what a
    power cut could cost is what came after the last trial that ended."""
    import sqlite3

    import optuna
    from sqlalchemy.pool import QueuePool

    def connect() -> sqlite3.Connection:
        # Opened here: what SQLAlchemy makes of a `?`, `%` or blank in a path changed between its versions.
        # The time-out lets `fedtune status`, a report or optuna-dashboard read while the driver writes.
        connection = sqlite3.connect(path.resolve(), timeout=60, check_same_thread=False)
        connection.execute("PRAGMA synchronous=OFF")
        return connection

    return optuna.storages.RDBStorage("sqlite://", engine_kwargs={"creator": connect, "poolclass": QueuePool})


def _close(storage: optuna.storages.RDBStorage) -> None:
    storage.remove_session()
    storage.engine.dispose()


def _first_line(error: Exception) -> str:
    cause = error.__cause__ or error
    return str(cause).splitlines()[0].rstrip(".") if str(cause) else type(cause).__name__


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Without Optuna's log lines, which say what the progress display says better."""
    import warnings

    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=optuna.exceptions.ExperimentalWarning)
        try:
            yield
        finally:
            optuna.logging.set_verbosity(before)
