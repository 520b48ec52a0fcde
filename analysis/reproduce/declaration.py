"""What `analysis/reproduce/declared/<name>.yaml` declares: one figure or table of a paper.

    title       what it shows
    source      `FedKF, Table V`
    published   the file in `analysis/published` that holds the paper's numbers; none of a figure without numbers
    table       only the lines of that file with this `table`; without it all lines of the data set
    datasets    the paper's data sets, each with the values that the paper sets for it; the first one is the default. A
                value that only the rows of one method have stands under the method: {dfrd: {noise_dim: 100}}
    seeds       the paper's
    metrics     a table for each; of a heat map its panels
    figures     of a figure of the paper, what is drawn of its cells: `rounds` (curves), `factor` (lines over a
                condition, or over the values that rows vary), `box` (a box of all cells of a row), `partition`,
                `images` and `averages` (what a generator paints), `attack` (what an attack on the uploads rebuilds).
                Each is the file of that name in `analysis/figures`
    brackets    a metric in brackets beside the others
    readout     `last`, or `best` where the paper reports the best round
    space, set  the named space and the values of every row
    columns     the conditions: keys and their values, crossed; or keys alone, with the values over which the rows'
                spaces vary them
    down        what the paper has before its rows, of `method`, `metric`, `dataset` and the columns' keys; by default
                the method; the rest stands above the columns
    by          their order, where the data set is not the first of them
    rows        {row: name in the table, method, space, set, metrics: {a metric of the table: the one this row has},
                varies: a parameter of its space}
    common      instead of columns, of rows that vary one parameter each while the others stay at their defaults: the
                default that all of them share. The columns are the values that the space lists
    grid        instead of rows and columns, for a heat map: {method, space}, whose grid is walked cell by cell
    small       the small form: {rounds, seeds, set}
    seconds     of one core, for a round of one seed of the small form: the mean over rows and columns, measured
    claims      the paper's sentences, see `Claim`
    like        another reproduction, of which this one has everything that it does not declare itself; a key without a
                value is left out (`published:`)

A claim says that something is ahead of something else: in the direction in which its metric is better.

    says        the sentence, in our words
    source      where it stands in the paper
    metric      one of the table's metrics, or several; without it, all of them
    ahead       rows: a name, a list of names, or {row: …, omega: 1} for rows under one condition
    behind      likewise; `others` are all rows that are not ahead. Where neither side names rows but only conditions,
                every row is compared with itself
    where       {omega: [0.1, 0.01]}: only these conditions
    without     {value: [0]}: not these
    within      0.01: nothing is ahead, but every row differs from its value at `common` by no more than this
    read        instead of the last or best round: `mean` over all rounds, `early` (the first third of them),
                `fluctuation`, or `unevenness` of the partition; `measures.py` computes them
    reaches     a row: the fewer rounds to what this row has in its last round, the better
    wider       {omega: 0.01}, with `than: {omega: 1}`: the lead over what is behind is larger there than there
    most        true: the paper speaks of most cases, not of all
    region      true: the cells in the region that the published file names, against all others of the heat map
    untested    why these runs cannot decide it; then there is nothing ahead and nothing behind

What cannot be made again at all stands in `left_out.yaml`, with the reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from analysis.published.papers import Published, names, published, same_dataset
from analysis.reproduce.measures import REACHES, READS
from analysis.runs.conditions import means, show
from analysis.runs.mappings import read_yaml
from analysis.runs.shapes import Shape, each, is_number, is_plain, is_text, is_whole, mapping, one_of, problems, shaped
from search_spaces import presets
from search_spaces.errors import Shown, UserError, sentence, unknown
from search_spaces.metrics import METRICS

FOLDER = Path(__file__).parent / "declared"
LEFT_OUT = Path(__file__).with_name("left_out.yaml")
#: What can be drawn of cells; a heat map is drawn where there is a `grid`.
FIGURES = ("rounds", "factor", "box", "partition", "images", "averages", "attack")
#: What columns are called of rows that vary one parameter each.
VALUE = "value"
#: The values of the columns' keys, in their order.
Place = tuple[Any, ...]


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    name: str
    method: str
    space: str
    values: Mapping[str, Any]
    #: By a metric of the table, the one that this row has in its place.
    metrics: Mapping[str, str] = field(default_factory=dict)
    #: The parameter that takes the value of the column, where each row has another one.
    varies: str | None = None

    @property
    def typed(self) -> str:
        """What a user types for it."""
        return self.varies or self.name


@dataclass(frozen=True)
class Side:
    """What a claim has ahead, or behind; no rows: the same row as on the other side."""

    rows: tuple[str, ...]
    condition: Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper."""

    says: str
    source: str
    metrics: tuple[str, ...]
    ahead: Side
    behind: Side
    where: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    without: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    most: bool = False
    region: bool = False
    within: float | None = None
    #: What is read of a cell, of `measures.MEASURES`; None: its value in the round that the paper reports.
    measure: str | None = None
    #: The row whose last value is to be reached.
    reference: str | None = None
    wider: Mapping[str, Any] = field(default_factory=dict)
    than: Mapping[str, Any] = field(default_factory=dict)
    untested: str | None = None

    @property
    def kind(self) -> str:
        """How it is decided: by an `ordering` of cells, by the `gap` between them under two conditions, by a `region`
        of a heat map, as `alike`, or not at all (`untested`)."""
        if self.untested is not None:
            return "untested"
        if self.region:
            return "region"
        return "gap" if self.wider else "ordering" if self.within is None else "alike"

    def speaks_of(self, condition: Mapping[str, Any]) -> bool:
        """Whether it speaks of cells under the condition."""
        wanted = all(condition[key] in values for key, values in self.where.items())
        return wanted and not any(condition[key] in values for key, values in self.without.items())


