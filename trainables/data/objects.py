"""Data that a program has at hand, as a file that a run can name: arrays, a table of pandas, or a data set of PyTorch.

The file is written into the cache folder under the hash of its content, so that the same data have the same name, and
stays there for as long as runs are to be resumed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_spaces import files
from search_spaces.errors import Shown, UserError, sentence
from trainables.data import cache

_WHOLE, _PARTS = ("x", "y"), ("x_train", "y_train", "x_test", "y_test")
MUST = "a name, a path, arrays (x, y) or (x_train, y_train, x_test, y_test), a DataFrame or a torch Dataset"


def reference(given: Any) -> str:
    """What names these data in `--dataset`: a text or a path as it stands, else the path of a file with them. Raises
    `UserError` where they are nothing of the kind."""
    if isinstance(given, (str, Path)):
        return str(given)
    if hasattr(given, "to_parquet") and hasattr(given, "columns"):
        return _table(given)
    if isinstance(given, (tuple, list)):
        names = {len(keys): keys for keys in (_WHOLE, _PARTS)}.get(len(given))
        if names is None:
            raise UserError(sentence("dataset", MUST, Shown(f"{len(given)} arrays")))
        return _arrays(dict(zip(names, map(_array, given), strict=True)))
    if hasattr(given, "dtype") and hasattr(given, "shape"):
        got, fix = Shown(f"one array of shape {tuple(given.shape)}"), "Give its labels as well: dataset=(x, y)."
        raise UserError(sentence("dataset", MUST, got, fix=fix))
    if hasattr(given, "__getitem__") and hasattr(given, "__len__"):
        return _arrays(_stacked(given))
    raise UserError(sentence("dataset", MUST, Shown(type(given).__name__)))


def _array(value: Any) -> NDArray[Any]:
    """An array, or a tensor on any device, as NumPy has it."""
    return np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)


def _stacked(items: Any) -> dict[str, NDArray[Any]]:
    """The samples and labels of a data set whose items are pairs."""
    x, y = [], []
    for place in range(len(items)):
        item = items[place]
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            must = "made of pairs (sample, label)"
            raise UserError(sentence("A data set of PyTorch", must, Shown(f"{type(item).__name__} at {place}")))
        x.append(_array(item[0]))
        y.append(_array(item[1]))
    if len({one.shape for one in x}) > 1:
        got = " and ".join(map(str, sorted({one.shape for one in x})[:2]))
        raise UserError(sentence("A data set of PyTorch", "made of samples of one shape", Shown(got)))
    return {"x": np.stack(x), "y": np.stack(y)} if x else {"x": np.empty((0, 1)), "y": np.empty(0)}


def _arrays(found: dict[str, NDArray[Any]]) -> str:
    digest = hashlib.blake2b(digest_size=12)
    for name, array in found.items():
        if array.dtype == object:
            raise UserError(sentence("dataset", "made of plain arrays", Shown(f"{name} of Python objects")))
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode() + np.ascontiguousarray(array).tobytes())

    def write(path: Path) -> None:
        with path.open("wb") as stream:
            np.savez(stream, **found)  # type: ignore[arg-type]

    return kept(digest.hexdigest(), "arrays.npz", write)


def _table(frame: Any) -> str:
    import pandas as pd

    columns = [(str(name), str(kind)) for name, kind in frame.dtypes.items()]
    digest = hashlib.blake2b(repr(columns).encode(), digest_size=12)
    named = frame.set_axis([name for name, _ in columns], axis=1)
    digest.update(pd.util.hash_pandas_object(frame, index=False).to_numpy().tobytes())
    return kept(digest.hexdigest(), "table.parquet", lambda path: named.to_parquet(path, index=False))


def kept(content: str, name: str, write: Callable[[Path], None]) -> str:
    """The path of a file in the cache folder, `write`d once for this hash of its content."""
    path = cache.home() / "given" / content / name
    if not path.exists():
        with cache.writable():
            path.parent.mkdir(parents=True, exist_ok=True)
            with files.replacing(path) as partial:
                write(partial)
    return str(path)
