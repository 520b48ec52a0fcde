"""The YAML and JSON files of a run directory, each a mapping of names to values."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from search_spaces.documents import PlainLoader
from search_spaces.errors import UserError, sentence
from search_spaces.files import read_text

#: So deep are the files of a run directory nested at most; what is deeper is nobody's record.
DEEPEST = 50


class _Shallow(PlainLoader):
    """YAML without aliases and not deeply nested."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.depth = getattr(self, "depth", 0) + 1
        if self.depth > DEEPEST:
            raise yaml.YAMLError(f"it is nested more than {DEEPEST} deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def read_yaml(path: Path, missing: dict[str, Any] | None = None) -> dict[str, Any]:
    """The mapping in a YAML file; `missing` where it is given and the file cannot be read, else a `UserError`."""
    return _mapping(path, missing, _parsed, yaml.YAMLError)


def read_json(path: Path, missing: dict[str, Any] | None = None) -> dict[str, Any]:
    """The mapping in a JSON file; `missing` where it is given and the file cannot be read, else a `UserError`."""
    return _mapping(path, missing, json.loads, ValueError)


def _parsed(text: str) -> object:
    try:
        return yaml.load(text, Loader=_Shallow)
    except (AttributeError, KeyError, TypeError, OverflowError) as error:  # a tag such as !!timestamp on other text
        raise yaml.YAMLError(f"a value is not of the kind that its tag says ({error})") from error


def _mapping(
    path: Path, missing: dict[str, Any] | None, parse: Callable[[str], object], failure: type[Exception]
) -> dict[str, Any]:
    """A file's mapping. A file that may be absent may be half-copied too: both give `missing`."""
    try:
        content = parse(read_text(path))
    except (OSError, ValueError, RecursionError, failure) as error:
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