@dataclass(frozen=True)
class Reproduction:
    """One figure or table of a paper."""

    name: str
    title: str
    source: str
    published: str | None
    table: str | None
    #: By our name of the data set, the values that the paper sets for it; see `on`.
    datasets: Mapping[str, Mapping[str, Any]]
    seeds: int
    metrics: tuple[str, ...]
    brackets: str | None
    readout: str
    values: Mapping[str, Any]
    columns: Mapping[str, Sequence[Any]]
    rows: tuple[Row, ...]
    #: Whether it is a heat map; then it has one row, whose space is a grid.
    heatmap: bool
    small_rounds: int
    small_seeds: int
    small_values: Mapping[str, Any]
    seconds: float
    claims: tuple[Claim, ...]

    down: tuple[str, ...]
    by: tuple[str, ...]
    #: Of `FIGURES`.
    figures: tuple[str, ...] = ()
    #: Where every row varies another parameter, the value at which all of them are one cell.
    common: Any = None

    @property
    def keeps_images(self) -> bool:
        """Whether its runs keep images of generators."""
        return not {"images", "averages"}.isdisjoint(self.figures)

    @property
    def is_attacked(self) -> bool:
        """Whether the uploads of its runs are attacked once they have ended."""
        return "attack" in self.figures

    @property
    def cells(self) -> list[tuple[Row, Place]]:
        """Every row under every condition; what is one cell of all rows once."""
        found = [(row, place) for row in self.rows for place in self.places]
        return [(row, place) for row, place in found if row is self.rows[0] or not self.is_common(place)]

    def is_common(self, place: Place) -> bool:
        """Whether all rows are one cell there."""
        return self.common is not None and place == (self.common,)

    def condition(self, row: Row, place: Place) -> dict[str, Any]:
        """The values of parameters that a row has under a condition."""
        return dict(zip(self.columns if row.varies is None else (row.varies,), place, strict=True))

    @property
    def places(self) -> list[Place]:
        """Every condition, in the order of the paper; one empty one where there are no columns."""
        return list(itertools.product(*self.columns.values()))

    @property
    def printed_metrics(self) -> list[str]:
        """Those of the tables, and the one in brackets."""
        return list(dict.fromkeys((*self.metrics, *([self.brackets] if self.brackets else []))))

    def chosen_rows(self, asked: Sequence[str], problems: list[str]) -> list[str]:
        """The names of the rows that `asked` names, all of them where it is empty. Each text is one name, or several
        with commas between; capital and small letters are the same."""
        names = [row.name for row in self.rows]
        known = {text.casefold(): row.name for row in self.rows for text in (row.name, row.typed)}
        texts = [text for one in asked for text in ([one] if one.strip().casefold() in known else one.split(","))]
        must = f"rows of {self.name} ({', '.join(row.typed for row in self.rows)})"
        problems += [
            sentence("rows", must, Shown(text.strip()), "--rows")
            for text in texts
            if text.strip().casefold() not in known
        ]
        chosen = {known.get(text.strip().casefold()) for text in texts}
        return [name for name in names if not asked or name in chosen]

    def chosen_places(self, asked: Sequence[str], problems: list[str]) -> list[Place]:
        """The conditions that `asked` names, all of them where it is empty. Each text is a key and values of it,
        `omega=1,0.1`; what is not named is not restricted."""
        keys = list(self.columns)
        chosen: dict[str, set[Any]] = {}
        for one in asked:
            key, _, texts = (part.strip() for part in one.partition("="))
            values = self.columns.get(key, [])
            found = [[value for value in values if means(text.strip(), value)] for text in texts.split(",")]
            if not all(found):
                problems.append(self._no_column(one))
            chosen.setdefault(key, set()).update(value for values in found for value in values)
        return [
            place
            for place in self.places
            if all(value in chosen[key] for key, value in zip(keys, place, strict=True) if key in chosen)
        ]

    def _no_column(self, asked: str) -> str:
        if not self.columns:
            return sentence("columns", f"left out for {self.name}, which has none", Shown(asked), "--columns")
        known = " and ".join(f"{key}={','.join(map(show, values))}" for key, values in self.columns.items())
        return sentence("columns", f"columns of {self.name} ({known})", Shown(asked), "--columns")

    def on(self, dataset: str, method: str) -> dict[str, Any]:
        """The values that the paper sets for rows of a method on one of its data sets."""
        values = self.datasets[dataset]
        return {**{key: value for key, value in values.items() if is_plain(value)}, **values.get(method, {})}

    def dataset(self, here: str | None) -> str:
        """The paper's data set that results on `here` stand beside: the same one, else the first."""
        return next((name for name in self.datasets if here and same_dataset(name, here)), next(iter(self.datasets)))

    def meant(self, asked: str) -> str:
        """The data set that a user names: `fmnist` is `fmnist32` where the paper has resized it to 32 × 32."""
        resized = f"{asked}32"
        return resized if resized in self.datasets and asked not in self.datasets else asked

    def lines(self, dataset: str) -> list[Published]:
        """What the paper printed for one of its data sets."""
        if self.published is None:
            return []
        return [
            line
            for line in published(self.published)
            if same_dataset(line.dataset, dataset) and self.table in (None, line.table)
        ]


