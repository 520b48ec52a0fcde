"""The mirror of a run directory on a storage elsewhere (`--storage URI`): kept while the run is driven, and fetched to
go on from there.

A storage is what pyarrow's or fsspec's file systems know. The mirror holds the files of the run directory under the
same names, each sent as a whole, as no object storage appends. It can be gone on from at any moment:

    the journal is read first and sent last, so whatever it tells of trials, their files were sent before;
    of a trial, the files of what clients keep are opened with the checkpoint that needs them, and sent before it; those
    that it needs no longer are removed after it;
    of a trial, the rows are read after its checkpoint was opened and sent before it, so they reach at least as far;
    a trial of which the journal does not know yet is left out when the mirror is fetched.

What was sent and is older than the rest is what a driver leaves that was killed (`trainables.worker.trial_folder`), and
the same seeds give the same rounds again. A storage that fails ends nothing: what it lacks is sent when it is back.
"""

from __future__ import annotations

import datetime
import io
import json
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from analysis.runs.mappings import read_yaml
from analysis.runs.study import read_study, whole_lines
from fedtune.record.run_directory import new_folder, write_document
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
#: The file of a mirror that says when something was sent last (`sent`), and whether it holds all of the run (`whole`).
STATE = "mirror.json"
#: What may stand behind the `?` of a URI. All else could be a secret, and commands are recorded.
_QUERY = ("endpoint_override", "region", "scheme")
#: How a file's name ends while it is written.
_PART = ".part"
#: Bytes that are copied at once.
_CHUNK = 1 << 20
#: How often at most it is looked for a checkpoint with all that it needs, while a trial writes others.
_TRIES = 5
#: The name of a file in the mirror, the file, and its node, size and time.
_Open = tuple[str, IO[bytes], tuple[int, int, int]]
_FIX = "Give a URI such as s3://bucket/runs/mine, or an absolute path."


def is_uri(text: str) -> bool:
    """Whether a run is named by where its mirror is."""
    return "://" in text


def check_uri(uri: str | None, problems: list[str]) -> None:
    """Adds a problem where a storage is named by no URI and no absolute path, or by one that holds a secret."""
    if uri is None:
        return
    if not is_uri(uri) and not uri.startswith("/"):
        problems.append(sentence("storage", "a URI or an absolute path", uri, "--storage", _FIX))
        return
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        problems.append(sentence("storage", f"a URI that can be read ({error})", uri, "--storage", _FIX))
        return
    strange = [key for key, _ in parse_qsl(parts.query, keep_blank_values=True) if key not in _QUERY]
    user = parts.username is not None and parts.scheme in ("s3", "gs", "gcs")
    # Behind the first scheme of several (a::b://) and in an address within the query there may be one too.
    hidden = "::" in uri or re.search(r"//[^/]*:[^/]*@", uri) is not None
    if user or hidden or strange:
        problems.append(
            "The URI of a storage must hold no user, password or key, as commands are recorded (--storage); behind a ? "
            f"it may say {', '.join(_QUERY)}. Give credentials in the environment, such as AWS_ACCESS_KEY_ID."
        )


