"""What a process does with memory that it needs no longer."""

from __future__ import annotations

import contextlib
import ctypes


def keep_memory() -> None:
    """Freed memory is kept: training allocates the same sizes over and over, and so does the model that proposes
    trials. Getting new pages took training 1.1 to 1.3 times as long, and a proposal 1.4 times.

    For processes that were not started with `fedtune.machine.cluster.ENVIRONMENT`, such as those of a cluster that was
    there before."""
    with contextlib.suppress(OSError, AttributeError):  # not the GNU C library
        library = ctypes.CDLL(None)
        for option, value in (
            (-3, 32 << 20),
            (-1, (2 << 30) - 1),
            (-2, 256 << 20),
        ):  # M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_TOP_PAD
            library.mallopt(option, value)
