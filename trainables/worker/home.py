"""Trials on machines that do not see the run directory: their files come home through Ray as they are written.

Such a trial writes to a folder of its own machine, as any trial does to its folder, and whatever it has written is sent
to an actor on the driver's machine, which writes it to the run directory: new lines of the rounds and of the log at
their ends, all other files whole, the checkpoint last. So what is at home is at any moment what a trial that was killed
there would have left. A trial that goes on begins with the files that are at home, once nothing that was sent before is
still being written: the actor holds the folder as a process does that sees it. Its data set comes from home too
where the machine lacks it, once per machine and content.

Rounds are sent as they end, and the trial goes on while one message is on its way; the next one waits for it, as does
the end of the trial. So what is at home is what was in the trial's folder a message ago, at most. A checkpoint costs
what sending and writing it take; that this is at most `CHECKPOINT_SHARE` of the time is the bound for the bandwidth of
one trial.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from search_spaces import files, leftovers, run_folder
from search_spaces.errors import EnvironmentFault, UserError
from search_spaces.run_folder import CHECKPOINT, LOG, ROUNDS, is_states
from trainables import data
from trainables.data import cache
from trainables.worker.rounds_jsonl import Damaged
from trainables.worker.trial_folder import LOCK_SECONDS, WRITTEN, Resumable, TrialFolder, held_log

#: Calls a method of the actor by its name, and returns what it returns. Raises what it raises, and `OSError` where the
#: actor cannot be reached.
Ask = Callable[..., Any]
#: Files that grow at their ends.
GROWING = (ROUNDS, LOG)
#: What a trial writes and never reads.
_ONE_WAY = ("model-", "clients-")
#: Bytes of a data set that are sent at a time.
PIECE = 1 << 24
#: Seconds for which the files of a process that died are kept where it ran.
QUIET = 120.0


class Sent(NamedTuple):
    """What became of a file of a trial's folder."""

    name: str
    #: The bytes before this one are there already; None for a whole file.
    after: int | None
    #: None where the file was removed.
    content: bytes | None


class Hold(NamedTuple):
    """Who may write to a trial's folder."""

    number: int
    #: The trial's log, which keeps processes of this machine away from the folder.
    log: io.TextIOBase
    #: Ray's name for its machine, and the folder there, where that is known.
    at: tuple[str, str] | None


