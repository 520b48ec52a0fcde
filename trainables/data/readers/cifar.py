"""CIFAR-10 and CIFAR-100: a tar archive of pickled batches each, whose checksums are verified before unpickling."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from trainables.data.dataset import Raw, Split, from_arrays
from trainables.data.fetch import untar
from trainables.data.source import File, Source

_CLASS = {10: "CIFAR10", 100: "CIFAR100"}
# Normalisation of the papers' releases.
_MOMENTS = {
    10: ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    100: ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}
_BATCHES = {
    10: [
        f"cifar-10-batches-py/{name}"
        for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta")
    ],
    100: [f"cifar-100-python/{name}" for name in ("train", "test", "meta")],
}


def _torchvision(classes: int) -> Any:
    from torchvision import datasets

    return getattr(datasets, _CLASS[classes])


def _remote(classes: int) -> tuple[File, ...]:
    known = _torchvision(classes)
    return (File(known.filename, (known.url,), known.tgz_md5),)


def _contents(classes: int) -> dict[str, str]:
    known = _torchvision(classes)
    batches = [*known.train_list, *known.test_list, (known.meta["filename"], known.meta["md5"])]
    return {f"{known.base_folder}/{name}": md5 for name, md5 in batches}


def _unpack(files: list[Path], into: Path) -> None:
    untar(files[0], into)


def _unpacked(root: Path, classes: int) -> list[Path]:
    found = [root / path for path in _BATCHES[classes]]
    return found if all(path.exists() for path in found) else []


def _read(root: Path, classes: int) -> Raw:
    def split(part: Any) -> Split:
        return from_arrays(part.data.transpose(0, 3, 1, 2), part.targets)

    train, test = (_torchvision(classes)(str(root), train=part) for part in (True, False))
    mean, std = _MOMENTS[classes]
    return Raw(split(train), split(test), tuple(train.classes), (3, 32, 32), mean, std)


def _source(classes: int) -> Source:
    return Source(
        f"cifar{classes}",
        f"CIFAR-{classes}",
        (3, 32, 32),
        classes,
        50_000,
        10_000,
        f"Tiny photographs in {classes} classes (Krizhevsky 2009).",
        partial(_read, classes=classes),
        (f"cifar-{classes}-python.tar.gz",),
        partial(_remote, classes),
        partial(_unpacked, classes=classes),
        _unpack,
        contents=partial(_contents, classes),
    )


SOURCES = (_source(10), _source(100))
