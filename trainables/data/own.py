"""The user's own data: a folder of images, an .npz file or a table (`own_table.py`).

What is to be known of it beside its path follows the path, as `people.csv?label=y&client=hospital`; `label`,
`client`, `resize` and `samples` of `--set` write it there.

Folder (ImageFolder's layout): one sub-folder per class, named like the class, either directly or below `train/` and
`test/`. All images have the same size, or get that of `resize` (8, or height×width as 8x6). If all are grey the data
set has one channel, otherwise three (transparency is dropped, grey becomes RGB). Grey images of 16 bits are in [0, 1]
by the range of their format.

.npz file: arrays `x` and `y`, or `x_train`, `y_train`, `x_test` and `y_test`; `label` is another name in place of y,
and `client` that of an array that says whose sample each is.
    x   (n, H, W), (n, H, W, C) or (n, C, H, W) with C = 1 or 3; where both ends could be channels the last one is.
        uint8, or whole numbers in 0 … 255: taken as they are. bool: 0 and 255. Floats: in [0, 1], times 255, or, where
        one is above 1, in [0, 255]; rounded. uint16 above 255: in [0, 1] by their format's range. Floats that leave
        [0, 255], as images that are standardised already: taken as they are, and not normalised again; what
        generators of images make is in the range of the training part. The training part decides for both.
    x   (n, length) of a type of whole numbers, sequences of tokens 0, 1 … (`samples=vectors` makes them vectors). How
        many tokens there are the array `vocabulary` says, a number or the words; without it, the largest token does.
    x   (n, d) of any other type, vectors: taken as they are, and standardised by feature (`samples=tokens` makes them
        tokens).
    y   (n,) or (n, 1), whole numbers, words, or true and false; the sorted distinct labels of the training part become
        0 … C − 1.

Without a test part, 20 % of every class is set aside, always the same. Mean and standard deviation per channel are
those of the training part.
"""

from __future__ import annotations

import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode

import numpy as np
from numpy.typing import NDArray

from search_spaces.errors import Shown, UserError, sentence, unknown
from search_spaces.files import given as path_of
from trainables.data import cache, own_table, pictures
from trainables.data.dataset import Dataset, Images, Labels, Raw, Split, from_arrays, standardised, stratified

#: An archive may be so many times as large unpacked; beyond `SMALL` bytes more is a bomb and no images.
UNPACKED, SMALL = 100, 64 << 20
#: The largest label: up to here every whole number is a float.
MOST_LABEL = 2**53
#: The longest side that images are resized to.
MOST_SIDE = 4096
#: Raised when the rules above change, so that older caches are not used.
_VERSION = 2


#: Files that may be a data set.
SUFFIXES = (".npz", *own_table.SUFFIXES)
WHAT = "a folder of images, an .npz file or a table (.csv, .parquet)"
OPTIONS = ("label", "client", "resize", "samples")
#: What samples of two dimensions may be.
SAMPLES = ("vectors", "tokens")
#: The largest vocabulary.
MOST_TOKENS = 1 << 20


@dataclass(frozen=True)
class Reference:
    """A data set of a user's own: where it is, and what is to be known of it."""

    path: str
    label: str | None = None
    client: str | None = None
    resize: str | None = None
    samples: str | None = None

    @classmethod
    def read(cls, text: str) -> Reference:
        """What `str` wrote. Raises `UserError` where something else follows the path."""
        path, mark, rest = text.partition("?")
        if not mark or path_of(text).exists():
            return cls(text)
        said = parse_qsl(rest, keep_blank_values=True)
        strangers = [name for name, value in said if name not in OPTIONS or not value]
        if strangers or not said:
            must = "followed by label=, client=, resize= or samples= after the question mark, with & between"
            raise UserError(sentence("A data set of your own", must, rest, path))
        return cls(path, **dict(said))

    def __str__(self) -> str:
        said = {name: value for name in OPTIONS if (value := getattr(self, name)) is not None}
        return self.path + (f"?{urlencode(said)}" if said else "")

    def size(self) -> tuple[int, int] | None:
        """`resize` as height and width. Raises `UserError` where it is no size."""
        if self.resize is None:
            return None
        sides = self.resize.lower().replace("×", "x").split("x")
        if len(sides) > 2 or not all(side.isdecimal() and 0 < int(side) <= MOST_SIDE for side in sides):
            must = f"a size such as 32, or height x width as 32x24, of at most {MOST_SIDE}"
            raise UserError(sentence("resize", must, self.resize))
        return int(sides[0]), int(sides[-1])


