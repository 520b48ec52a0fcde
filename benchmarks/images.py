"""The benchmarks' data as .npz files for everybody: scikit-learn's digits enlarged to the size wanted, shifted and
noisy, and real images of Fashion-MNIST.

A fixed seed, so that all arms and all peers read the same bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.measure import OUT


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


def fashion(train: int, test: int) -> Path | None:
    """An .npz file like those of `npz`, of Fashion-MNIST's first images, 28×28; None where that is not on this machine:
    it is not downloaded for a benchmark."""
    from trainables import data

    path = OUT / "data" / f"fmnist-{train}-{test}.npz"
    if path.exists():
        return path
    if not data.is_ready("fmnist"):
        return None
    found = data.load("fmnist")
    images = {"x_train": found.train_x[:train, 0], "x_test": found.test_x[:test, 0]}
    labels = {"y_train": found.train_y[:train], "y_test": found.test_y[:test]}
    return _kept(path, {name: np.asarray(array) for name, array in (images | labels).items()})


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
