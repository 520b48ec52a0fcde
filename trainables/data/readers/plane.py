"""Points of a plane in two or four classes, to be looked at: a sample is two numbers, as an image of 2×1×1.

    moons    two half rings that reach into each other (the figure known from scikit-learn's make_moons)
    blobs    four heaps that touch

A point is drawn evenly from its shape, and a sum of evenly drawn whole numbers is added to each of its coordinates. All
of it is in whole numbers from a generator of fixed seed, so no processor can make other points. A model for them is
`mlp`; `keep_images` keeps what models predict over the plane.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainables.data.dataset import Raw, from_arrays, stratified
from trainables.data.source import Source

Points = NDArray[np.int64]

#: Middle of a half ring, and the direction it opens away from.
MOONS = (((97, 108), 1), ((159, 147), -1))
#: Inner and outer radius of a half ring.
RADII = (54, 70)
BLOBS = ((84, 84), (172, 84), (84, 172), (172, 172))
#: Samples of a class: of moons, of blobs.
_MOON, _BLOB = 600, 300
_SEED = 0


def _noise(rng: np.random.Generator, count: int, width: int) -> Points:
    """`(count, 2)`: sums of four whole numbers from -width to width."""
    noise: Points = rng.integers(-width, width + 1, (4, count, 2)).sum(axis=0)
    return noise


def moon(rng: np.random.Generator, middle: tuple[int, int], side: int, count: int) -> Points:
    """`(count, 2)` points of the half ring around `middle`, above it (side 1) or below (-1), with noise."""
    square = rng.integers(-RADII[1], RADII[1] + 1, (40 * count, 2))
    far = (square**2).sum(axis=1)
    inside = (far >= RADII[0] ** 2) & (far <= RADII[1] ** 2) & (side * square[:, 1] >= 0)
    points: Points = square[inside][:count] + np.array(middle) + _noise(rng, count, 5)
    return points


def blob(rng: np.random.Generator, middle: tuple[int, int], count: int) -> Points:
    """`(count, 2)` points around `middle`."""
    points: Points = np.array(middle) + _noise(rng, count, 20)
    return points


def _raw(parts: list[Points]) -> Raw:
    x = np.concatenate(parts).clip(0, 255).astype(np.uint8)[:, :, None, None]
    y = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    train, test = stratified(y)
    names = tuple("abcd"[: len(parts)])
    return Raw(from_arrays(x[train], y[train]), from_arrays(x[test], y[test]), names, (2, 1, 1), (0.5, 0.5), (0.5, 0.5))


def read(name: str, root: Path) -> Raw:
    """The points of `moons` or `blobs`; 80 % of every class is training data, fixed."""
    rng = np.random.default_rng(_SEED)
    if name == "moons":
        return _raw([moon(rng, middle, side, _MOON) for middle, side in MOONS])
    return _raw([blob(rng, middle, _BLOB) for middle in BLOBS])


SOURCES = (
    Source(
        "moons",
        "Moons",
        (2, 1, 1),
        2,
        960,
        240,
        "Points of a plane in two half rings that reach into each other, made in whole numbers; to draw decision "
        "boundaries, with --set model=mlp.",
        partial(read, "moons"),
    ),
    Source(
        "blobs",
        "Blobs",
        (2, 1, 1),
        4,
        960,
        240,
        "Points of a plane in four heaps that touch, made in whole numbers; to draw decision boundaries, with "
        "--set model=mlp.",
        partial(read, "blobs"),
    ),
)
