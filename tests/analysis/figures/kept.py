"""A run whose trials have kept images, written by hand."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from analysis.runs import Run, load_run
from search_spaces import kept_images, run_folder

SHAPE = (1, 2, 3)


def grey(level: int, *count: int) -> np.ndarray:
    return np.full((*count, *SHAPE), level, dtype=np.uint8)


def of_round(source: str, level: int, counts: list[int]) -> dict[str, np.ndarray]:
    """Of two classes and two images of each: all of one grey."""
    return {
        source: grey(level, 2, 2),
        f"{source}_mean": grey(level + 1, 2),
        f"{source}_count": np.array(counts),
    }


def write(folder: Path, seed: int, round_: int | None, arrays: dict[str, Any]) -> None:
    trial = folder / run_folder.trial_folder(0)
    np.savez_compressed(trial / kept_images.name_of(seed, round_), **arrays)


def with_images(root: Path, folder: Path) -> Run:
    """Two rounds of a generator, the second also of its average; of class 1 a single image was painted in round 3."""
    shutil.copytree(root / "final", folder)
    write(folder, 7, 1, of_round("generator", 10, [64, 64]))
    write(folder, 7, 3, of_round("generator", 30, [64, 1]) | of_round("ema", 60, [64, 64]))
    write(folder, 7, None, {"data_mean": grey(200, 2), "data_count": np.array([50, kept_images.LEAST - 1])})
    return load_run(folder)


def name_classes(run: Run, names: list[str]) -> Run:
    """The run, read again, with these names of classes in the records of its partitions."""
    for folder in (run.path / run_folder.TRIALS).iterdir():
        stored = {"0": [[1] * len(names)], "hash": {"0": "x"}, "classes": names, "clients": []}
        (folder / run_folder.PARTITION).write_text(json.dumps(stored))
    return load_run(run.path)
