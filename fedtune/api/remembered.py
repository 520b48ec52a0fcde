"""Listings that are remembered: to list methods and spaces every one of them is loaded, PyTorch included, which takes
seconds of a processor. What was found once is kept in the cache folder until a file it came from changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from search_spaces import files, plugins

Rows = list[dict[str, Any]]


def remembered(what: str, find: Callable[[], Rows]) -> Rows:
    """The rows of `find`, which `what` names; taken from the cache folder where they were found before.

    Methods of a user's own files (FEDTUNE_METHODS) are always loaded. A cache that cannot be read or written is no
    fault: then the rows are found again."""
    from trainables.data import cache

    if os.environ.get("FEDTUNE_METHODS"):
        return find()
    # A name that somebody typed may be anything; what is no file name is not looked for.
    if not what.replace("-", "").replace("_", "").isalnum():
        return find()
    note = cache.home() / "listings" / f"{what}-{_sources()}.json"
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(note.read_text(encoding="utf-8"))
        if isinstance(found, list) and all(isinstance(row, dict) for row in found):
            return found
    rows = find()
    with contextlib.suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        for old in note.parent.glob(f"{what}-*.json"):
            old.unlink(missing_ok=True)
        files.replace(note, json.dumps(rows, ensure_ascii=False))
    return rows


def _sources() -> str:
    """A short name of all files that declare methods, parameters and spaces, as they are now: by path, size and time of
    change."""
    digest = hashlib.blake2b(version("fedtune").encode(), digest_size=12)
    for path in sorted(_declaring()):
        state = path.stat()
        digest.update(f"{path}\0{state.st_size}\0{state.st_mtime_ns}\0".encode())
    for group in (plugins.METHODS, plugins.MODELS, plugins.PARTITIONS):  # by name and version of their package
        for point in plugins.plugins(group).values():
            of = point.dist
            digest.update(f"{point.name}\0{point.value}\0{of.name if of else ''} {of.version if of else ''}\0".encode())
    return digest.hexdigest()


def _declaring() -> Iterator[Path]:
    for package in ("trainables", "search_spaces", "fedtune.api"):
        spec = importlib.util.find_spec(package)
        assert spec is not None and spec.origin is not None
        folder = Path(spec.origin).parent
        yield from folder.rglob("*.py")
        yield from folder.rglob("*.yaml")
