"""The user's own data: a folder of images or an .npz file.

Folder (ImageFolder's layout): one sub-folder per class, named like the class, either directly or below `train/` and
`test/`. All images have the same size. If all are grey the data set has one channel, otherwise three (transparency is
dropped, grey becomes RGB).

.npz file: arrays `x` and `y`, or `x_train`, `y_train`, `x_test` and `y_test`.
    x   (n, H, W), (n, H, W, C) or (n, C, H, W) with C = 1 or 3; where both ends could be channels the last one is.
        uint8, or whole numbers in 0 … 255: taken as they are. bool: 0 and 255. Floats: in [0, 1], times 255, or, where
        one is above 1, in [0, 255]; rounded. The training part decides for both.
    y   (n,) or (n, 1), whole numbers; the sorted distinct labels of the training part become 0 … C − 1.

Without a test part, 20 % of every class is set aside, always the same. Mean and standard deviation per channel are
those of the training part.
"""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_spaces.errors import Shown, UserError, sentence
from trainables.data import cache, pictures
from trainables.data.dataset import Dataset, Images, Labels, Raw, Split, from_arrays, stratified

#: An archive may be so many times as large unpacked; beyond `SMALL` bytes more is a bomb and no images.
UNPACKED, SMALL = 100, 64 << 20
#: The largest label: up to here every whole number is a float.
MOST_LABEL = 2**53
#: Raised when the rules above change, so that older caches are not used.
_VERSION = 1
_WHOLE, _PARTS = ("x", "y"), ("x_train", "y_train", "x_test", "y_test")


def load(path: Path) -> Dataset:
    """The data set in that existing folder or .npz file. Raises `UserError` with one sentence where it cannot be
    used."""
    if path.is_dir():
        return _load_folder(path)
    return cache.prepare(
        cache.key("npz", _VERSION, _content([path])), path.name, path.name, lambda work: read_npz(path)
    )


def _content(files: list[Path]) -> str:
    try:
        for file in files:
            file.open("rb").close()
    except OSError as error:
        raise UserError(
            sentence("A data set of your own", "readable", Shown(error.strerror or str(error)), str(file))
        ) from error
    return cache.content(files)


def _load_folder(root: Path) -> Dataset:
    parts = [root / "train", root / "test"] if (root / "train").is_dir() and (root / "test").is_dir() else [root]
    listed = [pictures.class_folders(part) for part in parts]
    for part, classes in zip(parts, listed, strict=True):
        for name, files in classes.items():
            if not name.isprintable():  # a byte that is not UTF-8 stands for no character
                raise UserError(sentence("The name of a class folder", "text that can be printed", name, str(part)))
            if not files:
                raise UserError(
                    sentence(
                        "Every class folder",
                        f"filled with images ({', '.join(pictures.EXTENSIONS)})",
                        Shown("none"),
                        str(part / name),
                    )
                )
        if not classes:
            raise UserError(
                sentence("A folder of images", "filled with one sub-folder per class", Shown("none"), str(part))
            )
    _at_least_two(list(listed[0]), str(parts[0]))
    extra = sorted(set(listed[-1]) - set(listed[0]))
    if extra:
        raise UserError(
            sentence("The classes of the test part", "among those of the training part", extra[0], str(parts[-1]))
        )
    files = [file for classes in listed for group in classes.values() for file in group]
    # The folders' names are the labels, and it matters which part is for training. So both are in the key, with the
    # content.
    names = [[(name, len(group)) for name, group in classes.items()] for classes in listed]
    name = root.resolve().name
    return cache.prepare(
        cache.key("folder", _VERSION, names, _content(files)), name, name, lambda work: _read_folder(listed)
    )


