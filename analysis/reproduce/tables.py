"""The paper's numbers beside ours, cell by cell, and the comparisons behind every sentence, as tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.figures._common import two_keys
from analysis.labels import unit_in_files
from analysis.pivot import Pivot, pivot
from analysis.published.papers import AGREES, DIFFERS, LEVEL, OTHER_DATA, UNKNOWN, UNTRIED, Published
from analysis.reproduce.claims import NOT_RUN, Decided, Line, is_inside
from analysis.reproduce.declaration import Place, Row
from analysis.reproduce.made import Made
from analysis.stats import Summary, summarise, welch
from analysis.tables import Column, Table
from search_spaces.metrics import METRICS


@dataclass(frozen=True)
class Number:
    """A cell of the paper's table and ours, both as recorded here (accuracies are fractions); `verdict` is one of the
    constants of `analysis.published.papers`."""

    row: str
    place: Place
    metric: str
    ours: Summary
    paper: Published | None
    verdict: str
    p: float


def pivots(made: Made) -> list[Pivot]:
    """A table of ours for each metric that was measured, as the paper lays it out."""
    reproduction = made.reproduction
    found = [
        pivot(made.cells, metric, reproduction.brackets, reproduction.readout)
        for metric in reproduction.metrics
        if any(cell.values(metric) for cell in made.cells.cells)
    ]
    return [dataclasses.replace(table, labels=made.labels) for table in found]


def published(made: Made, row: Row, place: Place, metric: str) -> Published | None:
    """What the paper printed in a cell: the line for this method whose settings hold for what the cell declares."""
    reproduction = made.reproduction
    here = {**row.values, **dict(zip(reproduction.columns, place, strict=True))}
    wanted = row.metrics.get(metric, metric)
    for line in reproduction.lines(made.paper.dataset):
        settings = [one for one in line.settings if one.key in here]
        if (line.method, line.metric) == (row.method, wanted) and all(one.holds(here) for one in settings):
            return line
    return None


def every_number(made: Made) -> list[Number]:
    """All cells of all tables, in the order of the paper."""
    reproduction = made.reproduction
    asked = dict.fromkeys((*reproduction.metrics, *([reproduction.brackets] if reproduction.brackets else [])))
    return [
        _number(made, row, place, metric)
        for metric in asked
        for row in reproduction.rows
        for place in reproduction.places
    ]


def _number(made: Made, row: Row, place: Place, metric: str) -> Number:
    line = published(made, row, place, metric)
    ours = summarise(list(made.values(row.name, place, metric).values()))
    unit = made.labels.scale(metric)
    verdict, p = UNTRIED, math.nan
    if ours.n and line is not None:
        if made.other_data:
            verdict = OTHER_DATA
        elif made.record.profile == "small" or made.here.rounds < made.paper.rounds:
            verdict = UNKNOWN
        else:
            p = welch(unit * ours.mean, unit * ours.std, ours.n, line.mean, line.std, line.seeds or made.paper.seeds)
            verdict = UNKNOWN if math.isnan(p) else DIFFERS if p < LEVEL else AGREES
    return Number(row.name, place, metric, ours, line, verdict, p)


def ours(made: Made, table: Pivot, row: str, place: Place) -> tuple[str, str]:
    """Our number in a cell and what stands in brackets, `not run` where the cell has not been begun."""
    return table.parts(row, place) if (row, place) in made.runs else (NOT_RUN, "")


def theirs(line: Published | None, scale: float) -> str:
    """A published number, `69.03 ± 0.42`; `–` where the paper has none."""
    if line is None or math.isnan(line.mean):
        return "–"
    digits = 2 if scale == 100.0 else 4
    return f"{line.mean:.{digits}f}" + ("" if math.isnan(line.std) else f" ± {line.std:.{digits}f}")


@dataclass(frozen=True)
class HeatCell:
    """A cell of a heat map: its two values, what was measured over seeds, and whether it is in the paper's region."""

    x: Any
    y: Any
    measured: Summary
    inside: bool


