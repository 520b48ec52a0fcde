"""Numbers of every client in a row of `rounds.jsonl`: a list, or of many clients two columns in one text.

Of up to `LISTED` clients a row holds a list that people can read, one entry a client, null for one without a number. Of
more it holds a text of three words: how many clients there are, which of them have a number (`-` where all do), and
the numbers. Both columns are base64, of 32-bit whole and 32-bit floating numbers, low bytes first. Of a thousand
clients of which fifty trained that is a fifth of the lists' bytes.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence

import numpy as np

#: Fields of a row that hold one entry per client; no metrics.
NAMES = ("client_accuracy", "local_accuracies")
#: Of so many clients a list is written.
LISTED = 100
#: Of so many clients a text is believed.
_MOST = 10_000_000
_PLACES, _NUMBERS = np.dtype("<u4"), np.dtype("<f4")


def packed(values: Sequence[float | None]) -> list[float | None] | str:
    """What a row holds of these numbers, one for each client; one that is not finite counts as none."""
    found = [value if value is not None and math.isfinite(value) else None for value in values]
    if len(found) <= LISTED:
        return found
    places = [place for place, value in enumerate(found) if value is not None]
    which = "-" if len(places) == len(found) else _text(np.array(places, dtype=_PLACES))
    return f"{len(found)} {which} {_text(np.array([found[place] for place in places], dtype=_NUMBERS))}"


def unpacked(held: object) -> object:
    """The list of numbers and Nones that such a text stands for; anything else as it is. Raises ValueError for another
    text."""
    if not isinstance(held, str):
        return held
    count, which, numbers = held.split(" ")
    clients, values = int(count), _array(numbers, _NUMBERS)
    places = np.arange(clients if clients <= _MOST else 0) if which == "-" else _array(which, _PLACES)
    inside = 0 <= clients <= _MOST and (not len(places) or places[-1] < clients)
    if not inside or len(places) != len(values) or (np.diff(places.astype(np.int64)) <= 0).any():
        raise ValueError("no numbers of clients")
    found: list[float | None] = [None] * clients
    for place, value in zip(places.tolist(), values.tolist(), strict=True):
        found[place] = value if math.isfinite(value) else None
    return found


def _text(column: np.ndarray) -> str:
    return base64.b64encode(column.tobytes()).decode()


def _array(text: str, kind: np.dtype) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype=kind)
