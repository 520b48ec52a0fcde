"""Plug-ins: entry points of installed packages, whose names users type like those of fedtune's own things.

    [project.entry-points."fedtune.methods"]      a `trainables.method.Method`, or a module that assigns METHOD
    [project.entry-points."fedtune.models"]       a class of networks (`trainables.models.own`)
    [project.entry-points."fedtune.datasets"]     a `trainables.data.source.Source`
    [project.entry-points."fedtune.partitions"]   a recipe (`trainables.data.partition`)
    [project.entry-points."fedtune.metrics"]      a function of logits and labels (`trainables.own_metrics`)

Nothing of a plug-in is run before something of its kind is listed or asked for. A run records the package's name and
version and the hash of the file that the entry names.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from search_spaces.errors import UserError
from search_spaces.files import read_bytes
from search_spaces.own_files import digest

METHODS, MODELS = "fedtune.methods", "fedtune.models"
DATASETS, PARTITIONS = "fedtune.datasets", "fedtune.partitions"
METRICS = "fedtune.metrics"


@cache
def plugins(group: str) -> dict[str, EntryPoint]:
    """The entry points of a group by name, sorted. Nothing is loaded."""
    return {point.name: point for point in sorted(entry_points(group=group), key=lambda point: point.name)}


def load(point: EntryPoint) -> Any:
    """What an entry point names. Raises `UserError` where it cannot be loaded."""
    try:
        return point.load()
    except Exception as error:  # whatever somebody's module raises
        raise UserError(
            f"The plug-in {point.name!r} ({point.group}, {point.value}) cannot be loaded: {type(error).__name__}: "
            f"{error}. Mend or uninstall the package that declares it."
        ) from error


def facts(point: EntryPoint) -> dict[str, str]:
    """The package with its version, and the hash of the file that the entry names."""
    spec = importlib.util.find_spec(point.module)
    text = read_bytes(Path(spec.origin)) if spec is not None and spec.origin else b""
    package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value
    return {"file": package, "hash": digest(text)}
