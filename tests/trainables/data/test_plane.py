"""Points of a plane: the same ones on every machine, in the shapes they are named after."""

from __future__ import annotations

import numpy as np
import pytest

from trainables import data
from trainables.data.readers.plane import BLOBS, MOONS, RADII


@pytest.mark.parametrize(
    ("name", "hash_"),
    [("moons", "303c2127c1cc87357a132607f15a372c"), ("blobs", "65e64778d6abffe92b827a13e917e523")],
)
def test_the_same_bytes_on_every_machine(name: str, hash_: str) -> None:
    """A change of the hash is another data set, which needs another name."""
    made, facts = data.load(name), data.describe(name)
    assert made.hash == hash_ and data.is_ready(name)
    assert (len(made.train_y), len(made.test_y), made.classes, made.shape) == (
        facts.train,
        facts.test,
        facts.classes,
        facts.shape,
    )
    assert len(set(np.bincount(made.train_y).tolist())) == 1, "classes are equally large"


def test_a_moon_is_a_half_ring() -> None:
    made = data.load("moons")
    for label, (middle, side) in enumerate(MOONS):
        offset = made.train_x[made.train_y == label, :, 0, 0].astype(int) - middle
        far = np.hypot(*offset.T)
        # Noise moves a coordinate by at most four times five.
        assert far.min() > RADII[0] - 29 and far.max() < RADII[1] + 29
        assert (side * offset[:, 1] >= -20).all() and (side * offset[:, 1] > 10).mean() > 0.8


def test_a_blob_lies_around_its_middle() -> None:
    made = data.load("blobs")
    for label, middle in enumerate(BLOBS):
        points = made.train_x[made.train_y == label, :, 0, 0].astype(float)
        # A sum of four numbers drawn evenly from -20 … 20 has the variance 4 · (41² - 1)/12.
        assert np.abs(points.mean(axis=0) - middle).max() < 6
        assert points.std(axis=0) == pytest.approx(np.sqrt(4 * (41**2 - 1) / 12), rel=0.1)
