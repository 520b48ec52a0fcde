"""PyTorch, loaded where its libraries are found."""

from __future__ import annotations

import os


def load_torch() -> None:
    """Imports PyTorch. Does nothing where that has been done.

    Intel's MKL ends a process that imports it in a working directory that is gone, with a line of its own. So it is
    imported from the root directory, and the process is then where it was, even if that has no name any more."""
    try:
        here = os.open(".", getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY)
    except OSError:  # it cannot be come back to, so it is not left
        return
    try:
        os.chdir("/")
        import torch as torch
    finally:
        os.fchdir(here)
        os.close(here)