class Home:
    """An actor on the driver's machine: reads and writes the trials' folders of `runs`, and gives data sets.

    runs: run directories; datasets: the data sets of their trials, by the names that these have there; cache: the
    driver's FEDTUNE_CACHE, which this process of Ray's was not started with. Nothing else on that machine is read or
    written."""

    def __init__(
        self, runs: Sequence[str], datasets: Sequence[str], data_dir: str | None, cache: str | None = None
    ) -> None:
        if cache is not None:
            os.environ["FEDTUNE_CACHE"] = cache
        self._runs, self._datasets, self._data_dir = set(runs), set(datasets), data_dir
        self._holders: dict[str, Hold] = {}
        self._begun = 0
        #: By folder: held while one of its files is written, so that nobody begins in between.
        self._writing: dict[str, threading.Lock] = {}
        #: Folders of the data sets that were asked for, by their keys.
        self._prepared: dict[str, Path] = {}
        self._changing = threading.Lock()

    def begin(self, folder: str, at: tuple[str, str] | None = None) -> tuple[int, dict[str, bytes]] | None:
        """What is in a trial's folder but its models, by name; until `release` only the holder of this number may write
        to it. None while there is another holder, or a process that sees the folder writes to it. Raises `OSError`."""
        place = self._place(folder)
        with self._changing:
            if folder in self._holders or (log := held_log(place)) is None:
                return None
            self._begun += 1
            holder = self._begun
            self._holders[folder] = Hold(holder, log, at)
            self._writing.setdefault(folder, threading.Lock())
        try:
            with self._writing[folder]:
                return holder, self._held(place)
        except OSError:
            self.release(folder, holder)
            raise

    def _held(self, place: Path) -> dict[str, bytes]:
        return {
            path.name: files.read_bytes(path)
            for path in sorted(place.iterdir())
            if _comes_home(path.name) and not path.name.startswith(_ONE_WAY)
        }

    def release(self, folder: str, holder: int | None = None) -> tuple[str, str] | None:
        """Lets this holder of a trial's folder, or whoever holds it, write to it no more, also what it sent before.
        Only then can another process begin the trial. Returns where the holder has its files, if that is known."""
        with self._writing.get(folder, self._changing):  # a file that is being written is written to its end
            hold = self._holders.get(folder)
            if hold is None or holder not in (None, hold.number):
                return None
            del self._holders[folder]
            hold.log.close()
            return hold.at

    def write(self, folder: str, holder: int, sent: Sequence[Sent]) -> None:
        """Writes what was sent, in its order. Raises `OSError` where the disk refuses, or another process writes."""
        place = self._place(folder)
        for name, after, content in sent:
            with self._writing.get(folder, self._changing):
                hold = self._holders.get(folder)
                if hold is None or hold.number != holder:
                    raise OSError(errno.EBUSY, "another process writes this trial", folder)
                if Path(name).name != name or not _comes_home(name):
                    raise OSError(errno.EACCES, "a trial has no such file", f"{folder}/{name}")
                if content is None:
                    (place / name).unlink(missing_ok=True)
                elif after is None and name != LOG:
                    files.replace(place / name, content, durable=name == CHECKPOINT or is_states(name))
                else:
                    _extend(place / name, after or 0, content)  # (the log stays the same file, as it is the lock)

    def dataset(self, name: str) -> tuple[str, str, dict[str, int]]:
        """A prepared data set: its key, its title and the lengths of its files. Raises `UserError` where it is none of
        the runs', or cannot be had here either."""
        if name not in self._datasets:
            raise UserError(f"The run has no data set {name!r}.")
        found = data.load(name, self._data_dir)
        assert isinstance(found.train_x, np.memmap)  # as in every data set of the cache
        folder = Path(str(found.train_x.filename)).parent
        self._prepared[folder.name] = folder
        return folder.name, found.title, {path.name: path.stat().st_size for path in sorted(folder.iterdir())}

    def piece(self, key: str, file: str, after: int) -> bytes:
        """Up to `PIECE` bytes of a file of a data set that was asked for."""
        if key not in self._prepared or Path(file).name != file:
            raise OSError(errno.EACCES, "no data set of this run has this file", f"{key}/{file}")
        with (self._prepared[key] / file).open("rb") as stream:
            stream.seek(after)
            return stream.read(PIECE)

    def _place(self, folder: str) -> Path:
        path = Path(folder)
        is_trial = path.name.isascii() and path.name.isdigit() and path.parent.name == run_folder.TRIALS
        if not is_trial or str(path.parent.parent) not in self._runs:
            raise OSError(errno.EACCES, "no trial of this run has this folder", folder)
        files.check_folder(path)
        return path


def _comes_home(name: str) -> bool:
    """Whether a trial writes a file of this name."""
    return name.startswith(WRITTEN) or name in GROWING


def _extend(path: Path, after: int, content: bytes) -> None:
    """Puts `content` behind the first bytes of a file, in place of whatever is there. Sending it twice is no harm."""
    with os.fdopen(files.open_plain(path, os.O_WRONLY | os.O_CREAT), "wb") as file:
        if file.seek(0, os.SEEK_END) < after:
            raise OSError(errno.EIO, "lines before these are missing", str(path))
        file.seek(after)
        file.write(content)
        file.truncate()


class _State(NamedTuple):
    """Which file it is (another one once it was replaced), its length, and when it was written."""

    node: int
    length: int
    written: int


class _UnderWay(NamedTuple):
    """A message that is being sent."""

    #: The seconds that it takes.
    seconds: Future[float]
    #: What was at home before it.
    before: dict[str, _State]
    has_checkpoint: bool


