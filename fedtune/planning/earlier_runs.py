"""Earlier runs, read for a warm start: which of their trials lie in a new search's space, and whose results hold there.

A result holds where a new run of the same configuration would give it again: the same method, data set, partition,
fixed values, rounds, metric and seeds. Of a race that is the first seed of each configuration. What is taken is checked
like the file of a stranger: rows must be complete and their numbers finite, and their mean must be the value by which
the trial was ranked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from analysis.runs import Run
from analysis.runs import load_run as load
from analysis.runs.mappings import read_json
from analysis.runs.rounds import LISTS
from fedtune.record.experiment import Experiment
from fedtune.record.taken_trials import TakenTrial
from search_spaces import run_folder
from search_spaces.errors import UserError
from search_spaces.metrics import METRICS
from search_spaces.parameter import Value
from search_spaces.space import Space
from trainables.worker import rounds_jsonl
from trainables.worker.rounds_jsonl import Row
from trainables.worker.trial_values import TrialValues

#: The option that names earlier runs.
OPTION = "--warm-start"


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
    theirs = values if isinstance(values, Mapping) else {}
    # A data set is compared by its content: its path may have changed.
    keys = sorted((theirs.keys() | experiment.values.keys()) - {"dataset"})
    ours, nothing = experiment.values, object()
    found += [key for key in keys if theirs.get(key, nothing) != ours.get(key, nothing)]
    if list(run.metrics) != list(experiment.metric):
        found.append("metric")
    elif any(METRICS[name].timing for name in experiment.metric):
        found.append("times measured")
    seeds = list(run.experiment.get("seeds") or [])
    if (seeds[:1] if run.raced else seeds) != list(experiment.first_seeds):
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
    if name in LISTS:
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
