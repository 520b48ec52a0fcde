"""Runs that go on: read from their directories, checked, and placed on this machine or on a cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.runs import Run, load_run, shapes
from analysis.runs.mappings import read_json
from fedtune.decisions.history import Part
from fedtune.decisions.known_points import KnownPoints
from fedtune.decisions.race import is_over
from fedtune.execution.outcome import damaged
from fedtune.machine.cluster import check_address
from fedtune.planning.resume_checks import check_placement, check_unchanged, crowded, left_cluster
from fedtune.record.experiment import Experiment
from search_spaces import run_folder
from search_spaces.errors import UserError
from search_spaces.space import Space


@dataclass(frozen=True)
class GoingOn:
    """Runs that were begun, as they go on now."""

    parts: Sequence[Part]
    #: What the user is told.
    notes: Sequence[str]


def going_on(
    runs: Sequence[Run],
    address: str | None,
    *,
    given: Mapping[str, Any] | None = None,
    other_versions: bool = False,
    options: bool = True,
    problems: Sequence[str] = (),
) -> GoingOn:
    """Checks the `runs` of one experiment, which go on together at `address` and with the fields of an experiment that
    are `given` in place of the recorded ones. Those that are over and whose rows are whole are left as they are.
    options: whether the command has options for the placement; without them its own placement is not checked here.

    Raises `UserError` with `problems` and everything that is not as it was when the runs began, before anything is
    written."""
    found, notes, problems = [], list[str](), list(problems)
    begun = [Experiment.of(run) for run in runs]
    placed = [dataclasses.replace(one, **(given or {}), address=address) for one in begun]
    left = [not is_over(r.frozen, e) or bool(damaged(r.path, e, r.frozen)) for r, e in zip(runs, begun, strict=True)]
    lead = next((one for one, is_left in zip(placed, left, strict=True) if is_left), None)
    if options and lead is not None:
        fix = None if given is not None else "Give --address to join a cluster that has them, or go on where it began."
        check_placement(lead, problems, fix=fix)
        asked = None if given is None or "cpus_per_trial" not in given else given.get("concurrency")
        notes.append(crowded(lead, problems, asked=asked) or "")
    if problems:
        raise UserError(*problems)
    for run, experiment in zip(runs, placed, strict=True):
        found.append(Part(run.path, *complete(run.path, experiment)))
    if options and lead is not None:
        check_address(address)
    for run, before, part, is_left in zip(runs, begun, found, left, strict=True):
        if is_left:
            notes.append(left_cluster(before, address, option=options) or "")
            notes += check_unchanged(run, part.experiment, part.space, other_versions=other_versions)
    return GoingOn(found, list(dict.fromkeys(filter(None, notes))))


def part_of(folder: Path) -> Part:
    """The run in `folder`, complete. Raises `UserError` where there is none."""
    return Part(folder, *complete(folder, Experiment.of(load_run(folder))))


def complete(folder: Path, experiment: Experiment) -> tuple[Experiment, Space]:
    """An experiment that was recorded in `folder`, with every value, and its space. (A method's own file may
    declare more parameters than it did; these have their defaults.) Raises `UserError` where both do not fit."""
    from trainables import registry

    space = space_of(folder / run_folder.SPACE)
    declared = registry.declared(experiment.method)
    missing = {
        key: parameter.default
        for key, parameter in declared.items()
        if key not in experiment.values and key not in space.search and key not in space.vary
    }
    whole = dataclasses.replace(experiment, values={**missing, **experiment.values})
    KnownPoints(whole, space)
    return whole, space


def space_of(path: Path) -> Space:
    """The recorded space. Raises `UserError` where the file is missing, torn or holds something else."""
    data = read_json(path)
    wrong = shapes.problems(data, shapes.SPACE, str(path))
    if wrong:
        raise UserError(*wrong)
    try:
        return Space.from_json(data)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise UserError(
            f"{path} was not written by fedtune, or was edited: {type(error).__name__}: {error}. Copy the "
            f"run directory again."
        ) from error
