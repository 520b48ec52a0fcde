"""One table, written in five ways: for the terminal (rich), as CSV, LaTeX (booktabs), Markdown and JSON."""

from __future__ import annotations

import csv
import html
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from analysis.labels import number
from search_spaces.errors import visible

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "γ": r"$\gamma$",
    "η": r"$\eta$",
    "λ": r"$\lambda$",
    "μ": r"$\mu$",
    "ρ": r"$\rho$",
    "σ": r"$\sigma$",
    "τ": r"$\tau$",
    "ω": r"$\omega$",
    "Δ": r"$\Delta$",
    "×": r"$\times$",
    "–": "--",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


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

    def cells(self) -> list[list[str]]:
        """Every row as text."""
        return [[column.show(row.get(column.key)) for column in self.columns] for row in self.rows]

    def rich(self) -> RichTable:
        """For a terminal, without the notes; user text is not read as markup."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            title=Text(visible(self.title)) if self.title else None,
            title_justify="left",
            title_style="bold",
            box=SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            pad_edge=False,
        )
        for column in self.columns:
            # Names are copied, so it is numbers that go on in the next line where the terminal is narrow.
            table.add_column(
                Text(visible(column.title)),
                justify="right" if column.right else "left",
                overflow="fold",
                no_wrap=not column.right,
            )
        for cells in self.cells():
            table.add_row(*(Text(visible(c)) for c in cells))
        return table

    def csv(self) -> str:
        """Comma-separated, headed by the columns' keys with their units, as `global_accuracy [fraction]`, values
        unrounded; a text that a spreadsheet would take for a formula gets an apostrophe in front."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([plain(f"{c.key} [{c.unit}]" if c.unit else c.key) for c in self.columns])
        writer.writerows([[plain(row.get(column.key)) for column in self.columns] for row in self.rows])
        return out.getvalue()

    def latex(self) -> str:
        """A `tabular` for the booktabs package, captioned by a comment."""
        align = "".join("r" if column.right else "l" for column in self.columns)
        lines = [
            rf"\begin{{tabular}}{{{align}}}",
            r"\toprule",
            " & ".join(latex(c.title) for c in self.columns) + r" \\",
            r"\midrule",
        ]
        lines += [" & ".join(latex(cell) for cell in cells) + r" \\" for cells in self.cells()]
        lines += [r"\bottomrule", r"\end{tabular}"]
        head = [f"% {visible(line)}" for text in (self.title, *self.notes) if text for line in text.splitlines()]
        return "\n".join([*head, "% needs \\usepackage{booktabs}", *lines]) + "\n"

    def markdown(self) -> str:
        """A table of GitHub's Markdown, below its title and above its notes."""
        head = [markdown(column.title) for column in self.columns]
        lines = [head, ["---:" if column.right else "---" for column in self.columns]]
        lines += [[markdown(cell) for cell in cells] for cells in self.cells()]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return "\n\n".join(filter(None, (markdown(self.title), table, markdown(" ".join(self.notes))))) + "\n"

    def json(self) -> list[dict[str, Any]]:
        """Rows as plain values; what is not finite is null."""
        return [{c.key: finite(row.get(c.key)) for c in self.columns} for row in self.rows]


def latex(text: str) -> str:
    """`text` with LaTeX's special characters and our Greek letters spelled out."""
    return "".join(_LATEX.get(character, character) for character in visible(text))


def markdown(text: str) -> str:
    """`text` that Markdown leaves as it is, in one line."""
    shown = html.escape(" ".join(visible(text).split()), quote=False)
    return "".join(f"\\{c}" if c in "|*_`[]\\" else c for c in shown)


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
