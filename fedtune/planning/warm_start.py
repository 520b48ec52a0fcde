"""What is known before a search begins: the paper's own values, and what earlier runs found (`--warm-start`).

The trials of a search are, in this order:

1. Results taken from earlier runs. Where a run agrees with this search in all that decides a trial's numbers
   (`differences`), each of its complete trials that lies in the space is a trial here, with its result. It
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

Earlier runs, read for a warm start: which of their trials lie in a new search's space, and whose results hold there.

A result holds where a new run of the same configuration would give it again: the same method, data set, partition,
fixed values, rounds, metric and seeds. Of single federations that is the first seed of each configuration. What is
taken is checked like the file of a stranger: rows must be complete and their numbers finite, and their mean must be the
value by which the trial was ranked.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from analysis import machines
from analysis.runs import Run
from analysis.runs import load_run as load
from analysis.runs import run_names as names
from analysis.runs.mappings import read_json
from fedtune import option
from fedtune.decisions import expected_improvement
from fedtune.decisions.known_points import Point
from fedtune.decisions.optuna_samplers import STARTUP
from fedtune.record.experiment import Experiment
from fedtune.record.provenance import git_revision, machine, versions
from fedtune.record.run_directory import TakenTrial
from search_spaces import client_columns, run_folder
from search_spaces.errors import UserError
from search_spaces.metrics import METRICS
from search_spaces.parameter import Value
from search_spaces.run_folder import PAPER
from search_spaces.space import Space
from trainables.worker import rounds_jsonl
from trainables.worker.rounds_jsonl import Row
from trainables.worker.trial_values import TrialValues

#: Points that are taken from earlier runs to be run first (see the module's text).
POINTS = STARTUP // 2


@dataclass(frozen=True)
class Known:
    """What is known before a search begins, and what is recorded and told of it."""

    #: What the experiment says of its first trials: its fields `first`, `taken` and `trials`.
    fields: Mapping[str, Any]
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
    """What is known of `experiment`, which searches `space`, from the `earlier` runs and the paper.

    facts: the hashes of the search's data set and partition, as the provenance has them."""
    grid = space.grid_points()[: experiment.trials] if experiment.sampler == "grid" else None
    results, others, notes = _Results(), [], []
    for name, run in zip(names(earlier), earlier, strict=True):
        points = inside(run, space)
        differs = differences(run, experiment, facts)
        if points and not differs:
            notes += _take(_Earlier(name, run, points), experiment, grid, results)
        else:
            others.append(_Earlier(name, run, points, differs))
    first = list(results.points)
    paper = space.declared_point() if grid is None else None
    if paper is not None and not _among(paper, first):
        notes.append(f"Trial {len(first)} has the paper's values: {_shown(paper)}.")
        first.append(Point(paper, PAPER))
    costs = expected_improvement.note(experiment.sampler, space.search)
    notes += [] if costs is None else [costs]
    best = _best_of_each(others, first) if grid is None else []
    notes += [_points_only(run, sum(owner is run for owner, _ in best), grid is not None) for run in others]
    taken = len(results.points)
    fields = {
        "first": tuple({"from": p.origin, "values": dict(p.values)} for p in (*first, *(point for _, point in best))),
        "taken": taken,
        "trials": experiment.trials + (taken if grid is None else 0),
    }
    recorded = {"taken": results.computed_with} if taken else {}
    return Known(fields, tuple(notes), tuple(results.trials), recorded)


def _take(
    earlier: _Earlier, experiment: Experiment, grid: Sequence[Mapping[str, Value]] | None, results: _Results
) -> list[str]:
    """Adds the results of an earlier run to `results`; returns what the user is told of them."""
    run, numbers, damaged = earlier.run, {}, 0
    for number in sorted(earlier.points):
        values = earlier.points[number]
        if _among(values, results.points) or (grid is not None and values not in grid):
            continue
        if run.single and run.trial(number).user_attrs.get("seed") != experiment.seeds[0]:
            continue
        found = result(run, number, values, experiment)
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
    for made, listed in computed_with(run, list(numbers)):
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


