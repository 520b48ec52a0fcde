"""The mirror of a run directory on a storage elsewhere (`--storage URI`): kept while the run is driven, and fetched to
go on from there.

The mirror holds the files of the run directory under the same names, each sent as a whole, as no object storage
appends. It can be gone on from at any moment:

    the journal is read first and sent last, so whatever it tells of trials, their files were sent before;
    of a trial, the files of what clients keep are opened with the checkpoint that needs them, and sent before it; those
    that it needs no longer are removed after it;
    of a trial, the rows are read after its checkpoint was opened and sent before it, so they reach at least as far;
    a trial of which the journal does not know yet is left out when the mirror is fetched.

A folder of several runs (`fedtune auto`, `fedtune reproduce`) has a journal in each. They are read as of one moment,
and when all are sent the mirror says how long each was then: no journal is fetched beyond that, and no run that began
later. So it is as if their driver had been killed at that moment.

What was sent and is older than the rest is what a driver leaves that was killed (`trainables.worker.trial_folder`), and
the same seeds give the same rounds again. A storage that fails ends nothing: what it lacks is sent when it is back.
"""

from __future__ import annotations

import datetime
import io
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from analysis.runs.mappings import read_yaml
from analysis.runs.study import read_study, whole_lines
from fedtune.record.run_directory import new_folder, write_document
from fedtune.record.storage import FIX, PART, Storage
from search_spaces import files, run_folder
from search_spaces.errors import UserError, sentence, short
from search_spaces.files import shown
from search_spaces.shell import quote

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: Seconds between two looks at what has changed; longer where sending itself takes longer.
EVERY = 30.0
#: Seconds for which a storage that fails is tried again once the run has ended, and between two such tries.
LAST, AGAIN = 60.0, 5.0
#: Seconds after which it is said that the rest is sent.
_QUIET = 2.0
#: The file of a mirror that says when something was sent last (`sent`), whether it holds all of the run (`whole`), and
#: of several runs how long their journals were then (`journals`).
STATE = "mirror.json"
#: How often at most it is looked for a checkpoint with all that it needs, while a trial writes others.
_TRIES = 5
#: The name of a file in the mirror, the file, and its node, size and time.
_Open = tuple[str, IO[bytes], tuple[int, int, int]]
#: What a mirror begins with, of a run and of several.
_RECORDS = (run_folder.EXPERIMENT, run_folder.AUTO, run_folder.REPRODUCTION)


