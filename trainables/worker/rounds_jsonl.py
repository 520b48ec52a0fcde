"""`rounds.jsonl`: one line of JSON per round and seed. Nothing else writes this file; `search_spaces.run_folder` names
its fields."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from search_spaces import client_columns, files

#: One line of the file: what one seed measured in one round.
Row = dict[str, Any]


def append(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Adds the rows of a round at the end."""
    with os.fdopen(files.open_plain(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a", encoding="utf-8") as file:
        file.write("".join(map(_line, rows)))


def rewrite(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Makes these rows the whole file; a process that is killed meanwhile leaves the old file."""
    files.replace(path, "".join(map(_line, rows)))


def read_rows(path: Path, after: int = 0) -> list[Row]:
    """The complete lines in order, without the first `after`; a last line that was not written to its end is left out.
    No file has no rows."""
    if not path.exists():
        return []
    return [_unpacked(json.loads(text)) for text in files.read_text(path).split("\n")[after:-1]]


def complete_rounds(path: Path, seeds: int) -> int:
    """How many rounds a trial of so many seeds has written, as far as lines tell. No file has none."""
    try:
        return files.read_bytes(path).count(b"\n") // seeds
    except OSError:
        return 0


class Damaged(Exception):
    """A trial's files do not hold what was written to them. The text says what is wrong: `its checkpoint is …`."""


def first_rows(path: Path, rounds: int, seeds: Sequence[int]) -> list[Row]:
    """The rows of the rounds 1 … `rounds`, one for each seed in order; what follows them is not looked at.

    Raises `Damaged` where one of them is missing, stands elsewhere or is no row of measurements."""
    try:
        lines = files.read_text(path).split("\n")[:-1]
    except FileNotFoundError:
        lines = []
    except UnicodeDecodeError as error:
        raise Damaged(f"its {path.name} is not text") from error
    if len(lines) < rounds * len(seeds):  # first: `rounds` may be any number that a file says
        raise Damaged(f"its {path.name} lacks rows")
    wanted = ((round_, seed) for round_ in range(1, rounds + 1) for seed in seeds)
    return [_checked(line, path.name, *place) for place, line in zip(wanted, lines, strict=False)]


def _checked(line: str, name: str, round_: int, seed: int) -> Row:
    try:
        row = _unpacked(json.loads(line))
    except (ValueError, RecursionError) as error:
        raise Damaged(f"its {name} is garbled in round {round_}") from error
    if not isinstance(row, dict) or not all(map(_measured, row.values())):
        raise Damaged(f"its {name} is garbled in round {round_}")
    place = row.get("round"), row.get("seed")
    if place != (round_, seed) or any(isinstance(number, bool) for number in place):
        raise Damaged(f"its {name} has another row where round {round_} of seed {seed} should be")
    return row


def _measured(value: object) -> bool:
    """Whether a row may hold `value`."""
    if isinstance(value, list):
        return all(not isinstance(item, list) and _measured(item) for item in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (int, str))


def _line(row: Mapping[str, Any]) -> str:
    """A row as a line of JSON. JSON has no NaN: a number that is not finite is null."""
    held = {key: client_columns.packed(row[key]) for key in client_columns.NAMES if key in row}
    return json.dumps({key: _finite(value) for key, value in {**row, **held}.items()}, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def _unpacked(row: Any) -> Any:
    """A row with a list for every text that stands for one. Raises ValueError where one stands for nothing."""
    names = client_columns.NAMES if isinstance(row, dict) else ()
    return row | {key: client_columns.unpacked(row[key]) for key in names if key in row} if names else row