class Storage:
    """The folder of a mirror. Whatever its library raises is a `UserError` here."""

    def __init__(self, uri: str) -> None:
        """Raises `UserError` where no library knows it."""
        self.uri = uri
        with self._told():
            self._files, self._folder = _file_system(uri)
        self._in_place = self._files.type_name not in ("local", "hdfs")

    @property
    def place(self) -> Path | None:
        """Where it is on a disk of this machine."""
        return Path(self._folder) if self._files.type_name == "local" else None

    def names(self) -> dict[str, int]:
        """The files of the mirror, by their paths in it, and their sizes."""
        from pyarrow import fs

        with self._told():
            found = self._files.get_file_info(fs.FileSelector(self._folder, allow_not_found=True, recursive=True))
        start = f"{self._folder.rstrip('/')}/"
        return {one.path.removeprefix(start): one.size for one in found if one.type == fs.FileType.File}

    def clean(self, names: Iterable[str]) -> None:
        """Removes what a process that was killed while it wrote one of these files has left."""
        if not self._in_place:
            left = self.names().keys() & {f"{name}{_PART}" for name in names}
            with self._told():
                for name in left:
                    self._files.delete_file(self._path(name))

    def read(self, name: str, to: IO[bytes]) -> None:
        with self._told(), self._files.open_input_stream(self._path(name)) as source:
            shutil.copyfileobj(source, to, _CHUNK)

    def write(self, name: str, source: IO[bytes] | bytes) -> None:
        """Makes this the content of a file. Whoever reads it finds the old content or the new one."""
        with self._told():
            path = self._path(name)
            # An object is seen when it is complete; a file of a disk is written beside its name first.
            written = path if self._in_place else f"{path}{_PART}"
            if not self._in_place:
                self._files.create_dir(str(PurePosixPath(path).parent), recursive=True)
            with self._files.open_output_stream(written) as out:
                if isinstance(source, bytes):
                    out.write(source)
                else:
                    shutil.copyfileobj(source, out, _CHUNK)
            if not self._in_place:
                self._files.move(written, path)

    def remove(self, name: str) -> None:
        """Removes a file, if there is one."""
        from pyarrow import fs

        with self._told():
            if self._files.get_file_info(self._path(name)).type == fs.FileType.File:
                self._files.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._folder.rstrip('/')}/{name}"

    def _told(self) -> _Told:
        return _Told(self.uri)


class _Told:
    """What a storage's library raises becomes one sentence."""

    def __init__(self, uri: str) -> None:
        self._uri = uri

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, Exception):
            raise UserError(f"The storage {self._uri} cannot be used (--storage): {_why(error)}.") from error


def _why(error: Exception) -> str:
    """What went wrong, without the number of the request."""
    text = " ".join(str(error).split()) or type(error).__name__
    text = re.sub(r" ?\(Request ID: [^)]*\)", "", text)
    return short(text.rpartition("AWS Error ")[2].rstrip("."))


def _file_system(uri: str) -> tuple[Any, str]:
    """pyarrow's file system, where it has one of the kind, else that of fsspec, and the path there."""
    from pyarrow import ArrowInvalid, ArrowNotImplementedError, fs

    try:
        return fs.FileSystem.from_uri(uri)  # type: ignore[no-any-return]
    except (ArrowInvalid, ArrowNotImplementedError):
        from fsspec.core import url_to_fs

        found, path = url_to_fs(uri)
        return fs.PyFileSystem(fs.FSSpecHandler(found)), path


def check_new(uri: str | None, folder: Path) -> None:
    """Raises `UserError` where the mirror of a new run directory `folder` cannot be begun at a storage: it does not
    answer, it refuses to be written, or it holds something already."""
    if uri is None:
        return
    storage = _outside(uri, folder)
    if names := storage.names().keys() - {STATE, f"{STATE}{_PART}"}:
        how = f"Go on with it by `fedtune resume {quote(uri)}`, or give another --storage."
        what = "a run" if run_folder.STUDY in names else min(names)
        raise UserError(f"The storage {uri} holds {what} already. {how}")
    storage.write(STATE, _state(whole=False))


def check_same(uri: str | None, folder: Path) -> None:
    """Raises `UserError` where the storage does not answer, or holds what the run directory `folder` did not send: its
    mirror could have been gone on from on another machine."""
    if uri is None:
        return
    storage = _outside(uri, folder)
    names = storage.names().keys() - {STATE, f"{STATE}{_PART}"}
    if not names:
        storage.write(STATE, _state(whole=False))
        return
    if run_folder.STUDY in names:
        there = io.BytesIO()
        storage.read(run_folder.STUDY, there)
        journal = there.getvalue()
        if files.read_bytes(folder / run_folder.STUDY).startswith(journal) or _was_before(journal, folder):
            return
    raise UserError(
        f"The storage {uri} holds what is not in {folder}: another run, or trials that it ran elsewhere (--storage). "
        f"Go on from there with `fedtune resume {quote(uri)}` in another folder, or give another --storage."
    )


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
        raise UserError(sentence("storage", f"outside of the run directory {folder}", uri, "--storage", _FIX))
    return storage


