"""The run's Optuna study in `study.journal`: created, read and written here, and nowhere else.

The file is the journal of Optuna's `JournalStorage`: every operation on the study in a line of JSON, in the order in
which they were made. A killed driver leaves at most a last line that is not whole. Readers leave it out
(`analysis.runs.study`), and the next one who writes cuts it off.

`StudyFile` keeps hold of the storage, as Optuna's `Study` has no public way to add a value or an attribute to a trial
that another process simulates.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from analysis.runs.shapes import is_whole
from analysis.runs.study import JournalReader, open_study, whole_lines
from analysis.runs.study_checks import check_trials
from search_spaces import files, run_folder
from search_spaces.errors import UserError, sentence
from search_spaces.shell import quote

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, TrialState

Direction = Literal["maximize", "minimize"]

#: What can be done about a run directory that cannot be written.
ELSEWHERE = "Free some space, or choose another folder for the run."


class NotWritten(UserError):
    """The study cannot be written: `why`, as the system says. No trial is scored by it."""

    def __init__(self, path: Path, why: OSError) -> None:
        fix = f"Free some space and go on with `fedtune resume {quote(str(path.parent))}`."
        super().__init__(*files.cannot_write(path, why, fix).problems)
        self.path, self.why = path, why.strerror or str(why)


def create_study(folder: Path, name: str, directions: Sequence[Direction]) -> None:
    """Writes an empty study, which is on the disk when this returns. Raises `OSError` where the disk refuses."""
    files.replace(folder / run_folder.STUDY, as_journal(name, directions, []), durable=True)


def as_journal(
    name: str,
    directions: Sequence[str],
    trials: Sequence[FrozenTrial],
    attributes: Mapping[str, Any] = MappingProxyType({}),
    facts: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """The journal of a study of these trials, by number, which is their id too. directions: `maximize` or `minimize`
    for every objective; attributes: those that tools of Optuna keep with the study; facts: its user attributes."""
    from optuna.storages.journal import JournalStorage
    from optuna.study import StudyDirection

    lines: Any = _Lines()
    with quiet_optuna():
        storage = JournalStorage(lines)
        study = storage.create_new_study([StudyDirection[word.upper()] for word in directions], name)
        for trial in trials:
            storage.create_new_trial(study, trial)
        for key, value in attributes.items():
            storage.set_study_system_attr(study, key, value)
        for key, value in facts.items():
            storage.set_study_user_attr(study, key, value)
    return "".join(map(_line, lines.logs))


class StudyFile:
    """The study of a run. One process at a time writes it (`fedtune.record.run_directory.lock`).

    What writes raises `NotWritten` where the disk refuses."""

    def __init__(self, folder: Path) -> None:
        """Raises `UserError` where `folder` holds no study, one that cannot be read, or a trial that is none."""
        import optuna

        self.path = folder / run_folder.STUDY
        if not self.path.is_file():
            raise UserError(f"{folder} is not a run: it holds no {run_folder.STUDY}.")
        with quiet_optuna():
            self._storage: Any
            self._storage, self._id = open_study(_Journal(self.path))
            self.study = optuna.load_study(
                study_name=None,
                storage=self._storage,
                sampler=optuna.samplers.RandomSampler(0),
                pruner=optuna.pruners.NopPruner(),
            )
        trials = self.trials()
        check_trials(self.path, len(self.study.directions), trials)
        check_generations(self.path, trials)

    def trials(self) -> list[FrozenTrial]:
        """All trials in order."""
        return self.study.get_trials(deepcopy=False)

    def trial(self, number: int) -> FrozenTrial:
        """One of them, in a time that does not grow with their number."""
        found: FrozenTrial = self._storage.get_trial(self._trial(number))
        return found

    def add(self, trial: FrozenTrial) -> None:
        """One more trial, in one line."""
        self.study.add_trial(trial)

    def set_value(self, number: int, round_: int, value: float) -> None:
        """The objective of an unfinished trial after a round."""
        self._storage.set_trial_intermediate_value(self._trial(number), round_, value)

    def set_attribute(self, number: int, key: str, value: Any) -> None:
        """A user attribute of an unfinished trial."""
        self._storage.set_trial_user_attr(self._trial(number), key, value)

    def end(self, number: int, state: TrialState, values: Sequence[float] | None) -> None:
        """Writes how a trial ended, and returns when all of the study is on the disk."""
        self.study.tell(number, values=values, state=state)
        try:
            files.sync(self.path)
        except OSError as error:
            raise NotWritten(self.path, error) from error

    def replace(self, trials: Sequence[FrozenTrial]) -> None:
        """Makes these the trials of the study, by number, in a new journal that takes the old one's place and is on the
        disk when this returns. (In a journal a trial that has ended cannot be opened again.) This `StudyFile` must not
        be used any more."""
        directions = [direction.name.lower() for direction in self.study.directions]
        try:
            files.replace(self.path, as_journal(self.study.study_name, directions, trials), durable=True)
        except OSError as error:
            raise NotWritten(self.path, error) from error

    def _trial(self, number: int) -> int:
        """The key by which the storage knows a trial."""
        return int(self._storage.get_trial_id_from_study_id_trial_number(self._id, number))


def curve(trial: FrozenTrial) -> dict[int, tuple[float, ...]]:
    """The means of the metrics that the study has of a trial, by round."""
    if "curve" in trial.user_attrs:
        return {int(r): tuple(values) for r, values in json.loads(trial.user_attrs["curve"]).items()}
    return {r: (value,) for r, value in trial.intermediate_values.items()}


class _Journal(JournalReader):
    """The journal of a run, which the run's driver writes.

    Nothing waits for the disk here: a line that was written stays also where the process is killed. What a power cut
    could cost is what came after the last trial that ended (`StudyFile.end`)."""

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Adds the operations at the end, in place of a last line that is not whole. Raises `NotWritten`."""
        rest = "".join(map(_line, logs)).encode("utf-8")
        try:
            file = files.open_plain(self.path, os.O_RDWR | os.O_APPEND)
            try:
                _cut(file)
                while rest:
                    rest = rest[os.write(file, rest) :]
            finally:
                os.close(file)
        except OSError as error:
            raise NotWritten(self.path, error) from error


class _Lines:
    """A journal in memory."""

    def __init__(self) -> None:
        self.logs: list[dict[str, Any]] = []

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        yield from self.logs[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        self.logs += logs


def _line(operation: dict[str, Any]) -> str:
    return json.dumps(operation, separators=(",", ":")) + "\n"


def _cut(file: int) -> None:
    """Cuts off a last line that is not whole."""
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        os.ftruncate(file, len(whole_lines(os.pread(file, size, 0))))


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


#: How the names of attributes end in which a sampler counts generations.
_GENERATION = ":generation"


def check_generations(path: Path, trials: Sequence[FrozenTrial]) -> None:
    """Raises `UserError` where a trial of the study in the file `path` is of a generation that no sampler can have
    written."""
    for trial in trials:
        for name, value in trial.system_attrs.items():
            if name.endswith(_GENERATION) and not is_whole(0)(value):
                must, where = "a whole number of at least 0", f"{path}, trial {trial.number}"
                fix = "Copy the run directory again, or begin a new search."
                raise UserError(sentence(name, must, value, where, fix))