#: The option that names earlier runs, and what it is given for none at all.
OPTION, NONE = "--warm-start", "none"
#: Parameters that runs of earlier versions do not record, and the values that they have there.
UNSAID = {"own_metrics": "none"}


def named(given: object, problems: list[str]) -> tuple[str, ...]:
    """The runs that the option names; none of `none`, beside which there can be no other."""
    paths = option.several(given)
    if NONE not in paths:
        return paths
    if len(paths) > 1:
        problems.append(f"{OPTION} must be runs, or {NONE} alone, got {', '.join(map(str, paths))}. Leave {NONE} out.")
    return ()


def opened(paths: Sequence[str], method: str, keys: Set[str], problems: list[str]) -> list[Run]:
    """The runs at `paths`, each once. Adds a problem for each that cannot be read, is no search of `method`, or
    searches none of the parameters `keys`."""
    found: dict[Any, Run] = {}
    for path in paths:
        try:
            run = load(path)
        except UserError as error:
            problems.extend(f"{OPTION}: {problem}" for problem in error.problems)
            continue
        why = _stranger(run, method, keys)
        if why is None:
            found.setdefault(run.path, run)
        else:
            problems.append(f"{run.path} {why}, so nothing can be taken from it ({OPTION}). Leave it out.")
    return list(found.values())


def _stranger(run: Run, method: str, keys: Set[str]) -> str | None:
    """Why nothing at all can be taken from a run."""
    if run.kind == "run":
        return "is a final run and searches nothing"
    if run.method != method:
        return f"searches the method {run.method!r} and this search is of {method!r}"
    theirs = {name.rsplit(".", 1)[-1] for trial in run.frozen for name in trial.params}
    if theirs and not theirs & keys:
        return f"searches {', '.join(sorted(theirs))} and this search {', '.join(sorted(keys))}"
    return None


def inside(run: Run, space: Space) -> dict[int, dict[str, Value]]:
    """The run's complete trials that are points of `space`: their values by number, the best trial first."""
    points: dict[int, dict[str, Value]] = {}
    trials = {trial.number: trial for trial in run.frozen}
    for number in run.ranked:
        values = space.values(trials[number].params)
        if space.contains(values):
            points[number] = values
    return points


def differences(run: Run, experiment: Experiment, facts: Mapping[str, Any]) -> list[str]:
    """In what the run differs from the search to come so that its results do not hold there; nothing where they do."""
    found = []
    dataset, partition = run.provenance.get("dataset"), run.provenance.get("partition")
    if not isinstance(dataset, Mapping) or dataset.get("hash") is None or dataset["hash"] != facts["dataset"]["hash"]:
        found.append("data set")
    elif run.provenance.get("datasets") != facts.get("datasets"):
        found.append("data sets")
    if partition is None or partition != facts["partition"]:
        found.append("partition")
    file, its = run.provenance.get("method_file"), facts.get("method_file")
    if file and its and file["hash"] != its["hash"]:
        found.append("method's file")
    values = run.experiment.get("values")
    theirs = {**UNSAID, **values} if isinstance(values, Mapping) else {}
    ours, nothing = {**UNSAID, **experiment.values}, object()
    # A data set is compared by its content: its path may have changed. What was measured on the test set in every round
    # was measured in the last ones too.
    seldom = {"eval_test"} if ours.get("eval_test") == "end" else set()
    keys = sorted((theirs.keys() | ours.keys()) - {"dataset"} - seldom)
    found += [key for key in keys if theirs.get(key, nothing) != ours.get(key, nothing)]
    if list(run.metrics) != list(experiment.metric):
        found.append("metric")
    elif any(METRICS[name].timing for name in experiment.metric):
        found.append("times measured")
    seeds = list(run.experiment.get("seeds") or [])
    if (seeds[:1] if run.single else seeds) != list(experiment.first_seeds):
        found.append("seeds")
    return found


