"""The best trial of a run, or of each condition of the experiment that its trials are under."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from analysis.estimate import Estimate
from analysis.runs import Run
from analysis.runs.requirements import Kept
from search_spaces.metrics import is_unreached
from search_spaces.parameter import Value


@dataclass(frozen=True)
class Best:
    """The best complete trial, as `analysis.runs.Run.best` has it: by the metric; of several, the knee of the Pareto
    front. Or one that has not ended and is ahead of it."""

    number: int
    #: By metric; `search_spaces.metrics.UNREACHED` for a target that was not reached.
    values: Mapping[str, float]
    params: Mapping[str, Value]
    #: The last value of every metric, as the mean over seeds.
    metrics: Mapping[str, float]
    #: What the search says of it, where it searched for one metric and two federations ran to their end.
    estimate: Estimate | None = None
    #: Where its values come from, such as `the paper's values` or `raced trial 3`; empty where the sampler proposed
    #: them.
    origin: str = ""
    #: The condition of the experiment it was found under; empty where the run varies none.
    condition: Mapping[str, Value] = field(default_factory=dict)
    #: Whether it keeps each requirement of the search, and how likely.
    kept: tuple[Kept, ...] = ()
    #: Where it did not run to its end, the round that its values are of.
    round: int | None = None

    @property
    def measured(self) -> dict[str, float | None]:
        """`values` as files and --json hold them: none for a target that was not reached."""
        return {name: None if is_unreached(value) else value for name, value in self.values.items()}

    def to_json(self) -> dict[str, Any]:
        """Plain data for --json: null where a target was not reached, or nothing was measured."""
        required = [asdict(one) | {"value": None if math.isnan(one.value) else one.value} for one in self.kept]
        return asdict(self) | {"values": self.measured, "kept": required}

    @classmethod
    def of(cls, run: Run, number: int) -> Best:
        """Trial `number` of a run; of a race with the means over the seeds of its configuration."""
        trial, numbers = run.trial(number), run.federations(number)
        values_of = {name.rsplit(".", 1)[-1]: value for name, value in trial.params.items()}
        varied = {str(item["key"]) for item in run.varied}
        params = {key: value for key, value in values_of.items() if key not in varied}
        condition = {key: value for key, value in values_of.items() if key in varied}
        ends = [run.trial(n).values or () for n in numbers]
        means = map(statistics.fmean, zip(*ends, strict=True))
        values = dict(zip(run.metrics, means, strict=False))
        round_ = max(trial.intermediate_values, default=None) if numbers == [number] and not trial.values else None
        if round_ is not None:
            values = {run.metrics[0]: trial.intermediate_values[round_]}
        said = run.estimate if number == run.best else run.ahead_estimate if number == run.ahead else None
        measured, required = run.measured(*numbers), tuple(run.kept) if number == run.best else ()
        return cls(number, values, params, measured, said, run.origin(trial), condition, required, round_)


def best_of(run: Run) -> Best | None:
    """The best of a run; None where there is none yet, and where its trials are under several conditions."""
    return None if run.best is None else Best.of(run, run.best)


def ahead_of(run: Run) -> Best | None:
    """The trial of a run that has not ended and is ahead of its best one; None where none is."""
    return None if run.ahead is None else Best.of(run, run.ahead)


def best_by_condition(run: Run) -> tuple[Best, ...]:
    """The best under each condition that has one, of a run under several; of other runs nothing."""
    if not run.crossed:
        return ()
    parts = [run.within(condition) for condition in run.conditions]
    return tuple(Best.of(part, part.best) for part in parts if part.best is not None)