class SentFolder(TrialFolder):
    """The folder of a trial on a machine that does not see it: a folder here, which is kept equal to that at home until
    `close`. ask: the actor; folder: where the trial's folder is there; node: Ray's name for this machine.

    Raises `OSError` where either folder refuses, or home cannot be reached, which may be told by the message after the
    one that it is about."""

    def __init__(self, ask: Ask, folder: str, node: str = "") -> None:
        self._ask, self._folder = ask, folder
        with contextlib.ExitStack() as left:
            # Those of processes that were killed are removed before, but not at once: the driver asks for their logs.
            place, _ = left.enter_context(leftovers.temporary_folder("fedtune-trial", quiet=QUIET))
            self._holder, held = _begun(ask, folder, (node, str(place)))
            left.callback(ask, "release", folder, self._holder)
            for name, content in held.items():
                files.replace(place / name, content)
            #: What is at home, or on its way there: by name which file here it was.
            self._sent = {name: _state(place / name) for name in held}
            self._under_way: _UnderWay | None = None
            self._sender = left.enter_context(ThreadPoolExecutor(1, "home"))
            super().__init__(place)
            self._left = left.pop_all()

    def close(self) -> None:
        for end in (super().close, self.arrived, self.send, self.arrived, self._left.close):
            with contextlib.suppress(OSError):  # what is not at home by now is computed again
                end()

    def resume(self, simulation: Resumable, seeds: Sequence[int], *, ended: bool = False) -> Any:
        rows = super().resume(simulation, seeds, ended=ended)
        self.send()
        self.arrived()
        return rows

    def start_over(self, why: Damaged) -> None:
        super().start_over(why)
        self.send()

    def append(self, rows: Any) -> None:
        super().append(rows)
        self.send()

    def save_checkpoint(self, simulation: Resumable, *, last: bool, stays: bool = False) -> None:
        saved_at = self._saved_at
        super().save_checkpoint(simulation, last=last, stays=stays)
        if self._saved_at != saved_at:
            self.send()
            if last:  # what ended is at home before the driver hears of it
                self.arrived()

    def arrived(self) -> None:
        """Waits until what is on its way is at home. Raises `OSError` where it does not come there."""
        if (message := self._under_way) is None:
            return
        self._under_way = None
        try:
            seconds = message.seconds.result()
        except BaseException:
            self._sent = message.before
            raise
        if message.has_checkpoint:
            self._save_cost += seconds

    def send(self) -> None:
        """Sends home whatever is not there yet, once what is on its way has arrived, and does not wait for it."""
        self.arrived()
        here = {path.name: _state(path) for path in self.path.iterdir() if _comes_home(path.name)}
        gone = sorted(name for name in self._sent.keys() - here.keys() if not name.startswith(_ONE_WAY))
        sent = [Sent(name, None, None) for name in gone if not is_states(name)]
        # The checkpoint last: what it contains is at home before it is.
        names = sorted(here, key=lambda name: (name == CHECKPOINT, name))
        sent += [self._change(name, here[name].length) for name in names if here[name] != self._sent.get(name)]
        # What clients kept stays at home until the checkpoint there needs it no longer.
        sent += [Sent(name, None, None) for name in gone if is_states(name)]
        if sent:
            has_checkpoint = any(one.name == CHECKPOINT for one in sent)
            self._under_way = _UnderWay(self._sender.submit(self._write, sent), self._sent, has_checkpoint)
            self._sent = here

    def _write(self, sent: Sequence[Sent]) -> float:
        """Sends a message, and returns the seconds until its files are at home."""
        started = time.monotonic()
        self._ask("write", self._folder, self._holder, sent)
        return time.monotonic() - started

    def _change(self, name: str, length: int) -> Sent:
        """The new part of a growing file whose beginning was sent, or a whole file."""
        before, content = self._sent.get(name), files.read_bytes(self.path / name)[:length]
        is_same = before is not None and before.node == (self.path / name).stat().st_ino
        if before is not None and is_same and name in GROWING and length >= before.length:
            return Sent(name, before.length, content[before.length :])
        return Sent(name, None, content)


def _begun(ask: Ask, folder: str, at: tuple[str, str]) -> tuple[int, dict[str, bytes]]:
    """Begins a trial, as soon as no other process holds its folder."""
    deadline = time.monotonic() + LOCK_SECONDS
    while (found := ask("begin", folder, at)) is None:
        if time.monotonic() > deadline:
            raise OSError(errno.EBUSY, "another process still writes this trial", folder)
        time.sleep(0.2)
    begun: tuple[int, dict[str, bytes]] = found
    return begun


def _state(path: Path) -> _State:
    found = path.stat()
    return _State(found.st_ino, found.st_size, found.st_mtime_ns)


def bring(ask: Ask, name: str, data_dir: str | None) -> None:
    """Makes a data set that this machine lacks one that it has. Raises `EnvironmentFault` where home lacks it too, or
    this machine has no place for it."""
    if _is_here(name, data_dir):
        return
    try:
        key, title, lengths = ask("dataset", name)
        cache.take(key, lengths, lambda file: _pieces(ask, key, file, lengths[file]))
    except UserError as error:
        raise EnvironmentFault(*error.problems) from error
    data.take(name, key, title)


def _is_here(name: str, data_dir: str | None) -> bool:
    if name in data.names() and not data.is_ready(name) and data_dir is None:
        return False  # it could be downloaded; home has it
    try:
        data.load(name, data_dir)
    except UserError:
        return False
    return True


def _pieces(ask: Ask, key: str, file: str, length: int) -> Iterator[bytes]:
    done = 0
    while done < length:
        if not (content := ask("piece", key, file, done)):
            raise OSError(errno.EIO, "it is shorter at home than it was", f"{key}/{file}")
        done += len(content)
        yield content
