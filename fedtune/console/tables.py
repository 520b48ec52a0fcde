"""Printing lists of rows: a rich table on a terminal, JSON where a program reads."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from search_spaces.errors import visible

if TYPE_CHECKING:
    from analysis.tables.pivot import Pivot
    from analysis.tables.table import Table


def show(title: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> None:
    """A table of `rows` on stdout; `columns` maps a row's key to its heading. A column without
    any value is left out."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    used = {key: heading for key, heading in columns.items() if any(cell(row.get(key)) for row in rows)}
    for index, heading in enumerate(used.values()):
        table.add_column(heading, style="bold" if index == 0 else None, overflow="fold", no_wrap=index == 0)
    for row in rows:
        table.add_row(*(Text(visible(cell(row.get(key)))) for key in used))
    _console().print(table)


def draw(table: Table | Pivot) -> None:
    """A table of `analysis` on stdout, without its notes."""
    _console().print(table.rich())


def brief(title: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, whole: int = 1) -> None:
    """One line per row on stdout. The first `whole` columns, which a reader may copy, are bold. Where the terminal ends
    the last column is cut with an ellipsis; nothing else is, and nothing at all where there is no terminal."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    console = _console(otherwise=10_000)
    lines = [dict(columns), *({key: _line(row, key) for key in columns} for row in rows)]
    widths = {key: max(cell_len(line[key]) for line in lines) for key in columns}
    *first, last = columns
    left = max(console.width - sum(widths[key] + 2 for key in first), 12)
    console.print(Text(title, style="bold"))
    for place, line in enumerate(lines):
        cut = line[last] if cell_len(line[last]) <= left else set_cell_size(line[last], left - 1).rstrip() + "…"
        texts = [set_cell_size(line[key], widths[key] + 2) for key in first] + [cut]
        bold = len(texts) if place == 0 else whole
        console.print(Text("".join(texts[:bold]), style="bold") + Text("".join(texts[bold:])), soft_wrap=True)
        if place == 0:
            console.print(
                "─" * min(console.width, 100, sum(widths[key] + 2 for key in first) + min(widths[last], left))
            )


def blocks(title: str, rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, whole: int = 1) -> None:
    """Everything on stdout: the first `whole` columns of a row as a line, and below it a line per further column, which
    goes on below itself where the terminal ends."""
    from rich.padding import Padding
    from rich.text import Text

    console = _console()
    console.print(Text(title, style="bold"))
    names = list(columns)
    indent = 2 + max(len(columns[key]) for key in names[whole:]) + 2
    for row in rows:
        console.print()
        console.print(Text("  ".join(_line(row, key) for key in names[:whole]), style="bold"), soft_wrap=True)
        for key in names[whole:]:
            text = _line(row, key)
            if text:
                found = Text(text)
                lines = found.wrap(console, max(20, console.width - indent))
                console.print(Padding(Text(f"{columns[key]:<{indent - 2}}") + lines[0], (0, 0, 0, 2)), soft_wrap=True)
                for line in lines[1:]:
                    console.print(Padding(line, (0, 0, 0, indent)), soft_wrap=True)


def _line(row: Mapping[str, Any], key: str) -> str:
    """A cell as one printable line."""
    return visible(" ".join(cell(row.get(key)).split()))


def say(text: str, *copied: str) -> None:
    """Prints a sentence on stdout, without markup. A terminal breaks it between words, and never inside `…`.

    `copied` are commands, paths or addresses that stand behind it. None of them is broken: where the terminal is too
    narrow for all of them on one line, each has a line of its own."""
    from rich.cells import cell_len

    console = _console(otherwise=10_000)
    whole = [visible(one) for one in copied]
    lines = [visible(text) + (f" {'   '.join(whole)}" if whole else "")]
    if cell_len(lines[0]) > console.width:
        lines = [*_between_words(visible(text), console.width), *(f"  {one}" for one in whole)]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _between_words(text: str, width: int) -> Iterator[str]:
    """The lines of a text in a terminal of this width; what begins with blanks goes on below itself. A number stays
    with its %. A word that is wider has a line of its own."""
    from rich.cells import cell_len

    begin, line = text[: len(text) - len(text.lstrip())], ""
    for word in re.findall(r"\s*(?:`[^`]*`\S*|\S+(?: %\S*)?)", text):
        if line.strip() and cell_len(line + word) > width:
            yield line
            line, word = begin, word.lstrip()
        line += word
    yield line


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


def _console(otherwise: int = 160) -> Any:
    """A console as wide as the terminal; `otherwise` columns where there is none, so that a pipe or a log is not cut to
    80."""
    import sys

    from rich.console import Console

    wide = None if sys.stdout.isatty() or os.environ.get("COLUMNS") else otherwise
    return Console(width=wide)
