"""The papers' numbers beside those of a search: whether they agree, disagree, or cannot be compared.

`analysis/published/<name>.csv` holds what a paper printed, one number per line:

    table      `DFRD, Table 2`
    method     our name of the method; `settings` says on which base
    dataset    our name of the data set
    settings   `omega=0.1;rho>=40`: what a configuration must have to be the same experiment
    metric     accuracies are in per cent here
    readout    `best` or `last` over rounds; `region:high`, `region:low` where the paper names a region without a number
    mean, std, seeds, rounds   empty where the paper does not tell
    note       what a reader has to know about the number
"""

from __future__ import annotations

import csv
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.labels import PERCENT, scale
from analysis.published.agreement import AGREES, DISAGREES, LEVEL, UNKNOWN, judge
from analysis.stats import summarise

if TYPE_CHECKING:
    from analysis.runs import Run

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "=": operator.eq,
}
#: In place of a verdict.
OTHER_DATA, UNTRIED = "not comparable: other data set", "not tried in this run"


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
    rounds: int | None
    note: str

    @property
    def region(self) -> bool:
        return self.readout.startswith("region:")


@dataclass(frozen=True)
class Verdict:
    """A published number, ours, what may be said of them (`verdict`, a constant above or of
    `analysis.published.agreement`) and why (`reason`)."""

    published: Published
    what: str
    theirs: str
    ours: str
    verdict: str
    reason: str = ""


def names() -> list[str]:
    """The names of the files."""
    return sorted(
        f.name.removesuffix(".csv")
        for f in (resources.files("analysis") / "published").iterdir()
        if f.name.endswith(".csv")
    )


def published(name: str) -> list[Published]:
    """The lines of `analysis/published/<name>.csv` (a longer name finds the file it begins with, `dfrd_tab1_omega` the
    file `dfrd_tab1`); empty where there is no such file."""
    known = [n for n in names() if name == n or name.startswith(f"{n}_")]
    return list(_lines(max(known, key=len))) if known else []


@cache
def _lines(name: str) -> tuple[Published, ...]:
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
        int(row["rounds"]) if row["rounds"] else None,
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


def compare(run: Run, lines: Sequence[Published]) -> list[Verdict]:
    """Every published line of the run's method beside the run's own value."""
    dataset = str(run.value("dataset", ""))
    mine = [p for p in lines if p.method == run.method]
    configs = (
        {t.number: run.config(t.number) for t in run.frozen if t.state.name == "COMPLETE"}
        if any(same_dataset(p.dataset, dataset) for p in mine)
        else {}
    )
    return [_verdict(run, p, dataset, configs) for p in mine]


def _verdict(run: Run, line: Published, dataset: str, configs: Mapping[int, Mapping[str, Any]]) -> Verdict:
    what = f"{line.dataset}, " + ", ".join(
        f"{c.key} {c.sign} {c.value:g}" if isinstance(c.value, float) else f"{c.key} {c.sign} {c.value}"
        for c in line.settings
    )
    if line.region:
        theirs = f"{'high' if line.readout.endswith('high') else 'low'} inside the region"
    else:
        shown = ".2f" if line.metric in PERCENT else ".3g"
        theirs = f"{line.mean:{shown}} ± {line.std:{shown}}"
    if not same_dataset(line.dataset, dataset):
        return Verdict(line, what, theirs, "–", OTHER_DATA, f"this run used {dataset or 'an unnamed data set'}")
    if line.region:
        return _region(run, line, what, theirs, configs)
    matching = [n for n, config in configs.items() if all(c.holds(config) for c in line.settings)]
    if not matching:
        return Verdict(line, what, theirs, "–", UNTRIED)
    best = min(matching, key=lambda n: (run.trials.set_index("number")["value"][n] * (-1 if run.maximise else 1), n))
    values = run.peak(best, line.metric) if line.readout == "best" else run.last(best, line.metric)
    ours = summarise([scale(line.metric) * value for value in values.values()])
    if not ours.n:
        return Verdict(line, what, theirs, "–", UNTRIED, f"{line.metric} was not measured")
    text = f"{ours.shown()} (trial {best}, n = {ours.n})"
    short = _short_of(run, line)
    if short:
        return Verdict(line, what, theirs, text, UNKNOWN, short)
    judged = judge(ours, line.mean, line.std, line.seeds, points=line.metric in PERCENT)
    return Verdict(line, what, theirs, text, judged.verdict, judged.reason)


def _region(run: Run, line: Published, what: str, theirs: str, configs: Mapping[int, Mapping[str, Any]]) -> Verdict:
    from scipy.stats import mannwhitneyu

    if line.metric not in run.rounds.columns:
        return Verdict(line, what, theirs, "–", UNTRIED, f"{line.metric} was not measured")
    searched = set(run.keys)
    fixed = [c for c in line.settings if c.key not in searched]
    bounds = [c for c in line.settings if c.key in searched]
    inside: list[float] = []
    outside: list[float] = []
    for number, config in configs.items():
        if all(c.holds(config) for c in fixed):
            mean = summarise(list(run.last(number, line.metric).values())).mean
            (inside if all(c.holds(config) for c in bounds) else outside).append(mean)
    if not inside or not outside:
        return Verdict(line, what, theirs, "–", UNTRIED)
    text = f"{100 * np.mean(inside):.2f} inside ({len(inside)}), {100 * np.mean(outside):.2f} outside ({len(outside)})"
    short = _short_of(run, line)
    if short:
        return Verdict(line, what, theirs, text, UNKNOWN, short)
    p = float(mannwhitneyu(inside, outside).pvalue)
    higher = (np.mean(inside) > np.mean(outside)) == line.readout.endswith("high")
    verdict = UNKNOWN if p >= LEVEL else AGREES if higher else DISAGREES
    return Verdict(line, what, theirs, text, verdict, f"Mann-Whitney test of inside against outside, p = {p:.3g}")


def _short_of(run: Run, line: Published) -> str:
    """In what the run's budget is below the paper's; empty where it is not."""
    rounds = run.value("rounds")
    if line.rounds is not None and isinstance(rounds, (int, float)):
        return f"{int(rounds)} rounds here, {line.rounds} in the paper's code" if rounds < line.rounds else ""
    return "" if run.experiment.get("profile") == "paper" else "the run did not use the paper's profile"
