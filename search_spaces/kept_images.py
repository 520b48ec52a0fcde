"""The files that `keep_images` leaves in a trial's folder: their names, what is in them, and how large they are.

    images-<seed>-<round>.npz    one per seed and evaluated round
    images-<seed>-data.npz       one per seed: of the data

Both are what `numpy.savez_compressed` writes, of arrays alone. Those of a round, for each of the method's generators
(`SOURCES`), pixels as uint8:

    <source>          (K, n, ch, H, W)   the first n images of each of the first K classes
    <source>_mean     (K, ch, H, W)      the mean of all images of the class
    <source>_count    (K,)               how many those were; the rest of a class with fewer than n is black

For a generator of features, numbers in thousandths as int64:

    features          (K, n, 2)          n generated features of each of the first K classes, on the plane of the first
                                         two principal components of the features of test images
    features_seen     (m, 2)             those of at most `POINTS` test images on the same plane
    features_labels   (m,)               their classes
    features_share    (2,)               of the variance of test images' features, what each component explains

The file of the data has `data_mean` and `data_count`, of the clients' training images. The mean of a class with fewer
than `LEAST` of them is left black, as it would show single images of a client. Single images are those of `data`, which
is there only for a data set known by name, not the user's own, and only where its test set is not dealt to clients:

    data              (K, n, ch, H, W)   the first n test images of each of the first K classes; n is lowered to what
                                         the smallest of these classes has

Of data with two numbers per sample (`is_plane`) there are also

    plane, teacher    (SIDE, SIDE)       the class that the global model, and the mean of the round's local models,
                                         predicts at the pixel values `plane_values()`: row = second number
    data_points       (m, 2)             in the data's file: at most `POINTS` training samples as pixel values
    data_labels       (m,)               their classes

A pixel is round(255 · (x · std + mean)), clipped to 0 … 255: what models are fed, with the data set's normalisation
undone. n is `IMAGES`, or `DOTS` where a sample is two numbers and for features. n and K are lowered until no source of
images takes more than `BYTES` before compression.
"""

from __future__ import annotations

import re

#: Generators by their name in the files, in the order in which they are shown, and what readers call them.
SOURCES = {"generator": "generator", "ema": "EMA generator"}
#: The name of a generator of features.
FEATURES = "features"
#: What numbers that are no pixels are multiplied by, and the largest that is kept.
FIXED, LARGEST = 1000, 2**40
IMAGES, DOTS = 8, 64
#: Classes kept at most.
CLASSES = 26
#: Images of a class that are painted for its mean.
POOL = 64
LEAST = 10
BYTES = 2**21
SIDE = 96
POINTS = 600

#: How the names of all these files begin.
PREFIX = "images-"
_NAME = re.compile(r"images-(\d{1,12})-(\d{1,9}|data)\.npz")


def name_of(seed: int, round_: int | None) -> str:
    """The file of a seed's round; None: that of its data."""
    return f"{PREFIX}{seed}-{'data' if round_ is None else f'{round_:04d}'}.npz"


def of_name(name: str) -> tuple[int, int | None] | None:
    """The seed and the round (None: its data) of a file of that name; None where it is no such file."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    return int(found[1]), None if found[2] == "data" else int(found[2])


def is_plane(shape: tuple[int, ...]) -> bool:
    """Whether samples of that shape (channels, height, width) are points of a plane."""
    return shape == (2, 1, 1)


def kept_of(classes: int, shape: tuple[int, int, int]) -> tuple[int, int]:
    """K and n for data with that many classes and images of that shape."""
    size = shape[0] * shape[1] * shape[2]
    first = max(1, min(classes, CLASSES, BYTES // (2 * size)))
    return first, max(1, min(DOTS if is_plane(shape) else IMAGES, BYTES // (first * size) - 1))


def plane_values() -> list[float]:
    """The pixel values at which the planes are asked, from 0 to 255."""
    return [255.0 * k / (SIDE - 1) for k in range(SIDE)]
