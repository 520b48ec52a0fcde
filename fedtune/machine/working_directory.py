"""The process's working directory, which may be removed at any time."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def elsewhere(folder: str | Path) -> Iterator[None]:
    """While the block runs `folder` is the working directory. Then it is the one before, even if that has no name any
    more, with which `contextlib.chdir` cannot cope."""
    here = os.open(".", getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY)
    try:
        os.chdir(folder)
        yield
    finally:
        os.fchdir(here)
        os.close(here)


def load_torch() -> None:
    """Imports PyTorch. Does nothing where that has been done.

    Intel's MKL ends a process that imports it in a working directory that is gone, with a line of its own."""
    if "torch" not in sys.modules:
        with elsewhere("/"):
            import torch as torch