def known() -> list[str]:
    """The names of all reproductions: by paper, then by number."""
    found = [file.stem for file in FOLDER.glob("*.yaml")]
    return sorted(found, key=lambda name: (name.split("-")[0], name.rstrip("0123456789"), _number(name)))


def _number(name: str) -> int:
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits) if digits else 0


def declared(name: str) -> Reproduction:
    """The reproduction of that name. Raises `UserError` where there is none, or its file is not as it must be."""
    if name not in known():
        raise UserError(unknown("reproduction", name, known()))
    data, path = _read(name)
    wrong = problems(data, _SHAPE, str(path))
    wrong += [f"{path} lacks {key!r}." for key in _NEEDED if key not in data]
    wrong += [unknown("key", key, _SHAPE, str(path)) for key in data if key not in _SHAPE]
    if wrong := wrong or _misplaced(data, str(path)):
        raise UserError(*wrong)
    return _built(name, data)


@dataclass(frozen=True)
class LeftOut:
    """Figures or tables of a paper that cannot be made again."""

    source: str
    why: str


@cache
def left_out() -> tuple[LeftOut, ...]:
    """What no reproduction is of, by paper. Raises `UserError` for a file that is not as it must be."""
    data = read_yaml(LEFT_OUT)
    if wrong := problems(data, {"left_out": _LEFT_OUT}, str(LEFT_OUT)):
        raise UserError(*wrong)
    return tuple(LeftOut(**entry) for entry in data["left_out"])


