"""Tiny-ImageNet: 200 classes of ImageNet at 64×64. torchvision has no reader; the published validation part is the test
set.

    tiny-imagenet-200/wnids.txt                       the 200 class identifiers
                      words.txt                       identifier, tab, names
                      train/<identifier>/images/*.JPEG
                      val/images/*.JPEG   val/val_annotations.txt   file, tab, identifier, tab, box

A folder that is already unpacked is recognised by its lists; an image changed inside it goes unnoticed once cached.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trainables.data.dataset import Raw, Split
from trainables.data.fetch import unzip
from trainables.data.pictures import decode_all
from trainables.data.source import File, Source

_FOLDER, _ARCHIVE = "tiny-imagenet-200", "tiny-imagenet-200.zip"
URL, MD5 = "http://cs231n.stanford.edu/tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"


def _unpack(files: list[Path], into: Path) -> None:
    """All but the published test part, which has no labels."""
    unzip(files[0], into, lambda name: not name.startswith(f"{_FOLDER}/test/"))


def _unpacked(root: Path) -> list[Path]:
    found = [root / _FOLDER / name for name in ("wnids.txt", "words.txt", "val/val_annotations.txt")]
    return found if all(path.exists() for path in found) and (root / _FOLDER / "train").is_dir() else []


def _read(root: Path) -> Raw:
    from torchvision.datasets import ImageFolder

    folder = root / _FOLDER
    train = ImageFolder(str(folder / "train"))
    if train.classes != sorted((folder / "wnids.txt").read_text().split()):
        raise ValueError("the folders below train are not the classes of wnids.txt")
    notes = [line.split("\t") for line in (folder / "val" / "val_annotations.txt").read_text().splitlines() if line]
    tests = [folder / "val" / "images" / file for file, *_ in notes]
    labels = np.array([train.class_to_idx[identifier] for _, identifier, *_ in notes], dtype=np.int64)
    words = dict(line.split("\t", 1) for line in (folder / "words.txt").read_text().splitlines() if "\t" in line)
    names = tuple(words.get(identifier, identifier).split(",")[0] for identifier in train.classes)
    size = (64, 64)
    return Raw(
        Split(
            decode_all([Path(path) for path, _ in train.samples], False, size, "Tiny-ImageNet"),
            np.array(train.targets, dtype=np.int64),
        ),
        Split(decode_all(tests, False, size, "Tiny-ImageNet"), labels),
        names,
        (3, *size),
        (0.485, 0.456, 0.406),
        (0.229, 0.224, 0.225),
    )


SOURCES = (
    Source(
        "tiny_imagenet",
        "Tiny-ImageNet",
        (3, 64, 64),
        200,
        100_000,
        10_000,
        "200 classes of ImageNet at 64×64 (Stanford CS231n); its validation part is the test set.",
        _read,
        (_ARCHIVE,),
        lambda: (File(_ARCHIVE, (URL,), MD5),),
        _unpacked,
        _unpack,
    ),
)
