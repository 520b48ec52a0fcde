"""`auto.yaml` as readers see it: checked plain data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from analysis.runs import shapes
from analysis.runs.mappings import read_yaml
from analysis.runs.run_directory import take_metrics
from search_spaces import files, run_folder
from search_spaces.errors import UserError, short
from search_spaces.metrics import METRICS

#: Units in which budgets and costs are counted: seconds of computing, rounds of single federations, bytes sent both
#: ways.
UNITS = ("seconds", "seed-rounds", "bytes")

_POSITIVE = ("a number above 0", shapes.is_number(1e-12))
_WHOLE = ("a whole number of at least 1", shapes.is_whole(1))
_UNIT = (f"one of {', '.join(UNITS)}", shapes.one_of(*UNITS))
_CANDIDATE: shapes.Shape = {
    "name": ("text", shapes.is_text),
    "title": ("text", shapes.is_text),
    "costs": ("costs by unit", lambda value: shapes.mapping(_POSITIVE[1])(value) and set(value) == set(UNITS)),
}
_EXCLUDED: shapes.Shape = {"name": ("text", shapes.is_text), "why": ("text", shapes.is_text)}
_SHAPE: shapes.Shape = {
    "version": ("1, the version this fedtune reads", shapes.is_whole(1, 1)),
    "name": ("text", shapes.is_text),
    "metric": ("a metric", lambda value: isinstance(value, str) and value in METRICS),
    "methods": ("a list of methods", shapes.each(shapes.shaped(_CANDIDATE, *_CANDIDATE), 1)),
    "excluded": ("a list of methods", shapes.each(shapes.shaped(_EXCLUDED, *_EXCLUDED))),
    "unit": _UNIT,
    "cost": _UNIT,
    **dict.fromkeys(("search_budget", "fresh_budget", "final_budget"), _POSITIVE),
    **dict.fromkeys(("least", "rounds", "seeds", "fresh", "final"), _WHOLE),
    "equal": ("true or false", lambda value: isinstance(value, bool)),
    "seed": ("a whole number of at least 0", shapes.is_whole(0)),
    "require": ("a list of texts", shapes.each(shapes.is_text)),
}


def is_auto(path: str | os.PathLike[str]) -> bool:
    """Whether `fedtune auto` made the folder at `path`."""
    return (files.given(path) / run_folder.AUTO).is_file()


def read(folder: Path) -> dict[str, Any]:
    """What `auto.yaml` in `folder` holds. Raises `UserError` where it is missing, torn or was edited."""
    path = folder / run_folder.AUTO
    if not path.is_file() or path.is_symlink():
        raise UserError(f"{short(repr(str(folder)))} was not made by `fedtune auto`: {run_folder.AUTO} is missing.")
    data = read_yaml(path)
    take_metrics(data, path)
    data.pop("own_metrics", None)
    problems = shapes.problems(data, _SHAPE, str(path))
    problems += [
        f"{path} lacks {key!r}; it was not written by fedtune, or was edited." for key in _SHAPE if key not in data
    ]
    problems += [
        f"{path} holds the unknown key {key!r}; it was not written by fedtune, or was edited."
        for key in data
        if key not in _SHAPE
    ]
    if problems:
        raise UserError(*problems)
    return data
