"""A trial as a queue hands it out, and where it belongs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedtune.trials.early_stopping import Rule
from search_spaces.parameter import Value

if TYPE_CHECKING:
    from fedtune.record.experiment import Experiment
    from search_spaces.space import Space


@dataclass(frozen=True)
class Proposal:
    """A trial to be run: its number in the study, its searched values by key, its stop rule."""

    number: int
    values: Mapping[str, Value]
    rule: Rule
    #: What it is simulated over.
    seeds: tuple[int, ...]
    resumed: bool
    #: Cores and GPUs it goes on with after having run out of memory; None is the search's usual share.
    share: tuple[float, float] | None


class Home(NamedTuple):
    """Where a trial belongs: its run and its number there."""

    folder: Path
    experiment: Experiment
    space: Space
    number: int
