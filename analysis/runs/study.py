"""Opening a study without changing it: read-only, also in a folder that cannot be written or while a driver writes."""

from __future__ import annotations

import contextlib
import gc
import math
import shutil
import sqlite3
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from analysis.runs.recorded import check_rows
from search_spaces.errors import UserError
from search_spaces.leftovers import temporary_folder

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

#: The study's table of what trials reported after each round, and its words for values that are no number.
REPORTS = "trial_intermediate_values"
NOT_FINITE = {"INF_POS": math.inf, "INF_NEG": -math.inf, "NAN": math.nan}


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
    from optuna.storages import RDBStorage
    from sqlalchemy.pool import NullPool

    if path.stat().st_size == 0:
        raise UserError(f"{path} is empty. Copy the run directory again.")

    def connect() -> sqlite3.Connection:
        # SQLite takes the mode from a URI. It is opened here because SQLAlchemy reads `?` and `%` in a path in its own
        # way.
        # `timeout` is how long to wait for a driver's write lock.
        return sqlite3.connect(
            f"file:{quote(str(path.resolve()))}?{mode}", uri=True, timeout=30, check_same_thread=False
        )

    def without_reports() -> sqlite3.Connection:
        connection = connect()
        # An empty table of the same name, in memory, goes before the one in the file.
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"CREATE TEMP TABLE {REPORTS} AS SELECT * FROM main.{REPORTS} LIMIT 0")
        return connection

    with contextlib.closing(connect()) as connection:
        # SQLite reads what it needs and no more: damage elsewhere would be found when the run goes on, or never.
        if (found := connection.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(f"it is damaged ({' '.join(found.split())})")
        check_rows(path, connection)
    storage = RDBStorage(
        "sqlite://", engine_kwargs={"creator": without_reports, "poolclass": NullPool}, skip_compatibility_check=True
    )
    try:
        studies = storage.get_all_studies()
        if not studies:
            raise UserError(f"{path} holds no study yet. Wait until the search has started its first trial.")
        if len(studies) > 1:
            raise UserError(f"{path} must hold one study, got {len(studies)}. Copy the run directory again.")
        number = storage.get_study_id_from_name(studies[0].study_name)
        directions = tuple(d.name.lower() for d in storage.get_study_directions(number))
        # Rows read are done with when their session ends, so they need not be marked as out of date then.
        storage.remove_session()
        storage.scoped_session.configure(expire_on_commit=False)
        with no_collection():
            trials = storage.get_all_trials(number, deepcopy=False)
    finally:
        storage.engine.dispose()
    with contextlib.closing(connect()) as connection:
        reports = _reports(connection)
    for trial in trials:
        trial.intermediate_values = reports.get(trial._trial_id, {})
    return directions, sorted(trials, key=lambda t: t.number)


def _reports(connection: sqlite3.Connection) -> dict[int, dict[int, float]]:
    """What every trial reported after each of its rounds, by the trial's key in the study. Optuna makes an object of
    each such row, of which a search has a hundred times as many as trials: that took most of the time of reading it."""
    columns = "trial_id, step, intermediate_value, intermediate_value_type"
    found: dict[int, dict[int, float]] = {}
    for trial, step, value, kind in connection.execute(f"SELECT {columns} FROM {REPORTS} ORDER BY trial_id, step"):
        if kind == "FINITE":
            if type(value) is not float:
                raise sqlite3.DatabaseError(f"a trial's report of round {step} is no number")
            found.setdefault(trial, {})[step] = value
        else:
            found.setdefault(trial, {})[step] = NOT_FINITE[kind]
    return found


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
