"""The paper's numbers beside ours, cell by cell, and the comparisons behind every sentence, as tables.

Why cells disagree stands in `analysis/reproduce/explanations.yaml`, a list of these keys:

    table      a reproduction, `fedmdcg-table1`
    dataset    one of its data sets
    rows       names of its rows; without it, all
    columns    {omega: [0.1]}: only these conditions
    metrics    of its metrics; without it, all
    says       what was tried, with figures: text that somebody can check
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from analysis.figures._common import two_keys
from analysis.labels import PERCENT, decimals, unit_in_files
from analysis.published.agreement import AGREES, DISAGREES, UNKNOWN, Judged, judge
from analysis.published.papers import Published
from analysis.reproduce.claims import NO_RESULT, NOT_RUN, ClaimTest, Decided, is_inside
from analysis.reproduce.declaration import Place, Reproduction, Row, declared, known
from analysis.reproduce.folder import Made
from analysis.reproduce.measures import MEASURES, REACHES
from analysis.runs.mappings import read_yaml
from analysis.runs.shapes import Shape, each, is_plain, is_text, mapping, problems, shaped
from analysis.stats import Summary, summarise
from analysis.tables.pivot import Pivot, pivot
from analysis.tables.table import Column, Table
from analysis.tables.typesetting import LineBelow, TextCell, TextTable
from search_spaces.errors import UserError, unknown
from search_spaces.metrics import METRICS

#: In place of a verdict.
OTHER_DATA = "not comparable: other data set"
#: In place of an explanation.
NOT_EXPLAINED = "not explained"
EXPLANATIONS = Path(__file__).with_name("explanations.yaml")


@dataclass(frozen=True)
class Number:
    """A cell of the paper's table and ours, both in the paper's unit (accuracies in per cent)."""

    row: str
    place: Place
    metric: str
    ours: Summary
    paper: Published | None
    #: Its verdict is one of `analysis.published.agreement`, or why there is none.
    judged: Judged

    @property
    def verdict(self) -> str:
        return self.judged.verdict


def pivots(made: Made) -> list[Pivot]:
    """A table of ours for each metric that was measured, as the paper lays it out."""
    reproduction = made.reproduction
    found = [
        pivot(made.cells, metric, reproduction.brackets, reproduction.readout)
        for metric in reproduction.metrics
        if any(cell.values(metric) for cell in made.cells.cells)
    ]
    return [dataclasses.replace(table, labels=made.labels) for table in found]


def published(one: Reproduction, dataset: str, row: Row, place: Place, metric: str) -> Published | None:
    """What the paper printed in a cell: the line for this method whose settings hold for what the cell declares."""
    here = {**row.values, **one.condition(row, place)}
    wanted = row.metrics.get(metric, metric)
    for line in one.lines(dataset):
        settings = [condition for condition in line.settings if condition.key in here]
        if (line.method, line.metric) == (row.method, wanted) and all(c.holds(here) for c in settings):
            return line
    return None


def every_number(made: Made) -> list[Number]:
    """All cells of all tables, in the order of the paper."""
    one = made.reproduction
    return [
        _number(made, row, place, metric) for metric in one.printed_metrics for row in one.rows for place in one.places
    ]


def _number(made: Made, row: Row, place: Place, metric: str) -> Number:
    line = published(made.reproduction, made.paper.dataset, row, place, metric)
    scale = made.labels.scale(metric)
    ours = summarise([scale * value for value in made.values(row.name, place, metric).values()])
    if not ours.n:
        judged = Judged(NO_RESULT if (row.name, place) in made.runs else NOT_RUN, "")
    elif line is None:
        judged = Judged(UNKNOWN, "the paper prints no number")
    elif made.other_data:
        judged = Judged(OTHER_DATA, f"{made.here.data} instead of {made.paper.data}")
    else:
        judged = judge(ours, line.mean, line.std, line.seeds or made.paper.seeds, points=metric in PERCENT)
        if short := _short_of(made):
            judged = dataclasses.replace(judged, verdict=UNKNOWN, reason=short, p=math.nan, large=False)
    return Number(row.name, place, metric, ours, line, judged)


def why(made: Made, one: Number) -> str:
    """Why a cell disagrees, `not explained` where nobody knows; empty where it does not."""
    if one.verdict != DISAGREES:
        return ""
    return explanation(made.reproduction, made.paper.dataset, one.row, one.place, one.metric) or NOT_EXPLAINED


def agreement(made: Made) -> str:
    """How many numbers agree, in words; empty where none can be compared, as on other data."""
    counts = Counter(one.verdict for one in every_number(made) if one.paper is not None)
    if not any(counts[word] for word in (AGREES, DISAGREES, UNKNOWN)):
        return ""
    told = f"Of {counts.total()} numbers {counts[AGREES]} agree, {counts[DISAGREES]} disagree and {counts[UNKNOWN]} "
    return f"{told}cannot be told; {counts[NOT_RUN] + counts[NO_RESULT]} have not been run."


def disagreements(made: Made) -> Table:
    """The cells that disagree, for people."""
    rows = [
        {
            "cell": ", ".join(filter(None, (one.row, made.named(one.place), made.labels.metric(one.metric)))),
            "here": one.ours.shown(digits=decimals(one.metric)) + f" (n = {one.ours.n})",
            "paper": theirs(one.paper),
            "difference": signed(one),
            "spreads": spreads(one.judged),
            "why": why(made, one),
        }
        for one in every_number(made)
        if one.verdict == DISAGREES
    ]
    titles = {"cell": "cell", "here": "here", "paper": "paper", "difference": "difference"}
    titles |= {"spreads": "÷ the paper’s spread, ÷ ours", "why": "explanation"}
    return Table([Column(key, title, str, right=key == "difference") for key, title in titles.items()], rows)


def signed(one: Number) -> str:
    """Ours minus the paper's, `−2.20`."""
    return f"{one.judged.difference:+.{decimals(one.metric)}f}".replace("-", "−")


