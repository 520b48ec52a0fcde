"""Studies in memory while they are open, for tests of what is in them: on the disk, nine tenths of a search without Ray
are Optuna's transactions.

Opening a study reads its file, and closing it writes what is new at once. Who opens one that is open gets the same, as
long as the file is as it was. What a trial is given goes through JSON, as on the disk.
"""

from __future__ import annotations

import copy
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

from analysis.runs import stored
from fedtune.record import study
from search_spaces import files
from tests import study_file


class OpenStudy(InMemoryStorage):
    """The study of the file `path`, which may be empty."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.users = path, 0
        self._kept: list[FrozenTrial] | None = None
        self._file = _state(path)
        if path.stat().st_size:
            with closing(sqlite3.connect(path)) as file:
                ((key, name),) = file.execute("SELECT study_id, study_name FROM studies")
                directions = [StudyDirection[word.upper()] for word in stored.directions(file, key)]
                self._id = super().create_new_study(directions, name)
                for trial in stored.trials(file, key):
                    super().create_new_trial(self._id, trial)
            self._kept = self.get_all_trials(self._id, deepcopy=False)

    @property
    def is_current(self) -> bool:
        """Whether the file is as this study read or wrote it."""
        return _state(self.path) == self._file

    def write(self) -> None:
        """Writes what is new into the file."""
        trials = self.get_all_trials(self._id, deepcopy=False)
        if trials == self._kept:
            return
        assert self.is_current, f"{self.path} was written by somebody else while the study was open"
        directions = [direction.name for direction in self.get_study_directions(self._id)]
        study_file.write(self.path, self.get_study_name_from_id(self._id), directions, trials)
        self._kept, self._file = trials, _state(self.path)

    def create_new_study(self, directions: Sequence[StudyDirection], study_name: str | None = None) -> int:
        self._id = super().create_new_study(directions, study_name)
        return self._id

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        assert template_trial is not None, "the queue adds trials that are made"
        made = copy.copy(template_trial)
        drawn = [(name, value, made.distributions[name]) for name, value in made.params.items()]
        made.params = {name: kind.to_external_repr(kind.to_internal_repr(value)) for name, value, kind in drawn}
        made.user_attrs = _through_json(made.user_attrs)
        made.system_attrs = _through_json(made.system_attrs)
        return super().create_new_trial(study_id, made)

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        super().set_trial_user_attr(trial_id, key, _through_json(value))


def _through_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _state(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def studies_in_memory() -> Iterator[None]:
    """Within it, studies of runs are in memory while they are open, and nothing waits for the disk."""
    known: dict[Path, OpenStudy] = {}

    def opened(path: Path) -> OpenStudy:
        path = path.resolve()
        if path not in known or not known[path].is_current:
            known[path] = OpenStudy(path)
        known[path].users += 1
        return known[path]

    def close(storage: OpenStudy) -> None:
        storage.write()
        storage.users -= 1
        if not storage.users and known.get(storage.path) is storage:
            del known[storage.path]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "_opened", opened)
        patch.setattr(study, "_close", close)
        patch.setattr(files, "sync", lambda path: None)
        yield
