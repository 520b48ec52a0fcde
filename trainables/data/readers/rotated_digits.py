"""The embedded digits, each rotated by an angle of its own: as many images as `digits`, harder, no download.

Every original is used once, and the training and test part are made of those of `digits`. So no original is in two
parts, whatever a run sets aside for validation, or its clients for tests of their own.

The angle is one of 20 all around the circle, drawn per image from a generator of fixed seed: clockwise by one of five
angles below 90°, then anticlockwise by none to three quarter turns. The five have rational cosines and sines, so all
arithmetic is in whole numbers, with one rounding that no processor can do otherwise. Corners that turn out of the 8×8
window are lost; what turns in is background. A 6 turned upside down looks like a 9, so no model reaches 100 %.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainables.data.dataset import Images, Raw, from_arrays, stratified
from trainables.data.source import Source

#: Cosine, sine and hypotenuse h of each angle below 90°, the first two over h: 0°, 22.6°, 36.9°, 53.1° and 67.4°.
ANGLES = ((1, 0, 1), (12, 5, 13), (4, 3, 5), (3, 4, 5), (5, 12, 13))
_SEED = 0
_WHITE = 16  # the largest grey level of scikit-learn's digits
_MARGIN = 2  # pixels around the window that a corner can come from


def read(root: Path) -> Raw:
    """1797 images of 8×8, each at an angle of its own; the parts are those of `digits`, in their order."""
    from sklearn.datasets import load_digits

    data = load_digits()
    levels, labels = data.images.astype(np.int64), data.target.astype(np.int64)
    rng = np.random.default_rng(_SEED)

    def part(chosen: NDArray[np.int64]) -> Images:
        angles, quarters = rng.integers(0, len(ANGLES), len(chosen)), rng.integers(0, 4, len(chosen))
        turned = [
            np.rot90(rotated(image, *ANGLES[angle]), quarter)
            for image, angle, quarter in zip(levels[chosen], angles, quarters, strict=True)
        ]
        return np.stack(turned)[:, None]

    train, test = stratified(labels)
    return Raw(
        from_arrays(part(train), labels[train]),
        from_arrays(part(test), labels[test]),
        tuple("0123456789"),
        (1, 8, 8),
        (0.5,),
        (0.5,),
    )


def rotated(levels: NDArray[np.int64], cosine: int, sine: int, hypotenuse: int) -> Images:
    """Grey levels `(H, H)` in 0 … 16, turned clockwise about their middle by the angle of that cosine and sine (both
    over the hypotenuse), as uint8 `(H, H)` in 0 … 255.

    Bilinear. Twice a pixel's distance from the middle is a whole number, so the point that turns to a pixel lies at a
    whole number over 2h, the four neighbours of the point have weights that are whole numbers over (2h)², and their
    sum is rounded half up."""
    side, whole = len(levels), 2 * hypotenuse
    column, row = np.meshgrid(*[2 * np.arange(side) - (side - 1)] * 2)
    middle = (side - 1) * hypotenuse + whole * _MARGIN
    y, y_rest = np.divmod(cosine * row - sine * column + middle, whole)
    x, x_rest = np.divmod(sine * row + cosine * column + middle, whole)
    wide = np.pad(levels, _MARGIN)
    total = (
        (whole - y_rest) * ((whole - x_rest) * wide[y, x] + x_rest * wide[y, x + 1])
        + y_rest * ((whole - x_rest) * wide[y + 1, x] + x_rest * wide[y + 1, x + 1])
    )  # fmt: skip
    parts = _WHITE * whole**2
    image: Images = ((2 * 255 * total + parts) // (2 * parts)).astype(np.uint8)
    return image


SOURCES = (
    Source(
        "rotated_digits",
        "Rotated digits",
        (1, 8, 8),
        10,
        1438,
        359,
        "The embedded digits, each rotated by one of 20 angles around the circle; the same images in the same parts, "
        "and harder: methods differ on it where digits are at their ceiling.",
        read,
    ),
)
