"""The benchmarks' data as .npz files for everybody: scikit-learn's digits enlarged to the size wanted, shifted and
noisy, and real images of Fashion-MNIST.

A fixed seed, so that all arms and all peers read the same bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.measure import OUT
from benchmarks.results import Case

#: The images of a benchmark's federations, by the names that its tables give them.
DIGITS, FASHION = "digits", "Fashion-MNIST"
#: Training images of Fashion-MNIST, all there are.
MOST = 60_000
#: Training and test images of scikit-learn's digits, as the data set `digits` has them.
AS_DIGITS = (1438, 359)


def kinds(case: Case) -> tuple[str, ...]:
    """The images that stand beside each other in a case: digits alone where it is only tried, and where Fashion-MNIST
    is not on this machine, which it notes."""
    from trainables import data

    if case.quick:
        return (DIGITS,)
    if not data.is_ready("fmnist"):
        case.notes.append("Fashion-MNIST is not on this machine (`make data` brings it): digits alone.")
        return (DIGITS,)
    return DIGITS, FASHION


def file(images: str, train: int, test: int, side: int = 28, channels: int = 1) -> Path:
    """The .npz file of these images, `DIGITS` or `FASHION`, with the shapes of `npz`."""
    if images == DIGITS:
        return npz(train, test, side, channels)
    path = fashion(train, test, side, channels)
    assert path is not None, "kinds() says whether it is there"
    return path


def npz(train: int, test: int, side: int = 28, channels: int = 1) -> Path:
    """An .npz file of `x_train` `(train, side, side)` or `(train, side, side, 3)` uint8, `y_train`, `x_test`, `y_test`;
    made once."""
    path = OUT / "data" / f"digits-{train}-{test}-{channels}x{side}.npz"
    if path.exists():
        return path
    from sklearn.datasets import load_digits

    bunch = load_digits()
    small, labels = np.asarray(bunch.images, np.float64) * (255 / 16), np.asarray(bunch.target, np.int64)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(labels))
    cut = len(order) // 5  # test images are other digits than training images
    arrays: dict[str, np.ndarray] = {}
    for name, count, pool in (("train", train, order[cut:]), ("test", test, order[:cut])):
        chosen = pool[rng.permutation(np.arange(count) % len(pool))]
        arrays[f"x_{name}"], arrays[f"y_{name}"] = _enlarge(small[chosen], side, channels, rng), labels[chosen]
    return _kept(path, arrays)


def fashion(train: int, test: int, side: int = 28, channels: int = 1) -> Path | None:
    """An .npz file like those of `npz`, of Fashion-MNIST's first images, 28×28 or resized to 32×32, grey or repeated
    over three channels; None where that is not on this machine: it is not downloaded for a benchmark."""
    from trainables import data

    name = {28: "fmnist", 32: "fmnist32"}[side]
    path = OUT / "data" / f"fmnist-{train}-{test}-{channels}x{side}.npz"
    if path.exists():
        return path
    if not data.is_ready(name):
        return None
    found = data.load(name)
    arrays: dict[str, np.ndarray] = {}
    for part, count, x, y in (
        ("train", train, found.train_x, found.train_y),
        ("test", test, found.test_x, found.test_y),
    ):
        if count > len(x):
            raise ValueError(f"Fashion-MNIST has {len(x)} {part} images, and {count} were asked for")
        images = np.asarray(x[:count, 0])
        arrays[f"x_{part}"] = images if channels == 1 else np.repeat(images[..., None], channels, axis=3)
        arrays[f"y_{part}"] = np.asarray(y[:count])
    return _kept(path, arrays)


def _kept(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    """The file, written whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp.npz")
    np.savez(temporary, **arrays)  # type: ignore[arg-type]
    temporary.replace(path)
    return path


def _enlarge(images: np.ndarray, side: int, channels: int, rng: np.random.Generator) -> np.ndarray:
    """Bilinear from 8×8, moved by up to two pixels, with noise; grey is repeated over the channels."""
    at = np.linspace(0, 7, side)
    low = np.minimum(at.astype(int), 6)
    share = at - low
    rows = images[:, low] * (1 - share)[:, None] + images[:, low + 1] * share[:, None]
    large = rows[:, :, low] * (1 - share) + rows[:, :, low + 1] * share
    for image in large:
        image[:] = np.roll(image, tuple(rng.integers(-2, 3, 2)), (0, 1))
    large = np.clip(large + rng.normal(0, 12, large.shape), 0, 255).astype(np.uint8)
    return large if channels == 1 else np.repeat(large[..., None], channels, axis=3)
