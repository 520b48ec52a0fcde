"""From a registered data set's published files to its images: find or download, check, unpack, read."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import socket
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Protocol

from search_spaces import leftovers
from search_spaces.errors import Shown, UserError, sentence
from trainables.data import cache
from trainables.data.dataset import Raw
from trainables.data.source import File, Source

_SECONDS_WITHOUT_AN_ANSWER = 20.0


def read(source: Source, root: Path, work: Path) -> Raw:
    """The data set from its published files in `root`, downloading what is missing; `work` is an empty folder."""
    files = [_find_or_download(source, file, root) for file in source.remote()]
    source.unpack(files, work)
    return read_unpacked(source, work)


def read_unpacked(source: Source, root: Path) -> Raw:
    """The data set from a folder in the layout that `source.read` wants."""
    try:
        raw = source.read(root)
        for split in (raw.train, raw.test):
            if len(split.labels) == 0 or split.labels.min() < 0 or split.labels.max() >= source.classes:
                raise ValueError(f"labels must be 0 to {source.classes - 1} and there must be some")
        return raw
    except UserError:
        raise
    except Exception as error:
        # Parsers of these formats may raise anything. In every case the files cannot be used.
        raise UserError(
            sentence(
                f"The files of {source.name}",
                "in their published format",
                Shown(f"{type(error).__name__}: {error}"),
                str(root),
                "Delete them and repeat.",
            )
        ) from error


def _find_or_download(source: Source, file: File, root: Path) -> Path:
    """The file in `root`. Several data sets may be made of the same file, and several users may share a folder: a lock
    beside the file lets one of them download it, and the others find it."""
    from filelock import FileLock

    if (found := _found(source, file, root)) is not None:
        return found
    target = root / file.path
    missing = [folder for folder in (target.parent, *target.parent.parents) if not folder.exists()]
    with contextlib.ExitStack() as held:
        with cache.writable(root):
            target.parent.mkdir(parents=True, exist_ok=True)
            held.enter_context(FileLock(f"{target}.lock"))
        try:
            if (found := _found(source, file, root)) is not None:
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


def _found(source: Source, file: File, root: Path) -> Path | None:
    """The file, where it is there already. Raises `UserError` where it is another one than was published."""
    from torchvision.datasets.utils import check_integrity

    target = root / file.path
    for path in (target, root / target.name):
        if path.exists():
            if not check_integrity(path, file.md5):
                raise UserError(
                    sentence(
                        f"{target.name} of {source.name}",
                        f"the published file (MD5 {file.md5})",
                        Shown("another checksum"),
                        str(path),
                        "Delete it and repeat.",
                    )
                )
            return path
    return None


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
    raise UserError(
        sentence(
            f"Data set {source.name}",
            "downloadable or in place",
            Shown(problem),
            fix=f"Put {files} into {root}, or name the folder that has them with --data-dir.",
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


def gunzip(path: Path, target: Path) -> None:
    """Unpacks one .gz file to `target`."""
    with _archive(path), gzip.open(path) as stream:
        _copy(stream, target)


def unzip(path: Path, into: Path, wanted: Callable[[str], bool] = lambda name: True) -> None:
    """Unpacks the wanted members of a .zip file below `into`."""
    with _archive(path), zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if not member.is_dir() and wanted(member.filename):
                with archive.open(member) as stream:
                    _copy(stream, into / _inside(path, member.filename))


def untar(path: Path, into: Path) -> None:
    """Unpacks the regular files of a .tar or .tar.gz file below `into`; links and devices are refused."""
    with _archive(path), tarfile.open(path) as archive:
        for member in archive:
            if member.isdir():
                continue
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is None:
                raise UserError(sentence("Archive members", "regular files", member.name, str(path)))
            with stream:
                _copy(stream, into / _inside(path, member.name))


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


def _copy(stream: _Readable, target: Path) -> None:
    with cache.writable():
        target.parent.mkdir(parents=True, exist_ok=True)
        out = target.open("wb")
    with out:
        while block := stream.read(1 << 20):
            with cache.writable():
                out.write(block)
        with cache.writable():
            out.flush()


@contextlib.contextmanager
def _archive(path: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise UserError(
            sentence("Archive", "complete and readable", Shown(str(error)), str(path), "Delete it and repeat.")
        ) from error
