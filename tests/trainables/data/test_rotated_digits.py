"""The rotated digits: which original each image is made of, the rotation in exact fractions, and the bytes it makes."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import ndimage

from trainables import data
from trainables.data.readers.rotated_digits import ANGLES, rotated


def test_the_same_bytes_on_every_machine() -> None:
    """The hash covers images, labels, their order and the normalisation. A change of it is another data set, which
    needs another name: results on this one could not be compared any more."""
    assert data.load("rotated_digits").hash == "71494f7e787475ae02642a19de394bec"


def test_facts() -> None:
    made, facts = data.load("rotated_digits"), data.describe("rotated_digits")
    assert (made.train_x.shape, made.test_x.shape) == ((1438, 1, 8, 8), (359, 1, 8, 8))
    assert (len(made.train_y), len(made.test_y)) == (facts.train, facts.test)
    assert (made.shape, made.classes, made.mean, made.std) == (facts.shape, facts.classes, (0.5,), (0.5,))
    assert made.class_names == tuple("0123456789")
    assert data.is_ready("rotated_digits")
    for labels, least, most in ((made.train_y, 139, 146), (made.test_y, 35, 37)):
        sizes = np.bincount(labels, minlength=10)
        assert (sizes.min(), sizes.max()) == (least, most)


def test_every_image_is_its_own_original_of_the_same_part_turned() -> None:
    """Image i of a part is image i of that part of the digits at one of the 20 angles. The digits' parts share no
    original, so those made of them do not, nor do two images of one part."""
    originals, made = data.load("digits"), data.load("rotated_digits")
    angles = []
    for plain, turned in ((originals.train_x, made.train_x), (originals.test_x, made.test_x)):
        for image, result in zip(plain[:, 0], turned[:, 0], strict=True):
            levels = np.rint(image * (16 / 255)).astype(np.int64)
            every = [np.rot90(rotated(levels, *angle), quarter) for angle in ANGLES for quarter in range(4)]
            angles.append(next(i for i, candidate in enumerate(every) if np.array_equal(candidate, result)))
    np.testing.assert_array_equal(originals.train_y, made.train_y)
    np.testing.assert_array_equal(originals.test_y, made.test_y)
    # 1797 draws of 20 angles: 90 of each, give or take four standard deviations of 9.2.
    counts = np.bincount(angles, minlength=20)
    assert counts.min() >= 53 and counts.max() <= 127


def test_angles_are_those_of_whole_triangles_about_a_fifth_of_a_right_angle_apart() -> None:
    assert all(cosine**2 + sine**2 == hypotenuse**2 for cosine, sine, hypotenuse in ANGLES)
    degrees = [math.degrees(math.atan2(sine, cosine)) for cosine, sine, _ in ANGLES]
    assert np.diff([*degrees, 90]).min() > 14 and np.diff([*degrees, 90]).max() < 23


@pytest.mark.parametrize("angle", ANGLES)
def test_rotation_is_bilinear_in_exact_fractions(angle: tuple[int, int, int]) -> None:
    levels = np.random.default_rng(3).integers(0, 17, (8, 8))
    cosine, sine = Fraction(angle[0], angle[2]), Fraction(angle[1], angle[2])
    middle = Fraction(7, 2)

    def level(y: int, x: int) -> int:
        return int(levels[y, x]) if 0 <= y < 8 and 0 <= x < 8 else 0

    def value(row: int, column: int) -> int:
        y = middle + cosine * (row - middle) - sine * (column - middle)
        x = middle + sine * (row - middle) + cosine * (column - middle)
        top, left = math.floor(y), math.floor(x)
        mean = sum((1 - abs(y - i)) * (1 - abs(x - j)) * level(i, j) for i in (top, top + 1) for j in (left, left + 1))
        return math.floor(mean * 255 / 16 + Fraction(1, 2))

    expected = [[value(row, column) for column in range(8)] for row in range(8)]
    np.testing.assert_array_equal(rotated(levels, *angle), expected)


@pytest.mark.parametrize("angle", ANGLES)
def test_rotation_is_clockwise_as_scipy_turns(angle: tuple[int, int, int]) -> None:
    """SciPy turns in floating point, from the first axis to the second: on a screen, where rows count downwards, that
    is anticlockwise. Half a level of 255 is what rounding to whole levels may differ by."""
    levels = np.random.default_rng(4).integers(0, 17, (8, 8))
    degrees = math.degrees(math.atan2(angle[1], angle[0]))
    theirs = ndimage.rotate(levels * (255 / 16), -degrees, reshape=False, order=1, mode="grid-constant")
    assert np.abs(rotated(levels, *angle) - theirs).max() <= 0.5 + 1e-9


def test_a_quarter_turn_only_moves_pixels() -> None:
    levels = np.arange(64).reshape(8, 8) % 17
    np.testing.assert_array_equal(rotated(levels, 0, 1, 1), np.rot90(rotated(levels, 1, 0, 1), -1))
