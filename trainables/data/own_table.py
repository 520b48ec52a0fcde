"""A table of a user's own, `.csv` or `.parquet`: a row is a sample, a column a feature.

    --dataset people.csv --set label=y --set client=hospital

The label's column holds numbers, words or true and false; its sorted distinct values become the classes, and keep their
names. The client's column says whose row it is: each of its values is one client, in sorted order. Every other column
is a feature and holds numbers, or true and false. Nothing may be missing.

20 % of every class (of every class of a client, where there are clients) are set aside for testing, always the same.
Features are standardised by mean and standard deviation of the training rows of all clients together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from search_spaces.errors import Shown, UserError, nearest, sentence
from trainables.data.dataset import Raw, Split, from_arrays, standardised, stratified

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".parquet")


def read(path: Path, label: str | None, client: str | None) -> Raw:
    """The data set in that file. Raises `UserError` with one sentence where it cannot be used."""
    return of_frames([_frame(path)], label, client, str(path))


def of_frames(frames: list[pd.DataFrame], label: str | None, client: str | None, where: str) -> Raw:
    """The same of a table that is read, or of its training and its test part."""
    import pandas as pd

    frame = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    columns = [str(name) for name in frame.columns]
    frame.columns = columns
    if label is None:
        fix = f"Its columns are {', '.join(columns[:12])}{' …' if len(columns) > 12 else ''}."
        raise UserError(sentence("label", "the column that holds the classes", Shown("none"), where, fix))
    for option, name in (("label", label), ("client", client)):
        if name is not None and columns.count(name) != 1:
            got = name if name not in columns else Shown(f"{columns.count(name)} columns called {name}")
            raise UserError(sentence(option, "the name of a column", got, where, nearest(name, columns)))
    if label == client:
        raise UserError(sentence("client", "another column than label", client, where))
    features = [name for name in columns if name not in (label, client)]
    if not features or not len(frame):
        got = "no row" if features else "no other column"
        raise UserError(sentence("A table", "filled with rows of a label and at least one feature", Shown(got), where))
    x = np.stack([_numbers(frame[name], name, where) for name in features], axis=1)
    names, y = classes(frame[label].to_numpy(), label, where)
    owners, of = classes(frame[client].to_numpy(), client, where) if client is not None else ((), np.zeros_like(y))
    if len(frames) == 1:
        return split(x, y, names, of, owners, where)
    n = len(frames[0])
    return vectors((x[:n], x[n:]), (y[:n], y[n:]), names, (of[:n], of[n:]), owners)


def at_least_two(classes: Sequence[str], where: str) -> None:
    """Raises `UserError` where there are fewer classes."""
    if len(classes) < 2:
        raise UserError(sentence("A data set", "of at least 2 classes", Shown(f"only {classes[0]}"), where))


def split(
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    names: tuple[str, ...],
    owner: NDArray[np.int64],
    owners: tuple[str, ...],
    where: str,
    vocabulary: int = 0,
) -> Raw:
    """Vectors `(n, d)`, or tokens below `vocabulary`, with their classes and clients as a data set, a part set aside
    for testing. Raises `UserError` where no class has a sample to spare."""
    at_least_two(names, where)
    groups = y * max(len(owners), 1) + owner
    if np.bincount(groups).max() < 2:
        of = "class of a client" if owners else "class"
        must = f"at least 2 samples of some {of}"
        raise UserError(sentence("A data set without a test part", must, Shown("1 of each"), where))
    train, test = stratified(groups)
    if owners and len(kept := np.unique(owner[train])) < len(owners):
        lost = owners[next(n for n in range(len(owners)) if n not in kept)]
        raise UserError(sentence("Every client", "left with a training sample", Shown(f"none of {lost}"), where))
    return vectors((x[train], x[test]), (y[train], y[test]), names, (owner[train], owner[test]), owners, vocabulary)


def vectors(
    x: tuple[NDArray[np.float32], NDArray[np.float32]],
    y: tuple[NDArray[np.int64], NDArray[np.int64]],
    names: tuple[str, ...],
    owner: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    owners: tuple[str, ...] = (),
    vocabulary: int = 0,
) -> Raw:
    """Vectors `(n, d)`, or tokens below `vocabulary`, of a training and a test part as a data set: d channels of one
    pixel each."""
    places = x[0].shape[1]
    mean, std = ((0.0,) * places, (1.0,) * places) if vocabulary else standardised(x[0])
    parts: list[Split] = []
    for i in (0, 1):
        of = owner[i] if owner is not None and owners else None
        parts.append(from_arrays(x[i].astype(np.float32)[:, :, None, None], y[i], of))
    return Raw(
        parts[0],
        parts[1],
        names,
        (places, 1, 1),
        mean,
        std,
        kind="tokens" if vocabulary else "vectors",
        dtype="float32",
        scale=1.0,
        owners=owners,
        vocabulary=vocabulary,
    )


def classes(values: NDArray[Any], name: str, where: str) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The sorted distinct values as texts, and of each entry which it is. Raises `UserError` where one is missing, or
    no class."""
    if values.dtype.kind == "f":
        bad = values[~(np.isfinite(values) & (values == np.floor(values)))]
        if len(bad):
            must = "whole numbers, words, or true and false, and nowhere missing"
            raise UserError(sentence(name, must, Shown(str(bad[0])), where))
        values = values.astype(np.int64) if np.abs(values).max(initial=0) < 2**53 else values
    if values.dtype.kind == "O":
        import pandas as pd

        if (missing := int(pd.isna(values).sum())) > 0:
            raise UserError(sentence(name, "nowhere missing", Shown(f"{missing} missing values"), where))
        values = values.astype(str)
    if values.dtype.kind not in "biufU":
        raise UserError(sentence(name, "whole numbers, words, or true and false", Shown(str(values.dtype)), where))
    found, places = np.unique(values, return_inverse=True)
    words = tuple(str(value) for value in found.tolist())
    hidden = next((word for word in words if not word.isprintable()), None)
    if hidden is not None:
        raise UserError(sentence(name, "text that can be printed", hidden, where))
    return words, places.astype(np.int64)


