"""A table of text with labels on several levels above its columns and before its rows, as papers print results.

Where the same label stands on several neighbouring columns, and so do those above it, it is written once above all of
them, and of rows once before all of them. Written as HTML, LaTeX (booktabs) and Markdown, of which the last repeats
labels, as its tables cannot reach over several cells.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.tables import latex, markdown
from search_spaces.errors import visible

if TYPE_CHECKING:
    from rich.table import Table as RichTable

#: The labels of one column, from the top, or of one row, from the left.
Place = tuple[str, ...]
#: What stands in a cell that nothing was measured for.
EMPTY = "–"


@dataclass(frozen=True)
class Shown:
    """What stands in one cell."""

    value: str
    #: With its brackets; empty where there is nothing.
    bracket: str = ""
    best: bool = False
    tied: bool = False

    @property
    def text(self) -> str:
        """`87.31 ± 0.42 (61.20 ± 1.03)`."""
        return " ".join(filter(None, (self.value, self.bracket)))


@dataclass(frozen=True)
class Sheet:
    """The table."""

    title: str
    #: Heads of the labels before the rows.
    sides: Sequence[str]
    rows: Sequence[Place]
    columns: Sequence[Place]
    #: By row and column.
    cells: Mapping[tuple[Place, Place], Shown]
    notes: Sequence[str]

    def at(self, row: Place, column: Place) -> Shown:
        """What stands there."""
        return self.cells.get((row, column), Shown(EMPTY))

    def head(self) -> list[list[tuple[str, int]]]:
        """The lines above the columns: labels, and over how many columns each reaches."""
        return [_groups(self.columns, level) for level in range(len(self.columns[0]))]

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

    def rich(self) -> RichTable:
        """For a terminal, without the notes: the best bold with `*`, what is not told from it underlined with `=`."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            title=Text(self.title), title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False
        )
        for side in self.sides:
            table.add_column(Text(visible(side)), overflow="fold")
        for name in self.names():
            table.add_column(Text(visible(name)), justify="right")
        for row in self.rows:
            cells = [Text(visible(label)) for label in row]
            for column in self.columns:
                shown = self.at(row, column)
                # A terminal or a file without these looks still shows the marks.
                look, mark = ("bold", " *") if shown.best else ("underline", " =") if shown.tied else ("", "  ")
                cells.append(Text.assemble((shown.text, look), mark))
            table.add_row(*cells)
        return table

    def latex(self) -> str:
        """A `tabular` for the booktabs package, captioned by comments."""
        comments = [f"% {visible(line)}" for line in (self.title, *self.notes)]
        count = len(self.sides)
        lines = [rf"\begin{{tabular}}{{{'l' * count}{'c' * len(self.columns)}}}", r"\toprule"]
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
        """A table of GitHub's Markdown, below its title."""
        lines = [
            [markdown(name) for name in (*self.sides, *self.names())],
            [*["---"] * len(self.sides), *["---:"] * len(self.columns)],
        ]
        cells = self._marked(lambda t: f"**{t}**", lambda t: f"<u>{t}</u>", markdown)
        lines += [[*map(markdown, row), *line] for row, line in zip(self.rows, cells, strict=True)]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"{markdown(self.title)}\n\n{table}\n\n{markdown(' '.join(self.notes))}\n"

    def html(self) -> str:
        """A table of a page, with its notes."""
        head = self.head()
        lines = []
        for level, labels in enumerate(head):
            first = [f'<th scope="col" rowspan="{len(head)}">{html.escape(s)}</th>' for s in self.sides if level == 0]
            first += [
                f'<th scope="colgroup" class="n" colspan="{span}">{html.escape(label)}</th>' for label, span in labels
            ]
            lines.append(f"<tr>{''.join(first)}</tr>")
        rows = []
        marked = self._marked(lambda t: f"<b>{t}</b>", lambda t: f"<u>{t}</u>", _together)
        for before, cells in zip(self.before(), marked, strict=True):
            line = [_row_label(label, span) for label, span in before if span]
            line += [f'<td class="n">{cell}</td>' for cell in cells]
            rows.append(f"<tr>{''.join(line)}</tr>")
        notes = "".join(f'<p class="small">{html.escape(note)}</p>' for note in self.notes)
        table = f'<table class="pivot"><thead>{"".join(lines)}</thead><tbody>{"".join(rows)}</tbody></table>'
        label = html.escape(self.title)
        return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">{table}</div>{notes}'

    def _marked(
        self, bold: Callable[[str], str], under: Callable[[str], str], text: Callable[[str], str]
    ) -> list[list[str]]:
        """The cells of every row, marked."""
        found = []
        for row in self.rows:
            shown = [self.at(row, column) for column in self.columns]
            found.append([(bold if s.best else under if s.tied else str)(text(s.text)) for s in shown])
        return found


def _groups(places: Sequence[Place], level: int) -> list[tuple[str, int]]:
    """Neighbours with the same labels down to this level: the last label, and how many they are."""
    groups = itertools.groupby(places, key=lambda place: place[: level + 1])
    return [(found[-1], len(list(group))) for found, group in groups]


def _row_label(label: str, span: int) -> str:
    reach = f' rowspan="{span}"' if span > 1 else ""
    return f'<th scope="{"rowgroup" if span > 1 else "row"}"{reach}>{html.escape(label)}</th>'


def _together(text: str) -> str:
    """`text` for a page, whose lines do not break around ±."""
    return html.escape(text).replace(" ± ", "\u00a0±\u00a0")