def load(asked: Reference, path: Path) -> Dataset:
    """The data set in that existing folder or file. Raises `UserError` with one sentence where it cannot be used."""
    is_folder = path.is_dir()
    for option, given, useful in (
        ("label", asked.label, not is_folder),
        ("client", asked.client, not is_folder),
        ("resize", asked.resize, is_folder),
        ("samples", asked.samples, path.suffix == ".npz"),
    ):
        if given is not None and not useful:
            what = "a folder of images" if is_folder else f"a {path.suffix} file"
            raise UserError(sentence(option, f"left out for {what}", given, str(path)))
    if asked.samples not in (None, *SAMPLES):
        raise UserError(unknown("kind of samples", str(asked.samples), SAMPLES, "samples"))
    name = path.name + str(asked).removeprefix(asked.path)
    if is_folder:
        return _load_folder(path, asked.size(), name)
    options = [asked.label, asked.client, asked.samples] if asked != Reference(asked.path) else []
    key = cache.key(path.suffix.removeprefix("."), _VERSION, *options, content_of([path]))
    if path.suffix in own_table.SUFFIXES:
        return cache.prepare(key, name, name, lambda work: own_table.read(path, asked.label, asked.client))
    return cache.prepare(key, name, name, lambda work: read_npz(path, asked.label, asked.client, asked.samples))


def content_of(files: list[Path]) -> str:
    """A hash of these files. Raises `UserError` where one cannot be read."""
    try:
        for file in files:
            file.open("rb").close()
    except OSError as error:
        raise UserError(
            sentence("A data set of your own", "readable", Shown(error.strerror or str(error)), str(file))
        ) from error
    return cache.content(files)


def _load_folder(root: Path, size: tuple[int, int] | None, title: str) -> Dataset:
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
    own_table.at_least_two(list(map(repr, listed[0])), str(parts[0]))
    extra = sorted(set(listed[-1]) - set(listed[0]))
    if extra:
        raise UserError(
            sentence("The classes of the test part", "among those of the training part", extra[0], str(parts[-1]))
        )
    files = [file for classes in listed for group in classes.values() for file in group]
    # The folders' names are the labels, and it matters which part is for training. So both are in the key, with the
    # content.
    names = [[(name, len(group)) for name, group in classes.items()] for classes in listed]
    name = root.resolve().name + title.removeprefix(root.name)
    key = cache.key("folder", _VERSION, names, *([size] if size else []), content_of(files))
    return cache.prepare(key, name, name, lambda work: _read_folder(listed, size))


def _read_folder(listed: list[dict[str, list[Path]]], resize: tuple[int, int] | None) -> Raw:
    names = list(listed[0])
    files = [[file for group in classes.values() for file in group] for classes in listed]
    labels = [
        np.array([names.index(name) for name, group in classes.items() for _ in group], dtype=np.int64)
        for classes in listed
    ]
    looks = {file: pictures.look(file) for part in files for file in part}
    first = files[0][0]
    size = resize or looks[first].size
    for file, look in looks.items():
        if look.size != size and resize is None:
            must = f"of one size, {size[1]}×{size[0]} like {first.name}"
            fix = "Give --set resize=32, or another size, to bring all to one."
            raise UserError(sentence("Images", must, Shown(f"{look.size[1]}×{look.size[0]}"), str(file), fix))
    grey, deep = all(look.is_grey for look in looks.values()), any(look.is_deep for look in looks.values())
    if deep and not grey:
        file = next(file for file, look in looks.items() if not look.is_grey)
        must = "all grey where some have 16 bits per channel"
        raise UserError(sentence("Images", must, Shown("colour"), str(file), "Convert it."))
    if len(listed) == 1:
        train, test = _set_aside(labels[0], str(first.parent.parent))
        files = [[files[0][i] for i in part] for part in (train, test)]
        labels = [labels[0][train], labels[0][test]]
    parts = [
        Split(pictures.decode_all(f, grey, size, "Images", deep=deep), y) for f, y in zip(files, labels, strict=True)
    ]
    shape = (1 if grey else 3, *size)
    if deep:
        return Raw(parts[0], parts[1], tuple(names), shape, dtype="float32", scale=pictures.DEEP)
    return Raw(parts[0], parts[1], tuple(names), shape)


