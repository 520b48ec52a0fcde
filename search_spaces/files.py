"""Whole files: also after a process was killed, a reader finds the old content or the new one, never a part of it.

    replace(path, "text")                        # or bytes
    with replacing(path) as temporary:           # where a library writes the file itself
        save_file(tensors, temporary)

With `durable` the content is on the disk before it takes the old one's place, so a power cut leaves no part of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from search_spaces.errors import UserError


def replace(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Makes `content` (text as UTF-8) the content of `path`. Raises `OSError`; the old content then stands."""
    with replacing(path, durable=durable) as temporary:
        temporary.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A path beside `path` to write to; when the block ends, that file takes the place of `path`.

    Where the block raises, `path` stays as it was and the file beside it is removed. Its name begins with a dot, by
    which a trial finds and removes what a killed process left."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        if durable:
            sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


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
    return UserError(f"{path} cannot be written: {reason.rstrip('.')}. {fix}")