def _read_folder(listed: list[dict[str, list[Path]]]) -> Raw:
    names = list(listed[0])
    files = [[file for group in classes.values() for file in group] for classes in listed]
    labels = [
        np.array([names.index(name) for name, group in classes.items() for _ in group], dtype=np.int64)
        for classes in listed
    ]
    looks = {file: pictures.look(file) for part in files for file in part}
    first = files[0][0]
    size = looks[first][0]
    for file, (other, _) in looks.items():
        if other != size:
            must = f"of one size, {size[1]}×{size[0]} like {first.name}"
            raise UserError(sentence("Images", must, Shown(f"{other[1]}×{other[0]}"), str(file), "Resize them."))
    grey = all(is_grey for _, is_grey in looks.values())
    if len(listed) == 1:
        train, test = _set_aside(labels[0], str(first.parent.parent))
        files = [[files[0][i] for i in part] for part in (train, test)]
        labels = [labels[0][train], labels[0][test]]
    splits = [Split(pictures.decode_all(f, grey, size, "Images"), y) for f, y in zip(files, labels, strict=True)]
    return Raw(splits[0], splits[1], tuple(names), (1 if grey else 3, *size))


def read_npz(path: Path) -> Raw:
    """The data set in an .npz file; see the module's text for what is accepted."""
    where = str(path)
    chosen, arrays = _arrays(path)
    images, labels = arrays[0::2], arrays[1::2]
    for key_x, key_y, x, y in zip(chosen[0::2], chosen[1::2], images, labels, strict=True):
        if x.ndim == 0 or y.ndim == 0 or len(x) != len(y):
            raise UserError(
                sentence(f"{key_x} and {key_y}", "of the same length", Shown(f"shapes {x.shape} and {y.shape}"), where)
            )
        if len(x) == 0:
            raise UserError(sentence(key_x, "at least one image", Shown("none"), where))
    y = [_whole(value, key, where) for value, key in zip(labels, chosen[1::2], strict=True)]
    values = np.unique(y[0])
    _at_least_two(values.tolist(), where)
    unknown = np.setdiff1d(y[-1], values)
    if len(unknown):
        raise UserError(
            sentence("The classes of the test part", "among those of the training part", int(unknown[0]), where)
        )
    pixels = _pixels(images, chosen[0::2], where)
    x = [_channels_first(value, key, where) for value, key in zip(pixels, chosen[0::2], strict=True)]
    if x[0].shape[1:] != x[-1].shape[1:]:
        raise UserError(
            sentence("Test images", f"of the training images' shape {x[0].shape[1:]}", x[-1].shape[1:], where)
        )
    numbers = [np.searchsorted(values, value) for value in y]
    if len(x) == 1:
        train, test = _set_aside(numbers[0], where)
        x, numbers = [x[0][train], x[0][test]], [numbers[0][train], numbers[0][test]]
    return Raw(
        from_arrays(x[0], numbers[0]), from_arrays(x[1], numbers[1]), tuple(map(str, values.tolist())), x[0].shape[1:]
    )


