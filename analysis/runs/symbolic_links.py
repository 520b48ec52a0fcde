"""A run directory, and a folder of such, holds files and folders and no symbolic links: somebody may have prepared it.

A link in it could make a command read, overwrite or delete what lies elsewhere, and a pipe could keep it waiting for
ever. So every command looks through the names that fedtune uses before it does anything else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from search_spaces import run_folder
from search_spaces.errors import UserError

#: Names in a run directory that fedtune reads or writes; a user's own files beside them are no business of ours.
FILES = (
    run_folder.EXPERIMENT,
    run_folder.SPACE,
    run_folder.PROVENANCE,
    run_folder.LOCK,
    run_folder.REPORT,
    "trials.csv",
    "trials.tex",
    run_folder.ATTACK,
    "attack.png",
    "attack.html",
    run_folder.STUDY,
    run_folder.MLFLOW,
)
FOLDERS = (run_folder.TRIALS, "figures", "tensorboard")


def check_plain(folder: Path) -> None:
    """Raises `UserError` where something that fedtune uses in the run directory `folder` is neither file nor folder."""
    _refuse(_strange(folder))


def check_plain_parts(folder: Path, files: Iterable[str], parts: Iterable[str]) -> None:
    """The same for a folder with these `files`, and with run directories in its folders `parts`; whoever reads one of
    those looks through it."""
    tops = [folder / name for name in parts]
    _refuse(path for path in (*(folder / name for name in files), *tops) if _is_strange(path))
    _refuse(path for top in tops if top.is_dir() for path in sorted(top.iterdir()) if _is_strange(path))


def _refuse(strange: Iterator[Path]) -> None:
    found = next(strange, None)
    if found is not None:
        raise UserError(
            f"{found} must be a file or folder of its own, got {_kind(found)}. fedtune follows no links inside a run "
            f"directory; copy it with `cp -rL` if it is yours, and do not use it if it came from somebody else."
        )


def _strange(folder: Path) -> Iterator[Path]:
    """What is neither file nor folder; a folder in a file's place is found by whoever reads it."""
    yield from (path for path in (folder / name for name in FILES) if _is_strange(path))
    for name in FOLDERS:
        top = folder / name
        if _is_strange(top):
            yield top
        elif top.is_dir():
            yield from _below(top)


def _below(folder: Path) -> Iterator[Path]:
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif not entry.is_file(follow_symlinks=False):
                    yield Path(entry.path)


def _is_strange(path: Path) -> bool:
    return path.is_symlink() or (path.exists() and not path.is_file() and not path.is_dir())


def _kind(path: Path) -> str:
    return f"a symbolic link to {os.readlink(path)}" if path.is_symlink() else "a pipe, a socket or a device"
