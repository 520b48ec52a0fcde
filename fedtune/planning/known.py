"""What is known before a search begins: the paper's own values, and what earlier runs found (`--warm-start`).

The trials of a search are, in this order:

1. Results taken from earlier runs. Where a run agrees with this search in all that decides a trial's numbers
   (`earlier_runs.differences`), each of its complete trials that lies in the space is a trial here, with its result. It
   is not run, and it is not one of the trials that were asked for.
2. The paper's values, where they lie in the space: a search never ends below what it could have had without searching.
3. The best points of the other earlier runs, to be run here.
4. What the sampler proposes.

Of points, `POINTS` are taken: half as many as Optuna's samplers have random trials before they start
(`STARTUP` in `fedtune.decisions.optuna_samplers`). An earlier run was ranked under other conditions, so not too much is
made of it.
The number does not depend on how many trials are asked for: a search of 20 trials that is extended by 20 is a search of
40. Of several runs first every best point is taken, then every second best, and so on, at least one point of each.

A grid search visits all its cells anyway: of those, the ones with a known result are not run.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis import machines
from analysis.runs import Run
from analysis.runs import run_names as names
from fedtune.decisions import expected_improvement
from fedtune.decisions.known_points import Point
from fedtune.decisions.optuna_samplers import STARTUP
from fedtune.planning import earlier_runs
from fedtune.record.experiment import Experiment
from fedtune.record.provenance import git_revision, machine, versions
from fedtune.record.taken_trials import TakenTrial
from search_spaces.parameter import Value
from search_spaces.run_folder import PAPER
from search_spaces.space import Space

#: Points that are taken from earlier runs to be run first (see the module's text).
POINTS = STARTUP // 2


@dataclass(frozen=True)
class Known:
    """An experiment with what is known, and what is recorded and told of it."""

    experiment: Experiment
    notes: tuple[str, ...] = ()
    #: The results of its first trials.
    taken: tuple[TakenTrial, ...] = ()
    #: For the provenance: `taken`, what these results were computed with.
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclass
class _Results:
    """What has been taken so far, in the order of the new trials."""

    points: list[Point] = dataclasses.field(default_factory=list)
    trials: list[TakenTrial] = dataclasses.field(default_factory=list)
    computed_with: list[dict[str, Any]] = dataclasses.field(default_factory=list)


@dataclass(frozen=True)
class _Earlier:
    """An earlier run under the name it is told by."""

    name: str
    run: Run
    #: Its complete trials that lie in the space: values by number, the best first.
    points: Mapping[int, Mapping[str, Value]]
    #: Why its results do not hold here.
    differs: Sequence[str] = ()

    def inside(self) -> str:
        complete = len(self.run.ranked)
        return f"{self.name}: {len(self.points)} of {complete} complete trial{'s' * (complete != 1)} in this space"


def known(experiment: Experiment, space: Space, facts: Mapping[str, Any], earlier: Sequence[Run] = ()) -> Known:
    """`experiment`, which searches `space`, with what is known of it from the `earlier` runs and the paper.

    facts: the hashes of the search's data set and partition, as the provenance has them."""
    grid = space.grid_points()[: experiment.trials] if experiment.sampler == "grid" else None
    results, others, notes = _Results(), [], []
    for name, run in zip(names(earlier), earlier, strict=True):
        points = earlier_runs.inside(run, space)
        differs = earlier_runs.differences(run, experiment, facts)
        if points and not differs:
            notes += _take(_Earlier(name, run, points), experiment, grid, results)
        else:
            others.append(_Earlier(name, run, points, differs))
    first = list(results.points)
    paper = space.declared_point() if grid is None else None
    if paper is not None and not _among(paper, first):
        notes.append(f"Trial {len(first)} has the paper's values: {_shown(paper)}.")
        first.append(Point(paper, PAPER))
    if experiment.prior:
        notes.append(
            f"The first trials are drawn around the paper's values, with a width of {experiment.prior:g} of "
            f"each interval, and later ones with a falling probability."
        )
    costs = expected_improvement.note(experiment.sampler, space.search)
    notes += [] if costs is None else [costs]
    best = _best_of_each(others, first) if grid is None else []
    notes += [_points_only(run, sum(owner is run for owner, _ in best), grid is not None) for run in others]
    taken = len(results.points)
    changed = dataclasses.replace(
        experiment,
        first=tuple({"from": p.origin, "values": dict(p.values)} for p in (*first, *(point for _, point in best))),
        taken=taken,
        trials=experiment.trials + (taken if grid is None else 0),
    )
    recorded = {"taken": results.computed_with} if taken else {}
    return Known(changed, tuple(notes), tuple(results.trials), recorded)


