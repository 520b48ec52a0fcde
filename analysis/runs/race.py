"""Runs whose trials are single federations: which of them are of the same configuration, on which seeds.

These are races, and searches that end with a confirmation. In every other run a trial is a configuration over all its
seeds, and stands for itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.estimate import configuration
from search_spaces import run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def races(experiment: Mapping[str, Any]) -> bool:
    """Whether the run is a race."""
    return bool(experiment.get("budget"))


def single(experiment: Mapping[str, Any]) -> bool:
    """Whether trials are single federations, some of them further seeds of a configuration."""
    return races(experiment) or bool(experiment.get("confirm"))


def federations(experiment: Mapping[str, Any], trials: Sequence[FrozenTrial], number: int) -> list[int]:
    """The completed trials of the configuration of trial `number`, that trial first if it completed; the trial itself
    where trials are no single federations or none completed."""
    if not single(experiment):
        return [number]
    own = next(trial for trial in trials if trial.number == number)
    key = configuration(own)
    done = [t.number for t in trials if t.state.name == "COMPLETE" and configuration(t) == key]
    return sorted(done, key=lambda n: (n != number, n)) or [number]


def seeds(experiment: Mapping[str, Any], trials: Sequence[FrozenTrial], number: int) -> list[int]:
    """The seeds of the `federations` of a trial; where trials are no single federations all seeds of the run."""
    if not single(experiment):
        return list(experiment.get("seeds") or [])
    by_number = {trial.number: trial for trial in trials}
    return [int(by_number[n].user_attrs["seed"]) for n in federations(experiment, trials, number)]


def first_trials(trials: Sequence[FrozenTrial]) -> list[int]:
    """The trial that stands for each configuration: its first one that ran to its end, else its first one."""
    found: dict[object, FrozenTrial] = {}
    for trial in sorted(trials, key=lambda t: (t.state.name != "COMPLETE", t.number)):
        found.setdefault(configuration(trial), trial)
    return sorted(trial.number for trial in found.values())


def level(trials: Sequence[FrozenTrial], values: Mapping[int, float]) -> dict[int, float]:
    """What configurations measured, as if all had run on the same seeds: by the first trial of each.

        y_is = a_i + p_s        least squares over all federations, Σ p_s = 0 over these

    y_is is the value of configuration i on seed s, p_s what the seed does to all configurations alike; the result are
    the a_i. Without it a configuration that ran on a kind seed alone would look better than one that ran on others too.

    values: by trial that ran to its end; one that is not finite counts as none."""
    known = [t for t in trials if t.state.name == "COMPLETE" and math.isfinite(values.get(t.number, math.nan))]
    first: dict[object, int] = {}
    for trial in known:
        first.setdefault(configuration(trial), trial.number)
    seeds = sorted({int(trial.user_attrs["seed"]) for trial in known})
    count, total = np.zeros((len(first), len(seeds))), np.zeros((len(first), len(seeds)))
    rows = {key: place for place, key in enumerate(first)}
    for trial in known:
        place = rows[configuration(trial)], seeds.index(int(trial.user_attrs["seed"]))
        count[place] += 1
        total[place] += values[trial.number]
    each = count.sum(axis=1)
    # The normal equations without the a_i, which are as many as there are configurations.
    share = count / each[:, None]
    matrix = np.diag(count.sum(axis=0)) - count.T @ share
    moved = np.linalg.pinv(matrix, hermitian=True) @ (total.sum(axis=0) - share.T @ total.sum(axis=1))
    moved -= (count @ moved).sum() / max(count.sum(), 1.0)
    found = (total.sum(axis=1) - count @ moved) / each
    return dict(zip(first.values(), found.tolist(), strict=True))


def first_of(trial: FrozenTrial) -> int | None:
    """The first trial of the configuration of which this one is a further seed; None where it is none."""
    found: int | None = trial.user_attrs.get(run_folder.OF)
    return found


def is_repeated(trial: FrozenTrial, trials: Sequence[FrozenTrial] | Mapping[int, FrozenTrial]) -> bool:
    """Whether a trial runs the configuration of an earlier one of the `trials`, which are all by number, on the same
    seed again, to its end (`fedtune.decisions.initial_design`)."""
    first = first_of(trial)
    return first is not None and trials[first].user_attrs.get("seed") == trial.user_attrs.get("seed")


def trials_named(chosen: Sequence[int]) -> str:
    """The trials that stand for a search by their numbers: `trial 7`, or of several seeds `trials 7, 9 and 12`."""
    *others, last = map(str, sorted(chosen))
    return f"trials {', '.join(others)} and {last}" if others else f"trial {last}"
