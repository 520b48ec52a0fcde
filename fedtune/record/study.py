"""The run's Optuna study: created, opened, put on the disk. The only file that knows what lies below Optuna's public interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from search_spaces import files, run_folder
from search_spaces.errors import UserError

if TYPE_CHECKING:
    import optuna


Direction = Literal["maximize", "minimize"]

#: What can be done about a run directory that cannot be written.
ELSEWHERE = "Free some space, or choose another place with --runs-dir."


def _create_study(folder: Path, name: str, directions: Sequence[Direction]) -> None:
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    try:
        with quiet_optuna():
            storage = _storage(folder / run_folder.STUDY)
            optuna.create_study(study_name=name, storage=storage, directions=list(directions))
            storage.engine.dispose()
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError) as error:
        raise files.cannot_write(folder.parent, _first_line(error), ELSEWHERE) from error


def open_study(folder: Path) -> optuna.Study:
    """The study of a run. Raises `UserError` where there is none or it cannot be read."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    path = folder / run_folder.STUDY
    if not path.is_file():
        raise UserError(f"{folder} is not a run: it holds no {run_folder.STUDY}.")
    try:
        with quiet_optuna():
            return optuna.load_study(study_name=None, storage=_storage(path), sampler=optuna.samplers.RandomSampler(0), pruner=optuna.pruners.NopPruner())
    except (SQLAlchemyError, optuna.exceptions.StorageInternalError, ValueError, KeyError) as error:
        raise UserError(f"{path} is not a study that can be read: {_first_line(error)}.") from error


def _storage(path: Path) -> optuna.storages.RDBStorage:
    import sqlite3

    import optuna
    from sqlalchemy import event
    from sqlalchemy.pool import QueuePool

    def connect() -> sqlite3.Connection:
        # Opened here: what SQLAlchemy makes of a `?`, `%` or blank in a path changed between its versions.
        # The time-out lets `fedtune status`, a report or optuna-dashboard read while the driver writes.
        return sqlite3.connect(path.resolve(), timeout=60, check_same_thread=False)

    storage = optuna.storages.RDBStorage("sqlite://", engine_kwargs={"creator": connect, "poolclass": QueuePool})
    event.listen(storage.engine, "connect", _unsynchronised)
    storage.engine.dispose()
    return storage


def engine(study: optuna.Study) -> Any:
    """The SQLAlchemy engine below a study that `open_study` opened."""
    storage: Any = study._storage
    return getattr(storage, "_backend", storage).engine


def _unsynchronised(connection: Any, _: object) -> None:
    """A transaction waits for the disk (10 ms, some 30 times per trial) only where `sync` asks for it. SQLite's promise against
    killed processes does not need that; what a power cut could cost is what came after the last `sync`."""
    connection.execute("PRAGMA synchronous=OFF")


def sync(folder: Path) -> None:
    """Puts the study on the disk."""
    files.sync(folder / run_folder.STUDY)


def _first_line(error: Exception) -> str:
    cause = error.__cause__ or error
    return str(cause).splitlines()[0].rstrip(".") if str(cause) else type(cause).__name__


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Optuna's log lines say what the progress display says better."""
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
