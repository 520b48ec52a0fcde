"""Opening a study without changing it, also in a folder that cannot be written or while a driver writes.

The study is the file `study.journal`: Optuna's `JournalStorage`, one operation in a line of JSON. Optuna's own
`JournalFileBackend` reads and writes it as well; the one here follows no links, says which line is wrong, and leaves
out a last line that was not written to its end, which a driver that was killed may have left.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
from collections.abc import Container, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from search_spaces import files
from search_spaces.errors import UserError

if TYPE_CHECKING:
    from optuna.storages.journal import JournalStorage
    from optuna.study import Study
    from optuna.trial import FrozenTrial

#: As `json.loads` reads, but equal whole numbers are one object. Of a search on a thousand slots every trial holds the
#: numbers of the thousand that ran beside it, which are most of what its study takes in memory.
_JSON = json.JSONDecoder(parse_int=lru_cache(maxsize=1 << 16)(int))


class JournalReader:
    """The whole lines of the journal in `path`: what Optuna asks of the backend of a `JournalStorage` that is only
    read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        #: How many lines were read, and how many bytes they have.
        self._read, self._offset = 0, 0

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """The operations from this one on. Raises `OSError`, and `UserError` for a line that is none."""
        if log_number_from != self._read:
            self._read, self._offset = 0, 0
        with os.fdopen(files.open_plain(self.path), "rb") as file:
            file.seek(self._offset)
            whole = whole_lines(file.read())
        for line in whole.split(b"\n")[:-1]:
            self._read, self._offset = self._read + 1, self._offset + len(line) + 1
            if self._read > log_number_from:
                yield self._operation(line)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Refuses: only the run's driver writes."""
        raise OSError(f"{self.path} is open for reading only")

    def _operation(self, line: bytes) -> dict[str, Any]:
        try:
            found = _JSON.decode(line.decode(json.detect_encoding(line), "surrogatepass"))
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise UserError(f"{self.path}, line {self._read}, is not a line of a study. Copy the run directory again.")
        return found


def whole_lines(content: bytes) -> bytes:
    """Without a last line that was not written to its end."""
    return content[: content.rfind(b"\n") + 1]


def open_study(backend: Any) -> tuple[JournalStorage, int]:
    """The storage of the journal that `backend` reads, and the key of the one study in it.

    Raises `UserError` where it holds no readable study."""
    path = backend.path
    try:
        if path.stat().st_size == 0:
            raise UserError(f"{path} is empty. Copy the run directory again.")
        with no_collection():
            from optuna.storages.journal import JournalStorage

            storage = JournalStorage(backend)
            found = storage.get_all_studies()
    except UserError:
        raise
    except Exception as error:  # whatever stands in a line that has the shape of one
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise UserError(f"{path} cannot be read as an Optuna study: {reason}. Copy the run directory again.") from error
    if len(found) != 1:
        raise UserError(f"{path} must hold one study, got {len(found)}. Copy the run directory again.")
    return storage, found[0]._study_id


def read_study(path: Path) -> tuple[tuple[str, ...], list[FrozenTrial]]:
    """Directions and trials (by number) of the study in the file `path`.

    Raises `UserError` where the file holds no readable study."""
    storage, study = open_study(JournalReader(path))
    directions = tuple(direction.name.lower() for direction in storage.get_study_directions(study))
    return directions, storage.get_all_trials(study, deepcopy=False)


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Without Python's search for cycles: among the operations of a large run it takes as long as reading them, and
    finds next to nothing."""
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
