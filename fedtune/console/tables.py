"""Printing lists of rows: a rich table on a terminal, JSON where a program reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from search_spaces.errors import visible


def show(title: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> None:
    """A table of `rows` on stdout; `columns` maps a row's key to its heading. A column without
    any value is left out."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    used = {key: heading for key, heading in columns.items() if any(cell(row.get(key)) for row in rows)}
    for index, heading in enumerate(used.values()):
        table.add_column(heading, style="bold" if index == 0 else None, overflow="fold", no_wrap=index == 0)
    for row in rows:
        table.add_row(*(Text(visible(cell(row.get(key)))) for key in used))
    _console().print(table)


def say(text: str) -> None:
    """Prints one line on stdout, without wrapping or markup."""
    _console().print(visible(text), markup=False, highlight=False, soft_wrap=True)


def print_json(data: Any) -> None:
    """`data` as indented JSON on stdout."""
    print(visible(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)))  # JSON writes escapes that way too


def cell(value: Any) -> str:
    """The text of a value in a table: a list or a mapping on one line; `1`, not `1.0`; `true`, not `True`."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {cell(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(cell(item) for item in value)
    return str(value)


def _console() -> Any:
    """A console as wide as the terminal; 160 columns where there is none, so that a pipe or a log is not cut to 80."""
    import os
    import sys

    from rich.console import Console

    wide = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else 160
    return Console(width=wide)
