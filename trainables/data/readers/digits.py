"""Handwritten digits of the UCI repository, embedded in scikit-learn: no download."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from trainables.data.dataset import Raw, from_arrays, stratified
from trainables.data.source import Source


def read(root: Path) -> Raw:
    """1797 images of 8×8 grey levels 0 … 16, scaled to 0 … 255; 80 % of every class is training data, fixed."""
    from sklearn.datasets import load_digits

    data = load_digits()
    x = np.rint(data.images * (255 / 16)).astype(np.uint8)[:, None]
    y = data.target.astype(np.int64)
    train, test = stratified(y)
    return Raw(
        from_arrays(x[train], y[train]), from_arrays(x[test], y[test]), tuple("0123456789"), (1, 8, 8), (0.5,), (0.5,)
    )


SOURCES = (
    Source(
        "digits",
        "Digits",
        (1, 8, 8),
        10,
        1438,
        359,
        "Optical recognition of handwritten digits (Alpaydin and Kaynak 1998), from scikit-learn; fixed "
        "stratified 80/20 split.",
        read,
    ),
)
