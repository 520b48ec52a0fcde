"""The cache of prepared data sets: memory maps, written once per content and shared by all trials of a machine.

    $FEDTUNE_CACHE (default ~/.cache/fedtune)/
        prepared/<key>/   train_x.npy  train_y.npy  test_x.npy  test_y.npy  meta.json
                          train_owner.npy  test_owner.npy    where clients exist already
        prepared/<key>.lock
        files/<signature>        hash of source files, so that they are hashed once and not at every start
        downloads/               archives as they were downloaded

A folder is written under another name and renamed when it is complete, under a file lock: it is either whole or not
there.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from search_spaces import files, leftovers
from search_spaces.errors import Shown, UserError, sentence
from search_spaces.files import given
from trainables.data.dataset import Dataset, Raw, Split

#: Raised when the layout of the cache changes.
LAYOUT = 1
_ARRAYS = ("train_x", "train_y", "test_x", "test_y")


def home() -> Path:
    """The cache folder."""
    return given(os.environ.get("FEDTUNE_CACHE") or Path.home() / ".cache" / "fedtune", "FEDTUNE_CACHE")


def key(*parts: object) -> str:
    """A short name for whatever is given, the same on every machine."""
    return hashlib.blake2b(json.dumps([LAYOUT, *parts], default=str).encode(), digest_size=12).hexdigest()


def content(paths: Iterable[Path]) -> str:
    """A hash of the files' names and content. Remembered by path, size and time of change."""
    ordered = sorted(paths)

    def digest() -> str:
        found = hashlib.blake2b(digest_size=12)
        root = os.path.commonpath([p.parent for p in ordered])
        for path in ordered:
            found.update(os.fsencode(path.relative_to(root)) + f"\0{path.stat().st_size}\0".encode())  # any name
            with path.open("rb") as stream:
                while block := stream.read(1 << 20):
                    found.update(block)
        return found.hexdigest()

    return _remembered(ordered, digest)


def md5(path: Path) -> str:
    """The file's MD5, the checksum that publishers of data sets give. Remembered like `content`."""

    def digest() -> str:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()

    return _remembered([path], digest, "md5")


def _remembered(paths: list[Path], digest: Callable[[], str], *kind: str) -> str:
    signature = [(str(p.resolve()), s.st_size, s.st_mtime_ns) for p in paths for s in [p.stat()]]
    note = home() / "files" / key(signature, *kind)
    with contextlib.suppress(OSError):
        return note.read_text()
    found = digest()
    with writable():
        note.parent.mkdir(parents=True, exist_ok=True)
        leftovers.clear(note.parent, lambda name: True)
        files.replace(note, found)
    return found


def exists(folder_key: str) -> bool:
    """Whether a data set has been prepared under this key."""
    return _meta(folder_key).exists()


