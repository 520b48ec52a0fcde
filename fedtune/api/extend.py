"""`fedtune.extend`: a search goes on with more trials, with more rounds, or with both, or it is said why it cannot.

More rounds are refused wherever the trials that have begun would not become what they would have been in a search that
had asked for all rounds at once: where something that was computed or recorded depends on how many rounds were planned.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from analysis.runs import Run, load_run, shapes
from fedtune.api.search import Result, driven
from fedtune.decisions.confirmation import confirms, federations
from fedtune.decisions.history import Part
from fedtune.execution.outcome import rounds_of_run, rounds_of_values
from fedtune.machine import cluster
from fedtune.option import fields_of
from fedtune.options import ExtendRequest
from fedtune.planning.checks import whole
from fedtune.planning.resumption import (
    check_placement,
    check_unchanged,
    check_whole,
    complete,
    left_cluster,
    left_storage,
    space_of,
)
from fedtune.record.experiment import Experiment
from fedtune.record.mirror import check_same
from fedtune.record.provenance import extended
from fedtune.record.run_directory import lock, write_document
from fedtune.record.storage import check_uri
from search_spaces import run_folder
from search_spaces.errors import UserError
from search_spaces.space import Space


@fields_of(ExtendRequest, cluster.ahead)
def extend(request: ExtendRequest) -> Result:
    """Adds `trials` further trials to a search, `rounds` further rounds to each of its trials, or both; one of the two
    must be given.

    With more trials the result equals that of a search which had asked for all of them at once if the order of trials
    is fixed, it begins with as many short trials, and it has not begun its confirmation. A search that has begun it
    keeps those further seeds, tries new configurations, and gives further seeds again with the last of its trials, so
    that a fifth of all confirm. With more rounds a trial that ran all its rounds goes on from its checkpoint; one that
    early stopping ended, or that failed, stays as it is; trials to come run all rounds. Every trial's rounds are then
    those of a search which had asked for all rounds at once. So is the whole search if it is a grid or random and stops
    no trial early; any other may propose and stop other trials.

    Raises `UserError`, before anything is written, where more rounds would change what was computed or recorded so far
    (`fedtune.api.extend`), and as `resume`, which has the same `address` and `other_versions`."""
    found = load_run(request.run)
    folder = found.path
    check_whole(folder, Experiment.of(found))
    space = space_of(folder / run_folder.SPACE)
    # Before the lock, so that a folder that is not a search, or that cannot go on, gets no lock file.
    asked = longer(found, space, request)
    cluster.check_address(request.address)
    check_same(request.storage, folder)
    notes = check_unchanged(found, *complete(folder, asked), other_versions=request.other_versions)
    with lock(folder):
        found = load_run(folder)  # read again: another extension may just have ended
        begun = Experiment.of(found)
        made = longer(found, space, request)
        write_document(folder / run_folder.EXPERIMENT, dataclasses.replace(made, address=begun.address).to_yaml())
        extended(folder, changes(begun, made))
        part = Part(folder, *complete(folder, made))
        left = left_cluster(begun, request.address), left_storage(begun, request.storage)
        lines = (*left, *notes, *told(begun, made, found.frozen))
        return driven(part, [line for line in lines if line], request, request.storage)


def longer(run: Run, space: Space, request: ExtendRequest) -> Experiment:
    """The experiment of the search `run`, whose space this is, with so many trials and rounds more as are asked for, to
    be run at the request's address. Raises `UserError` with all problems where it cannot have them."""
    experiment, trials, rounds = Experiment.of(run), request.trials, request.rounds
    if experiment.kind == "run":
        raise UserError(_final(run.path))
    problems: list[str] = []
    if trials is None and rounds is None:
        problems.append(
            f"Nothing was asked for. Say how many trials (--trials) or rounds (--rounds) are to be added to {run.path}."
        )
    asked = dataclasses.replace(experiment, address=request.address)
    if trials is not None:
        asked = _more_trials(run.path, asked, trials, problems)
    if rounds is not None:
        asked = _more_rounds(run, space, asked, rounds, problems)
    check_uri(request.storage, problems)
    if not problems:
        check_placement(asked, problems)
    if problems:
        raise UserError(*problems)
    return asked