def read_npz(path: Path, label: str | None = None, client: str | None = None, samples: str | None = None) -> Raw:
    """The data set in an .npz file; see the module's text for what is accepted."""
    where = str(path)
    chosen, arrays, vocabulary = _arrays(path, label or "y", client)
    each = 2 if client is None else 3
    x, y, owner = arrays[0::each], arrays[1::each], arrays[2::each] if client is not None else []
    keys, key_y = chosen[0::each], chosen[1::each]
    for place, key in enumerate(chosen):
        first, array = arrays[place // each * each], arrays[place]
        if place % each == 0:
            continue
        if first.ndim == 0 or array.ndim == 0 or len(first) != len(array):
            both = f"{chosen[place // each * each]} and {key}"
            got = Shown(f"shapes {first.shape} and {array.shape}")
            raise UserError(sentence(both, "of the same length", got, where))
        if len(first) == 0:
            raise UserError(sentence(chosen[place // each * each], "at least one image", Shown("none"), where))
    names, numbers = labels_of(y, key_y, where)
    own_table.at_least_two(names, where)
    owners, of = labels_of(owner, chosen[2::each], where, what="clients") if client is not None else ((), None)
    if any(part.ndim == 2 for part in x):
        usual = "tokens" if all(part.dtype.kind in "iu" for part in x) else "vectors"
        size = _vocabulary(x, keys, vocabulary, where) if (samples or usual) == "tokens" else 0
        return _vectors(x, keys, numbers, names, of, owners, where, size)
    if samples is not None:
        raise UserError(sentence("samples", "left out for images", samples, where))
    if of is not None:
        raise UserError(sentence("client", "left out for images, whose clients are drawn", client, where))
    return images_of(x, keys, numbers, names, where)


def _vectors(
    x: list[NDArray[Any]],
    keys: tuple[str, ...],
    y: list[Labels],
    names: tuple[str, ...],
    owner: list[Labels] | None,
    owners: tuple[str, ...],
    where: str,
    vocabulary: int,
) -> Raw:
    for part, key in zip(x, keys, strict=True):
        if part.ndim != 2 or part.shape[1:] != x[0].shape[1:] or 0 in part.shape:
            what = "tokens" if vocabulary else "vectors"
            must = f"{what} of shape (n, {x[0].shape[-1]}) in both parts"
            raise UserError(sentence(key, must, Shown(str(part.shape)), where))
        _finite_numbers(part, key, where)
    small = [part.astype(np.float32) for part in x]
    for part, key in zip(small, keys, strict=True):
        _finite_numbers(part, key, where)
    if len(x) == 1:
        of = owner[0] if owner is not None else np.zeros_like(y[0])
        return own_table.split(small[0], y[0], names, of, owners, where, vocabulary)
    of_both = (owner[0], owner[1]) if owner is not None else None
    return own_table.vectors((small[0], small[1]), (y[0], y[1]), names, of_both, owners, vocabulary)


def _vocabulary(x: list[NDArray[Any]], keys: tuple[str, ...], given: NDArray[Any] | None, where: str) -> int:
    """How many tokens there are. Raises `UserError` where the samples are none of so many."""
    for part, key in zip(x, keys, strict=True):
        _finite_numbers(part, key, where)
        if part.dtype.kind == "f" and not bool((part == np.floor(part)).all()):
            raise UserError(sentence(key, "whole numbers, as tokens are", Shown(str(part.dtype)), where))
    lowest, highest = (int(end) for end in (min(p.min() for p in x), max(p.max() for p in x)))
    most = MOST_TOKENS
    if given is not None:
        if given.ndim > 1 or (given.ndim == 0 and given.dtype.kind not in "iu"):
            got = Shown(f"{given.dtype} of shape {given.shape}")
            raise UserError(sentence("vocabulary", "the number of tokens, or their list", got, where))
        most = int(given) if given.ndim == 0 else len(given)
        if not 0 < most <= MOST_TOKENS:
            raise UserError(sentence("vocabulary", f"of 1 to {MOST_TOKENS} tokens", most, where))
    if lowest < 0 or highest >= most:
        fix = "Numbers that are no tokens are said to be vectors: --set samples=vectors."
        must = f"tokens in 0 … {most - 1}"
        raise UserError(sentence(keys[0], must, Shown(f"values from {lowest} to {highest}"), where, fix))
    return most if given is not None else highest + 1


def images_of(x: list[NDArray[Any]], keys: tuple[str, ...], y: list[Labels], names: tuple[str, ...], where: str) -> Raw:
    """Images of a training part, and perhaps a test part, as a data set."""
    pixels = _pixels(x, keys, where)
    stored = [_channels_first(value, key, where) for value, key in zip(pixels.stored, keys, strict=True)]
    shape = stored[0].shape[1:]
    if shape != stored[-1].shape[1:]:
        must = f"of the training images' shape {shape}"
        raise UserError(sentence("Test images", must, stored[-1].shape[1:], where))
    if len(stored) == 1:
        train, test = _set_aside(y[0], where)
        stored, y = [stored[0][train], stored[0][test]], [y[0][train], y[0][test]]
    parts = from_arrays(stored[0], y[0]), from_arrays(stored[1], y[1])
    if pixels.dtype == "uint8":
        return Raw(parts[0], parts[1], names, shape)
    if pixels.offset == 0:
        return Raw(parts[0], parts[1], names, shape, *standardised(stored[0]), dtype="float32", scale=pixels.scale)
    # Stored in [0, 1], and normalised to what they were: (stored - mean) / std = offset + scale · stored.
    mean = (-pixels.offset / pixels.scale,) * shape[0]
    std = (1 / pixels.scale,) * shape[0]
    return Raw(parts[0], parts[1], names, shape, mean, std, dtype="float32", offset=pixels.offset, scale=pixels.scale)


def _arrays(path: Path, label: str, client: str | None) -> tuple[tuple[str, ...], list[Any], NDArray[Any] | None]:
    """The names of the arrays in an .npz file that are a data set, samples, labels and perhaps clients in turn, the
    arrays, and `vocabulary`, where there is one."""
    where = str(path)
    try:
        if not zipfile.is_zipfile(path):
            # numpy would take it for a pickle and advise to load it unsafely.
            raise ValueError("a file that is empty" if path.stat().st_size == 0 else "a file that is no archive")
        _check_size(path)
        with np.load(path, allow_pickle=False) as archive:
            keys = list(archive.files)
            whole = ("x", label) if client is None else ("x", label, client)
            parts = tuple(f"{key}_{part}" for part in ("train", "test") for key in whole)
            chosen = parts if set(parts) <= set(keys) else whole
            if not set(chosen) <= set(keys):
                must = f"arrays {_listed(whole)}, or {_listed(parts)}"
                fix = f"np.savez(FILE, {', '.join(f'{key}=…' for key in whole)}) names them."
                raise UserError(sentence("An .npz data set", must, Shown(", ".join(keys) or "no arrays"), where, fix))
            arrays = [archive[key] for key in chosen]
            vocabulary = archive["vocabulary"] if "vocabulary" in keys else None
            if not all(isinstance(array, np.ndarray) for array in (*arrays, vocabulary) if array is not None):
                raise ValueError("a member is not an array")
        return chosen, arrays, vocabulary
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


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words[:-1]) + f" and {words[-1]}"


def labels_of(
    arrays: list[NDArray[Any]], keys: tuple[str, ...], where: str, what: str = "classes"
) -> tuple[tuple[str, ...], list[Labels]]:
    """The names of the classes (or clients) of the training part, sorted, and of each part which they are."""
    parts = [_whole(value, key, where) for value, key in zip(arrays, keys, strict=True)]
    values = np.unique(parts[0])
    unknown = np.setdiff1d(parts[-1], values)
    if len(unknown):
        got = unknown[0].item()
        raise UserError(sentence(f"The {what} of the test part", "among those of the training part", got, where))
    names = tuple(map(str, values.tolist()))
    if not all(name.isprintable() and name for name in names):
        bad = next(name for name in names if not (name.isprintable() and name))
        raise UserError(sentence(keys[0], "text that can be printed", bad, where))
    return names, [np.searchsorted(values, value).astype(np.int64) for value in parts]


def _whole(y: NDArray[Any], key: str, where: str) -> NDArray[Any]:
    """Labels `(n,)` as int64, or as words, or true and false, where they are such."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise UserError(
            sentence(
                key, "one whole number per image", Shown(f"shape {y.shape}"), where, "Use argmax(1) of one-hot labels."
            )
        )
    if y.dtype.kind in "bU":
        return y
    if y.dtype.kind == "S":
        return np.char.decode(y, "utf-8", "backslashreplace")
    good = y.dtype.kind in "iu" or (
        y.dtype.kind == "f" and bool(np.isfinite(y).all()) and bool((y == np.floor(y)).all())
    )
    if not good:
        got = f"{y.dtype} such as {y[0] if y.dtype.kind != 'f' else y[~(np.isfinite(y) & (y == np.floor(y)))][0]!s}"
        raise UserError(sentence(key, "whole numbers, words, or true and false", Shown(got), where))
    large = y[np.abs(y.astype(np.float64)) > MOST_LABEL]
    if len(large):
        raise UserError(sentence(key, f"whole numbers in [-{MOST_LABEL}, {MOST_LABEL}]", Shown(str(large[0])), where))
    return y.astype(np.int64)


@dataclass(frozen=True)
class _Pixels:
    """Images as they are stored, see `Dataset`."""

    stored: list[Images]
    dtype: Literal["uint8", "float32"] = "uint8"
    offset: float = 0.0
    scale: float = 255.0


def _finite_numbers(x: NDArray[Any], key: str, where: str) -> None:
    if x.dtype.kind not in "biuf":
        raise UserError(sentence(key, "numbers", Shown(str(x.dtype)), where))
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise UserError(sentence(key, "finite everywhere", Shown("NaN or infinity"), where))


def _pixels(images: list[NDArray[Any]], keys: tuple[str, ...], where: str) -> _Pixels:
    """The values as uint8, or as float32 where bytes cannot hold them."""
    for x, key in zip(images, keys, strict=True):
        _finite_numbers(x, key, where)
    first = images[0]
    lowest, highest = (float(first.min()), float(first.max())) if first.size else (0.0, 0.0)
    if first.dtype == np.uint16 and highest > 255:
        for x, key in zip(images, keys, strict=True):
            if x.dtype != np.uint16:
                raise UserError(sentence(key, "uint16 like the training images", Shown(str(x.dtype)), where))
        return _Pixels([(x / pictures.DEEP).astype(np.float32) for x in images], "float32", scale=pictures.DEEP)
    if first.dtype.kind == "f" and (lowest < 0 or highest > 255) and highest > lowest:
        scale = highest - lowest
        stored = [((x.astype(np.float64) - lowest) / scale).astype(np.float32) for x in images]
        return _Pixels(stored, "float32", lowest, scale)
    scale = 255.0 if first.dtype.kind == "b" or (first.dtype.kind == "f" and highest <= 1) else 1.0
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
    return _Pixels(out)


def _channels_first(x: Images, key: str, where: str) -> Images:
    """`(n, C, H, W)`."""
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[3] in (1, 3):
        x = x.transpose(0, 3, 1, 2)
    if x.ndim != 4 or x.shape[1] not in (1, 3) or 0 in x.shape:
        raise UserError(
            sentence(
                key,
                "of shape (n, d), or of images, (n, H, W), (n, H, W, C) or (n, C, H, W) with C = 1 or 3",
                Shown(str(x.shape)),
                where,
            )
        )
    return x


def _set_aside(labels: Labels, where: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if np.bincount(labels).max() < 2:
        raise UserError(
            sentence("A data set without a test part", "at least 2 images of some class", Shown("1 of each"), where)
        )
    return stratified(labels)
