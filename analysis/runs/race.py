"""A race's trials are single federations: which of them are of the same configuration, on which seeds.

In every other run a trial is a configuration over all its seeds, and stands for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.estimate import configuration
from search_spaces import run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def races(experiment: Mapping[str, Any]) -> bool:
    """Whether the run is a race."""
    return bool(experiment.get("budget"))


def federations(experiment: Mapping[str, Any], trials: Sequence[FrozenTrial], number: int) -> list[int]:
    """The completed trials of the configuration of trial `number`, that trial first if it completed; the trial itself
    where the run is no race or none completed."""
    if not races(experiment):
        return [number]
    own = next(trial for trial in trials if trial.number == number)
    key = configuration(own)
    done = [t.number for t in trials if t.state.name == "COMPLETE" and configuration(t) == key]
    return sorted(done, key=lambda n: (n != number, n)) or [number]


def seeds(experiment: Mapping[str, Any], trials: Sequence[FrozenTrial], number: int) -> list[int]:
    """The seeds of the `federations` of a trial; outside of races all seeds of the run."""
    if not races(experiment):
        return list(experiment.get("seeds") or [])
    by_number = {trial.number: trial for trial in trials}
    return [int(by_number[n].user_attrs["seed"]) for n in federations(experiment, trials, number)]


def first_of(trial: FrozenTrial) -> int | None:
    """The first trial of the configuration of which this one is a further seed; None where it is none."""
    found: int | None = trial.user_attrs.get(run_folder.OF)
    return found
