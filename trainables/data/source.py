"""A registered data set before it is read: the facts that need no download, and how its files are found and read."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainables.data.dataset import Raw, Shape


@dataclass(frozen=True)
class File:
    """One published file. `path` is its place below the data folder, in torchvision's layout; the checksum is MD5."""

    path: str
    urls: tuple[str, ...]
    md5: str


@dataclass(frozen=True)
class Package:
    """The Debian package that has a data set's files, and the folder where it puts them."""

    name: str
    folder: Path


@dataclass(frozen=True)
class Source:
    """A data set known by name.

    files: where its downloads lie below the data folder; empty for an embedded data set.
    remote: the same with addresses and checksums; asked for only before a download, because it may import torchvision.
    unpacked: the files that identify the content of a folder that holds the data set unpacked; empty where it does not.
    unpack: brings the downloaded files, found at these paths, into an empty folder in the layout `read` wants.
    read: the data in such a folder.
    version: raised when `read` changes what it yields, so that older caches are not used.
    contents: MD5 of the files that `unpack` makes, by their paths: whoever packs them anew changes the archive, but not
        these. None where only that of the published archive is known. Like `remote`, it may import torchvision.
    package: a system's package that has the files.
    python: the Python package that has the data in it, an optional one (`pip install 'fedtune[images]'`).
    """

    name: str
    title: str
    shape: Shape
    classes: int
    train: int
    test: int
    doc: str
    read: Callable[[Path], Raw]
    files: tuple[str, ...] = ()
    remote: Callable[[], tuple[File, ...]] = tuple
    unpacked: Callable[[Path], list[Path]] = lambda root: []
    unpack: Callable[[list[Path], Path], None] = lambda files, into: None
    version: int = 1
    contents: Callable[[], Mapping[str, str]] | None = None
    package: Package | None = None
    python: str = ""

    @property
    def is_missing(self) -> bool:
        """Whether the Python package that has the data is not installed."""
        return bool(self.python) and importlib.util.find_spec(self.python) is None