def spreads(judged: Judged) -> str:
    """A difference as a multiple of the paper's spread and of ours, `7.3, 5.4`; `–` where there is none."""
    return ", ".join(
        "–" if math.isnan(times) else f"{times:.1f}" for times in (judged.paper_spreads, judged.our_spreads)
    )


def _short_of(made: Made) -> str:
    """In what a reproduction is less than the paper's; empty where it is not."""
    if made.record.profile == "small":
        return "the small form"
    return f"{made.here.rounds} of {made.paper.rounds} rounds" if made.here.rounds < made.paper.rounds else ""


@dataclass(frozen=True)
class Order:
    """How far our order of the rows is the paper's, by one metric under one condition."""

    metric: str
    place: Place
    #: Kendall's τ-b: 1 the same order, -1 the opposite one; nan of fewer than three rows, or where all are equal.
    tau: float
    #: Rows with both numbers, of all there are.
    rows: int
    of: int


def orders(made: Made) -> list[Order]:
    """The order of the rows by every metric and condition of which something has been run."""
    found = []
    by_column: dict[tuple[str, Place], list[Number]] = {}
    for number in every_number(made):
        by_column.setdefault((number.metric, number.place), []).append(number)
    for (metric, place), column in by_column.items():
        both = [(one.ours.mean, one.paper.mean) for one in column if one.ours.n and one.paper is not None]
        if both:
            found.append(Order(metric, place, _kendall(both), len(both), len(column)))
    return found


def _kendall(pairs: Sequence[tuple[float, float]]) -> float:
    if len(pairs) < 3:
        return math.nan
    from scipy.stats import kendalltau

    return float(kendalltau(*zip(*pairs, strict=True)).statistic)


def both(made: Made, tables: Sequence[Pivot]) -> list[TextTable]:
    """These `pivots` with the paper's number below each of ours, and the difference of both with its verdict."""
    known = {(one.row, one.place, one.metric): one for one in every_number(made)}
    rows, places = [row.name for row in made.reproduction.rows], made.reproduction.places
    return [
        TextTable(
            title=table.title,
            sides=["method"],
            rows=[(row,) for row in rows],
            columns=[(made.named(place) or "result",) for place in places],
            cells=[[_cell(made, table, row, place, known) for place in places] for row in rows],
            notes=[],
        )
        for table in tables
    ]


def _cell(made: Made, table: Pivot, row: str, place: Place, known: Mapping[tuple[str, Place, str], Number]) -> TextCell:
    below: list[LineBelow] = []
    if made.reproduction.published is not None:
        first = known[row, place, table.metric]
        inside = known[row, place, table.bracket] if table.bracket else None
        inside = None if inside is None or inside.paper is None else inside
        below = [LineBelow(theirs(first.paper), f"({theirs(inside.paper)})" if inside else "")]
        for one in filter(None, (first, inside)):
            if math.isfinite(one.judged.difference):
                text = f"{signed(one)} {one.verdict}"
                below.append(LineBelow(f"({text})" if one is inside else text, look=f"verdict {look(one.verdict)}"))
    value, bracket = table.parts(row, place) if (row, place) in made.runs else (NOT_RUN, "")
    entry = table.entries.get((row, place))
    return TextCell(value, bracket, bool(entry and entry.best), bool(entry and entry.tied), below)


def look(verdict: str) -> str:
    """How a verdict looks on a page."""
    return {AGREES: "agrees", DISAGREES: "disagrees"}.get(verdict, "open")


def theirs(line: Published | None) -> str:
    """A published number, `69.03 ± 0.42`; `–` where the paper has none."""
    if line is None or math.isnan(line.mean):
        return "–"
    digits = decimals(line.metric)
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
        return Table.of_records(_cells_of_heat(made))
    keys = list(made.reproduction.columns)
    rows = []
    for one in every_number(made):
        scale = made.labels.scale(one.metric)
        rows.append(
            {"row": one.row, **dict(zip(keys, one.place, strict=True)), "metric": one.metric}
            | {"unit": unit_in_files(one.metric)}
            | {"mean": one.ours.mean / scale, "std": one.ours.std / scale, "n": one.ours.n}
            | {"paper_mean": one.paper.mean / scale if one.paper else math.nan}
            | {"paper_std": one.paper.std / scale if one.paper else math.nan}
            | {"difference": one.judged.difference / scale}
            | {"paper_spreads": one.judged.paper_spreads, "our_spreads": one.judged.our_spreads}
            | {"verdict": one.verdict, "reason": one.judged.reason, "p": one.judged.p, "explanation": why(made, one)}
            | {"note": one.paper.note if one.paper else ""}
            | {"published_in": one.paper.table if one.paper else ""}
            | _where(made)
        )
    return Table.of_records(rows)


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
            row |= {"unit": _unit_in_files(line)}
            row.pop("corrected")
            rows.append(said | row | _where(made))
    return Table.of_records(rows)


