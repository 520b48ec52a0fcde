"""A storage elsewhere (`--storage URI`): what pyarrow's or fsspec's file systems know. `mirror.py` keeps the mirror of
a run directory there."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import parse_qsl, urlsplit

from search_spaces.errors import UserError, sentence, short

#: How a file's name ends while it is written.
PART = ".part"
#: How an error about the URI ends.
FIX = "Give a URI such as s3://bucket/runs/mine, or an absolute path."
#: What may stand behind the `?` of a URI. All else could be a secret, and commands are recorded.
_QUERY = ("endpoint_override", "region", "scheme")
#: Bytes that are copied at once.
_CHUNK = 1 << 20


def is_uri(text: str) -> bool:
    """Whether a run is named by where its mirror is."""
    return "://" in text


def folder_name(uri: str) -> str:
    """The name of the folder that is made of a mirror there."""
    return uri.partition("?")[0].rstrip("/").rpartition("/")[2]


def check_uri(uri: str | None, problems: list[str]) -> None:
    """Adds a problem where a storage is named by no URI and no absolute path, or by one that holds a secret."""
    if uri is None:
        return
    if not is_uri(uri) and not uri.startswith("/"):
        problems.append(sentence("storage", "a URI or an absolute path", uri, "--storage", FIX))
        return
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        problems.append(sentence("storage", f"a URI that can be read ({error})", uri, "--storage", FIX))
        return
    strange = [key for key, _ in parse_qsl(parts.query, keep_blank_values=True) if key not in _QUERY]
    user = parts.username is not None and parts.scheme in ("s3", "gs", "gcs")
    # Behind the first scheme of several (a::b://) and in an address within the query there may be one too.
    hidden = "::" in uri or re.search(r"//[^/]*:[^/]*@", uri) is not None
    if user or hidden or strange:
        problems.append(
            "The URI of a storage must hold no user, password or key, as commands are recorded (--storage); behind a ? "
            f"it may say {', '.join(_QUERY)}. Give credentials in the environment, such as AWS_ACCESS_KEY_ID."
        )


class Storage:
    """The folder of a mirror. Whatever its library raises is a `UserError` here."""

    def __init__(self, uri: str) -> None:
        """Raises `UserError` where no library knows it."""
        self.uri = uri
        with self._told():
            self._files, self._folder = _file_system(uri)
        self._in_place = self._files.type_name not in ("local", "hdfs")

    @property
    def place(self) -> Path | None:
        """Where it is on a disk of this machine."""
        return Path(self._folder) if self._files.type_name == "local" else None

    def names(self) -> dict[str, int]:
        """The files of the mirror, by their paths in it, and their sizes."""
        from pyarrow import fs

        with self._told():
            found = self._files.get_file_info(fs.FileSelector(self._folder, allow_not_found=True, recursive=True))
        start = f"{self._folder.rstrip('/')}/"
        return {one.path.removeprefix(start): one.size for one in found if one.type == fs.FileType.File}

    def clean(self, names: Iterable[str]) -> None:
        """Removes what a process that was killed while it wrote one of these files has left."""
        if not self._in_place:
            left = self.names().keys() & {f"{name}{PART}" for name in names}
            with self._told():
                for name in left:
                    self._files.delete_file(self._path(name))

    def read(self, name: str, to: IO[bytes]) -> None:
        with self._told(), self._files.open_input_stream(self._path(name)) as source:
            shutil.copyfileobj(source, to, _CHUNK)

    def write(self, name: str, source: IO[bytes] | bytes) -> None:
        """Makes this the content of a file. Whoever reads it finds the old content or the new one."""
        with self._told():
            path = self._path(name)
            # An object is seen when it is complete; a file of a disk is written beside its name first.
            written = path if self._in_place else f"{path}{PART}"
            if not self._in_place:
                self._files.create_dir(str(PurePosixPath(path).parent), recursive=True)
            with self._files.open_output_stream(written) as out:
                if isinstance(source, bytes):
                    out.write(source)
                else:
                    shutil.copyfileobj(source, out, _CHUNK)
            if not self._in_place:
                self._files.move(written, path)

    def remove(self, name: str) -> None:
        """Removes a file, if there is one."""
        from pyarrow import fs

        with self._told():
            if self._files.get_file_info(self._path(name)).type == fs.FileType.File:
                self._files.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._folder.rstrip('/')}/{name}"

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """What the storage's library raises becomes one sentence."""
        try:
            yield
        except Exception as error:
            raise UserError(f"The storage {self.uri} cannot be used (--storage): {_why(error)}.") from error


def _why(error: Exception) -> str:
    """What went wrong, without the number of the request."""
    text = " ".join(str(error).split()) or type(error).__name__
    text = re.sub(r" ?\(Request ID: [^)]*\)", "", text)
    return short(text.rpartition("AWS Error ")[2].rstrip("."))


def _file_system(uri: str) -> tuple[Any, str]:
    """pyarrow's file system, where it has one of the kind, else that of fsspec, and the path there."""
    from pyarrow import ArrowInvalid, ArrowNotImplementedError, fs

    try:
        return fs.FileSystem.from_uri(uri)  # type: ignore[no-any-return]
    except (ArrowInvalid, ArrowNotImplementedError):
        from fsspec.core import url_to_fs

        found, path = url_to_fs(uri)
        return fs.PyFileSystem(fs.FSSpecHandler(found)), path
