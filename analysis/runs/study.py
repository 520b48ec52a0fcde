"""Opening a study without changing it: read-only, also in a folder that cannot be written or while a driver writes."""

from __future__ import annotations

import contextlib
import gc
import shutil
import sqlite3
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from analysis.runs import stored
from analysis.runs.recorded import check_rows
from search_spaces.errors import UserError
from search_spaces.leftovers import temporary_folder

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial


def read_study(path: Path) -> tuple[tuple[str, ...], list[FrozenTrial]]:
    """Directions and trials (by number) of the study in the SQLite file `path`.

    Raises `UserError` where the file holds no readable study."""
    try:
        return _read(path, "mode=ro")
    except UserError:
        raise
    except Exception:
        pass
    # A database in WAL mode needs to write beside itself even to be read: read a copy instead.
    try:
        with temporary_folder("fedtune-study") as (folder, _):
            copy = folder / path.name
            for suffix in ("", "-wal", "-journal"):
                part = path.with_name(path.name + suffix)
                if part.is_file():
                    shutil.copyfile(part, copy.with_name(copy.name + suffix))
            return _read(copy, "mode=rw")
    except UserError:
        raise
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"{path} cannot be read as an Optuna study: {reason}. Copy the run directory again.") from error


def _read(path: Path, mode: str) -> tuple[tuple[str, ...], list[FrozenTrial]]:
    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty. Copy the run directory again.")
    # SQLite takes the mode from a URI. `timeout` is how long to wait for a driver's write lock.
    address = f"file:{quote(str(path.resolve()))}?{mode}"
    with contextlib.closing(sqlite3.connect(address, uri=True, timeout=30)) as connection:
        # SQLite reads what it needs and no more: damage elsewhere would be found when the run goes on, or never.
        if (found := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(f"it is damaged ({' '.join(found.split())})")
        check_rows(path, connection)
        connection.execute("BEGIN")  # all tables as they are at one moment, while a driver writes
        studies = stored.studies(connection)
        if not studies:
            raise UserError(f"{path} holds no study yet. Wait until the search has started its first trial.")
        if len(studies) > 1:
            raise UserError(f"{path} must hold one study, got {len(studies)}. Copy the run directory again.")
        with no_collection():
            return stored.directions(connection, studies[0]), stored.trials(connection, studies[0])


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Without Python's search for cycles: among the rows of a large run it takes as long as reading them, and finds
    next to nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def in_memory(directions: Sequence[str], trials: Sequence[FrozenTrial]) -> Study:
    """A study of these finished trials, which Optuna's evaluators can read and nobody can add to.

    Optuna's own study in memory copies every trial it is given, which takes longer than evaluating them."""
    import optuna

    class Given(optuna.study.Study):
        def get_trials(
            self, deepcopy: bool = True, states: Container[optuna.trial.TrialState] | None = None
        ) -> list[FrozenTrial]:
            return [trial for trial in trials if states is None or trial.state in states]

    storage = optuna.storages.InMemoryStorage()
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # without the announcement on stderr
    try:
        storage.create_new_study([optuna.study.StudyDirection[d.upper()] for d in directions], study_name="given")
    finally:
        optuna.logging.set_verbosity(level)
    return Given(study_name="given", storage=storage)
