"""Writes the run directory described in `search_spaces.run_folder`: its creation, its lock, whole files in it.

A run directory is created under a temporary name and renamed when it is complete, so a command that fails or is killed
leaves either a whole run or none. All later writes are whole files swapped in place, lines appended to a trial's log,
or transactions of the study.

The folder of a trial whose result was taken from an earlier run holds what a trial writes that readers need:
`config.yaml`, `partition.json`, `rounds.jsonl`. There is no checkpoint, as the trial has ended. The study gets these
trials when the run is first driven (`fedtune.execution.queue.Queue`).
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import yaml

from analysis.runs.mappings import read_yaml
from analysis.runs.symbolic_links import FILES
from fedtune.record.experiment import Experiment
from fedtune.record.journal import ELSEWHERE, create_study
from search_spaces import files, leftovers, run_folder
from search_spaces.errors import UserError
from search_spaces.parameter import Value
from search_spaces.shell import quote
from search_spaces.space import Space
from trainables.worker import rounds_jsonl
from trainables.worker.rounds_jsonl import Row

#: Random bytes in the name of a session's token.
_RANDOM = 8


class _WrittenOut(yaml.SafeDumper):
    """Writes a value out wherever it stands; readers refuse aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def write_document(path: Path, data: Mapping[str, Any]) -> None:
    """Makes `data`, in the order given, the content of the file: indented JSON where its name ends in .json, else YAML.

    It is replaced at once: a reader sees the old or the new content, never a part. Raises `UserError` where the disk
    refuses."""
    text = json.dumps(data, indent=2, ensure_ascii=False) + "\n" if path.suffix == ".json" else as_yaml(data)
    try:
        files.replace(path, text, durable=True)
    except OSError as error:
        raise files.cannot_write(path, error, ELSEWHERE) from error


def as_yaml(data: Mapping[str, Any]) -> str:
    """The text of a YAML file that holds `data`, every value written out."""
    return str(yaml.dump(dict(data), Dumper=_WrittenOut, sort_keys=False, allow_unicode=True, width=120))


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Gives a folder under another name, which is `folder` when the block has ended: all of it or nothing. Removes what
    killed commands left of such ones.

    Raises `UserError` where the folder exists or the disk refuses."""
    temporary: Path | None = None
    held: int | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        leftovers.clear(folder.parent, lambda name: True, folders=_is_begun)
        held, temporary = leftovers.new_folder(folder)
        yield temporary
        if folder.exists():
            raise exists(folder)
        temporary.rename(folder)
    except OSError as error:
        if folder.exists():  # another command was a moment faster with this name
            raise exists(folder) from error
        raise files.cannot_write(folder, error, ELSEWHERE) from error
    finally:
        if temporary is not None and temporary.exists():
            shutil.rmtree(temporary, ignore_errors=True)
        if held is not None:
            os.close(held)


def create(
    folder: Path,
    experiment: Experiment,
    space: Space,
    provenance: Mapping[str, Any],
    taken: Sequence[TakenTrial] = (),
) -> None:
    """Makes the run directory `folder` with its frozen request, its space, its provenance, an empty study, and the
    folders of its first trials where their results are `taken` from earlier runs.

    Raises `UserError` where the folder exists or the disk refuses."""
    with new_folder(folder) as temporary:
        (temporary / run_folder.TRIALS).mkdir()
        write_document(temporary / run_folder.EXPERIMENT, experiment.to_yaml())
        write_document(temporary / run_folder.SPACE, space.to_json())
        write_document(temporary / run_folder.PROVENANCE, provenance)
        create_study(temporary, folder.name, experiment.directions)
        for number, trial in enumerate(taken):
            place = temporary / run_folder.trial_folder(number)
            _write_taken(place, trial)
            write_document(place / run_folder.CONFIG, {**experiment.values, **trial.values})


#: What there is in a folder at first, of any kind.
_BEGUN = {run_folder.EXPERIMENT, run_folder.SPACE, run_folder.PROVENANCE, run_folder.STUDY, run_folder.TRIALS}
_BEGUN |= {run_folder.AUTO, run_folder.SEARCHES, run_folder.BEST, run_folder.FRESH, run_folder.FINAL}


def _is_begun(folder: Path) -> bool:
    """Whether `folder` holds nothing but what it holds at first."""
    return {leftovers.becomes(path.name) or path.name for path in folder.iterdir()} <= _BEGUN


def exists(folder: Path) -> UserError:
    """The sentence for a run name that is taken, with what can be done about what is there."""
    path, record = str(folder), read_yaml(folder / run_folder.EXPERIMENT, missing={})
    kind = record.get("kind")
    if kind is None and run_folder.made_by(folder) is None:
        return UserError(f"{folder} exists already, and is no run that can be read. Choose another --name.")
    can = "or choose another --name."
    if kind == "search" and record.get("sampler") == "grid":  # which has all its trials
        can = f"lengthen it with `fedtune extend {quote(path)} --rounds N`, {can}"
    elif kind == "search":
        can = f"lengthen it with `fedtune extend {quote(path)} --trials N` (or --rounds N), {can}"
    elif kind == "run":
        can = "or choose another --name, as for more seeds or other rounds."
    return UserError(
        f"A run named {folder.name!r} exists already ({folder}). Continue it with `fedtune resume {quote(path)}`, {can}"
    )


def trial_folder(folder: Path, number: int) -> Path:
    """The folder of a trial of the run in `folder`, made where there is none. Raises `OSError` where that is not
    possible, or it is a symbolic link."""
    made = folder / run_folder.trial_folder(number)
    made.mkdir(exist_ok=True)
    files.check_folder(made)
    return made


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Held by the one process that drives the run; the system releases it when that process ends, however it ends.

    Removes what killed processes were writing beside the run's own files."""
    try:
        file = os.fdopen(files.open_plain(folder / run_folder.LOCK, os.O_RDWR | os.O_CREAT | os.O_APPEND), "a+")
    except OSError as error:
        raise files.cannot_write(folder / run_folder.LOCK, error, ELSEWHERE) from error
    with file:
        if not _locked(file):
            file.seek(0)
            owner = file.read().strip()
            raise UserError(
                f"{folder} is being driven by another process{f' ({owner})' if owner else ''}. "
                f"Watch it with `fedtune status {quote(str(folder))}`, or end that process first."
            )
        try:
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
        except OSError as error:
            with suppress(OSError):  # closing it would try to write once more
                file.close()
            raise files.cannot_write(folder / run_folder.LOCK, error, ELSEWHERE) from error
        leftovers.clear(folder, lambda name: name in FILES)
        for left in folder.glob(_token_name("?" * 2 * _RANDOM)):
            with suppress(OSError):
                left.unlink()
        yield