def _arrays(path: Path) -> tuple[tuple[str, ...], list[Any]]:
    """The names of the arrays in an .npz file that are a data set, images and labels in turn, and the arrays."""
    where = str(path)
    try:
        if not zipfile.is_zipfile(path):
            # numpy would take it for a pickle and advise to load it unsafely.
            raise ValueError("a file that is empty" if path.stat().st_size == 0 else "a file that is no archive")
        _check_size(path)
        with np.load(path, allow_pickle=False) as archive:
            keys = list(archive.files)
            chosen = _PARTS if set(_PARTS) <= set(keys) else _WHOLE
            if not set(chosen) <= set(keys):
                raise UserError(
                    sentence(
                        "An .npz data set",
                        "arrays x and y, or x_train, y_train, x_test and y_test",
                        Shown(", ".join(keys) or "no arrays"),
                        where,
                    )
                )
            arrays = [archive[key] for key in chosen]
            if not all(isinstance(array, np.ndarray) for array in arrays):
                raise ValueError("a member is not an array")
        return chosen, arrays
    except UserError:
        raise
    except Exception as error:  # zipfile, zlib and numpy each have their own ways of refusing a broken file
        raise UserError(
            sentence(
                "An .npz data set",
                "a complete file of plain arrays (written by numpy.savez)",
                Shown(str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"),
                where,
            )
        ) from error


def _check_size(path: Path) -> None:
    """Raises `UserError` where the archive says that it is much larger unpacked. (zipfile never unpacks more than it
    says.)"""
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    packed = path.stat().st_size
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if unpacked > max(SMALL, UNPACKED * packed) or unpacked > memory:
        must = f"at most {UNPACKED} times as large unpacked, and no larger than this machine's memory"
        fix = "Write it with numpy.savez, which does not compress."
        raise UserError(sentence("An .npz data set", must, Shown(_size(unpacked, packed)), str(path), fix))


def _size(unpacked: int, packed: int) -> str:
    return f"{unpacked / 2**20:,.0f} MiB in a file of {packed / 2**20:,.2f} MiB"


def _whole(y: NDArray[Any], key: str, where: str) -> Labels:
    """Labels as int64 `(n,)`."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise UserError(
            sentence(
                key, "one whole number per image", Shown(f"shape {y.shape}"), where, "Use argmax(1) of one-hot labels."
            )
        )
    good = y.dtype.kind in "iu" or (
        y.dtype.kind == "f" and bool(np.isfinite(y).all()) and bool((y == np.floor(y)).all())
    )
    if not good:
        got = f"{y.dtype} such as {y[0] if y.dtype.kind != 'f' else y[~(np.isfinite(y) & (y == np.floor(y)))][0]!s}"
        raise UserError(sentence(key, "whole numbers", Shown(got), where))
    large = y[np.abs(y.astype(np.float64)) > MOST_LABEL]
    if len(large):
        raise UserError(sentence(key, f"whole numbers in [-{MOST_LABEL}, {MOST_LABEL}]", Shown(str(large[0])), where))
    return y.astype(np.int64)


def _pixels(images: list[NDArray[Any]], keys: tuple[str, ...], where: str) -> list[Images]:
    """The values as uint8."""
    for x, key in zip(images, keys, strict=True):
        if x.dtype.kind not in "biuf":
            raise UserError(sentence(key, "numbers", Shown(str(x.dtype)), where))
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            raise UserError(sentence(key, "finite everywhere", Shown("NaN or infinity"), where))
    first = images[0]
    scale = 255.0 if first.dtype.kind == "b" or (first.dtype.kind == "f" and first.max(initial=0) <= 1) else 1.0
    out: list[Images] = []
    for x, key in zip(images, keys, strict=True):
        if x.dtype == np.uint8 and scale == 1:
            out.append(x)
            continue
        low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 0.0)
        if low < 0 or high * scale > 255:
            must = "in [0, 1] like the training images" if scale == 255 and x is not first else "in [0, 1] or [0, 255]"
            raise UserError(sentence(key, must, Shown(f"values from {low:g} to {high:g}"), where))
        out.append(np.rint(x.astype(np.float32) * scale).astype(np.uint8))
    return out


def _channels_first(x: Images, key: str, where: str) -> Images:
    """`(n, C, H, W)`."""
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[3] in (1, 3):
        x = x.transpose(0, 3, 1, 2)
    if x.ndim != 4 or x.shape[1] not in (1, 3) or 0 in x.shape:
        raise UserError(
            sentence(
                key, "of shape (n, H, W), (n, H, W, C) or (n, C, H, W) with C = 1 or 3", Shown(str(x.shape)), where
            )
        )
    return x


def _at_least_two(classes: list[Any], where: str) -> None:
    if len(classes) < 2:
        raise UserError(sentence("A data set", "of at least 2 classes", Shown(f"only {classes[0]!r}"), where))


def _set_aside(labels: Labels, where: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if np.bincount(labels).max() < 2:
        raise UserError(
            sentence("A data set without a test part", "at least 2 images of some class", Shown("1 of each"), where)
        )
    return stratified(labels)