def _final(folder: Path) -> str:
    return (
        f"{folder} is a final run; only a search can be extended. Train more seeds, or other rounds, with "
        f"`fedtune run`."
    )


def _more_trials(folder: Path, experiment: Experiment, trials: int, problems: list[str]) -> Experiment:
    whole("trials", trials, 1, shapes.MOST_TRIALS - experiment.trials, problems)
    if experiment.sampler == "grid":
        problems.append(
            f"{folder} is a grid search, and its grid is complete with {experiment.trials} trials. Start a new "
            f"search of a finer grid."
        )
    if problems:
        return experiment
    each = experiment.budget // max(1, experiment.to_run)
    more = dataclasses.replace(experiment, trials=experiment.trials + trials, budget=experiment.budget + each * trials)
    count = more.budget // more.rounds if more.races else more.to_run
    return dataclasses.replace(more, confirm=federations(count)) if experiment.confirm else more


def _more_rounds(run: Run, space: Space, experiment: Experiment, rounds: int, problems: list[str]) -> Experiment:
    from trainables import registry

    had, found = experiment.rounds, list[str]()
    most = int(registry.declared(experiment.method)["rounds"].high or 0)
    whole("rounds", rounds, 1, most - had, found)
    if not found:
        why = rounds_of_run(run.path, experiment) or _of_trials(run, space, experiment)
        if why is not None:
            new = f"Start a new search with --rounds {had + rounds}."
            found.append(f"{run.path} cannot have more than its {had} rounds, as {why}. {new}")
    problems += found
    if found:
        return experiment
    return dataclasses.replace(
        experiment,
        rounds=had + rounds,
        rounds_before=(*experiment.rounds_before, had),
        values={**experiment.values, "rounds": had + rounds},
    )


def _of_trials(run: Run, space: Space, experiment: Experiment) -> str | None:
    """Why a trial that has begun cannot have more rounds."""
    for trial in run.frozen:
        if trial.state.name == "FAIL":
            continue
        why = rounds_of_values({**experiment.values, **space.values(trial.params)}, experiment)
        if why is not None:
            return f"{why} (trial {trial.number})"
    return None


def changes(before: Experiment, after: Experiment) -> dict[str, tuple[int, int]]:
    """What an extension changed, from so many to so many: `trials`, `rounds` or both."""
    pairs = {"trials": (before.trials, after.trials), "rounds": (before.rounds, after.rounds)}
    return {name: (had, has) for name, (had, has) in pairs.items() if had != has}


def told(before: Experiment, after: Experiment, trials: Sequence[Any]) -> list[str]:
    """What is said of the extension from one request to the other, of a search with these trials."""
    lines = []
    if after.trials > before.trials:
        more = after.trials - before.trials
        lines.append(f"The search of {before.trials} trials gets {more} more, which makes {after.trials}.")
        if any(map(confirms, trials)):
            lines.append("Its confirmation stays, and the last of the new trials confirm again.")
    if after.rounds > before.rounds:
        lines += _told_of_rounds(before.rounds, after, [trial.state.name for trial in trials])
    return lines


def _told_of_rounds(had: int, after: Experiment, states: list[str]) -> list[str]:
    whole, stopped = states.count("COMPLETE"), states.count("PRUNED")
    line = f"Trials of {_rounds(had)} get {after.rounds - had} more, which makes {after.rounds}"
    if whole:
        go = "its end goes on from its checkpoint" if whole == 1 else "their end go on from their checkpoints"
        line += f": {_trials(whole)} that had run to {go}"
    if stopped:
        line += f"; {_trials(stopped)} that early stopping ended {'stays' if stopped == 1 else 'stay'} stopped"
    lines = [f"{line}."]
    if (after.looks_back or after.confirm) and whole + stopped:
        lines.append(
            f"What was proposed and stopped so far was decided by trials of {_rounds(had)}, and stays. A new search "
            f"with --rounds {after.rounds} may choose other configurations."
        )
    return lines


def _rounds(count: int) -> str:
    return f"{count} round{'s' * (count != 1)}"


def _trials(count: int) -> str:
    return f"{count} trial{'s' * (count != 1)}"