def origin(folder_key: str) -> str:
    """The folder that the files of this prepared data set were found in; empty where that was not noted."""
    try:
        return str(json.loads(_meta(folder_key).read_text()).get("origin", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def _meta(folder_key: str) -> Path:
    return home() / "prepared" / folder_key / "meta.json"


def prepare(folder_key: str, name: str, title: str, read: Callable[[Path], Raw]) -> Dataset:
    """The data set under this key; `read` is called, once per machine, if it has not been prepared yet.

    `read` gets an empty folder on the cache's disk for its own use, removed afterwards."""
    folder = home() / "prepared" / folder_key
    with _claimed(folder) as is_new:
        if is_new:
            with _scratch(folder) as scratch:
                (scratch / "work").mkdir()
                raw = read(scratch / "work")
                (scratch / "out").mkdir()
                _write(raw, scratch / "out")
                _put(scratch / "out", folder)
    return _open(folder, name, title)


@contextlib.contextmanager
def _claimed(folder: Path) -> Iterator[bool]:
    """Whether the folder of a prepared data set is still to be made, which no other process does meanwhile."""
    if exists(folder.name):
        yield False
        return
    from filelock import FileLock

    with writable():
        folder.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        with writable():
            stack.enter_context(FileLock(f"{folder}.lock"))
        yield not exists(folder.name)


def _put(made: Path, folder: Path) -> None:
    """Makes `made`, which is complete, the folder of a prepared data set."""
    with writable():
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(made, folder)


def take(folder_key: str, names: Iterable[str], read: Callable[[str], Iterable[bytes]]) -> None:
    """Makes a data set that was prepared on another machine one of this machine's, under the same key, once: `read`
    gives the content of each of its files in pieces."""
    folder = home() / "prepared" / folder_key
    with _claimed(folder) as is_new:
        if not is_new:
            return
        with _scratch(folder) as scratch:
            (scratch / "out").mkdir()
            for name in names:
                place = scratch / "out" / Path(name).name
                with writable():
                    place.touch()
                for piece in read(name):  # may raise what is no fault of this disk
                    with writable(), place.open("ab") as stream:
                        stream.write(piece)
            _put(scratch / "out", folder)


def opened(folder_key: str, name: str, title: str) -> Dataset:
    """The data set that has been prepared under this key."""
    return _open(home() / "prepared" / folder_key, name, title)


def _open(folder: Path, name: str, title: str) -> Dataset:
    try:
        meta: dict[str, Any] = json.loads((folder / "meta.json").read_text())
        arrays = [np.load(folder / f"{a}.npy", mmap_mode="c", allow_pickle=False) for a in _ARRAYS]
        owned = [f"{part}_owner" for part in ("train", "test")] if meta.get("owners") else []
        whose = [np.load(folder / f"{a}.npy", mmap_mode="c", allow_pickle=False) for a in owned]
        lengths = [*meta["lengths"], *(meta["lengths"][1::2] if owned else [])]
        for array, expected in zip([*arrays, *whose], lengths, strict=True):
            if len(array) != expected:
                raise ValueError(f"{len(array)} of {expected} entries")
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            sentence(
                "The prepared data set", "complete", Shown(str(error)), str(folder), "Delete this folder and repeat."
            )
        ) from error
    train_x, train_y, test_x, test_y = arrays
    return Dataset(
        name,
        title,
        len(meta["class_names"]),
        tuple(meta["class_names"]),
        tuple(meta["shape"]),
        tuple(meta["mean"]),
        tuple(meta["std"]),
        train_x,
        train_y,
        test_x,
        test_y,
        meta["hash"],
        meta.get("kind", "images"),
        meta.get("offset", 0.0),
        meta.get("scale", 255.0),
        tuple(meta.get("owners", ())),
        whose[0] if whose else None,
        whose[1] if whose else None,
        meta.get("vocabulary", 0),
    )


def _write(raw: Raw, out: Path) -> None:
    """The four arrays and meta.json. The test set is put into its fixed shuffled order."""
    digest = hashlib.blake2b(digest_size=16)
    moments = np.zeros((3, raw.shape[0]))
    order = np.random.default_rng(0).permutation(len(raw.test.labels))

    def train_seen(x: NDArray[Any]) -> None:
        digest.update(x.tobytes())
        if raw.mean is None:
            _accumulate(moments, x)

    stored = np.dtype(raw.dtype)
    _write_images(out / "train_x.npy", raw.train, raw.shape, stored, train_seen)
    _write_labels(out / "train_y.npy", raw.train.labels)
    _write_images(out / "unshuffled.npy", raw.test, raw.shape, stored, lambda x: None)
    unshuffled = np.load(out / "unshuffled.npy", mmap_mode="r", allow_pickle=False)
    blocks = (unshuffled[order[i : i + 4096]] for i in range(0, len(order), 4096))
    shuffled = Split(blocks, raw.test.labels)
    _write_images(out / "test_x.npy", shuffled, raw.shape, stored, lambda x: digest.update(x.tobytes()))
    _write_labels(out / "test_y.npy", raw.test.labels[order])
    del unshuffled
    (out / "unshuffled.npy").unlink()

    mean, std = _normalisation(raw, moments)
    meta: dict[str, Any] = {
        "class_names": raw.class_names,
        "shape": raw.shape,
        "mean": mean,
        "std": std,
        "lengths": [len(y) for split in (raw.train, raw.test) for y in (split.labels, split.labels)],
    }
    usual: dict[str, object] = {"kind": "images", "offset": 0.0, "scale": 255.0, "owners": [], "vocabulary": 0}
    other = {name: getattr(raw, name) for name in usual} | {"owners": list(raw.owners)}
    meta |= {name: value for name, value in other.items() if value != usual[name]}
    if raw.train.owner is not None and raw.test.owner is not None:
        for name, owner in (("train_owner", raw.train.owner), ("test_owner", raw.test.owner[order])):
            _write_labels(out / f"{name}.npy", owner)
            digest.update(owner.tobytes())
    for value in (raw.train.labels.tobytes(), raw.test.labels[order].tobytes(), json.dumps(meta).encode()):
        digest.update(value)
    with writable():
        (out / "meta.json").write_text(json.dumps(meta | {"hash": digest.hexdigest(), "origin": raw.origin}, indent=1))


def _normalisation(raw: Raw, moments: NDArray[np.float64]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation by channel, as the reader gives them, or from the sums over the training images."""
    if raw.mean is not None and raw.std is not None:
        return raw.mean, raw.std
    count, total, squares = moments
    one = 255 if raw.dtype == "uint8" else 1
    mean = raw.mean or tuple((total / count / one).tolist())
    # A channel that never changes has no scale of its own; 1 keeps it finite.
    std = raw.std or tuple(
        float(s) or 1.0 for s in np.sqrt(np.maximum(squares / count - (total / count) ** 2, 0)) / one
    )
    return mean, std


def _accumulate(moments: NDArray[np.float64], x: NDArray[Any]) -> None:
    """Adds count, sum and sum of squares per channel; of bytes exact, since each block's sums are integers."""
    flat = x.transpose(1, 0, 2, 3).reshape(x.shape[1], -1)
    if x.dtype != np.uint8:
        moments += [(flat.astype(np.float64) ** power).sum(axis=1) for power in range(3)]
        return
    histograms = np.stack([np.bincount(channel, minlength=256) for channel in flat])
    moments += [histograms @ np.arange(256) ** power for power in range(3)]


def _write_images(
    path: Path,
    split: Split,
    shape: tuple[int, int, int],
    stored: np.dtype[Any],
    seen: Callable[[NDArray[Any]], None],
) -> None:
    total = 0
    with writable(), path.open("wb") as stream:
        _header(stream, stored, (len(split.labels), *shape))
        for chunk in split.chunks:
            block = np.ascontiguousarray(chunk, dtype=stored)
            if block.shape[1:] != shape:
                raise AssertionError(f"a chunk of images {block.shape[1:]} in a data set of {shape}")
            seen(block)
            # Written, not mapped: a full disk is then an error and not a signal that kills the process.
            stream.write(block.tobytes())
            total += len(block)
    if total != len(split.labels):
        raise AssertionError(f"{total} images for {len(split.labels)} labels")


def _write_labels(path: Path, labels: NDArray[np.int64]) -> None:
    with writable(), path.open("wb") as stream:
        _header(stream, labels.dtype, labels.shape)
        stream.write(labels.tobytes())


def _header(stream: BinaryIO, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    descr = np.lib.format.dtype_to_descr(dtype)
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})


@contextlib.contextmanager
def _scratch(becomes: Path) -> Iterator[Path]:
    """A folder on the cache's disk in which the folder `becomes` is made. Removes those of killed processes."""
    with writable():
        leftovers.clear(becomes.parent, lambda name: True, folders=lambda folder: True)
        held, folder = leftovers.new_folder(becomes)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


@contextlib.contextmanager
def writable(folder: Path | None = None) -> Iterator[None]:
    """Says in one sentence that `folder`, by default the cache, cannot be written: around code that only writes
    there."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        fix = "Free some space there or set" if full else "Mend its permissions or set"
        raise UserError(
            sentence(
                "The cache folder" if folder is None else "The data folder",
                "on a disk with free space" if full else "writable",
                Shown(str(error.strerror or error)),
                str(folder or home()),
                f"{fix} {'FEDTUNE_CACHE' if folder is None else 'FEDTUNE_DATA'} to another folder.",
            )
        ) from error