def _frame(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        frame = pd.read_csv(path, low_memory=False) if path.suffix == ".csv" else pd.read_parquet(path)
    except Exception as error:  # pandas and pyarrow have many ways of refusing a broken file
        said = " ".join(str(error).split()) or type(error).__name__
        must = "a complete table with a first line of names" if path.suffix == ".csv" else "a complete Parquet file"
        raise UserError(sentence(f"A {path.suffix} data set", must, Shown(said), str(path))) from error
    # So pandas calls a column without a name: mostly the numbers of the rows, which are no feature.
    if any(re.fullmatch(r"Unnamed: \d+", str(name)) for name in frame.columns):
        fix = "Where it numbers the rows, leave it out: `to_csv(..., index=False)`."
        raise UserError(
            sentence("Every column", "named in the first line", Shown("one without a name"), str(path), fix)
        )
    return frame


def _numbers(column: pd.Series[Any], name: str, where: str) -> NDArray[np.float32]:
    """A feature as float32. Raises `UserError` where it is none."""
    if column.dtype.kind not in "biuf":
        words = column[column.map(lambda value: isinstance(value, str))]
        got = f"{words.iloc[0]!r}" if len(words) else str(column.dtype)
        fix = "Turn it into numbers (`pandas.get_dummies`), or leave the column out."
        raise UserError(sentence(f"The column {name!r}", "of numbers, as every feature is", Shown(got), where, fix))
    values = column.to_numpy(dtype=np.float64)
    with np.errstate(over="ignore"):
        small = values.astype(np.float32)
    if (bad := int((~np.isfinite(small)).sum())) > 0:
        got = Shown(f"{bad} of {len(values)} that are missing or infinite")
        raise UserError(sentence(f"The column {name!r}", "finite everywhere", got, where, "Fill or remove these rows."))
    return small
