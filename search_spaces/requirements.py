"""What a user requires of a configuration besides being good: `--require 'wlp>=0.3' --require 'bytes_up<=5e7'`.

A requirement bounds a metric's value after the last round, as the mean over seeds. Like what is selected by, it reads
the validation data where the metric is measured on these.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from search_spaces.errors import UserError, sentence, unknown
from search_spaces.metrics import METRICS, is_unreached
from search_spaces.parameter import canonical

_FORM = re.compile(r"\s*([A-Za-z_]\w*)\s*(>=|<=)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True)
class Requirement:
    """`metric` must be at least (`least`) or at most `bound`."""

    metric: str
    least: bool
    bound: float

    def __str__(self) -> str:
        return f"{self.metric}{'>=' if self.least else '<='}{self.bound:g}"

    def missed(self, value: float | None) -> float:
        """By how much a value misses the bound, as a share of the bound (of one that is 0, of 1): 0 where it holds,
        infinity where there is no value.

        Where a target was not reached there is no number of rounds or bytes, so that keeps no upper bound and misses no
        lower one."""
        if METRICS[self.metric].to_target and (value is None or not math.isfinite(value) or is_unreached(value)):
            return 0.0 if self.least else math.inf
        if value is None or not math.isfinite(value):
            return math.inf
        apart = self.bound - value if self.least else value - self.bound
        return max(0.0, apart) / (abs(self.bound) or 1.0)


def read(text: str) -> Requirement:
    """The requirement that `str` wrote, under the recorded name of its metric. Raises `ValueError`."""
    match = _FORM.fullmatch(text)
    if match is None or match[1] not in METRICS or not math.isfinite(float(match[3])):
        raise ValueError(f"no requirement: {text!r}")
    return Requirement(match[1], match[2] == ">=", float(match[3]))


def asked(texts: Sequence[str], select_on: str, problems: list[str]) -> tuple[Requirement, ...]:
    """The requirements that a user gave, with recorded names: of the validation data where `select_on` is
    `validation` and the metric is measured there. What cannot be used is added to `problems`."""
    found: list[Requirement] = []
    for text in texts:
        match = _FORM.fullmatch(text)
        if match is None or not math.isfinite(float(match[3])):
            problems.append(
                sentence("require", "METRIC>=NUMBER or METRIC<=NUMBER, such as wlp>=0.3", text, "--require")
            )
            continue
        name = canonical(match[1]).removeprefix("val_")
        if name not in METRICS:
            problems.append(unknown("metric", match[1], METRICS, "--require"))
            continue
        name = f"val_{name}" if select_on == "validation" and f"val_{name}" in METRICS else name
        found.append(Requirement(name, match[2] == ">=", float(match[3])))
    for metric in dict.fromkeys(one.metric for one in found):
        low = max((one.bound for one in found if one.metric == metric and one.least), default=-math.inf)
        high = min((one.bound for one in found if one.metric == metric and not one.least), default=math.inf)
        if low > high:
            problems.append(
                f"--require {metric}>={low:g} and --require {metric}<={high:g} contradict each other: no value keeps "
                f"both. Leave one of them out."
            )
    return tuple(dict.fromkeys(found))


def read_all(texts: Sequence[str], where: str) -> tuple[Requirement, ...]:
    """The requirements that were recorded. Raises `UserError` for one that was edited."""
    try:
        return tuple(map(read, texts))
    except ValueError as error:
        must = "requirements such as val_wlp>=0.3"
        raise UserError(sentence("require", must, str(error), where, "Undo the change of that file.")) from None


def violation(requirements: Sequence[Requirement], values: Mapping[str, float]) -> float:
    """The sum over requirements of by how much they are missed; 0 for a configuration that keeps all."""
    return sum(one.missed(values.get(one.metric)) for one in requirements)
