"""A labelled data set as trials see it: arrays mapped from the cache, and their means and deviations.

Samples are images, or vectors, which are images of one pixel with a channel for each number, or sequences of tokens,
whose channels are the places of the sequence. An image of bytes is stored as uint8, as which 255 stands for 1.
Everything else is float32: images in [0, 1], as what they were less `offset` and divided by `scale`; vectors as they
are; tokens as whole numbers below `vocabulary`, with mean 0 and standard deviation 1, so that models get them as they
are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Shape = tuple[int, int, int]
Kind = Literal["images", "vectors", "tokens"]
Images = NDArray[Any]
Labels = NDArray[np.int64]


@dataclass(frozen=True)
class Dataset:
    """Samples are uint8 or float32 `(n, channels, height, width)`, labels int64 `(n,)` in 0 … classes − 1.

    The arrays are memory maps shared by all processes of a machine; they are private to a process where it writes
    (copy on write), so nothing can change the cache. The test set is in a fixed shuffled order, because models that use
    batch statistics in evaluation must not see it sorted by class. `mean` and `std` are per channel, on [0, 1].
    `hash` names the content: the same images, labels and normalisation give the same hash on every machine."""

    name: str
    title: str
    classes: int
    class_names: tuple[str, ...]
    shape: Shape
    mean: tuple[float, ...]
    std: tuple[float, ...]
    train_x: Images
    train_y: Labels
    test_x: Images
    test_y: Labels
    hash: str
    kind: Kind = "images"
    #: A sample as the user has it is `offset + scale · stored`, where what is stored as uint8 counts as in [0, 1].
    offset: float = 0.0
    scale: float = 255.0
    #: Whose samples these are, where clients exist already: names, and of every training and test sample the place of
    #: its client among them.
    owners: tuple[str, ...] = ()
    train_owner: Labels | None = None
    test_owner: Labels | None = None
    #: How many tokens there are, where samples are sequences of them.
    vocabulary: int = 0


@dataclass(frozen=True)
class Split:
    """One part of a data set on its way into the cache: `chunks` yields arrays `(k, ch, H, W)`, `len(labels)` in all.
    `owner` `(n,)`: the client of each sample, where clients exist already.

    Reading a chunk may raise `UserError` and nothing else."""

    chunks: Iterator[Images]
    labels: Labels
    owner: Labels | None = None


@dataclass(frozen=True)
class Raw:
    """A data set as a reader hands it over. `mean` and `std` None: computed from the training images. `origin` is the
    folder that its files were found in."""

    train: Split
    test: Split
    class_names: tuple[str, ...]
    shape: Shape
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    origin: str = ""
    kind: Kind = "images"
    dtype: Literal["uint8", "float32"] = "uint8"
    #: See `Dataset`.
    offset: float = 0.0
    scale: float = 255.0
    owners: tuple[str, ...] = ()
    vocabulary: int = 0


def standardised(x: NDArray[Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation by channel of samples `(n, ch, …)`; 1 for a channel that never changes."""
    flat = np.moveaxis(x, 1, 0).reshape(x.shape[1], -1).astype(np.float64)
    mean = flat.mean(axis=1)
    std = np.sqrt(((flat - mean[:, None]) ** 2).mean(axis=1))
    return tuple(mean.tolist()), tuple(float(s) or 1.0 for s in std)


def from_arrays(x: Images, y: NDArray[np.integer], owner: Labels | None = None) -> Split:
    """A `Split` of images `(n, ch, H, W)` and labels `(n,)` that are in memory. Raises `ValueError` where their numbers
    differ."""
    if len(x) != len(y):
        raise ValueError(f"{len(x)} images and {len(y)} labels")
    return Split(iter([x]) if len(x) else iter(()), np.asarray(y, dtype=np.int64), owner)


def stratified(labels: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of a training and a test part: of every class with n ≥ 2 samples, max(1, round(n/5)) go to the test part.

    The same labels are always divided alike; both parts in rising order."""
    rng = np.random.default_rng(0)
    test: list[NDArray[np.int64]] = []
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        test.append(members[: max(1, round(0.2 * len(members))) if len(members) > 1 else 0])
    chosen = np.sort(np.concatenate(test))
    return np.setdiff1d(np.arange(len(labels)), chosen), chosen