def _take(
    earlier: _Earlier, experiment: Experiment, grid: Sequence[Mapping[str, Value]] | None, results: _Results
) -> list[str]:
    """Adds the results of an earlier run to `results`; returns what the user is told of them."""
    run, numbers, damaged = earlier.run, {}, 0
    for number in sorted(earlier.points):
        values = earlier.points[number]
        if _among(values, results.points) or (grid is not None and values not in grid):
            continue
        if run.raced and run.trial(number).user_attrs.get("seed") != experiment.seeds[0]:
            continue
        found = earlier_runs.result(run, number, values, experiment)
        if found is None:
            damaged += 1
            continue
        numbers[number] = len(results.points)
        origin = run.origin(run.trial(number)) if number < run.taken else ""
        results.points.append(Point(values, origin or f"{earlier.name} trial {number}"))
        results.trials.append(found)
    count = "the result of 1 is" if len(numbers) == 1 else f"the results of {len(numbers)} are"
    notes = [f"{earlier.inside()}; {count} taken and not run again."]
    if damaged:
        have = "1 of these trials has" if damaged == 1 else f"{damaged} of these trials have"
        notes.append(f"{earlier.name}: {have} damaged or incomplete files, so no result is taken there.")
    here = {
        "versions": versions(),
        "git": git_revision(),
        "machine": machine("cuda" if experiment.gpus_per_trial else "cpu"),
    }
    for made, listed in earlier_runs.computed_with(run, list(numbers)):
        results.computed_with.append({"run": earlier.name, "trials": [numbers[n] for n in listed], **made})
        if apart := machines.apart(made, here):
            then, now = (", ".join(side) for side in zip(*apart, strict=True))
            notes.append(
                f"{earlier.name}: results were computed with {then} and this search runs with {now}, where the same "
                f"seed may give other last digits."
            )
    return notes


def _points_only(earlier: _Earlier, count: int, walks_a_grid: bool) -> str:
    """What the user is told of a run whose results are not taken and `count` of whose points are run first."""
    if not earlier.points:
        return f"{earlier.inside()}, so nothing is taken."
    differs, how = earlier.differs, f"the best {count} are run first"
    listed = ", ".join(differs[:5]) + (f" and {len(differs) - 5} more" if len(differs) > 5 else "")
    if walks_a_grid:
        how = "a grid search visits its own cells"
    elif count < 2:
        how = "the best one is run first" if count else "the best are among the first trials already"
    return f"{earlier.inside()}; {how}. Results are not taken, as the runs differ in {listed}."


def _best_of_each(runs: Sequence[_Earlier], first: Sequence[Point]) -> list[tuple[_Earlier, Point]]:
    """The points to run after the `first`, each with its run: of all runs the best, then the second best, …, each point
    once."""
    ranked = [
        [(run, Point(values, f"{run.name} trial {n}")) for n, values in run.points.items() if not _among(values, first)]
        for run in runs
    ]
    most = max(POINTS, sum(map(bool, ranked)))
    found: list[tuple[_Earlier, Point]] = []
    for item in itertools.chain.from_iterable(itertools.zip_longest(*ranked)):
        if item is not None and len(found) < most and not _among(item[1].values, [point for _, point in found]):
            found.append(item)
    return found


def _among(values: Mapping[str, Value], points: Sequence[Point]) -> bool:
    return any(point.values == values for point in points)


def _shown(values: Mapping[str, Value]) -> str:
    return ", ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in values.items()
    )
