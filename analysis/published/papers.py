"""The papers' numbers.

`analysis/published/<name>.csv` holds what a paper printed, one number per line:

    table      `DFRD, Table 2`
    method     our name of the method; `settings` says on which base
    dataset    our name of the data set
    settings   `omega=0.1;rho>=40`: what a configuration must have to be the same experiment
    metric     accuracies are in per cent here
    readout    `best` or `last` over rounds; `region:high`, `region:low` where the paper names a region without a number
    mean, std, seeds   empty where the paper does not tell
    note       what a reader has to know about the number
"""

from __future__ import annotations

import csv
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}


@dataclass(frozen=True)
class Bound:
    """`omega=0.1` or `alpha<1.25`."""

    key: str
    sign: str
    value: float | str | bool

    def holds(self, config: Mapping[str, Any]) -> bool:
        """Whether a configuration meets the condition; one that does not have the key does not."""
        got = config.get(self.key)
        if isinstance(self.value, (str, bool)) or got is None or isinstance(got, (str, bool)):
            return self.sign == "=" and got == self.value
        return _OPERATORS[self.sign](float(got), self.value) or (
            self.sign == "=" and abs(float(got) - self.value) <= 1e-9 * max(1.0, abs(self.value))
        )


@dataclass(frozen=True)
class Published:
    """One line of a file in `analysis/published`."""

    table: str
    method: str
    dataset: str
    settings: tuple[Bound, ...]
    metric: str
    readout: str
    mean: float
    std: float
    seeds: int
    note: str

    @property
    def region(self) -> bool:
        return self.readout.startswith("region:")


def names() -> list[str]:
    """The names of the files."""
    return sorted(
        f.name.removesuffix(".csv")
        for f in (resources.files("analysis") / "published").iterdir()
        if f.name.endswith(".csv")
    )


@cache
def published(name: str) -> tuple[Published, ...]:
    """The lines of `analysis/published/<name>.csv`."""
    with (resources.files("analysis") / "published" / f"{name}.csv").open(encoding="utf-8") as file:
        return tuple(_line(row) for row in csv.DictReader(file))


def _line(row: dict[str, str]) -> Published:
    def real(text: str) -> float:
        return float(text) if text else float("nan")

    return Published(
        row["table"],
        row["method"],
        row["dataset"],
        tuple(_condition(c) for c in row["settings"].split(";")),
        row["metric"],
        row["readout"],
        real(row["mean"]),
        real(row["std"]),
        int(row["seeds"] or 0),
        row["note"],
    )


def _condition(text: str) -> Bound:
    found = re.fullmatch(r"(\w+)(<=|>=|<|>|=)(.+)", text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no condition such as omega=0.1")
    key, sign, raw = found.groups()
    if raw in ("true", "false"):
        return Bound(key, sign, raw == "true")
    try:
        return Bound(key, sign, float(raw))
    except ValueError:
        return Bound(key, sign, raw)


def same_dataset(a: str, b: str) -> bool:
    """`CIFAR-10` and `cifar10` are one data set."""
    plain = [re.sub(r"[^a-z0-9]", "", str(n).lower()) for n in (a, b)]
    return plain[0] == plain[1]
