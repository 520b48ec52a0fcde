"""Real images, for the tests that need them: Fashion-MNIST, where it is on this machine."""

from __future__ import annotations

import pytest

from trainables import data
from trainables.data import fetch

_SOURCE = data.describe("fmnist")
#: The folder that has the files; None where there is none.
FASHION_MNIST = next((place for place in data.places(_SOURCE) if fetch.present(_SOURCE, place)), None)

fashion_mnist = pytest.mark.skipif(
    FASHION_MNIST is None,
    reason="Fashion-MNIST is not here: `make data` brings it, or Debian's package dataset-fashion-mnist.",
)
