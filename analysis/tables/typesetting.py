"""A table of text for people: for the terminal (rich), as LaTeX (booktabs), Markdown and HTML.

Columns may have labels on several levels above them, and rows before them, as papers print results. Where the same
label stands on several neighbouring columns, and so do those above it, it is written once above all of them, and of
rows once before all of them; Markdown repeats labels, as its tables cannot reach over several cells.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from search_spaces.errors import visible

if TYPE_CHECKING:
    from rich.table import Table as RichTable

#: The labels of one column, from the top, or of one row, from the left.
LabelPath = tuple[str, ...]
#: What stands in a cell that nothing was measured for.
EMPTY = "–"

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
class TextLine:
    """A value, and what is in brackets beside it."""

    value: str
    #: With its brackets; empty where there is nothing.
    bracket: str = ""

    @property
    def text(self) -> str:
        """`87.31 ± 0.42 (61.20 ± 1.03)`."""
        return " ".join(filter(None, (self.value, self.bracket)))

    def lines(self, stacked: bool) -> list[str]:
        """The same, `stacked` with the brackets in a line of their own."""
        return [self.value, self.bracket] if stacked and self.bracket else [self.text]


@dataclass(frozen=True)
class LineBelow(TextLine):
    """A grey line below the value of a cell, on a page and in a terminal."""

    #: Its look on the page, such as that of a verdict. A terminal has no room for lines with one.
    look: str = ""


@dataclass(frozen=True)
class TextCell(TextLine):
    """What stands in one cell."""

    best: bool = False
    tied: bool = False
    below: Sequence[LineBelow] = ()


@dataclass(frozen=True)
class TextTable:
    """The table. A cell with the best value is bold, one that is not told from it underlined."""

    title: str
    #: Heads of the labels before the rows; none where rows have no labels.
    sides: Sequence[str]
    #: Labels of the rows, one for each of `sides`.
    rows: Sequence[LabelPath]
    columns: Sequence[LabelPath]
    #: A list for each row.
    cells: Sequence[Sequence[TextCell]]
    #: Sentences under the table.
    notes: Sequence[str]
    #: Of every column `l` or `r`; without it all are of numbers, which LaTeX centres.
    align: str = ""

    def at(self, row: LabelPath, column: LabelPath) -> TextCell:
        """What stands there."""
        return self.cells[self.rows.index(row)][self.columns.index(column)]

    def part(self, rows: Sequence[int], columns: Sequence[int]) -> TextTable:
        """These rows and columns of it, by their positions."""
        return replace(
            self,
            rows=[self.rows[i] for i in rows],
            columns=[self.columns[j] for j in columns],
            cells=[[self.cells[i][j] for j in columns] for i in rows],
            align="".join(self.align[j] for j in columns if self.align),
        )

    def head(self) -> list[list[tuple[str, int]]]:
        """The lines above the columns: labels, and over how many columns each reaches."""
        levels = max(map(len, self.columns), default=1)
        above = [_groups(self.columns, level) for level in range(levels - 1)]
        return [*above, [(column[-1], 1) for column in self.columns]]

    def before(self) -> list[list[tuple[str, int]]]:
        """Of every row its labels, and over how many rows each reaches, itself among them: 0 where the label of a row
        above reaches."""
        lines: list[list[tuple[str, int]]] = [[] for _ in self.rows]
        for level in range(len(self.sides)):
            start = 0
            for label, span in _groups(self.rows, level):
                for i in range(start, start + span):
                    lines[i].append((label, span if i == start else 0))
                start += span
        return lines

    def names(self) -> list[str]:
        """Every column in one line."""
        return [", ".join(column) for column in self.columns]

    def rich(self, *, stacked: bool = False) -> RichTable:
        """For a terminal, without the notes: the best bold with `*`, what is not told from it underlined with `=`. User
        text is not read as markup. `stacked`: what is in brackets stands below its value."""
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
        for side in self.sides:
            table.add_column(Text(visible(side)), overflow="fold")
        for name, left in zip(self.names(), self._left(), strict=True):
            # Names are copied, so it is numbers that go on in the next line where the terminal is narrow.
            table.add_column(Text(visible(name)), justify="left" if left else "right", overflow="fold", no_wrap=left)
        marked = any(cell.best or cell.tied for line in self.cells for cell in line)
        for row, line in zip(self.rows, self.cells, strict=True):
            cells = [Text(visible(label)) for label in row]
            for cell in line:
                # A terminal or a file without these looks still shows the marks.
                look, mark = ("bold", " *") if cell.best else ("underline", " =") if cell.tied else ("", "  ")
                first, *others = cell.lines(stacked)
                lower = [(text, "") for text in others]
                lower += [(text, "dim") for line in cell.below if not line.look for text in line.lines(stacked)]
                under = [(f"\n{visible(text)}{'  ' * marked}", how) for text, how in lower]
                cells.append(Text.assemble((visible(first), look), mark if marked else "", *under))
            table.add_row(*cells)
        return table

    def latex(self) -> str:
        """A `tabular` for the booktabs package, captioned by comments."""
        comments = [f"% {visible(line)}" for text in (self.title, *self.notes) for line in text.splitlines()]
        count = len(self.sides)
        lines = [rf"\begin{{tabular}}{{{'l' * count}{self.align or 'c' * len(self.columns)}}}", r"\toprule"]
        head = self.head()
        for level, labels in enumerate(head):
            last = level == len(head) - 1
            start, rules = count + 1, []
            for _, span in labels:
                rules.append(rf"\cmidrule(lr){{{start}-{start + span - 1}}}")
                start += span
            cells = [latex(t) if span == 1 else rf"\multicolumn{{{span}}}{{c}}{{{latex(t)}}}" for t, span in labels]
            lines.append(" & ".join([*(latex(side) if last else "" for side in self.sides), *cells]) + r" \\")
            lines += [] if last else ["".join(rules)]
        lines.append(r"\midrule")
        bold, under = (lambda t: rf"\textbf{{{t}}}"), (lambda t: rf"\underline{{{t}}}")
        for before, cells in zip(self.before(), self._marked(bold, under, latex), strict=True):
            named = [latex(label) if span else "" for label, span in before]
            lines.append(" & ".join([*named, *cells]) + r" \\")
        return "\n".join([*comments, r"% needs \usepackage{booktabs}", *lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def markdown(self) -> str:
        """A table of GitHub's Markdown, below its title and above its notes."""
        lines = [
            [markdown(name) for name in (*self.sides, *self.names())],
            [*["---"] * len(self.sides), *("---" if left else "---:" for left in self._left())],
        ]
        cells = self._marked(lambda t: f"**{t}**", lambda t: f"<u>{t}</u>", markdown)
        lines += [[*map(markdown, row), *line] for row, line in zip(self.rows, cells, strict=True)]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return "\n\n".join(filter(None, (markdown(self.title), table, markdown(" ".join(self.notes))))) + "\n"

    def html(self) -> str:
        """A table of a page, with its notes."""
        head = self.head()
        numbers = ["" if left else ' class="n"' for left in self._left()]
        lines = []
        for level, labels in enumerate(head):
            first = [f'<th scope="col"{_reach("row", len(head))}>{_text(s)}</th>' for s in self.sides if level == 0]
            starts = itertools.accumulate((span for _, span in labels), initial=0)
            first += [
                f'<th scope="col{"group" * (span > 1)}"{numbers[start]}{_reach("col", span)}>{_text(label)}</th>'
                for (label, span), start in zip(labels, starts, strict=False)
            ]
            lines.append(f"<tr>{''.join(first)}</tr>")
        rows = []
        marked = self._marked(lambda t: f"<b>{t}</b>", lambda t: f"<u>{t}</u>", _together)
        for before, cells, told in zip(self.before(), marked, self.cells, strict=True):
            line = [
                f'<th scope="row{"group" * (span > 1)}"{_reach("row", span)}>{_text(label)}</th>'
                for label, span in before
                if span
            ]
            line += [
                f"<td{number}>{cell}{''.join(map(_below, one.below))}</td>"
                for number, cell, one in zip(numbers, cells, told, strict=True)
            ]
            rows.append(f"<tr>{''.join(line)}</tr>")
        notes = "".join(f'<p class="small">{_text(note)}</p>' for note in self.notes)
        look = ' class="pivot"' if self.sides else ""
        table = f"<table{look}><thead>{''.join(lines)}</thead><tbody>{''.join(rows)}</tbody></table>"
        # Such a table is wide, so that it is scrolled, also by the keyboard.
        scrolled = f' tabindex="0" role="region" aria-label="{_text(self.title)}"' if self.sides else ""
        return f'<div class="scroll"{scrolled}>{table}</div>{notes}'

    def _left(self) -> list[bool]:
        """Of every column, whether it is of text, which begins at the left."""
        return [letter == "l" for letter in self.align or "c" * len(self.columns)]

    def _marked(
        self, bold: Callable[[str], str], under: Callable[[str], str], text: Callable[[str], str]
    ) -> list[list[str]]:
        """The cells of every row, marked."""
        return [[(bold if c.best else under if c.tied else str)(text(c.text)) for c in line] for line in self.cells]