def _journals(folder: Path) -> dict[str, bytes]:
    """The whole lines of the journals of a run directory, or of all runs in a folder of several, by their names in the
    mirror, as of one moment.

    One process writes them, at their ends. So what all lengths were, twice in a row, they were in between."""
    alone = folder / run_folder.STUDY
    found = [alone] if alone.exists() else sorted(folder.glob(f"*/*/{run_folder.STUDY}"))
    paths = [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    lengths = [path.stat().st_size for path in paths]
    while lengths != (now := [path.stat().st_size for path in paths]):
        lengths = now
    return {
        path.relative_to(folder).as_posix(): whole_lines(files.read_bytes(path)[:length])
        for path, length in zip(paths, lengths, strict=True)
    }


def _sent_journals(storage: Storage, names: Collection[str]) -> dict[str, bytes]:
    """The journals that a mirror of these files holds, of several runs as far as they were sent together. Raises
    `UserError` where it does not hold what it says."""
    if run_folder.STUDY in names:
        return {run_folder.STUDY: _content(storage, run_folder.STUDY)}
    found = {}
    for name, length in _lengths(storage, names).items():
        content = _content(storage, name) if name in names else b""
        if len(content) < length:
            raise UserError(f"The storage {storage.uri} is damaged: {name} is shorter than {STATE} says.")
        found[name] = content[:length]
    return found


def _lengths(storage: Storage, names: Collection[str]) -> dict[str, int]:
    """What a mirror says of the journals of several runs."""
    if STATE not in names:
        return {}
    with suppress(ValueError, TypeError, AttributeError):
        lengths = json.loads(_content(storage, STATE)).get("journals", {})
        if all(type(length) is int and length > 0 and _is_journal(name) for name, length in lengths.items()):
            return dict(lengths)
    raise UserError(f"The storage {storage.uri} holds a {STATE} that fedtune did not write. Give another one.")


def _is_journal(name: str) -> bool:
    """Whether it is the name of the journal of one of several runs."""
    return _is_plain(name) and name.count("/") == 2 and name.endswith(f"/{run_folder.STUDY}")


def _content(storage: Storage, name: str) -> bytes:
    found = io.BytesIO()
    storage.read(name, found)
    return found.getvalue()


def check_new(uri: str | None, folder: Path) -> None:
    """Raises `UserError` where the mirror of a new run directory `folder` cannot be begun at a storage: it does not
    answer, it refuses to be written, or it holds something already."""
    if uri is None:
        return
    storage = _outside(uri, folder)
    if names := storage.names().keys() - {STATE, f"{STATE}{PART}"}:
        how = f"Go on with it by `fedtune resume {quote(uri)}`, or give another --storage."
        what = "a run" if any(PurePosixPath(name).name == run_folder.STUDY for name in names) else min(names)
        raise UserError(f"The storage {uri} holds {what} already. {how}")
    storage.write(STATE, _state(whole=False))


def check_same(uri: str | None, folder: Path) -> None:
    """Raises `UserError` where the storage does not answer, or holds what the run directory `folder` did not send: its
    mirror could have been gone on from on another machine."""
    if uri is None:
        return
    storage = _outside(uri, folder)
    names = storage.names()
    if not names.keys() - {STATE, f"{STATE}{PART}"}:
        storage.write(STATE, _state(whole=False))
        return
    there = _sent_journals(storage, names)
    if there and all(_has(folder, name, journal) for name, journal in there.items()):
        return
    raise UserError(
        f"The storage {uri} holds what is not in {folder}: another run, or trials that it ran elsewhere (--storage). "
        f"Go on from there with `fedtune resume {quote(uri)}` in another folder, or give another --storage."
    )


def _has(folder: Path, name: str, journal: bytes) -> bool:
    """Whether the journal of this name tells all that this one does."""
    if not (folder / name).is_file():
        return False
    begins = files.read_bytes(folder / name).startswith(journal)
    return begins or (name == run_folder.STUDY and _was_before(journal, folder))


def _was_before(journal: bytes, folder: Path) -> bool:
    """Whether the run directory has all that this journal tells, after `fedtune extend --rounds`, which writes its own
    journal anew: the same trials, with what was measured of them, ended alike or opened again."""
    with tempfile.TemporaryDirectory(prefix="fedtune-") as made, suppress(UserError):
        (Path(made) / run_folder.STUDY).write_bytes(journal)
        there, here = (read_study(place / run_folder.STUDY)[1] for place in (Path(made), folder))
        opened = any(run_folder.WENT_ON in trial.user_attrs for trial in here)
        return bool(there) and opened and len(there) <= len(here) and all(map(_is_earlier, there, here))
    return False


def _is_earlier(there: FrozenTrial, here: FrozenTrial) -> bool:
    """Whether a trial is one that was recorded earlier."""
    attributes = here.user_attrs.items()
    same = there.params == here.params and there.user_attrs.get("seed") == here.user_attrs.get("seed")
    if not same or not there.intermediate_values.items() <= here.intermediate_values.items():
        return False
    ended_alike = there.state == here.state and there.values == here.values
    went_on = (run_folder.WENT_ON, there.user_attrs.get("rounds")) in attributes
    return not there.state.is_finished() or ended_alike or went_on


def _outside(uri: str, folder: Path) -> Storage:
    """The storage, which is no folder of the run directory itself."""
    storage = Storage(uri)
    if (place := storage.place) is not None and place.resolve().is_relative_to(folder.resolve()):
        raise UserError(sentence("storage", f"outside of the run directory {folder}", uri, "--storage", FIX))
    return storage


def fetch(uri: str, folder: Path) -> str:
    """Makes the run directory `folder` of its mirror, and returns a line that says from when it is.

    Raises `UserError` where the storage does not answer or holds no run, and leaves nothing then."""
    storage = Storage(uri)
    names = storage.names()
    if strange := [name for name in names if not _is_plain(name)]:
        raise UserError(f"The storage {uri} holds {short(repr(strange[0]))}, which no run has. Give another one.")
    journals = _sent_journals(storage, names)
    missing = [] if any(name in names for name in _RECORDS) else [run_folder.EXPERIMENT]
    missing += [] if journals else [run_folder.STUDY]
    if missing:
        raise UserError(f"The storage {uri} holds no run: {' and '.join(missing)} cannot be found there.")
    left_out = _runs_of(names) - {str(PurePosixPath(name).parent) for name in journals}
    wanted = [name for name in names if name != STATE and not name.endswith(PART) and name not in journals]
    with new_folder(folder) as temporary:
        for name in sorted(name for name in wanted if not any(name.startswith(f"{run}/") for run in left_out)):
            with _new_file(temporary / name) as file:
                storage.read(name, file)
        for name, journal in journals.items():
            with _new_file(temporary / name) as file:
                file.write(journal)
        if run_folder.AUTO in names:
            for place in (run_folder.BEST, run_folder.FRESH, run_folder.FINAL):
                (temporary / place).mkdir(exist_ok=True)
        for name in journals:
            run = (temporary / name).parent
            _leave_out_unknown(run)
            request = run / run_folder.EXPERIMENT
            write_document(request, {**read_yaml(request), "storage": uri})
    return f"{shown(folder)} was made of the mirror at {uri}{_as_of(storage, names)}."


def _runs_of(names: Collection[str]) -> set[str]:
    """The folders of runs in a folder of several, of which a mirror has files."""
    paths = [PurePosixPath(name) for name in names]
    return {str(path.parent) for path in paths if path.name == run_folder.EXPERIMENT and len(path.parts) == 3}


def _new_file(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return open(path, "xb")


def _is_plain(name: str) -> bool:
    """Whether it is a path below a folder, of names as a run directory has them."""
    parts = name.split("/")
    return all(part and not part.startswith(".") and part.isprintable() and "\\" not in part for part in parts)


def _leave_out_unknown(folder: Path) -> None:
    """Removes the folders of trials of which the journal does not know yet: what is proposed next may differ."""
    known = len(read_study(folder / run_folder.STUDY)[1])
    of_known = {Path(run_folder.trial_folder(number)).name for number in range(known)}
    trials = folder / run_folder.TRIALS
    trials.mkdir(exist_ok=True)
    for path in [path for path in trials.iterdir() if path.name not in of_known]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def _as_of(storage: Storage, names: dict[str, int]) -> str:
    """When something was sent last, where the mirror says so."""
    with suppress(UserError, ValueError, TypeError, KeyError):
        if STATE in names:
            sent = datetime.datetime.fromisoformat(json.loads(_content(storage, STATE))["sent"])
            return f" as of {sent.isoformat(' ', 'seconds')}"
    return ""


def _state(*, whole: bool, lengths: Mapping[str, int] | None = None) -> bytes:
    """What a mirror says of itself. lengths: of the journals of several runs."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    told = {"version": run_folder.VERSION, "sent": now, "whole": whole, **({"journals": lengths} if lengths else {})}
    return (json.dumps(told) + "\n").encode()


class Mirror:
    """Keeps the mirror of a run directory while the block runs, in a thread of its own, and sends the rest at its end.

    `unsent` then says that the storage failed for `LAST` seconds, or that Ctrl-C ended it, and how the rest is sent."""

    def __init__(self, uri: str, folder: Path, say: Callable[[str], None]) -> None:
        """say: prints a line."""
        self._storage, self._folder, self._say = Storage(uri), folder, say
        #: By path: node, size and time of the file that was sent.
        self._sent: dict[str, tuple[int, int, int]] = {}
        #: The journals that were sent, by name.
        self._journals: dict[str, bytes] = {}
        #: The files in the mirror that hold what clients keep; None before they are asked for.
        self._states: set[str] | None = None
        #: Why the last try failed.
        self._why: str | None = None
        self.unsent: str | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="mirror", daemon=True)

    def __enter__(self) -> Mirror:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self._stop.set()
        told = threading.Timer(_QUIET, self._say, [f"Sending the rest of the run to {self._storage.uri}."])
        told.daemon = True
        told.start()
        # In a thread, so that Ctrl-C interrupts this wait and no file that is being written: cut short, some storages
        # would take it for the whole one.
        last = threading.Thread(target=self._send_the_rest, args=(kind is None,), daemon=True)
        last.start()
        why = None
        try:
            while last.is_alive():
                last.join(0.2)
            why = self._why
        except KeyboardInterrupt:
            why = "Sending was interrupted."
        told.cancel()
        if why is not None:
            uri = self._storage.uri
            self.unsent = (
                f"The run's files are all in {shown(self._folder)}, and its mirror at {uri} lacks some: {why} "
                f"Send them with `fedtune resume {quote(shown(self._folder))} --storage {quote(uri)}`."
            )
            if kind is not None:
                self._say(self.unsent)

    def _send_the_rest(self, again: bool) -> None:
        """Sends what is left, `again` and again while the storage fails, for `LAST` seconds."""
        until = time.monotonic() + LAST
        self._thread.join()
        while not self._sent_all(whole=True) and time.monotonic() < until and again:
            time.sleep(AGAIN)

    def _keep(self) -> None:
        with suppress(UserError):  # a storage that fails is told of where something is sent
            self._storage.clean([STATE, *self._names()])
        pause = 0.0
        while not self._stop.wait(pause):
            began = time.monotonic()
            self._sent_all()
            pause = max(EVERY, time.monotonic() - began)

    def _sent_all(self, *, whole: bool = False) -> bool:
        """Sends what has changed, and tells once that the storage fails, and once that it is back."""
        try:
            self._send()
            lengths = {name: len(journal) for name, journal in self._journals.items() if name != run_folder.STUDY}
            self._storage.write(STATE, _state(whole=whole, lengths=lengths))
        except Exception as error:
            before, self._why = self._why, str(error) or type(error).__name__
            if before is None:
                self._say(f"{self._why} The run goes on, and what its mirror lacks is sent when the storage is back.")
            return False
        if self._why is not None:
            self._say(f"The storage {self._storage.uri} is back, and the mirror lacks nothing.")
        self._why = None
        return True

    def _send(self) -> None:
        journals = _journals(self._folder)
        if self._states is None:
            self._states = {name for name in self._storage.names() if run_folder.is_states(PurePosixPath(name).name)}
        for folder, names in self._folders(journals):
            with ExitStack() as held:
                last = self._checkpoint(folder, held)
                for found in last[1] if last is not None else ():
                    self._write(*found)
                    self._states.add(found[0])
                for name in names:
                    unsent = name == run_folder.CHECKPOINT or run_folder.is_states(name)
                    if not unsent and (other := self._changed(folder / name, held)):
                        self._write(*other)
                if last is not None:
                    if last[0] is not None:
                        self._write(*last[0])
                    self._remove_states(folder, last[2])
        for name, journal in journals.items():
            if journal != self._journals.get(name):
                self._storage.write(name, journal)
                self._journals[name] = journal

    def _checkpoint(self, folder: Path, held: ExitStack) -> tuple[_Open | None, list[_Open], set[str]] | None:
        """The checkpoint of a trial's folder and what its clients keep, as `_changed` tells of them, and the names of
        all files of the latter kind; None where they change too often.

        What a checkpoint needs is removed once another one is in its place, so all of it was there if that is still
        the same."""
        path = folder / run_folder.CHECKPOINT
        for _ in range(_TRIES):
            checkpoint, there = self._changed(path, held), run_folder.states(folder)
            states = [found for one in there if (found := self._changed(one, held))]
            known = self._sent.get(self._name(path)) if checkpoint is None else checkpoint[2]
            if not there or known == _mark_of(path):
                return checkpoint, states, {self._name(one) for one in there}
        return None

    def _remove_states(self, folder: Path, there: set[str]) -> None:
        """Removes from the mirror what clients kept, but for the files that are `there`, of a trial's folder."""
        assert self._states is not None
        for name in [name for name in self._states - there if self._folder / PurePosixPath(name).parent == folder]:
            self._storage.remove(name)
            self._states.discard(name)
            self._sent.pop(name, None)

    def _name(self, path: Path) -> str:
        return path.relative_to(self._folder).as_posix()

    def _folders(self, journals: Collection[str]) -> Iterator[tuple[Path, list[str]]]:
        """The folders with what is to be sent of each, the run's own first; of runs those that have these journals."""
        runs = {(self._folder / name).parent for name in journals}
        for folder, below, names in os.walk(self._folder):
            place = Path(folder)
            below[:] = sorted(name for name in below if not name.startswith(".") and _is_sent(place / name, runs))
            unsent = (run_folder.LOCK, run_folder.STUDY)
            yield place, sorted(name for name in names if not name.startswith(".") and name not in unsent)

    def _names(self) -> Iterator[str]:
        """The names that files of the run have, or may have had, in the mirror."""
        journals = _journals(self._folder)
        yield from journals
        for folder, names in self._folders(journals):
            yield from (
                (folder / name).relative_to(self._folder).as_posix() for name in {*names, run_folder.CHECKPOINT}
            )

    def _changed(self, path: Path, held: ExitStack) -> _Open | None:
        """The file as it is now, open, where it is another one than was sent; None too where it is gone or a link."""
        name = self._name(path)
        with suppress(OSError):
            if self._sent.get(name) != _mark(path.stat(follow_symlinks=False)):
                file = held.enter_context(os.fdopen(files.open_plain(path), "rb"))
                return name, file, _mark(os.fstat(file.fileno()))
        return None

    def _write(self, name: str, file: IO[bytes], mark: tuple[int, int, int]) -> None:
        with file:
            self._storage.write(name, file)
        self._sent[name] = mark


def _is_sent(folder: Path, runs: Collection[Path]) -> bool:
    """Whether it is no run's folder, or that of one of `runs`."""
    return folder in runs or not (folder / run_folder.EXPERIMENT).exists()


def _mark_of(path: Path) -> tuple[int, int, int] | None:
    with suppress(OSError):
        return _mark(path.stat(follow_symlinks=False))
    return None


def _mark(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns
