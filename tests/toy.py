"""A separable toy data set small enough that a federated round takes milliseconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_toy(folder: Path, classes: int = 4, train: int = 240, test: int = 80, size: int = 8) -> Path:
    """Writes `toy.npz`: class c is a bright square in the c-th quarter of a noisy image."""
    rng = np.random.default_rng(0)

    def images(n: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.arange(n) % classes
        x = rng.integers(0, 60, (n, size, size))
        half = size // 2
        for image, c in zip(x, y, strict=True):
            top, left = (c // 2) * half, (c % 2) * half
            image[top : top + half, left : left + half] += 150
        return x.astype(np.uint8), y.astype(np.int64)

    x_train, y_train = images(train)
    x_test, y_test = images(test)
    path = folder / "toy.npz"
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)
    return path
