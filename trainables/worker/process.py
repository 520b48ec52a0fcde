"""How a process that simulates is set up, its threads, its share of a GPU, the memory it keeps; and what it makes of a
full memory or disk."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import sys
from collections.abc import Iterator
from io import TextIOBase
from pathlib import Path
from typing import TextIO

import torch

#: Memory of a GPU that each process's CUDA context takes in addition to what torch allocates, in bytes. A trial on a
#: part of a GPU may allocate its part less this, so that 1/n each fits n times.
CONTEXT = 640 << 20


def set_threads(threads: int) -> None:
    """This process computes with so many threads inside an operation, and runs one operation at a time."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # for libraries that are loaded later
        os.environ[name] = str(threads)
    torch.set_num_threads(threads)
    if torch.get_num_interop_threads() != 1:
        with contextlib.suppress(RuntimeError):  # fixed once work has begun
            torch.set_num_interop_threads(1)


def tell_crashes(log: TextIO | TextIOBase | None) -> None:
    """A crash in native code, which ends this process, first writes where Python had got to, to `log` or, with None, to
    stderr. (`fedtune.execution.retries` looks for it there.)"""
    if (to := sys.__stderr__ if log is None else log) is None:
        faulthandler.disable()
    else:
        faulthandler.enable(file=to, all_threads=False)


def use_gpu(share: float = 1.0) -> None:
    """Computes on the GPU as trials do: the same seed gives the same bits, so no kernels picked by timing and no
    shortened mantissas. torch may allocate a share in (0, 1] of its memory, less a CUDA context where it is a part;
    beyond that it raises."""
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = False, True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    if torch.cuda.is_available():
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(max(0.01, share - CONTEXT / total) if share < 1 else 1.0)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory did not suffice, of a GPU or of the machine, which torch says in several ways. Where a step was
    being recorded, a second error says that the recording has failed."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    if error.__context__ is not None and not error.__suppress_context__ and is_out_of_memory(error.__context__):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(
        words in text
        for words in (
            "out of memory",
            "can't allocate memory",
            "not enough memory",
            "bad_alloc",
            "cublas_status_alloc_failed",
            "cudnn_status_alloc_failed",
        )
    )


def is_told_to_end(error: BaseException) -> bool:
    """Whether SIGTERM raised this in a worker of Ray, and no code that calls `sys.exit`."""
    return hasattr(error, "ray_terminate_msg")


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """torch and safetensors report a full disk as errors of their own; within, those are an `OSError` too."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise OSError(f"{path.name} cannot be written ({str(error).splitlines()[0]})") from error


def spare_imports() -> None:
    """Keeps the garbage collector from looking through what is loaded by now. It lives as long as the process, and to
    look through it takes a fifth of a second each time."""
    gc.freeze()


def release() -> None:
    """Gives unused memory back to the machine and the GPU. (For speed the allocators are told to keep what they
    have.)"""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    with contextlib.suppress(OSError, AttributeError):  # not the GNU C library
        ctypes.CDLL(None).malloc_trim(0)
