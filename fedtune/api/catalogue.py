"""Lists of methods, search spaces, data sets and metrics, as plain data. The commands of the same names print them."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.runs.conditions import show
from search_spaces import files, plugins, presets
from search_spaces.dimension import Dimension
from search_spaces.parameter import Parameter, parameters
from search_spaces.space import Space
from trainables import methods as methods_package

if TYPE_CHECKING:
    from trainables.data import Source


def methods(name: str | None = None) -> list[dict[str, Any]]:
    """All methods, or every parameter of one.

    A method has name, title, reference, family, capabilities, spaces. A parameter has key, symbol,
    default, bounds, tuned (what a default search covers, None for not searched), doc, source, group (`method` or
    `federation`), option (`kind=a` where it exists only under that option, else None).
    Raises `UserError` for an unknown method."""
    return _remembered("methods", name, _methods)


def _remembered(
    what: str, method: str | None, find: Callable[[str | None], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    """What `find` says of a method, by name or by the path of its file, or of all. Of methods that are no files of the
    package it is found anew each time."""
    if method is None:
        return remembered(f"{what}-all", lambda: find(None))
    if method.isidentifier() and importlib.util.find_spec(f"{methods_package.__name__}.{method}") is not None:
        return remembered(f"{what}-{method}", lambda: find(method))
    from trainables import registry

    return find(registry.named(method))


def _methods(name: str | None) -> list[dict[str, Any]]:
    from trainables import registry

    if name is None:
        return [
            {
                "name": m.name,
                "title": m.title,
                "reference": m.reference,
                "family": m.family,
                "capabilities": list(m.capabilities),
                "spaces": space_names(m.name),
            }
            for m in registry.methods().values()
        ]
    config = registry.method(name).Config
    inherited = parameters(*config.__bases__) if config.__bases__ != (object,) else {}
    own = parameters(config)
    rows: list[dict[str, Any]] = []
    for key, parameter in registry.declared(name).items():
        rows += _rows(parameter, "method" if key in own else "federation", None)
    # What only this method has comes first, then local training, then the federation.
    return sorted(rows, key=lambda row: (row["group"] != "method", row["key"] in inherited))


def spaces(method: str | None = None) -> list[dict[str, Any]]:
    """The named spaces of one method or of all: method, name, title, source, search (text by key), vary (conditions,
    text by key), fix, profiles, figures, cells (points of its grid; None where a number without one is
    searched). Raises `UserError` for an unknown method."""
    return _remembered("spaces", method, _spaces)


def _spaces(method: str | None) -> list[dict[str, Any]]:
    from trainables import registry

    chosen = [registry.method(method).name] if method is not None else list(registry.methods())
    rows: list[dict[str, Any]] = []
    for owner in chosen:
        declared = registry.declared(owner)
        for name in space_names(owner):
            space = presets.load(owner, name, declared)
            rows.append(
                {
                    "method": owner,
                    "name": name,
                    "title": space.title,
                    "source": space.source,
                    "search": {key: dimension.describe() for key, dimension in space.search.items()},
                    "vary": {key: ", ".join(map(show, d.values())) for key, d in space.vary.items()},
                    "fix": dict(space.fix),
                    "profiles": {profile: dict(values) for profile, values in space.profiles.items()},
                    "figures": list(space.figures),
                    "cells": _cells(space),
                }
            )
    return rows


def datasets(name: str | None = None) -> list[dict[str, Any]]:
    """All registered data sets or one: name, title, shape (channels, height, width), classes, train, test, doc,
    ready (no download needed), files (what is downloaded), folder (where downloads go; empty for an embedded set),
    places (the folders in which the files are looked for, in order), prepared (whether they are no longer needed),
    taken (the folder in which they were found; None where they were not, or it was not noted), package (the Debian
    package that has them, or None), python (the Python package that has it, or None), checked (`contents`: the unpacked
    files by their checksums; `archive`: that of the published archive alone). Raises `UserError` for an unknown
    name."""
    from trainables import data

    return [_dataset(source) for source in map(data.describe, data.names() if name is None else [name])]


def _dataset(source: Source) -> dict[str, Any]:
    from trainables import data

    places = data.places(source) if source.files else []
    prepared, taken = data.taken(source) if source.files else (False, None)
    return {
        "name": source.name,
        "title": source.title,
        "shape": list(source.shape),
        "classes": source.classes,
        "train": source.train,
        "test": source.test,
        "doc": source.doc,
        "ready": data.is_ready(source.name),
        "files": list(source.files),
        "folder": str(places[0]) if places else "",
        "places": list(map(str, places)),
        "prepared": prepared,
        "taken": taken and str(taken),
        "package": source.package and source.package.name,
        "python": source.python or None,
        "checked": None if not source.files else "archive" if source.contents is None else "contents",
    }


def metrics() -> list[dict[str, Any]]:
    """All metrics: name, title, direction (maximize or minimize), unit, doc, twin (`val_<name>` where the metric is
    measured on the validation share as well, else None), needs (the parameter that must be above 0 for it to be
    measured, else None)."""
    from search_spaces.metrics import METRICS, twin

    if found := plugins.plugins(plugins.METRICS):
        from trainables import own_metrics

        own_metrics.declare(found)
    return [
        {
            "name": metric.name,
            "title": metric.title,
            "direction": metric.direction,
            "unit": metric.unit,
            "doc": metric.doc,
            "twin": twin(metric.name) if metric.validation else None,
            "needs": metric.needs or None,
        }
        for metric in METRICS.values()
        if not metric.name.startswith("val_")
    ]


def space_names(method: str) -> list[str]:
    """The presets of a method; `default` always exists where something is declared to be tuned."""
    from trainables import registry

    named = presets.names(method)
    tunable = any(parameter.tune is not False for parameter in registry.declared(method).values())
    return named if "default" in named or not tunable else ["default", *named]


def _cells(space: Space) -> int | None:
    open_ended = any(
        dimension.grid is None and dimension.parameter.kind in ("real", "integer")
        for _, dimension in space.dimensions()
    )
    return None if open_ended else len(space.grid_points())


def _rows(parameter: Parameter, group: str, option: str | None) -> list[dict[str, Any]]:
    rows = [
        {
            "key": parameter.key,
            "symbol": parameter.symbol,
            "default": parameter.default,
            "bounds": parameter.must(),
            "tuned": _tuned(parameter),
            "doc": parameter.doc,
            "source": parameter.source,
            "unit": parameter.unit,
            "group": group,
            "option": option,
        }
    ]
    for name, children in parameter.children.items():
        for child in children:
            rows += _rows(child, group, f"{parameter.key}={name}")
    return rows


def _tuned(parameter: Parameter) -> str | None:
    return None if parameter.tune is False else Dimension.of(parameter).describe()


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