def latex(text: str) -> str:
    """`text` with LaTeX's special characters and our Greek letters spelled out."""
    return "".join(_LATEX.get(character, character) for character in visible(text))


def markdown(text: str) -> str:
    """`text` that Markdown leaves as it is, in one line."""
    shown = html.escape(" ".join(visible(text).split()), quote=False)
    return "".join(f"\\{c}" if c in "|*_`[]\\" else c for c in shown)


def _groups(places: Sequence[LabelPath], level: int) -> list[tuple[str, int]]:
    """Neighbours with the same labels down to this level: the last label, and how many they are."""
    groups = itertools.groupby(places, key=lambda place: place[: level + 1])
    return [(found[-1], len(list(group))) for found, group in groups]


def _reach(what: str, span: int) -> str:
    return f' {what}span="{span}"' if span > 1 else ""


def _text(raw: str) -> str:
    """`raw` as the text of an HTML element or attribute."""
    return html.escape(visible(raw))


def _below(line: LineBelow) -> str:
    """A line below the value of a cell, for a page."""
    look = " ".join(filter(None, ("small", line.look)))
    return f'<br><span class="{look}">{_together(line.text)}</span>'


def _together(text: str) -> str:
    """`text` for a page, whose lines do not break around ±."""
    return _text(text).replace(" ± ", "\u00a0±\u00a0")
