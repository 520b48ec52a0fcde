"""The pivot table of several runs: a row per method or variant, a column per condition, mean ± std over seeds.

The best mean of a column is bold, and so are means equal to it. Every other one is tested against it over the seeds
both have (paired t test, Holm's correction within the column); what cannot be told from the best at `LEVEL` is
underlined, and so is what no test was possible of: fewer than two seeds are common, or all differences are the same.
"""

from __future__ import annotations

import csv
import html
import io
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.cells import Cells, Condition, condition_label
from analysis.labels import PERCENT, Labels, unit_in_files
from analysis.stats import Summary, holm, paired, summarise
from analysis.tables import finite, latex, markdown, plain
from search_spaces.errors import visible
from search_spaces.metrics import METRICS

if TYPE_CHECKING:
    from rich.table import Table as RichTable

#: Below this p (Holm) a row is told from the best of its column.
LEVEL = 0.05
#: What stands above the only column of a table without conditions.
RESULT = "result"


@dataclass(frozen=True)
class Entry:
    """One row under one condition."""

    summary: Summary
    #: Of the metric in brackets; None where none was asked for, or it was not measured.
    bracket: Summary | None
    best: bool
    tied: bool
    #: Of the paired test against the best, corrected; nan where there was none.
    p: float
    difference: float
    pairs: int
    run: str
    trial: int | None