def result(run: Run, number: int, values: Mapping[str, Value], experiment: Experiment) -> TakenTrial | None:
    """The result of a complete trial of `run`, whose searched values are `values`; None where its files do not hold
    all of it or contradict the study."""
    folder = run.path / run_folder.trial_folder(number)
    try:
        rows = _in_order(rounds_jsonl.read_rows(folder / run_folder.ROUNDS), experiment)
        partition = _partition(read_json(folder / run_folder.PARTITION, missing={}), experiment.first_seeds)
    except (OSError, ValueError, RecursionError):
        return None
    measured = TrialValues(experiment.metric, experiment.signs)
    of_round = len(experiment.first_seeds)
    for start in range(0, len(rows), of_round):
        together = rows[start : start + of_round]
        measured.add(together)
        if measured.broken(together) is not None:
            return None
    ranked_by = tuple(next(trial.values or () for trial in run.frozen if trial.number == number))
    if partition is None or not measured.curve or measured.curve[max(measured.curve)] != ranked_by:
        return None
    return TakenTrial(values, rows, partition)


def _in_order(rows: Sequence[object], experiment: Experiment) -> list[Row]:
    """The rows by round and seed, of two for the same the last. Raises ValueError where one is missing or malformed."""
    found: dict[tuple[int, int], Row] = {}
    for row in rows:
        if not isinstance(row, dict) or not all(_measurement(name, value) for name, value in row.items()):
            raise ValueError("not a row of measurements")
        found[row.get("round", 0), row.get("seed", -1)] = row
    wanted = [(round_, seed) for round_ in range(1, experiment.rounds + 1) for seed in experiment.first_seeds]
    if found.keys() != set(wanted):
        raise ValueError("rounds are missing, or there are others")
    return [found[key] for key in wanted]


def _measurement(name: str, value: object) -> bool:
    """Whether a row may hold `value` under `name`."""
    if name in ("round", "seed"):
        return isinstance(value, int) and not isinstance(value, bool)
    if name in client_columns.NAMES:
        return isinstance(value, list) and all(item is None or _number(item) for item in value)
    return name in METRICS and (value is None or _number(value))


def _number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) < 2**63


def _partition(stored: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any] | None:
    """What `partition.json` holds of these seeds; None where that is not a table of counts and a hash for each."""
    hashes, names = stored.get("hash"), [str(seed) for seed in seeds]
    if not isinstance(hashes, Mapping) or not all(isinstance(hashes.get(name), str) for name in names):
        return None
    if not all(_counts(stored.get(name)) for name in names):
        return None
    return {name: stored[name] for name in names} | {"hash": {name: hashes[name] for name in names}}


def _counts(table: object) -> bool:
    """Whether this is a list of equally long lists of counts."""
    if not isinstance(table, list) or not all(isinstance(row, list) and len(row) == len(table[0]) for row in table):
        return False
    return all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 2**63 for row in table for n in row)


def computed_with(run: Run, numbers: Sequence[int]) -> Iterator[tuple[dict[str, Any], list[int]]]:
    """On what these trials of a run were computed (`created`, `versions`, `git`, `machine`), and which of them."""
    groups: list[tuple[dict[str, Any], list[int]]] = []
    for number in numbers:
        origin = run.computed(number)
        plain = {key: _texts(origin.get(key)) for key in ("versions", "machine")} | {
            key: str(origin[key]) for key in ("created", "git") if origin.get(key)
        }
        place = next((listed for known, listed in groups if known == plain), None)
        if place is None:
            groups.append((plain, [number]))
        else:
            place.append(number)
    yield from groups


def _texts(found: object) -> dict[str, str | int | float]:
    """The entries of a mapping that are text or numbers."""
    items = found.items() if isinstance(found, Mapping) else ()
    return {str(key): value for key, value in items if isinstance(value, (str, int, float))}
