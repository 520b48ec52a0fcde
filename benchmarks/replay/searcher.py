"""What a searcher is, for a replay: it asks for rounds of federations, is told their curves, and names a winner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from search_spaces.parameter import Value
from search_spaces.space import Space

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Job:
    """Federations of one configuration, to be run until round `until`.

    `trial` is the searcher's own number of the configuration; a later job of that trial goes on from the rounds that it
    has, seed by seed, and pays for the others only. `seeds` are places: seed k is the same for every configuration."""

    trial: int
    values: Mapping[str, Value]
    seeds: tuple[int, ...]
    until: int


@dataclass(frozen=True)
class Result:
    """`curves`: (seeds, until), the validation metric after rounds 1 … until, turned so that larger is better; NaN from
    the round on in which a federation diverged. With several objectives (seeds, until, objectives)."""

    job: Job
    curves: Floats


@dataclass(frozen=True)
class Verdict:
    """The winner as the searcher would tell it. `estimate`: what it says of the mean over seeds of the last round's
    validation metric; `low` and `high` bound that over `Setting.fresh` seeds with a probability of `LEVEL`, where an
    interval is stated."""

    values: Mapping[str, Value]
    estimate: float
    low: float | None = None
    high: float | None = None
    #: Whether it claims that the winner is better than the paper's values; None where it says nothing of that.
    claim: bool | None = None


@dataclass(frozen=True)
class Front:
    """With several objectives, in place of one winner: the configurations that the searcher would name as not beaten by
    any other."""

    configurations: tuple[Mapping[str, Value], ...]


#: The probability with which a stated interval is to hold.
LEVEL = 0.9


class Impossible(Exception):
    """Raised by a searcher's factory where a setting is not for it: too few seeds, a grid too large."""


@dataclass(frozen=True)
class Setting:
    """What a searcher is given: the space, the rounds of a whole federation, how many seeds there are, its own seed,
    and how many jobs can run at once."""

    space: Space
    rounds: int
    seeds: int
    seed: int
    slots: int
    #: For oracles alone: the mean curve of a configuration over the held-out seeds.
    truth: Callable[[Mapping[str, Value]], Floats]
    #: An interval is stated for the winner's mean over so many fresh seeds; None: over all there could be.
    fresh: int | None = None
    #: With several objectives their metrics, in the order of a curve's last axis.
    metrics: tuple[str, ...] = ()

    def check_seeds(self, each: int) -> None:
        """Raises `Impossible` where a configuration cannot have `each` seeds."""
        if each > self.seeds:
            raise Impossible(f"{each} seeds each, and the table has {self.seeds} for the search")


class Searcher(Protocol):
    """`ask` and `tell` in any order that the slots allow. The same setting gives the same search."""

    def ask(self) -> Job | None:
        """The next job; None where there is nothing to do before something is told (or nothing at all)."""

    def tell(self, result: Result) -> None:
        """What a job has measured."""

    def winner(self) -> Verdict | Front | None:
        """The winner, or with several objectives the front, by what has been told so far; None where nothing could be
        chosen yet."""
