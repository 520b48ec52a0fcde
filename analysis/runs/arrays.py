"""Arrays in the .npz files of a run directory, read without trust: it may be half-copied, or come from a stranger."""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_spaces.files import read_bytes

Array = NDArray[Any]

_KINDS = (np.dtype(np.uint8), np.dtype(np.int64), np.dtype(np.float64))


def read(path: Path, largest: int) -> dict[str, Array]:
    """The arrays of a file by name, of bytes, whole numbers or finite fractions, each of at most `largest` bytes.
    Others are left out; a file that is no archive of arrays has none."""
    try:
        with zipfile.ZipFile(io.BytesIO(read_bytes(path))) as archive:
            found = {
                info.filename.removesuffix(".npy"): _array(archive.read(info))
                for info in archive.infolist()
                if info.file_size <= largest
            }
    except (OSError, ValueError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error):
        return {}
    return {name: array for name, array in found.items() if array is not None}


def _array(content: bytes) -> Array | None:
    """A .npy file; None for what is not read. Its size is checked before anything is made of that size."""
    file = io.BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        return None
    shape, by_columns, kind = np.lib.format.read_array_header_1_0(file)
    rest = content[file.tell() :]
    if kind not in _KINDS or math.prod(shape) * kind.itemsize != len(rest):
        return None
    array = np.frombuffer(rest, dtype=kind).reshape(shape, order="F" if by_columns else "C")
    return array if np.isfinite(array).all() else None
