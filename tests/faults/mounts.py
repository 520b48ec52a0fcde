"""Small disks and read-only folders, mounted where nobody but the campaign sees them.

The campaign runs in a mount namespace of its own (`entered`): the mounts are the kernel's to remove, however the
campaign ends. Where the system gives no namespace, a read-only folder is one without the right to write, and what needs
a small disk cannot be tried.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.faults.registry import Impossible

#: Set in the campaign that has a namespace.
INSIDE = "FEDTUNE_FAULTS_NAMESPACE"


def entered() -> None:
    """Starts this Python process again in a mount namespace of its own, if the system gives one."""
    if INSIDE not in os.environ and (words := namespace()) is not None:
        os.environ[INSIDE] = "1"
        os.execv(words[0], [*words, sys.executable, *sys.orig_argv[1:]])


def namespace() -> list[str] | None:
    """The words before a command that give it a mount namespace of its own; None where the system gives none."""
    if (unshare := shutil.which("unshare")) is None:
        return None
    words = [unshare, "--mount"] if os.geteuid() == 0 else [unshare, "--user", "--map-root-user", "--mount"]
    return words if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0 else None


def described() -> str:
    """What small disks and read-only folders are made of here."""
    if INSIDE in os.environ:
        return "Small disks are tmpfs, read-only folders are bind mounts, in a mount namespace of the campaign's own."
    how = "without the right to write" if os.geteuid() else "not to be had, as root may write everywhere"
    return f"There is no mount namespace here: small disks are not to be had, and read-only folders are {how}."


@contextlib.contextmanager
def small_disk(folder: Path, size: int, *, files: int) -> Iterator[None]:
    """While the block runs, `folder` is a disk of so many bytes and files."""
    _need_namespace()
    folder.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={size},nr_inodes={files}", "none", str(folder))
    try:
        yield
    finally:
        _unmount(folder)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """While the block runs, nothing can be written in `folder`, which is there."""
    if INSIDE in os.environ:
        _mount("--bind", str(folder), str(folder))
        try:
            _mount("-o", "remount,bind,ro", str(folder))
            yield
        finally:
            _unmount(folder)
        return
    if os.geteuid() == 0:
        _need_namespace()
    places = [folder, *(path for path in folder.rglob("*") if not path.is_symlink())]
    modes = {path: path.stat().st_mode for path in places}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    try:
        yield
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


def _need_namespace() -> None:
    if INSIDE not in os.environ:
        raise Impossible("there is no mount namespace")


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Impossible(done.stderr.strip())


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=False)