def _misplaced(data: Mapping[str, Any], path: str) -> list[str]:
    """What is wrong with how it is laid out."""
    keys = ["dataset", *(data.get("columns") or {})]
    varied = [row.get("varies") for row in data.get("rows") or []]
    if any(varied) or "common" in data:
        if not all(varied) or "common" not in data or "columns" in data:
            return [f"{path} must have `varies` in every row, `common`, and no columns, or neither of both."]
        if len({tuple(_listed(data, row)) for row in data["rows"]}) > 1:
            return [f"{path}: the spaces must list the same values for every parameter that a row varies."]
        keys.append(VALUE)
    if isinstance(keyed := data.get("columns"), list):
        varied_over = [[_said(data, row)["vary"].get(key) for key in keyed] for row in data.get("rows") or []]
        if any(values != varied_over[0] or None in values for values in varied_over):
            return [f"{path}: the spaces must vary {' and '.join(keyed)} over the same values for all rows."]
    wrong = [f"{path} must have either rows or a grid."] if ("grid" in data) == ("rows" in data) else []
    if "grid" in data and "figures" in data:
        wrong.append(f"{path}: a grid is drawn as a heat map, so that figures must be left out.")
    methods = [row["method"] for row in data.get("rows") or [data["grid"]]]
    wrong += [
        unknown("method", key, methods, f"{path}, datasets: {name}")
        for name, values in data["datasets"].items()
        for key, value in values.items()
        if isinstance(value, dict) and key not in methods
    ]
    wrong += [
        f"{path}: `wider` and `than` must name the same columns ({', '.join(keys[1:])}): {claim['says']}."
        for claim in data["claims"]
        if (named := set(claim.get("wider", {}))) != set(claim.get("than", {})) or not named <= set(keys[1:])
    ]
    known = ["method", "metric", *keys]
    wrong += [unknown("label", key, known, f"{path}, down") for key in data.get("down") or [] if key not in known]
    if "by" in data and sorted(data["by"]) != sorted(keys):
        wrong.append(f"{path}: by must name {' and '.join(keys)} once each, got {', '.join(data['by'])}.")
    return wrong


def _listed(data: Mapping[str, Any], row: Mapping[str, Any]) -> list[Any]:
    """The values that a row's space lists for the parameter which it varies."""
    found = (_said(data, row)["search"].get(row["varies"]) or {}).get("grid")
    if not isinstance(found, list):
        named = f"{row['method']}/{row.get('space', data.get('space'))}"
        raise UserError(f"{named} must list values (`grid`) of {row['varies']}, which {row['row']} varies.")
    return found


