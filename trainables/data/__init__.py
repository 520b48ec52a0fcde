"""Data sets by name or path.

    data = load("digits")                        # embedded, no download
    data = load("cifar10", data_dir="/data")     # downloaded on first use, or read from there
    data = load("mydata.npz"); load("photos/")   # the user's own
    data = load("people.csv?label=y&client=hospital")
    data = load("hf:ylecun/mnist"); load("torchvision:KMNIST")      # known by name in another library

Nothing here imports torch, torchvision or scikit-learn before it is needed: a data set that has been prepared is four
memory maps and a small file.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
from dataclasses import replace
from functools import cache as memoise
from pathlib import Path

from search_spaces import plugins
from search_spaces.errors import Shown, UserError, sentence, unknown
from search_spaces.files import given
from trainables.data import cache, fetch, libraries, own, readers
from trainables.data.dataset import Dataset, Raw, Shape
from trainables.data.own import Reference
from trainables.data.source import Source

__all__ = ["Dataset", "Reference", "Shape", "Source", "describe", "is_ready", "load", "names"]


#: Data sets of other machines that are in this one's cache: key and title by the name that a run has for them.
_TAKEN: dict[str, tuple[str, str]] = {}


def take(name: str, key: str, title: str) -> None:
    """From now on that name is, in this process, what the cache has under this key."""
    _TAKEN[name] = key, title


@memoise
def _sources() -> dict[str, Source]:
    found: dict[str, Source] = {}
    for info in sorted(pkgutil.iter_modules(readers.__path__), key=lambda i: i.name):
        for source in importlib.import_module(f"{readers.__name__}.{info.name}").SOURCES:
            found[source.name] = source
    for point in plugins.plugins(plugins.DATASETS).values():
        plug_in = plugins.load(point)
        if not isinstance(plug_in, Source) or plug_in.name in found:
            must = "a Source with a name of its own"
            raise UserError(sentence(f"The plug-in {point.name!r} ({point.group})", must, Shown(repr(plug_in)[:80])))
        found[plug_in.name] = plug_in
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
    """Whether `load(name)` needs no download: it is embedded, in a package that is installed, prepared in the cache, or
    its files are in a place where they are looked for."""
    source = describe(name)
    prepared, place = taken(source)
    return prepared or place is not None or not (source.files or source.is_missing)


def places(source: Source) -> list[Path]:
    """The folders in which a data set's files are looked for without `data_dir`, in that order. What is in none of them
    is downloaded into the first."""
    return [cache.home() / "downloads", *([source.package.folder] if source.package else [])]


def taken(source: Source) -> tuple[bool, Path | None]:
    """Whether the data set has been prepared, and the folder its files were then found in, or are now: None where they
    are in none, or where it was not noted."""
    if cache.exists(_key(source)):
        noted = cache.origin(_key(source))
        return True, Path(noted) if noted else None
    return False, next((place for place in places(source) if _has(source, place)), None)


def load(name_or_path: str, data_dir: str | None = None) -> Dataset:
    """The data set of that registered name, or the user's own folder of images, .npz file or table (see `own`).

    data_dir: a folder with the data set's files, in torchvision's layout or without its folders, packed or unpacked;
    what is missing is downloaded into it. Without it they are looked for in `places`. A name wins over a file of the
    same name (`./digits`).

    Raises `UserError` with one sentence where the data is unknown, missing, broken or cannot be downloaded or
    cached."""
    if name_or_path in _TAKEN:
        key, title = _TAKEN[name_or_path]
        return cache.opened(key, name_or_path, title)
    if name_or_path in _sources():
        return _registered(_sources()[name_or_path], data_dir)
    asked = own.Reference.read(name_or_path)
    if libraries.is_named(asked.path):
        return libraries.load(asked, cache.home() / "downloads" if data_dir is None else given(data_dir))
    path = given(asked.path)
    if path.is_dir() or (path.suffix in own.SUFFIXES and path.exists()):
        return own.load(asked, path)
    if path.exists():
        raise UserError(sentence("A data set of your own", own.WHAT, str(path)))
    if os.sep in asked.path or "/" in asked.path or path.suffix in own.SUFFIXES:
        raise UserError(sentence("A data set of your own", f"there, {own.WHAT}", str(path), fix="Check the path."))
    raise UserError(unknown("data set", name_or_path, names()) + f" Your own data is {own.WHAT}.")


def _key(source: Source, files: str = "") -> str:
    return cache.key(source.name, source.version, source.shape, files)


def _registered(source: Source, data_dir: str | None) -> Dataset:
    if not source.files:
        if source.is_missing and not cache.exists(_key(source)):
            fix = "Install it: pip install 'fedtune[images]'."
            raise UserError(
                f"The data set {source.name} is in the Python package {source.python}, which is missing. {fix}"
            )
        return cache.prepare(_key(source), source.name, source.title, lambda work: fetch.read_unpacked(source, work))
    folders = places(source)
    if data_dir is not None:
        folders = [given(data_dir, "FEDTUNE_DATA")]
        if not folders[0].is_dir():
            raise UserError(sentence("FEDTUNE_DATA", "an existing folder", Shown(f"'{folders[0]}'")))
    root = next((folder for folder in folders if _has(source, folder)), folders[0])
    unpacked = source.unpacked(root)

    def read(work: Path) -> Raw:
        raw = fetch.read_unpacked(source, root) if unpacked else fetch.read(source, root, work)
        return replace(raw, origin=str(root))

    return cache.prepare(_key_of(source, root, unpacked), source.name, source.title, read)


def _has(source: Source, folder: Path) -> bool:
    return bool(source.unpacked(folder) or fetch.present(source, folder))


def _key_of(source: Source, root: Path, unpacked: list[Path]) -> str:
    """Published content has one key. What cannot be told from it has one of its own for each content; an archive is
    asked for its checksum only where nothing was prepared from the published one."""
    published = _key(source)
    if source.contents is not None:
        return published
    if unpacked:
        return _key(source, cache.content(unpacked))
    packed = fetch.present(source, root)
    if not packed or cache.exists(published):
        return published
    other = _key(source, ",".join(fetch.checksums(packed)))
    return published if not cache.exists(other) and fetch.is_published(source, packed) else other
