"""`rounds.jsonl`: one line of JSON per round and seed. Nothing else writes this file; `search_spaces.run_folder` names
its fields."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from search_spaces import files

#: One line of the file: what one seed measured in one round.
Row = dict[str, Any]


def append(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Adds the rows of a round at the end."""
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(map(_line, rows)))


def rewrite(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Makes these rows the whole file; a process that is killed meanwhile leaves the old file."""
    files.replace(path, "".join(map(_line, rows)))


def read_rows(path: Path) -> list[Row]:
    """The complete lines in order; a last line that was not written to its end is left out. No file has no rows."""
    if not path.exists():
        return []
    return [json.loads(text) for text in path.read_text(encoding="utf-8").split("\n")[:-1]]


def _line(row: Mapping[str, Any]) -> str:
    """A row as a line of JSON. JSON has no NaN: a number that is not finite is null."""
    return json.dumps({key: _finite(value) for key, value in row.items()}, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