@dataclass(frozen=True)
class Pivot:
    """The table of one metric."""

    metric: str
    bracket: str | None
    readout: str
    by: tuple[str, ...]
    rows: Sequence[str]
    conditions: Sequence[Condition]
    entries: dict[tuple[str, Condition], Entry]
    labels: Labels

    @property
    def title(self) -> str:
        """The metric, with its unit, and that in brackets."""
        inside = f" ({self.labels.metric(self.bracket)} in brackets)" if self.bracket else ""
        which = "best round" if self.readout == "best" else "last round"
        return f"{self.labels.metric(self.metric, split=True)}{inside}, {which}, mean ± std over seeds"

    def notes(self) -> list[str]:
        """What a reader has to know."""
        notes = [
            "Bold: the best mean of the column. Underlined: not told from it at 0.05 by a paired t test over the seeds "
            "both have, with Holm's correction within the column."
        ]
        others = [entry for entry in self.entries.values() if not entry.best]
        if any(entry.pairs < 2 for entry in others):
            notes.append("Where fewer than two seeds are common no test is possible, and nothing is told apart.")
        if self.readout == "best":
            notes.append("The best round was picked on the test data itself, as many papers do: it is optimistic.")
        return notes

    def header(self) -> list[list[tuple[str, int]]]:
        """For each key of `by` a line of the head: labels, and over how many columns each reaches; one where there are
        no conditions."""
        if not self.by:
            return [[(RESULT, 1)]]
        lines = []
        for level, key in enumerate(self.by):
            groups = itertools.groupby(self.conditions, key=lambda condition: condition[: level + 1])
            lines.append([(condition_label(self.labels, key, p[-1]), len(list(group))) for p, group in groups])
        return lines

    def text(self, row: str, condition: Condition) -> str:
        """`87.31 ± 0.42 (61.20 ± 1.03)`; `–` where nothing was measured."""
        return " ".join(filter(None, self.parts(row, condition)))

    def parts(self, row: str, condition: Condition) -> tuple[str, str]:
        """The same in two: the value, and what stands in brackets, with them; empty where there is nothing."""
        entry = self.entries.get((row, condition))
        if entry is None:
            return "–", ""
        shown = _shown(entry.summary, self.metric)
        return shown, f"({_shown(entry.bracket, self.bracket)})" if entry.bracket and self.bracket else ""

    def _lines(
        self, bold: Callable[[str], str], under: Callable[[str], str], text: Callable[[str], str]
    ) -> list[list[str]]:
        """Every row: its name, then its cells."""
        found = []
        for row in self.rows:
            line = [text(row)]
            for condition in self.conditions:
                shown, entry = text(self.text(row, condition)), self.entries.get((row, condition))
                line.append(bold(shown) if entry and entry.best else under(shown) if entry and entry.tied else shown)
            found.append(line)
        return found

    def names(self) -> list[str]:
        """Every column's condition in one line."""
        return [
            ", ".join(condition_label(self.labels, key, value) for key, value in zip(self.by, condition, strict=True))
            or RESULT
            for condition in self.conditions
        ]

    def marked(self) -> list[list[str]]:
        """Every row with the markup of HTML that Plotly reads too."""
        return self._lines(lambda t: f"<b>{t}</b>", lambda t: f"<u>{t}</u>", lambda t: html.escape(t, quote=False))

    def rich(self) -> RichTable:
        """For a terminal, without the notes: the best bold with `*`, what is not told from it underlined with `=`."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            title=Text(self.title), title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False
        )
        table.add_column(Text("method"), overflow="fold")
        for name in self.names():
            table.add_column(Text(visible(name)), justify="right")
        for row in self.rows:
            cells = [Text(visible(row))]
            for condition in self.conditions:
                entry = self.entries.get((row, condition))
                # A terminal or a file without these looks still shows the marks.
                look, mark = (
                    ("bold", " *")
                    if entry and entry.best
                    else ("underline", " =")
                    if entry and entry.tied
                    else ("", "  ")
                )
                cells.append(Text.assemble((self.text(row, condition), look), mark))
            table.add_row(*cells)
        return table

    def latex(self) -> str:
        """A `tabular` for the booktabs package, captioned by comments."""
        head = [f"% {visible(line)}" for line in (self.title, *self.notes())]
        lines = [rf"\begin{{tabular}}{{l{'c' * len(self.conditions)}}}", r"\toprule"]
        for level, labels in enumerate(self.header()):
            last = level >= len(self.by) - 1
            start, rules = 2, []
            for _, span in labels:
                rules.append(rf"\cmidrule(lr){{{start}-{start + span - 1}}}")
                start += span
            cells = [latex(t) if span == 1 else rf"\multicolumn{{{span}}}{{c}}{{{latex(t)}}}" for t, span in labels]
            lines.append(" & ".join(["method" if last else "", *cells]) + r" \\")
            lines += [] if last else ["".join(rules)]
        lines.append(r"\midrule")
        bold, under = (lambda t: rf"\textbf{{{t}}}"), (lambda t: rf"\underline{{{t}}}")
        lines += [" & ".join(line) + r" \\" for line in self._lines(bold, under, latex)]
        return "\n".join([*head, r"% needs \usepackage{booktabs}", *lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def markdown(self) -> str:
        """A table of GitHub's Markdown, headed by the metric."""
        lines = [["method", *map(markdown, self.names())], ["---", *["---:"] * len(self.conditions)]]
        lines += self._lines(lambda t: f"**{t}**", lambda t: f"<u>{t}</u>", markdown)
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"{markdown(self.title)}\n\n{table}\n\n{markdown(' '.join(self.notes()))}\n"

    def html(self) -> str:
        """A table of a page, with its notes."""
        head = []
        for level, labels in enumerate(self.header()):
            first = f'<th scope="col" rowspan="{len(self.by)}">method</th>' if level == 0 else ""
            cells = "".join(
                f'<th scope="colgroup" class="n" colspan="{span}">{html.escape(t)}</th>' for t, span in labels
            )
            head.append(f"<tr>{first}{cells}</tr>")
        rows = self._lines(lambda t: f"<b>{t}</b>", lambda t: f"<u>{t}</u>", _together)
        body = "".join(
            f'<tr><th scope="row">{line[0]}</th>' + "".join(f'<td class="n">{cell}</td>' for cell in line[1:]) + "</tr>"
            for line in rows
        )
        notes = "".join(f'<p class="small">{html.escape(note)}</p>' for note in self.notes())
        table = f'<table class="pivot"><thead>{"".join(head)}</thead><tbody>{body}</tbody></table>'
        label = html.escape(self.title)
        return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">{table}</div>{notes}'

    def frame(self) -> pd.DataFrame:
        """Tidy, a row per cell: metric, unit, row, the condition's keys, mean, std, low, high (95 % t interval), n,
        bracket, bracket_unit, bracket_mean, bracket_std, best, tied, p_holm, difference (to the best), pairs, run,
        trial. Values are as recorded, so that accuracies are fractions."""
        return pd.DataFrame(self.records())

    def records(self) -> list[dict[str, Any]]:
        """The same as plain rows."""
        found = []
        for row, condition in itertools.product(self.rows, self.conditions):
            entry = self.entries.get((row, condition))
            if entry is None:
                continue
            s, b = entry.summary, entry.bracket
            found.append(
                {"metric": self.metric, "unit": unit_in_files(self.metric), "row": row}
                | dict(zip(self.by, condition, strict=True))
                | {"mean": s.mean, "std": s.std, "low": s.low, "high": s.high, "n": s.n}
                | {"bracket": self.bracket, "bracket_unit": unit_in_files(self.bracket or "")}
                | {"bracket_mean": b.mean if b else None, "bracket_std": b.std if b else None}
                | {"best": entry.best, "tied": entry.tied}
                | {"p_holm": entry.p, "difference": entry.difference, "pairs": entry.pairs}
                | {"run": entry.run, "trial": entry.trial}
            )
        return found


