"""One input: the words of a command line, the files it finds, what standard output is."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: What standard output can be. `file` is a file; the others are the ways in which it fails people.
OUTPUTS = ("file", "closed", "full", "ascii")


@dataclass(frozen=True)
class Change:
    """Something that is done to a file before the command begins: `write` (bytes), `link` (a target), `folder`, `pipe`,
    `remove`."""

    path: str
    do: str
    content: bytes = b""

    def apply(self, folder: Path) -> None:
        place = folder / self.path
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            place.unlink()
        elif place.is_dir():
            shutil.rmtree(place)
        if self.do == "remove":
            return
        made: dict[str, Callable[[], object]] = {
            "write": lambda: place.write_bytes(self.content),
            "link": lambda: place.symlink_to(os.fsdecode(self.content)),
            "folder": lambda: (place / "inner").mkdir(parents=True),
            "pipe": lambda: os.mkfifo(place),
        }
        # A file that an earlier change has put in a folder's place stays.
        with contextlib.suppress(FileExistsError, NotADirectoryError):
            place.parent.mkdir(parents=True, exist_ok=True)
            made[self.do]()


@dataclass(frozen=True)
class Case:
    """An input. It begins in a folder of its own with copies of `scene` (names of what `Scene` holds), changed by
    `changes`."""

    area: str
    words: tuple[str, ...]
    scene: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()
    output: str = "file"
    #: What an accepted input must print as JSON, by field, as nothing but a repair can change it; None: that is not
    #: known.
    truth: Mapping[str, Any] | None = None

    def prepare(self, folder: Path, scene: Path) -> None:
        """Makes the folder in which the command begins."""
        folder.mkdir(parents=True)
        for name in self.scene:
            if (scene / name).is_dir():
                shutil.copytree(scene / name, folder / name, symlinks=True)
            else:
                copied(scene / name, folder / name)
        for change in self.changes:
            change.apply(folder)


def copied(source: str | Path, target: str | Path) -> None:
    """A file, a link, or a pipe, which is made anew."""
    if stat.S_ISFIFO(os.lstat(source).st_mode):
        os.mkfifo(target)
    else:
        shutil.copyfile(source, target, follow_symlinks=False)


def tree(folder: Path) -> dict[str, str | bytes]:
    """What a folder holds, by path: a file's content, a link's target, or what else it is."""
    found: dict[str, str | bytes] = {}
    for where, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(where) / name
            key = str(path.relative_to(folder))
            if path.is_symlink():
                found[key] = f"link to {os.readlink(path)}"
            elif path.is_dir():
                found[key] = "folder"
            else:
                found[key] = path.read_bytes() if path.is_file() else "pipe"
    return found
