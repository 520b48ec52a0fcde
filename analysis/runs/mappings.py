"""The YAML and JSON files of a run directory, each a mapping of names to values."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from search_spaces.errors import UserError, sentence
from search_spaces.files import read_text


def read_yaml(path: Path, missing: dict[str, Any] | None = None) -> dict[str, Any]:
    """The mapping in a YAML file; `missing` where it is given and the file cannot be read, else a `UserError`."""
    return _mapping(path, missing, yaml.safe_load, yaml.YAMLError)


def read_json(path: Path, missing: dict[str, Any] | None = None) -> dict[str, Any]:
    """The mapping in a JSON file; `missing` where it is given and the file cannot be read, else a `UserError`."""
    return _mapping(path, missing, json.loads, ValueError)


def _mapping(
    path: Path, missing: dict[str, Any] | None, parse: Callable[[str], object], failure: type[Exception]
) -> dict[str, Any]:
    """A file's mapping. A file that may be absent may be half-copied too: both give `missing`."""
    try:
        content = parse(read_text(path))
    except (OSError, UnicodeDecodeError, RecursionError, failure) as error:
        if missing is not None:
            return missing
        raise UserError(
            f"{path} cannot be read: {str(error).splitlines()[0]}. Copy the run directory again or repair the file."
        ) from error
    if not isinstance(content, dict):
        if missing is not None:
            return missing
        raise UserError(sentence(str(path), "a mapping of names to values", type(content).__name__))
    return content
