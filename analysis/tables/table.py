"""A table of typed values: raw in CSV and JSON, and as text for people, which `analysis.tables.typesetting` writes for
the terminal, as LaTeX, Markdown and HTML."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from analysis.labels import number
from analysis.tables.typesetting import TextCell, TextTable
from search_spaces.errors import visible

if TYPE_CHECKING:
    from rich.table import Table as RichTable


@dataclass(frozen=True)
class Column:
    """`key` of the row's value, heading, and how a value becomes text (raw values stay raw in CSV and JSON, where
    `unit` is theirs)."""

    key: str
    title: str
    show: Callable[[Any], str] = number
    right: bool = True
    unit: str = ""


@dataclass(frozen=True)
class Table:
    """Columns and rows; `notes` are sentences under the table."""

    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Any]]
    title: str = ""
    notes: Sequence[str] = field(default_factory=tuple)

    @classmethod
    def of_records(cls, rows: Sequence[Mapping[str, Any]]) -> Table:
        """A table for files: a column for each key of the rows, headed by it."""
        return cls([Column(key, key) for key in dict.fromkeys(key for row in rows for key in row)], rows)

    def cells(self) -> list[list[str]]:
        """Every row as text."""
        return [[column.show(row.get(column.key)) for column in self.columns] for row in self.rows]

    def printed(self) -> TextTable:
        """The same as text, which is written in one of four ways."""
        return TextTable(
            self.title,
            sides=(),
            rows=[()] * len(self.rows),
            columns=[(column.title,) for column in self.columns],
            cells=[[TextCell(text) for text in line] for line in self.cells()],
            notes=self.notes,
            align="".join("r" if column.right else "l" for column in self.columns),
        )

    def rich(self) -> RichTable:
        """For a terminal, without the notes."""
        return self.printed().rich()

    def latex(self) -> str:
        """A `tabular` for the booktabs package, captioned by comments."""
        return self.printed().latex()

    def markdown(self) -> str:
        """A table of GitHub's Markdown, below its title and above its notes."""
        return self.printed().markdown()

    def html(self) -> str:
        """A table of a page, with its notes, that cannot be sorted."""
        return self.printed().html()

    def csv(self) -> str:
        """Comma-separated, headed by the columns' keys with their units, as `global_accuracy [fraction]`, values
        unrounded; a text that a spreadsheet would take for a formula gets an apostrophe in front."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([plain(f"{c.key} [{c.unit}]" if c.unit else c.key) for c in self.columns])
        writer.writerows([[plain(row.get(column.key)) for column in self.columns] for row in self.rows])
        return out.getvalue()

    def json(self) -> list[dict[str, Any]]:
        """Rows as plain values; what is not finite is null."""
        return [{c.key: finite(row.get(c.key)) for c in self.columns} for row in self.rows]


def finite(value: Any) -> Any:
    """`value` as JSON can hold it."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    item = getattr(value, "item", None)
    return finite(item()) if callable(item) and not isinstance(value, (str, int, float)) else value


def plain(value: Any) -> Any:
    """`value` as a cell of CSV: what is not finite is empty, and no text is a formula to a spreadsheet."""
    value = finite(value)
    value = visible(value) if isinstance(value, str) else value
    if isinstance(value, str) and value.lstrip(" \n")[:1] in tuple("=+-@\t\r"):
        return f"'{value}"
    return "" if value is None else value
