"""`auto.yaml`: the frozen request of `fedtune auto`, from which it is resumed and read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from analysis.runs.file_record import Count, FileRecord, Flag, FolderRecord, Must, Positive, Text, Texts, is_record
from analysis.runs.shapes import each, is_metric, is_number, mapping, none_or, one_of
from search_spaces import run_folder

#: Units in which budgets and costs are counted: seconds of computing, rounds of single federations, bytes sent both
#: ways.
UNITS = ("seconds", "seed-rounds", "bytes")

_POSITIVE = is_number(1e-12)
_COSTS = Must("costs by unit", lambda value: mapping(_POSITIVE)(value) and set(value) == set(UNITS))
Amount = Annotated[float, Must("a number above 0", _POSITIVE)]
Unit = Annotated[str, Must(f"one of {', '.join(UNITS)}", one_of(*UNITS))]
#: A reading of the clock that began with the command.
Reading = Annotated[float | None, Must("a number of at least 0 or null", none_or(is_number(0)))]


@dataclass(frozen=True)
class Candidate(FileRecord):
    """A method that takes part."""

    name: Text
    title: Text
    #: What one round of one federation costs, by unit.
    costs: Annotated[Mapping[str, float], _COSTS]


@dataclass(frozen=True)
class Excluded(FileRecord):
    """A method that was asked for and cannot take part, with one sentence why."""

    name: Text
    why: Text


@dataclass(frozen=True)
class AutoRecord(FolderRecord):
    """What `auto.yaml` holds. Everything else stands in the runs."""

    file = run_folder.AUTO
    command = "auto"
    #: A budget in time was counted in recorded costs, and every method had as many fresh seeds as any other.
    unsaid: ClassVar[Mapping[str, Any]] = {"clock": None, "most_fresh": 0}

    name: Text
    metric: Annotated[str, Must("a metric", is_metric)]
    methods: Annotated[tuple[Candidate, ...], Must("a list of methods", each(is_record(Candidate), 1))]
    excluded: Annotated[tuple[Excluded, ...], Must("a list of methods", each(is_record(Excluded)))]
    #: The unit in which the budgets are counted, and the one in which rungs and gains are.
    unit: Unit
    cost: Unit
    #: Of the search over all methods, of the fresh seeds of their best configurations, of the final run. Of a budget by
    #: the clock these are seconds that pass, and what ran side by side in them is counted once.
    search_budget: Amount
    fresh_budget: Amount
    final_budget: Amount
    least: Positive
    equal: Flag
    rounds: Positive
    seed: Count
    seeds: Positive
    fresh: Positive
    final: Positive
    require: Texts = ()
    #: Fresh seeds that a method gets at most, as long as it cannot be told from the leader; at most `fresh`: none more.
    most_fresh: Count = 0
    #: Of a budget by the clock: the seconds that planning took. None of other budgets.
    clock: Reading = None

    def costs(self, unit: str) -> tuple[float, ...]:
        """What a round of a trial costs, by method: over all its seeds."""
        return tuple(candidate.costs[unit] * self.seeds for candidate in self.methods)

    @property
    def deadline(self) -> float | None:
        """Of a budget by the clock: when all of it is to have ended."""
        if self.clock is None:
            return None
        return self.clock + self.search_budget + self.fresh_budget + self.final_budget

    @property
    def named_metrics(self) -> Sequence[str]:
        return (self.metric, *(one.partition(">")[0].partition("<")[0] for one in self.require))
