"""Food-101: photographs of dishes up to 512 pixels wide, resized to 64×64 as DFRD uses them.

A folder that is already unpacked is recognised by its lists; an image changed inside it goes unnoticed once cached.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from trainables.data.dataset import Raw, Split
from trainables.data.fetch import untar
from trainables.data.pictures import decode_all
from trainables.data.source import File, Source

_ARCHIVE = "food-101.tar.gz"


def _remote() -> tuple[File, ...]:
    from torchvision.datasets import Food101

    return (File(_ARCHIVE, (Food101._URL,), Food101._MD5),)


def _unpack(files: list[Path], into: Path) -> None:
    untar(files[0], into)


def _unpacked(root: Path) -> list[Path]:
    found = [root / "food-101" / "meta" / name for name in ("train.json", "test.json")]
    return found if all(path.exists() for path in found) and (root / "food-101" / "images").is_dir() else []


def _read(root: Path) -> Raw:
    from torchvision.datasets import Food101

    def split(part: Any) -> Split:
        return Split(decode_all(part._image_files, False, (64, 64), "Food-101"), np.array(part._labels, dtype=np.int64))

    train, test = (Food101(str(root), split=part) for part in ("train", "test"))
    if train.classes != test.classes:
        raise ValueError("train.json and test.json name different classes")
    names = tuple(name.replace("_", " ") for name in train.classes)
    # The release normalises with CIFAR-100's numbers.
    return Raw(split(train), split(test), names, (3, 64, 64), (0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))


SOURCES = (
    Source(
        "food101",
        "Food-101",
        (3, 64, 64),
        101,
        75_750,
        25_250,
        "Photographs of 101 dishes (Bossard, Guillaumin and Van Gool 2014), resized to 64×64.",
        _read,
        (_ARCHIVE,),
        _remote,
        _unpacked,
        _unpack,
    ),
)
