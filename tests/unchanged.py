"""That nothing was written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def state(folder: Path) -> dict[str, str]:
    """Everything in a folder: kind, mode, and content of every name in it. Empty where there is no folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        content = ""
        if path.is_symlink():
            content = os.readlink(path)
        elif path.is_file():
            content = hashlib.blake2b(path.read_bytes()).hexdigest()
        found[str(path.relative_to(folder))] = f"{path.lstat().st_mode:o} {content}"
    return found


@contextmanager
def unchanged(*folders: Path) -> Iterator[None]:
    """These folders hold afterwards what they held before."""
    before = [state(folder) for folder in folders]
    yield
    assert [state(folder) for folder in folders] == before
