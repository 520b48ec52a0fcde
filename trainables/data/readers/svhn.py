"""Street View House Numbers, cropped digits: two MATLAB files."""

from __future__ import annotations

from pathlib import Path

from trainables.data.dataset import Raw, from_arrays
from trainables.data.fetch import link
from trainables.data.source import File, Source

_FILES = ("train_32x32.mat", "test_32x32.mat")


def _remote() -> tuple[File, ...]:
    from torchvision.datasets import SVHN

    return tuple(File(name, (url,), md5) for url, name, md5 in (SVHN.split_list[part] for part in ("train", "test")))


def _contents() -> dict[str, str]:
    return {file.path: file.md5 for file in _remote()}


def _unpack(files: list[Path], into: Path) -> None:
    for file, name in zip(files, _FILES, strict=True):
        link(file, into / name)


def _read(root: Path) -> Raw:
    from torchvision.datasets import SVHN

    train, test = (SVHN(str(root), split=part) for part in ("train", "test"))
    return Raw(
        from_arrays(train.data, train.labels),
        from_arrays(test.data, test.labels),
        tuple("0123456789"),
        (3, 32, 32),
        (0.5,) * 3,
        (0.5,) * 3,
    )


SOURCES = (
    Source(
        "svhn",
        "SVHN",
        (3, 32, 32),
        10,
        73_257,
        26_032,
        "House numbers from street photographs, cropped digits (Netzer et al. 2011).",
        _read,
        _FILES,
        _remote,
        unpack=_unpack,
        contents=_contents,
    ),
)