@contextmanager
def token(folder: Path) -> Iterator[tuple[Path, str]]:
    """A file in the run directory with random content, and that content, while the block runs; by it a trial's process
    on another machine knows that it sees this directory. Its name is new each time, as a shared disk may go on showing
    an old file of a name it knows. The caller holds the run's lock.

    Raises `UserError` where the disk refuses."""
    path, content = folder / _token_name(secrets.token_hex(_RANDOM)), secrets.token_hex(16)
    try:
        files.replace(path, content, durable=True)
    except OSError as error:
        raise files.cannot_write(path, error, ELSEWHERE) from error
    try:
        yield path, content
    finally:
        path.unlink(missing_ok=True)


def _token_name(random: str) -> str:
    return f".session-{random}"


def _locked(file: IO[str]) -> bool:
    """Whether the lock could be had; tried for a moment, as a reader in `is_driven` holds it for a moment too."""
    for _ in range(10):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.02)
    return False


def is_driven(folder: Path) -> bool:
    """Whether some process holds the run's lock."""
    try:
        file = os.fdopen(files.open_plain(folder / run_folder.LOCK))
    except FileNotFoundError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def absolute(path: str | Path | None) -> str | None:
    """The folder of data sets, as a path that still holds from another directory."""
    return None if path is None else str(files.given(path, "FEDTUNE_DATA").resolve())


@dataclass(frozen=True)
class TakenTrial:
    """A complete trial of an earlier run, checked."""

    #: The searched parameters by key.
    values: Mapping[str, Value]
    #: One for each round and seed, in that order.
    rows: Sequence[Row]
    #: What `partition.json` holds.
    partition: Mapping[str, Any]


def _write_taken(place: Path, trial: TakenTrial) -> None:
    """Makes the trial's folder `place`, without the `config.yaml`. Raises `OSError` where the disk refuses."""
    place.mkdir()
    files.replace(place / run_folder.PARTITION, json.dumps(trial.partition))
    rounds_jsonl.rewrite(place / run_folder.ROUNDS, trial.rows)