def _where(made: Made) -> dict[str, Any]:
    """On what both were measured."""
    return dict(vars(made.here)) | {f"paper_{key}": value for key, value in vars(made.paper).items()}


def comparisons(made: Made, one: Decided) -> Table:
    """The lines of a sentence for people; differences in per cent where the metric is."""
    rows = [
        {
            "metric": _read(line),
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


def _difference(made: Made, line: ClaimTest) -> str:
    if math.isnan(line.difference):
        return "–"
    unit = made.labels.scale(line.metric) if _in_units(line) else 1.0
    digits = 2 if unit == 100.0 or line.measure == REACHES else 4
    return f"{unit * line.difference:+.{digits}f}"


def _in_units(line: ClaimTest) -> bool:
    """Whether what was compared has the unit of the metric."""
    return line.measure is None or MEASURES[line.measure].in_units


def _unit_in_files(line: ClaimTest) -> str:
    return unit_in_files(line.metric) if _in_units(line) else "rounds" if line.measure == REACHES else ""


def _read(line: ClaimTest) -> str:
    """What was compared: the metric, and what of it."""
    title = METRICS[line.metric].title
    if line.measure is None:
        return title
    measure = MEASURES[line.measure].title
    return f"{title}, {measure}" if _in_units(line) or line.measure == REACHES else measure.capitalize()


def _p(value: float) -> str:
    return "–" if math.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.2g}"


@dataclass(frozen=True)
class Explanation:
    """Why cells disagree, as one entry of `explanations.yaml` says. Empty rows, columns or metrics stand for all."""

    table: str
    dataset: str
    says: str
    rows: Sequence[str] = ()
    columns: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    metrics: Sequence[str] = ()

    def holds(self, one: Reproduction, dataset: str, row: str, place: Place, metric: str) -> bool:
        """Whether it speaks of this cell."""
        here = dict(zip(one.columns, place, strict=True))
        return (
            (self.table, self.dataset) == (one.name, dataset)
            and (not self.rows or row in self.rows)
            and (not self.metrics or metric in self.metrics)
            and all(here[key] in values for key, values in self.columns.items())
        )


def explanation(one: Reproduction, dataset: str, row: str, place: Place, metric: str) -> str:
    """What is known of why this cell disagrees; empty where nothing is."""
    found = (entry.says for entry in read_explanations(EXPLANATIONS) if entry.holds(one, dataset, row, place, metric))
    return next(found, "")


@cache
def read_explanations(path: Path) -> tuple[Explanation, ...]:
    """All entries. Raises `UserError` for a file that is not as it must be, or an entry about what no table has."""
    data = read_yaml(path)
    wrong = problems(data, _SHAPE, str(path)) or [f"{path} lacks {key!r}." for key in _SHAPE if key not in data]
    if not wrong:
        named = [(key, _SHAPE) for key in data] + [(key, _ENTRY) for entry in data["explanations"] for key in entry]
        wrong = [unknown("key", key, there, str(path)) for key, there in named if key not in there]
    if wrong:
        raise UserError(*wrong)
    found = tuple(Explanation(**entry) for entry in data["explanations"])
    if wrong := [text for entry in found for text in _strangers(entry, path)]:
        raise UserError(*wrong)
    return found


def _strangers(entry: Explanation, path: Path) -> list[str]:
    """What an entry names that its table does not have."""
    if entry.table not in known():
        return [unknown("table", entry.table, known(), str(path))]
    one = declared(entry.table)
    where = f"{path}, {entry.table}"
    named = [("dataset", [entry.dataset], list(one.datasets)), ("row", entry.rows, [row.name for row in one.rows])]
    named += [("metric", entry.metrics, one.printed_metrics), ("column", list(entry.columns), list(one.columns))]
    named += [(key, list(map(str, v)), list(map(str, one.columns.get(key, v)))) for key, v in entry.columns.items()]
    return [unknown(what, name, there, where) for what, names, there in named for name in names if name not in there]


_ENTRY: Shape = {
    **dict.fromkeys(("table", "dataset", "says"), ("text", is_text)),
    **dict.fromkeys(("rows", "metrics"), ("a list of names", each(is_text, 1))),
    "columns": ("lists of values by condition", mapping(each(is_plain, 1))),
}
_SHAPE: Shape = {"explanations": ("a list of entries", each(shaped(_ENTRY, "table", "dataset", "says")))}
