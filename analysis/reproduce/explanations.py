"""Why cells disagree with their paper: `analysis/reproduce/explanations.yaml`, a list of these keys:

table      a reproduction, `fedmdcg-table1`
dataset    one of its data sets
rows       names of its rows; without it, all
columns    {omega: [0.1]}: only these conditions
metrics    of its metrics; without it, all
says       what was tried, with figures: text that somebody can check
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from analysis.reproduce.declaration import Place, Reproduction, declared, known
from analysis.runs.mappings import read_yaml
from analysis.runs.shapes import Shape, each, is_plain, is_text, mapping, problems, shaped
from search_spaces.errors import UserError, unknown

PATH = Path(__file__).with_name("explanations.yaml")


@dataclass(frozen=True)
class Explanation:
    """One entry. Empty rows, columns or metrics stand for all."""

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
    found = (entry.says for entry in explanations(PATH) if entry.holds(one, dataset, row, place, metric))
    return next(found, "")


@cache
def explanations(path: Path) -> tuple[Explanation, ...]:
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
