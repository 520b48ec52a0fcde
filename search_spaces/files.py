"""Whole files: also after a process was killed, a reader finds the old content or the new one, never a part of it. And
plain files: what stands in a run directory is read and written only where it is a file itself, not a symbolic link.

    replace(path, "text")                        # or bytes
    with replacing(path) as temporary:           # where a library writes the file itself
        save_file(tensors, temporary)
    read_text(path)                              # raises OSError for a link, a pipe or a device

With `durable` the content is on the disk before it takes the old one's place, so a power cut leaves no part of it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from search_spaces import leftovers
from search_spaces.errors import Shown, UserError, sentence, short

#: What stands at a path where `is_no_file` holds.
NO_FILE = "a folder, a pipe or a device"


def given(path: str | os.PathLike[str], where: str = "") -> Path:
    """A path as a user wrote it, with `~` expanded; nothing need be there. Raises `UserError` for one that no file can
    have: it is too long, a loop of links, or names a user who does not exist."""
    try:
        found = Path(path).expanduser()
        os.stat(found)
    except (RuntimeError, ValueError) as error:
        reason = str(error)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENAMETOOLONG):
            return found  # whoever opens it says what is missing
        reason = str(error.strerror)
    else:
        return found
    told = f" ({where})" if where else ""
    raise UserError(f"The path {short(repr(os.fspath(path)))} cannot be used{told}: {reason.rstrip('.')}.")


def check_ending(path: Path, suffixes: Sequence[str], flag: str) -> None:
    """Raises `UserError` where the name of a file to be written, given with `flag`, ends in none of these."""
    if path.suffix not in suffixes:
        endings = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}" if len(suffixes) > 1 else suffixes[0]
        raise UserError(sentence("output", f"a file ending in {endings}", str(path), flag))


def shown(path: Path) -> str:
    """The path as a reader would type it: relative where it lies below the current directory, and that is there."""
    try:
        relative = os.path.relpath(path)
    except (OSError, ValueError):  # the directory was removed, or is on another drive
        return str(path)
    return str(path) if relative.startswith("..") else relative


def replace(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Makes `content` (text as UTF-8) the content of `path`. Raises `OSError`; the old content then stands."""
    with replacing(path, durable=durable) as temporary:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A path beside `path` to write to; when the block ends, that file takes the place of `path`, with the mode that
    the umask gives to new files. Where `path` is a symbolic link, the link is replaced and not followed.

    The file is there already and empty: its name cannot be guessed, and it is none that somebody else made. Where the
    block raises, `path` stays as it was and the file beside it is removed. One that was to become `path` and that a
    killed process left is removed too (`search_spaces.leftovers`)."""
    if not path.name or is_no_file(path):
        raise OSError(errno.EISDIR, f"it is {NO_FILE}", str(path))
    leftovers.clear(path.parent, lambda name: name == path.name)
    held, temporary = leftovers.new_file(path)
    try:
        yield temporary
        if durable:
            sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    finally:
        os.close(held)


def is_no_file(path: Path) -> bool:
    """Whether something stands there that `replacing` leaves as it is: neither a file nor a symbolic link."""
    return path.exists() and not path.is_symlink() and not path.is_file()


def check_replaceable(paths: Iterable[Path]) -> None:
    """Raises `UserError` where a folder, a pipe or a device stands in the place of a file that is to be written."""
    wrong = [
        sentence(
            str(path),
            "a file",
            Shown(NO_FILE),
            fix="Move it away; the file is written again.",
        )
        for path in paths
        if is_no_file(path)
    ]
    if wrong:
        raise UserError(*wrong)


def open_plain(path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of the file `path`, made by the umask where `flags` say so. Raises `OSError` where it is a symbolic
    link, or no file but a folder, a pipe (which would keep a reader waiting) or a device."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a plain file", str(path))
    return descriptor


def check_folder(folder: Path) -> None:
    """Raises `OSError` where the folder of a trial, or the one it lies in, is a symbolic link."""
    for place in (folder, folder.parent):
        if place.is_symlink():
            raise OSError(errno.ELOOP, f"{place} is a symbolic link", str(place))


def read_bytes(path: Path) -> bytes:
    """The content of a plain file. Raises `OSError`."""
    with os.fdopen(open_plain(path), "rb") as file:
        return file.read()


def read_text(path: Path) -> str:
    """The content of a plain file of UTF-8 text. Raises `OSError` or `UnicodeDecodeError`."""
    return read_bytes(path).decode("utf-8")


def sync(path: Path) -> None:
    """Returns when the file is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cannot_write(path: Path, why: OSError | str, fix: str) -> UserError:
    """The sentence for a disk that is full or read-only, or a folder that may not be written: `… cannot be written: No
    space left on device. Give another place with -o.`"""
    reason = why if isinstance(why, str) else why.strerror or str(why)
    return UserError(f"{short(str(path))} cannot be written: {reason.rstrip('.')}. {fix}")