def fetch(uri: str, folder: Path) -> str:
    """Makes the run directory `folder` of its mirror, and returns a line that says from when it is.

    Raises `UserError` where the storage does not answer or holds no run, and leaves nothing then."""
    storage = Storage(uri)
    names = storage.names()
    if missing := [name for name in (run_folder.EXPERIMENT, run_folder.STUDY) if name not in names]:
        raise UserError(f"The storage {uri} holds no run: {' and '.join(missing)} cannot be found there.")
    if strange := [name for name in names if not _is_plain(name)]:
        raise UserError(f"The storage {uri} holds {short(repr(strange[0]))}, which no run has. Give another one.")
    with new_folder(folder) as temporary:
        for name in sorted(name for name in names.keys() - {STATE} if not name.endswith(_PART)):
            path = temporary / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(path, "xb") as file:
                storage.read(name, file)
        _leave_out_unknown(temporary)
        request = temporary / run_folder.EXPERIMENT
        write_document(request, {**read_yaml(request), "storage": uri})
    return f"{shown(folder)} was made of the mirror at {uri}{_as_of(storage, names)}."


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
            found = io.BytesIO()
            storage.read(STATE, found)
            sent = datetime.datetime.fromisoformat(json.loads(found.getvalue())["sent"])
            return f" as of {sent.isoformat(' ', 'seconds')}"
    return ""


def _state(*, whole: bool) -> bytes:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return (json.dumps({"version": run_folder.VERSION, "sent": now, "whole": whole}) + "\n").encode()


class Mirror:
    """Keeps the mirror of a run directory while the block runs, in a thread of its own, and sends the rest at its end.

    `unsent` then says that the storage failed for `LAST` seconds, or that Ctrl-C ended it, and how the rest is sent."""

    def __init__(self, uri: str, folder: Path, say: Callable[[str], None]) -> None:
        """say: prints a line."""
        self._storage, self._folder, self._say = Storage(uri), folder, say
        #: By path: node, size and time of the file that was sent.
        self._sent: dict[str, tuple[int, int, int]] = {}
        self._journal: bytes | None = None
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
            self._storage.clean([STATE, run_folder.STUDY, *self._names()])
        pause = 0.0
        while not self._stop.wait(pause):
            began = time.monotonic()
            self._sent_all()
            pause = max(EVERY, time.monotonic() - began)

    def _sent_all(self, *, whole: bool = False) -> bool:
        """Sends what has changed, and tells once that the storage fails, and once that it is back."""
        try:
            self._send()
            self._storage.write(STATE, _state(whole=whole))
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
        journal = whole_lines(files.read_bytes(self._folder / run_folder.STUDY))
        if self._states is None:
            self._states = {name for name in self._storage.names() if run_folder.is_states(PurePosixPath(name).name)}
        for folder, names in self._folders():
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
        if journal != self._journal:
            self._storage.write(run_folder.STUDY, journal)
            self._journal = journal

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

    def _folders(self) -> Iterator[tuple[Path, list[str]]]:
        """The folders with what is to be sent of each, the run's own first."""
        for folder, below, names in os.walk(self._folder):
            below[:] = sorted(name for name in below if not name.startswith("."))
            unsent = (run_folder.LOCK, run_folder.STUDY) if Path(folder) == self._folder else ()
            yield Path(folder), sorted(name for name in names if not name.startswith(".") and name not in unsent)

    def _names(self) -> Iterator[str]:
        """The names that files of the run have, or may have had, in the mirror."""
        for folder, names in self._folders():
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


def _mark_of(path: Path) -> tuple[int, int, int] | None:
    with suppress(OSError):
        return _mark(path.stat(follow_symlinks=False))
    return None


def _mark(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns
