"""What the trials of a study must be, checked where a study is read: `analysis.runs.load_run` and
`fedtune.record.journal.StudyFile`.

Optuna keeps whatever stands in a line of its journal, so a whole study may hold a round that is a text. Who reads a
trial after this takes its attributes as they are described in `search_spaces.run_folder`, as far as it has them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.runs import race, shapes
from search_spaces import run_folder
from search_spaces.errors import UserError, sentence
from search_spaces.metrics import METRICS

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

_FIX = "Copy the run directory again or repair the file."


def check_trials(path: Path, objectives: int, trials: Sequence[FrozenTrial]) -> None:
    """Raises `UserError` with one sentence where one of `trials`, all of the study in the file `path`, which has so
    many `objectives`, is not what a trial must be."""
    for number, trial in enumerate(trials):
        if trial.number != number:
            raise UserError(sentence("The number of a trial", str(number), trial.number, str(path), _FIX))
        for problem in _problems(trial, objectives, f"{path}, trial {number}"):
            raise UserError(problem)


def check_kind(folder: Path, experiment: Mapping[str, Any], trials: Sequence[FrozenTrial]) -> None:
    """Raises `UserError` where a trial lacks what a trial of such a run always has, as in a run whose record was
    changed into that of another kind: in a race its own seed, in a final run one of the seeds that were asked for, in a
    part of `fedtune auto` its place; in a race and such a part also its rounds, which were paid for. A search with a
    confirmation is as a race in this."""
    raced, part = race.single(experiment), bool(experiment.get("part"))
    seeds = experiment.get("seeds")
    final = len(seeds) if experiment.get("kind") == "run" and isinstance(seeds, list) else None
    for trial in trials:
        has = trial.user_attrs
        lacks = None
        if (raced and "seed" not in has) or (final is not None and trial.number >= final):
            lacks = "a seed of its own"
        elif part and run_folder.PLACE not in has:
            lacks = "a place among those of all methods"
        elif (raced or part) and trial.state.is_finished() and "rounds" not in has:
            lacks = "a count of its rounds"
        if lacks is not None:
            of_one_seed = "race" if race.races(experiment) else "search with a confirmation"
            kind = of_one_seed if raced else "part of `fedtune auto`" if part else "final run"
            raise UserError(
                f"{folder} has a trial without {lacks} (trial {trial.number}), so it is not the {kind} that its "
                f"{run_folder.EXPERIMENT} says it is. Copy the run directory again or repair that file."
            )


def check_directions(path: Path, experiment: Mapping[str, Any], directions: Sequence[str]) -> None:
    """Raises `UserError` where the study in the file `path` has more or fewer objectives than the run has metrics, or
    maximises what a metric minimises, or the other way: its best trial would be the worst one."""
    named = experiment.get("metric")
    names = [named] if isinstance(named, str) else list(named or ())
    if names and len(names) != len(directions):
        raise UserError(sentence("The number of objectives", str(len(names)), len(directions), str(path), _FIX))
    for name, found in zip(names, directions, strict=False):
        if name in METRICS and METRICS[name].direction != found:
            raise UserError(sentence(f"The direction of {name}", METRICS[name].direction, found, str(path), _FIX))


def _problems(trial: FrozenTrial, objectives: int, where: str) -> Iterator[str]:
    """A sentence for everything in a trial that is not of its shape."""
    mappings: dict[str, object] = {"user_attrs": trial.user_attrs, "system_attrs": trial.system_attrs}
    wrong = {name: found for name, found in mappings.items() if not isinstance(found, dict)}
    if wrong:
        yield from (sentence(name, "a mapping", found, where, _FIX) for name, found in wrong.items())
        return
    yield from shapes.problems(trial.user_attrs, shapes.ATTRIBUTES, where)
    if "curve" in trial.user_attrs and not _is_curve(trial.user_attrs["curve"], objectives):
        yield sentence("curve", f"{objectives} numbers by round, as JSON", trial.user_attrs["curve"], where, _FIX)
    values, complete = trial.values, trial.state.name == "COMPLETE"
    if (values is not None or complete) and not (shapes.each(_is_finite)(values) and len(values) == objectives):
        yield sentence("values", f"{objectives} finite number{'s' * (objectives > 1)}", values, where, _FIX)
    for round_, value in trial.intermediate_values.items():
        if not (shapes.is_whole(0)(round_) and isinstance(value, (int, float))):
            yield sentence("The value of a round", "a number, and the round a whole one", (round_, value), where, _FIX)
    for name, value in trial.params.items():
        if not _is_of(trial.distributions.get(name), value):
            yield sentence(name, "a value of its distribution", value, where, _FIX)


def _is_of(distribution: Any, value: Any) -> bool:
    """Whether a distribution of Optuna's can have given this value."""
    if (choices := getattr(distribution, "choices", None)) is not None:
        return value in choices
    bounds: dict[str, Any] = {name: getattr(distribution, name, None) for name in ("low", "high", "step")}
    low, high, step = bounds.values()
    if not (_is_finite(low) and _is_finite(high) and shapes.is_number(low, high)(value)):
        return False
    return step is None or abs((value - low) / step - round((value - low) / step)) < 1e-8


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_curve(text: Any, objectives: int) -> bool:
    """Whether this is JSON of {"<round>": [a number for each objective]}."""
    try:
        found = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and all(
        key.isascii() and key.isdigit() and len(key) < 19 and shapes.each(_is_finite)(row) and len(row) == objectives
        for key, row in found.items()
    )