def _said(data: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What a row's space searches and varies, as its file says. Raises `UserError` where there is no such space."""
    return _space(str(row["method"]), str(row.get("space", data.get("space", "default"))))


@cache
def _space(method: str, name: str) -> dict[str, dict[str, Any]]:
    if name not in presets.names(method):
        raise UserError(unknown(f"space of {method}", name, presets.names(method)))
    said = presets.document(method, name).root.value
    return {part: said.get(part) or {} for part in ("search", "vary")}


def _read(name: str) -> tuple[dict[str, Any], Path]:
    """A file's mapping, over that of the one which it is like."""
    path = FOLDER / f"{name}.yaml"
    data = read_yaml(path)
    like = data.pop("like", None)
    if like is None:
        return data, path
    if like not in known() or like == name:
        raise UserError(unknown("reproduction", str(like), known(), str(path)))
    return {key: value for key, value in (_read(like)[0] | data).items() if value is not None}, path


def _built(name: str, data: Mapping[str, Any]) -> Reproduction:
    grid = data.get("grid")
    common, space = data.get("set") or {}, data.get("space", "default")
    rows = [
        Row(
            row["row"],
            row["method"],
            row.get("space", space),
            row.get("set") or {},
            row.get("metrics") or {},
            row.get("varies"),
        )
        for row in ([{"row": grid["method"], **grid}] if grid else data["rows"])
    ]
    small = data["small"]
    columns = {VALUE: _listed(data, data["rows"][0])} if "common" in data else data.get("columns") or {}
    if isinstance(columns, list):
        columns = {key: _said(data, data["rows"][0])["vary"][key] for key in columns}
    return Reproduction(
        name=name,
        title=data["title"],
        source=data["source"],
        published=data.get("published"),
        table=data.get("table"),
        datasets=data["datasets"],
        seeds=data["seeds"],
        metrics=tuple(data["metrics"]),
        brackets=data.get("brackets"),
        readout=data.get("readout", "last"),
        values=common,
        columns=columns,
        rows=tuple(rows),
        heatmap=grid is not None,
        small_rounds=small["rounds"],
        small_seeds=small["seeds"],
        small_values=small.get("set") or {},
        seconds=data["seconds"],
        claims=tuple(_claim(claim, [row.name for row in rows], data["metrics"]) for claim in data["claims"]),
        down=tuple(data.get("down") or ("method",)),
        by=tuple(data.get("by") or ("dataset", *columns)),
        figures=tuple(data.get("figures") or ()),
        common=data.get("common"),
    )


def _claim(data: Mapping[str, Any], rows: Sequence[str], metrics: Sequence[str]) -> Claim:
    asked = data.get("metric", list(metrics))
    ahead = _side(data.get("ahead", {}), rows)
    others = [row for row in rows if row not in ahead.rows]
    behind = _side(others if data.get("behind") == "others" else data.get("behind", {}), rows)
    return Claim(
        data["says"],
        data["source"],
        tuple(asked if isinstance(asked, list) else [asked]),
        ahead,
        behind,
        data.get("where") or {},
        data.get("without") or {},
        bool(data.get("most")),
        bool(data.get("region")),
        data.get("within"),
        REACHES if "reaches" in data else data.get("read"),
        _row(data["reaches"], rows) if "reaches" in data else None,
        data.get("wider") or {},
        data.get("than") or {},
        data.get("untested"),
    )


def _side(data: Any, rows: Sequence[str]) -> Side:
    """Raises `UserError` for a row that the table does not have."""
    if isinstance(data, Mapping):
        named, condition = data.get("row", []), {key: value for key, value in data.items() if key != "row"}
    else:
        named, condition = data, {}
    names = (named,) if isinstance(named, str) else tuple(named)
    return Side(tuple(_row(name, rows) for name in names), condition)


def _row(name: str, rows: Sequence[str]) -> str:
    """The name. Raises `UserError` for a row that the table does not have."""
    if name not in rows:
        raise UserError(unknown("row", name, rows, "a claim"))
    return name


def _text_or_list(value: Any) -> bool:
    return is_text(value) or each(is_text, 1)(value)


def _is_metric(value: Any) -> bool:
    return is_text(value) and value in METRICS


def _is_set(value: Any) -> bool:
    """A value, or values of one method."""
    return is_plain(value) or mapping(is_plain)(value)


def _is_side(value: Any) -> bool:
    return _text_or_list(value) or (
        isinstance(value, dict) and all(_text_or_list(v) if k == "row" else is_plain(v) for k, v in value.items())
    )


_TEXT = ("text", is_text)
_VALUES = ("a mapping of names to values", mapping(is_plain))
_ROW: Shape = {
    **dict.fromkeys(("row", "method", "space", "varies"), _TEXT),
    "set": _VALUES,
    "metrics": ("metrics by metrics", mapping(_is_metric)),
}
_CLAIM: Shape = {
    **dict.fromkeys(("says", "source"), _TEXT),
    "metric": ("a metric, or a list", lambda value: _is_metric(value) or each(_is_metric, 1)(value)),
    **dict.fromkeys(("ahead", "behind"), ("rows", _is_side)),
    **dict.fromkeys(("where", "without"), ("lists of values by condition", mapping(each(is_plain, 1)))),
    "within": ("a number above 0", is_number(1e-6)),
    **dict.fromkeys(("most", "region"), ("true", lambda value: value is True)),
    **dict.fromkeys(("reaches", "untested"), _TEXT),
    "read": (f"one of {', '.join(READS)}", one_of(*READS)),
    **dict.fromkeys(("wider", "than"), _VALUES),
}
_LEFT_OUT = (
    "a list of sources and reasons",
    each(shaped(dict.fromkeys(("source", "why"), _TEXT), "source", "why"), 1),
)
_SMALL: Shape = {
    "rounds": ("a whole number", is_whole(1)),
    "seeds": ("a whole number", is_whole(1)),
    "set": _VALUES,
}
_SHAPE: Shape = {
    **dict.fromkeys(("title", "source", "table", "space"), _TEXT),
    "published": (f"one of {', '.join(names())}", one_of(*names())),
    "datasets": ("values by data set", lambda value: bool(value) and mapping(mapping(_is_set))(value)),
    "seeds": ("a whole number of at least 1", is_whole(1)),
    "metrics": ("a list of metrics", each(_is_metric, 1)),
    "figures": (f"a list of {', '.join(FIGURES)}", each(one_of(*FIGURES), 1)),
    "brackets": ("a metric", _is_metric),
    "readout": ("last or best", one_of("last", "best")),
    "set": _VALUES,
    "columns": (
        "lists of values by key, or keys",
        lambda value: each(is_text, 1)(value) or mapping(each(is_plain, 1))(value),
    ),
    **dict.fromkeys(("down", "by"), ("a list of keys", each(is_text, 1))),
    "rows": ("a list of rows", each(shaped(_ROW, "row", "method"), 1)),
    "common": ("a number", is_number()),
    "grid": ("a method and its space", shaped(_ROW, "method", "space")),
    "small": ("rounds, seeds and values", shaped(_SMALL, "rounds", "seeds")),
    "seconds": ("a number above 0", is_number(1e-6)),
    "claims": ("a list of claims", each(shaped(_CLAIM, "says", "source"), 1)),
}
_NEEDED = ("title", "source", "datasets", "seeds", "metrics", "small", "seconds", "claims")