def heat(made: Made, metric: str) -> list[HeatCell]:
    """The cells of a heat map that have a result, in the order of its trials."""
    run = made.heatmap
    if run is None:
        return []
    x, y, _ = two_keys(run)
    lines = made.reproduction.lines(made.paper.dataset)
    said = next((line for line in lines if line.metric == metric and line.region), None)
    return [
        HeatCell(
            trial.params[x],
            trial.params[y],
            summarise(list(run.last(trial.number, metric).values())),
            said is not None and is_inside(said, run, trial.number),
        )
        for trial in run.frozen
        if trial.state.name == "COMPLETE"
    ]


def numbers(made: Made) -> Table:
    """A line per number: ours and the paper's, as recorded (the paper's accuracies in fractions, too). Of a heat map a
    line per cell, as the paper prints none of its numbers."""
    if made.reproduction.heatmap:
        return _table(_cells_of_heat(made))
    keys = list(made.reproduction.columns)
    rows = []
    for one in every_number(made):
        scale = made.labels.scale(one.metric)
        rows.append(
            {"row": one.row, **dict(zip(keys, one.place, strict=True)), "metric": one.metric}
            | {"unit": unit_in_files(one.metric)}
            | {"mean": one.ours.mean, "std": one.ours.std, "n": one.ours.n}
            | {"paper_mean": one.paper.mean / scale if one.paper else math.nan}
            | {"paper_std": one.paper.std / scale if one.paper else math.nan}
            | {"verdict": one.verdict, "p": one.p, "note": one.paper.note if one.paper else ""}
            | {"published_in": one.paper.table if one.paper else ""}
            | _where(made)
        )
    return _table(rows)


def _cells_of_heat(made: Made) -> list[dict[str, Any]]:
    x, y, _ = two_keys(made.heatmap) if made.heatmap is not None else ("x", "y", "")
    return [
        {x: cell.x, y: cell.y, "metric": metric, "unit": unit_in_files(metric)}
        | {"mean": cell.measured.mean, "std": cell.measured.std}
        | {"n": cell.measured.n, "inside_region": cell.inside}
        | _where(made)
        for metric in made.reproduction.metrics
        for cell in heat(made, metric)
    ]


def verdicts(made: Made, decided: Sequence[Decided]) -> Table:
    """A line per comparison behind each sentence; differences as recorded, above 0 where the paper's side is better."""
    rows: list[dict[str, Any]] = []
    for number, one in enumerate(decided, start=1):
        said = {"claim": number, "says": one.claim.says, "source": f"{made.reproduction.source}: {one.claim.source}"}
        said |= {"verdict": one.verdict, "told": one.told, "why": one.why}
        for line in one.lines:
            row = vars(line) | {"p_holm": line.corrected, "line_verdict": line.verdict}
            row |= {"unit": unit_in_files(line.metric)}
            row.pop("corrected")
            rows.append(said | row | _where(made))
    return _table(rows)


def _where(made: Made) -> dict[str, Any]:
    """On what both were measured."""
    return dict(vars(made.here)) | {f"paper_{key}": value for key, value in vars(made.paper).items()}


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    return Table([Column(key, key) for key in dict.fromkeys(key for row in rows for key in row)], rows)


def comparisons(made: Made, one: Decided) -> Table:
    """The lines of a sentence for people; differences in per cent where the metric is."""
    rows = [
        {
            "metric": METRICS[line.metric].title,
            "what": f"{line.ahead} − {line.behind}",
            "condition": line.condition or "–",
            "difference": _difference(made, line),
            "p": _p(line.p),
            "holm": _p(line.corrected),
            "verdict": line.verdict,
        }
        for line in one.lines
    ]
    titles = {"metric": "metric", "what": "ahead − behind", "condition": "condition", "difference": "difference"}
    titles |= {"p": "p", "holm": "p (Holm)", "verdict": "alone"}
    right = ("difference", "p", "holm")
    return Table([Column(key, title, str, right=key in right) for key, title in titles.items()], rows)


def _difference(made: Made, line: Line) -> str:
    if math.isnan(line.difference):
        return "–"
    unit = made.labels.scale(line.metric)
    digits = 2 if unit == 100.0 else 4
    return f"{unit * line.difference:+.{digits}f}"


def _p(value: float) -> str:
    return "–" if math.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.2g}"
