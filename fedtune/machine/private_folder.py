"""The folder that a search has outside its run directory: Ray's sockets and logs, Ray Tune's files, the token.

It lies among the machine's temporary files, where every user may look, so it is for this user alone (mode 0700) and has
a name that nobody can guess. It is removed in the end. What a killed search left is removed by the next one: a folder
of this user that no process holds. A search holds its folder by a lock on it, which the system lets go of when the
process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from search_spaces.errors import UserError

PREFIX = "fedtune-ray-"
#: Where Ray keeps its files in it, in a folder of its own, as it lets everybody write to the one it is given.
RAY = "r"
#: Random bytes in the name, written as `_RANDOM` characters.
_BYTES, _RANDOM = 8, 11
_NAME = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{{_RANDOM}}}")
#: The longest that Ray adds to the folder's path: that of a socket in it.
_SOCKET = len(f"/{RAY}/session_2026-12-31_23-59-59_999999_4194304/sockets/plasma_store")
#: Bytes that the path of a socket may have.
_LIMIT = 103 if sys.platform == "darwin" else 107
#: So many bytes the place of the folder may have.
LONGEST = _LIMIT - _SOCKET - len(f"/{PREFIX}") - _RANDOM


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder; removed when the block ends. Removes before what killed searches left.

    Raises `UserError` where there is no place for it."""
    place = chosen_place()
    for left in leftovers(place):
        _remove_if_free(left)
    folder, held = _made(place)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def chosen_place() -> Path:
    """Where the folder is made: Ray's or the system's place for temporary files, else /tmp, where a path is short
    enough for a socket. Raises `UserError` where none of them is and may be written."""
    places = [os.environ.get("RAY_TMPDIR"), tempfile.gettempdir(), "/tmp"]
    for place in (Path(place).absolute() for place in places if place):
        if len(os.fsencode(place)) <= LONGEST and os.access(place, os.W_OK | os.X_OK):
            return place
    raise UserError(
        f"Ray needs a folder for its sockets whose path has at most {LONGEST} bytes and which may be written, got "
        f"{tempfile.gettempdir()} and /tmp. Name one in the environment variable TMPDIR."
    )


def leftovers(place: Path) -> list[Path]:
    """Folders at `place` that searches left, or that running ones have."""
    with contextlib.suppress(OSError):
        return sorted(path for path in place.iterdir() if _NAME.fullmatch(path.name))
    return []


def _made(place: Path) -> tuple[Path, int]:
    """The folder and the descriptor that holds it."""
    for _ in range(100):
        folder = place / (PREFIX + secrets.token_urlsafe(_BYTES))
        try:
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise UserError(
                f"{folder} cannot be made: {error.strerror or error}. Name another place in the environment variable "
                f"TMPDIR."
            ) from error
        held = _held(folder)
        # Between the two calls another search that was starting may have taken it for left behind.
        if held is not None and folder.exists():
            return folder, held
    raise UserError(f"No folder could be held at {place}. Name another place in the environment variable TMPDIR.")


def _held(folder: Path) -> int | None:
    """A descriptor that holds the folder; None where it is not this user's alone, another process holds it, or it is a
    symbolic link."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        state = os.fstat(descriptor)
        if state.st_uid == os.geteuid() and not stat.S_IMODE(state.st_mode) & 0o077:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _remove_if_free(folder: Path) -> None:
    held = _held(folder)
    if held is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)
