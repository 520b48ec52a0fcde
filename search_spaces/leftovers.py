"""Files and folders under temporary names: made, held while they are written, removed where their writer was killed.

    descriptor, temporary = new_file(path)       # `.report.html.0123456789abcdef.tmp` beside `report.html`
    clear(folder, lambda name: name == "report.html")

Who writes under a temporary name holds it by a lock, which the system lets go of when the process ends, however it
ends. So what nobody holds is left over from a process that was killed. Removed is only what has such a name, belongs to
this user, and is a file or folder itself and not a link; where locks are not to be had, nothing is.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_NAME = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp", re.DOTALL)


def temporary_name(name: str) -> str:
    """The name of what will become `name`; it cannot be guessed."""
    return f".{name}.{secrets.token_hex(8)}.tmp"


def becomes(temporary: str) -> str | None:
    """What a file or folder of this name was to become; None where the name is not one of `temporary_name`."""
    found = _NAME.fullmatch(temporary)
    if found is None:
        return None
    return becomes(found[1]) or found[1]  # a file may be written in whole beside one that is itself temporary


def new_file(path: Path) -> tuple[int, Path]:
    """An empty file that is to become `path`, and the descriptor that holds it: to be closed when it has. Raises
    `OSError`."""
    return _new(path, _made_file)


def new_folder(path: Path) -> tuple[int, Path]:
    """The same for a folder."""
    return _new(path, _made_folder)


@contextlib.contextmanager
def temporary_folder(name: str, *, quiet: float = 0.0) -> Iterator[tuple[Path, int]]:
    """A folder of this user alone among the machine's temporary files, and the descriptor that holds it; removed when
    the block ends. Those of the same `name` that killed processes left are removed before, once nothing was written to
    their files for so many seconds. Raises `OSError`."""
    place = Path(tempfile.gettempdir())
    clear(
        place,
        lambda found: found == name,
        folders=lambda folder: _is_private(folder) and (not quiet or _age(folder) > quiet),
    )
    held, made = _new(place / name, lambda path: _made_folder(path, 0o700))
    try:
        yield made, held
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(held)


def _is_private(folder: Path) -> bool:
    return not stat.S_IMODE(folder.lstat().st_mode) & 0o077


def _age(folder: Path) -> float:
    """Seconds since something was written there."""
    return time.time() - max(path.lstat().st_mtime for path in (folder, *folder.iterdir()))


def clear(folder: Path, wanted: Callable[[str], bool], *, folders: Callable[[Path], bool] | None = None) -> None:
    """Removes from `folder` the files that killed processes were writing and that were to become a file of a `wanted`
    name; and folders too, where `folders` says of one of them that it is ours.

    A folder that cannot be read or written stays as it is."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            name = becomes(entry.name)
            if name is None or not wanted(name):
                continue
            path = Path(entry.path)
            with contextlib.suppress(OSError):  # held, or gone meanwhile
                if entry.is_file(follow_symlinks=False):
                    _remove(path, Path.unlink)
                elif folders is not None and entry.is_dir(follow_symlinks=False) and folders(path):
                    _remove(path, shutil.rmtree)


def _new(path: Path, make: Callable[[Path], int]) -> tuple[int, Path]:
    while True:
        made = path.with_name(temporary_name(path.name))
        descriptor = make(made)
        with contextlib.suppress(OSError):  # a disk that knows no locks, where nothing is cleared away either
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Before it was held, another process may have taken it for left over.
        if made.exists():
            return descriptor, made
        os.close(descriptor)


def _made_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def _made_folder(path: Path, mode: int = 0o777) -> int:
    path.mkdir(mode)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def _remove(path: Path, remove: Callable[[Path], object]) -> None:
    """Removes what stands at `path`; not where that is another user's, or is held by the process that writes it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(path)
    finally:
        os.close(descriptor)
