"""Images that a trial has kept (`keep_images`): `search_spaces.kept_images` says what its files hold.

A file that is not what it should be is left out as if it were not there: a run directory may be half-copied, or come
from a stranger.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analysis.runs.run import Run
from search_spaces import kept_images as kept
from search_spaces import run_folder
from search_spaces.files import read_bytes

Arrays = Mapping[str, NDArray[Any]]

#: No array of a file is larger, in bytes; those of a source take `kept.BYTES`.
_LARGEST = 2 * kept.BYTES
Array = NDArray[Any]

_KINDS = (np.dtype(np.uint8), np.dtype(np.int64), np.dtype(np.float64))


@dataclass(frozen=True)
class KeptImages:
    """The images of one trial. Files are read when asked for."""

    trial: int
    folder: Path
    #: Rounds with a file by seed, ascending.
    rounds: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        """The first seed."""
        return min(self.rounds)

    def at(self, seed: int, round_: int | None) -> Arrays:
        """The arrays of a seed's round, of its data (None); empty where they cannot be read."""
        return read_images(self.folder / kept.name_of(seed, round_))


def images_of_trial(run: Run, number: int) -> KeptImages:
    """What a trial has kept; without rounds where it has kept none."""
    folder = run.path / run_folder.trial_folder(number)
    rounds: dict[int, list[int]] = {}
    try:
        names = os.listdir(folder)  # of thousands of trials, several times: names are enough
    except OSError:
        names = []
    for name in names:
        found = kept.of_name(name)
        if found is not None and found[1] is not None:
            rounds.setdefault(found[0], []).append(found[1])
    return KeptImages(number, folder, {seed: tuple(sorted(own)) for seed, own in sorted(rounds.items())})


def images_of_run(run: Run) -> KeptImages | None:
    """What the best trial has kept, or else the first one that has kept images; None where none has."""
    for number in dict.fromkeys([*([] if run.best is None else [run.best]), *(t.number for t in run.frozen)]):
        found = images_of_trial(run, number)
        if found.rounds:
            return found
    return None


def read_images(path: Path) -> Arrays:
    """The arrays of a file that are as they should be."""
    return _fitting({name: array for name, array in read_arrays(path, _LARGEST).items() if array.dtype.kind in "iu"})


def _fitting(found: Arrays) -> Arrays:
    """Those whose shapes go together."""
    fit: dict[str, NDArray[Any]] = {}
    for source in (*kept.SOURCES, "data"):
        mean, count = found.get(f"{source}_mean"), found.get(f"{source}_count")
        if mean is None or count is None or mean.ndim != 4 or 0 in mean.shape or count.shape != mean.shape[:1]:
            continue
        fit |= {f"{source}_mean": mean, f"{source}_count": count}
        shown = found.get(source)
        if shown is not None and shown.ndim == 5 and (shown.shape[0], *shown.shape[2:]) == mean.shape:
            fit[source] = shown
    square = (kept.SIDE, kept.SIDE)
    fit |= {name: found[name] for name in ("plane", "teacher") if name in found and found[name].shape == square}
    fit |= _features(found)
    points, labels = found.get("data_points"), found.get("data_labels")
    if points is not None and labels is not None and points.shape == (len(labels), 2) and labels.ndim == 1:
        fit |= {"data_points": points, "data_labels": labels}
    return fit


def _features(found: Arrays) -> Arrays:
    """Those of a generator of features, where all of them are there."""
    made, seen, labels, share = (found.get(f"{kept.FEATURES}{part}") for part in ("", "_seen", "_labels", "_share"))
    if made is None or seen is None or labels is None or share is None:
        return {}
    whole = made.ndim == 3 and 0 not in made.shape and made.shape[2] == 2 and share.shape == (2,)
    if not whole or labels.ndim != 1 or seen.shape != (len(labels), 2):
        return {}
    return {name: found[name] for name in found if name.startswith(kept.FEATURES)}


def read_arrays(path: Path, largest: int) -> dict[str, Array]:
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
