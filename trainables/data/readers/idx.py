"""Fashion-MNIST and EMNIST: gzipped IDX files, grey 28×28; the names ending in 32 are resized to 32×32."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainables.data.dataset import Raw, Split, from_arrays
from trainables.data.fetch import plain, unzip
from trainables.data.pictures import resized
from trainables.data.source import File, Package, Source

if TYPE_CHECKING:
    from torch import Tensor

_FASHION = tuple(
    f"FashionMNIST/raw/{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
)
# Of the unpacked files, in that order. The publishers give those of the packed ones.
_FASHION_MD5 = (
    "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "9018921c3c673c538a1fc5bad174d6f9",
    "8181f5470baa50b63fa0f6fddb340f0a",
    "15d484375f8d13e6eb1aabb0c3f46965",
)
_FASHION_PACKAGE = Package("dataset-fashion-mnist", Path("/usr/share/datasets/fashion-mnist"))
_EMNIST = ("EMNIST/raw/gzip.zip",)


def _split(images: Tensor, labels: Tensor, side: int) -> Split:
    if images.shape[1:] != (28, 28):
        raise ValueError(f"images of {'×'.join(map(str, images.shape[1:]))} and not of 28×28")
    whole = from_arrays(images[:, None].numpy(), labels.numpy())
    return whole if side == images.shape[-1] else Split(resized(images[:, None].numpy(), side), whole.labels)


def _fashion_remote() -> tuple[File, ...]:
    from torchvision.datasets import FashionMNIST

    checksums = dict(FashionMNIST.resources)
    return tuple(
        File(path, tuple(mirror + Path(path).name for mirror in FashionMNIST.mirrors), checksums[Path(path).name])
        for path in _FASHION
    )


def _fashion_contents() -> dict[str, str]:
    return {path.removesuffix(".gz"): md5 for path, md5 in zip(_FASHION, _FASHION_MD5, strict=True)}


def _fashion_unpack(files: list[Path], into: Path) -> None:
    for file, path in zip(files, _FASHION, strict=True):
        plain(file, into / path.removesuffix(".gz"))


def _fashion_read(root: Path, side: int) -> Raw:
    from torchvision.datasets import FashionMNIST

    train, test = (FashionMNIST(str(root), train=part) for part in (True, False))
    # Normalisation: both public releases use MNIST's numbers here.
    return Raw(
        _split(train.data, train.targets, side),
        _split(test.data, test.targets, side),
        tuple(FashionMNIST.classes),
        (1, side, side),
        (0.1307,),
        (0.3081,),
    )


def _emnist_remote() -> tuple[File, ...]:
    from torchvision.datasets import EMNIST

    return (File(_EMNIST[0], (EMNIST.url,), EMNIST.md5),)


def _emnist_files(kind: str) -> list[str]:
    return [
        f"emnist-{kind}-{part}-{content}-ubyte"
        for part in ("train", "test")
        for content in ("images-idx3", "labels-idx1")
    ]


def _emnist_unpack(files: list[Path], into: Path, kind: str) -> None:
    wanted = {f"gzip/{name}.gz" for name in _emnist_files(kind)}
    unzip(files[0], into, wanted.__contains__)
    for name in wanted:
        plain(into / name, into / "EMNIST/raw" / Path(name).stem)


def _emnist_read(root: Path, kind: str, side: int) -> Raw:
    """The published images are transposed; here they stand upright. Letters are numbered from 1 in the files."""
    from torchvision.datasets import EMNIST

    first, names, mean, std = (
        (1, "abcdefghijklmnopqrstuvwxyz", 0.1739, 0.3170) if kind == "letters" else (0, "0123456789", 0.1307, 0.3081)
    )
    parts: list[Any] = [EMNIST(str(root), split=kind, train=part) for part in (True, False)]
    train, test = (_split(part.data.transpose(1, 2).contiguous(), part.targets - first, side) for part in parts)
    return Raw(train, test, tuple(names), (1, side, side), (mean,), (std,))


def _all_there(paths: list[str]) -> Callable[[Path], list[Path]]:
    def unpacked(root: Path) -> list[Path]:
        found = [root / path for path in paths]
        return found if all(path.exists() for path in found) else []

    return unpacked


def _fashion(name: str, side: int) -> Source:
    return Source(
        name,
        "Fashion-MNIST" + ("" if side == 28 else f" {side}×{side}"),
        (1, side, side),
        10,
        60_000,
        10_000,
        "Articles of clothing, grey (Xiao, Rasul and Vollgraf 2017)."
        + ("" if side == 28 else " Resized, as DFRD uses it."),
        partial(_fashion_read, side=side),
        _FASHION,
        _fashion_remote,
        unpack=_fashion_unpack,
        contents=_fashion_contents,
        package=_FASHION_PACKAGE,
    )


def _emnist(name: str, kind: str, side: int, classes: int, train: int, test: int) -> Source:
    return Source(
        name,
        f"EMNIST {kind}" + ("" if side == 28 else f" {side}×{side}"),
        (1, side, side),
        classes,
        train,
        test,
        f"Handwritten {kind}, grey, from NIST (Cohen et al. 2017)."
        + ("" if side == 28 else " Resized, as FedKF uses it."),
        partial(_emnist_read, kind=kind, side=side),
        _EMNIST,
        _emnist_remote,
        _all_there([f"EMNIST/raw/{name}" for name in _emnist_files(kind)]),
        partial(_emnist_unpack, kind=kind),
    )


SOURCES = (
    _fashion("fmnist", 28),
    _fashion("fmnist32", 32),
    _emnist("emnist_letters", "letters", 28, 26, 124_800, 20_800),
    _emnist("emnist_letters32", "letters", 32, 26, 124_800, 20_800),
    _emnist("emnist_digits", "digits", 28, 10, 240_000, 40_000),
)
