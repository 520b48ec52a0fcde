"""Data sets by name or path.

    data = load("digits")                        # embedded, no download
    data = load("cifar10", data_dir="/data")     # downloaded on first use, or read from there
    data = load("mydata.npz"); load("photos/")   # the user's own

Nothing here imports torch, torchvision or scikit-learn before it is needed: a data set that has been prepared is four
memory maps and a small file.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from functools import cache as memoise

from search_spaces.errors import Shown, UserError, sentence, unknown
from search_spaces.files import given
from trainables.data import cache, fetch, own, readers
from trainables.data.dataset import Dataset, Shape
from trainables.data.source import Source

__all__ = ["Dataset", "Shape", "Source", "describe", "is_ready", "load", "names"]


@memoise
def _sources() -> dict[str, Source]:
    found: dict[str, Source] = {}
    for info in sorted(pkgutil.iter_modules(readers.__path__), key=lambda i: i.name):
        for source in importlib.import_module(f"{readers.__name__}.{info.name}").SOURCES:
            found[source.name] = source
    return found


def names() -> list[str]:
    """The registered data sets, sorted."""
    return sorted(_sources())


def describe(name: str) -> Source:
    """What is known of a registered data set without reading it. Raises `UserError` for an unknown name."""
    if name not in _sources():
        raise UserError(unknown("data set", name, names()))
    return _sources()[name]


def is_ready(name: str) -> bool:
    """Whether `load(name)` needs no download: it is embedded or already in the cache."""
    source = describe(name)
    return not source.files or cache.exists(_key(source))


def load(name_or_path: str, data_dir: str | None = None) -> Dataset:
    """The data set of that registered name, or the user's own folder of images or .npz file (see `own`).

    data_dir: a folder with the data set's files, as downloaded or unpacked in torchvision's layout; what is missing is
    downloaded into it. Without it, downloads go to the cache. A name wins over a file of the same name (`./digits`).

    Raises `UserError` with one sentence where the data is unknown, missing, broken or cannot be downloaded or
    cached."""
    if name_or_path in _sources():
        return _registered(_sources()[name_or_path], data_dir)
    path = given(name_or_path)
    if path.is_dir() or (path.suffix == ".npz" and path.exists()):
        return own.load(path)
    if path.exists():
        raise UserError(sentence("A data set of your own", "a folder of images or an .npz file", str(path)))
    if os.sep in name_or_path or "/" in name_or_path or path.suffix == ".npz":
        raise UserError(
            sentence(
                "A data set of your own", "an existing folder of images or .npz file", str(path), fix="Check the path."
            )
        )
    raise UserError(
        unknown("data set", name_or_path, names()) + " Your own data is a folder of images or an .npz file."
    )


def _key(source: Source, files: str = "") -> str:
    return cache.key(source.name, source.version, source.shape, files)


def _registered(source: Source, data_dir: str | None) -> Dataset:
    if data_dir is None or not source.files:
        return cache.prepare(
            _key(source), source.name, source.title, lambda work: fetch.read(source, cache.home() / "downloads", work)
        )
    root = given(data_dir, "--data-dir")
    if not root.is_dir():
        raise UserError(sentence("--data-dir", "an existing folder", Shown(f"'{root}'")))
    if found := source.unpacked(root):
        return cache.prepare(
            _key(source, cache.content(found)),
            source.name,
            source.title,
            lambda work: fetch.read_unpacked(source, root),
        )
    return cache.prepare(_key(source), source.name, source.title, lambda work: fetch.read(source, root, work))