def pivot(found: Cells, metric: str, bracket: str | None = None, readout: str = "last") -> Pivot:
    """The table of `metric` over these cells, with another metric in `bracket`s where one is given."""
    direction, how = _direction(metric), _how(metric, readout)
    inside = (bracket, _how(bracket, readout)) if bracket else None
    entries: dict[tuple[str, Condition], Entry] = {}
    for condition in found.conditions:
        values = {row: cell.values(metric, how) for row in found.rows if (cell := found.of(row, condition)) is not None}
        entries |= _column(found, condition, {row: v for row, v in values.items() if v}, direction, inside)
    rows = [row for row in found.rows if any(place[0] == row for place in entries)]
    conditions = [condition for condition in found.conditions if any(place[1] == condition for place in entries)]
    labels = Labels.of(found.runs, markup=False)
    return Pivot(metric, bracket, readout, found.by, rows, conditions, entries, labels)


def _column(
    found: Cells,
    condition: Condition,
    values: dict[str, dict[int, float]],
    direction: str,
    bracket: tuple[str, str] | None,
) -> dict[tuple[str, Condition], Entry]:
    """The entries under one condition. `bracket`: the metric in brackets, and in which round it is read."""
    if not values:
        return {}
    sums = {row: summarise(list(by_seed.values())) for row, by_seed in values.items()}
    sign = 1.0 if direction == "maximize" else -1.0
    first = max(sums, key=lambda row: sign * sums[row].mean)
    others = [row for row in sums if row != first]
    tests = {row: paired(values[first], values[row]) for row in others}
    corrected = dict(zip(others, holm([tests[row].t_p for row in others]), strict=True))
    entries = {}
    for row, summary in sums.items():
        cell, test, p = found.of(row, condition), tests.get(row), corrected.get(row, float("nan"))
        assert cell is not None
        inside = summarise(list(cell.values(*bracket).values())) if bracket else None
        entries[row, condition] = Entry(
            summary=summary,
            bracket=inside if inside is not None and inside.n else None,
            best=summary.mean == sums[first].mean,
            tied=summary.mean != sums[first].mean and not p < LEVEL,
            p=p,
            difference=test.difference if test else 0.0,
            pairs=test.n if test else summary.n,
            run=cell.run,
            trial=None if cell.part.kind == "run" else cell.part.best,
        )
    return entries


def _direction(metric: str) -> str:
    return METRICS[metric].direction if metric in METRICS else "maximize"


def _how(metric: str, readout: str) -> str:
    """In which round a metric is read: the last one, or its own best one."""
    return "last" if readout == "last" else _direction(metric)


def to_csv(tables: Sequence[Pivot]) -> str:
    """All tables as one, a row per cell and metric, unrounded, accuracies as fractions."""
    rows = [row for table in tables for row in table.records()]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    keys = list(dict.fromkeys(key for row in rows for key in row))
    writer.writerow(keys)
    writer.writerows([[plain(row.get(key)) for key in keys] for row in rows])
    return out.getvalue()


def to_json(tables: Sequence[Pivot]) -> list[dict[str, Any]]:
    """The same rows as plain values; what is not finite is null."""
    return [{key: finite(value) for key, value in row.items()} for table in tables for row in table.records()]


def _shown(summary: Summary, metric: str) -> str:
    return summary.shown(_unit(metric), 2 if metric in PERCENT else 4)


def _unit(metric: str) -> float:
    return 100.0 if metric in PERCENT else 1.0


def _together(text: str) -> str:
    """`text` for a page, whose lines do not break around ±."""
    return html.escape(text).replace(" ± ", "\u00a0±\u00a0")
