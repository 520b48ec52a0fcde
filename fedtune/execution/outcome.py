"""What became of a trial: what the study holds of one that has ended, what it measured round by round, whether its rows
are still there, and whether it may go on with more rounds, for which alone its checkpoint stays.

`rounds.jsonl` is the truth of what a trial measured. The same configuration and seeds give the same rows, so a trial
whose rows are truncated, garbled or gone is computed again when its run goes on; in the study it stays what it was.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from analysis.reproduce.folder import ReproductionRecord
from fedtune.decisions.history import Part
from fedtune.decisions.race import unfinished
from fedtune.record.journal import StudyFile
from search_spaces import files, run_folder
from search_spaces.errors import UserError
from search_spaces.parameter import Value
from trainables.worker import rounds_jsonl
from trainables.worker.trial_values import TrialValues

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, TrialState

    from fedtune.record.experiment import Experiment
    from trainables.worker.job import Ending

#: User attributes that a trial has before it ends (`search_spaces.run_folder`).
_OF_RUNNING = ("from", "share", "curve")


class TrialOutcome(NamedTuple):
    """`state`: None for one that was interrupted, which stays to be resumed. `values`: of the last round, by metric;
    None of a trial that did not run to its end."""

    state: TrialState | None
    values: list[float] | None
    attributes: dict[str, Any]


def outcome(ending: Ending, metrics: Sequence[str]) -> TrialOutcome:
    """What is to be written of a trial that ended so. One that ran to its end without ever measuring has failed."""
    from optuna.trial import TrialState

    reason, error = ending.stop_reason, ending.error
    final = list(ending.curve[max(ending.curve)]) if ending.curve else None
    if reason == "completed" and final is None:
        reason, error = "error", f"{' and '.join(metrics)} was never measured in {ending.round} rounds."
    attributes: dict[str, Any] = {
        "stop_reason": reason,
        "rounds": ending.round,
        "seconds": round(ending.seconds, 3),
    }
    if error and reason != "interrupted":  # the search tells of it; a resumed trial's record is as if nothing was
        attributes["error"] = error
    if len(metrics) > 1:
        attributes["curve"] = _as_json(ending.curve)
    if reason == "interrupted":
        return TrialOutcome(None, None, attributes)
    state = {"completed": TrialState.COMPLETE, "scheduler": TrialState.PRUNED}.get(reason, TrialState.FAIL)
    return TrialOutcome(state, final if state == TrialState.COMPLETE else None, attributes)


def damaged(folder: Path, experiment: Experiment, trials: Sequence[FrozenTrial]) -> list[int]:
    """The numbers of those of `trials`, all of the run in `folder`, that have ended and lack rows that they had. (Not
    of those that were taken from earlier runs, which this run cannot compute.) Raises `OSError` where a file cannot be
    read."""
    from trainables.worker.rounds_jsonl import Damaged, first_rows

    found = []
    for trial in trials:
        if not trial.state.is_finished() or trial.number < experiment.taken:
            continue
        rows = folder / run_folder.trial_folder(trial.number) / run_folder.ROUNDS
        try:
            first_rows(rows, int(trial.user_attrs.get("rounds", 0)), experiment.seeds_of(trial))
        except Damaged:
            found.append(trial.number)
    return found


def _as_json(values: Mapping[int, Sequence[float]]) -> str:
    """How an attribute holds the values of several metrics by round."""
    return json.dumps({str(round_): list(of_round) for round_, of_round in sorted(values.items())})


def taken_result(part: Part, number: int) -> Ending:
    """How a trial ended whose rounds were taken from an earlier run."""
    from trainables.worker.job import Ending

    e = part.experiment
    values = TrialValues(e.metric, e.signs)
    path = part.folder / run_folder.trial_folder(number) / run_folder.ROUNDS
    try:
        rows = rounds_jsonl.first_rows(path, e.rounds, e.first_seeds)
    except rounds_jsonl.Damaged as error:
        raise UserError(
            f"Trial {number} cannot be taken from an earlier run, as {error} ({path}). Begin a new run."
        ) from error
    for _, of_round in itertools.groupby(rows, key=lambda row: row["round"]):
        values.add(list(of_round))
    seconds = math.fsum(row.get("seconds") or 0.0 for row in rows)
    return Ending("completed", e.rounds, None, values.curve, seconds)


def opened(part: Part) -> StudyFile:
    """The study of a run. After `fedtune extend --rounds` trials that ran all the rounds that were planned before have
    become running ones in it.

    They come before new ones, and go on from their last checkpoint like a trial that was interrupted. They lose their
    values, which were those of an earlier round than others will have; the values of their rounds stay. Early stopping
    ends none of them at a round that it had run before (`search_spaces.run_folder.WENT_ON`). Trials that were stopped
    or that failed stay so."""
    study = StudyFile(part.folder)
    trials = study.trials()
    going_on = {trial.number: _running(trial) for trial in unfinished(trials, part.experiment)}
    if not going_on:
        return study
    study.replace([going_on.get(trial.number, trial) for trial in trials])
    return StudyFile(part.folder)


def _running(trial: FrozenTrial) -> FrozenTrial:
    from optuna.trial import TrialState

    found = copy.copy(trial)
    found.state, found.values, found.datetime_complete = TrialState.RUNNING, None, None
    kept: dict[str, Any] = {key: value for key, value in trial.user_attrs.items() if key in _OF_RUNNING}
    found.user_attrs = kept | {run_folder.WENT_ON: int(trial.user_attrs.get("rounds", 0))}
    return found


def rounds_of_run(folder: Path, e: Experiment) -> str | None:
    """Why no trial of the run in `folder` can have more rounds; None where that is not the run's doing."""
    if e.kind == "run":
        return "it is a final run"
    if ReproductionRecord.is_in(folder.parent.parent):
        return "it belongs to what `fedtune reproduce` made, which decides its rounds"
    if e.part:
        return "it belongs to a search over several methods, which decides its rounds"
    if e.races:
        return (
            f"it is a race, and its budget was shared out among federations of {e.rounds} round{'s' * (e.rounds != 1)}"
        )
    if e.taken:
        return (
            f"results of earlier runs were taken for {e.taken} trial{'s' * (e.taken != 1)}, and no checkpoint is here "
            f"for them"
        )
    return None


def rounds_of_values(values: Mapping[str, Value], e: Experiment) -> str | None:
    """Why a run of the configuration with these values cannot have more rounds; None where it can, and for one that is
    impossible, which has no round and fails with a sentence of its own."""
    from trainables import registry

    try:
        configured = registry.configured(e.method, values)
    except UserError:
        return None
    method, settings = registry.method(e.method), configured.federation
    if method.follows_plan(configured.config, e.rounds):
        return f"{method.title} follows a schedule over all planned rounds, and its first {e.rounds} would be others"
    if settings.attack_images > 0:
        return f"the attack (attack_images) was made in round {e.rounds}, the last one"
    if e.rounds % settings.eval_every:
        return f"round {e.rounds} was measured only because it was the last one (eval_every {settings.eval_every})"
    return None


def may_go_on(part: Part, values: Mapping[str, Value]) -> bool:
    """Whether a trial of the run with these values, all by key, may go on with more rounds once it has run its own
    (`fedtune extend --rounds`)."""
    return rounds_of_run(part.folder, part.experiment) is None and rounds_of_values(values, part.experiment) is None


def drop_checkpoint(part: Part, trial: FrozenTrial) -> None:
    """Empties the checkpoint of a trial that has ended, as the study says, and removes what its clients kept, unless
    `fedtune extend --rounds` may let it go on: that may be the models of all clients. Whoever needs the rounds once
    more has to run them again. That it has ended stays there: Ray may begin a trial in a second process, which must not
    run it anew."""
    folder = part.folder / run_folder.trial_folder(trial.number)
    checkpoint = folder / run_folder.CHECKPOINT
    if folder.is_symlink() or not checkpoint.exists():
        return
    if run_folder.has_ended(folder):
        run_folder.remove_states(folder)
        return
    if trial.state.name == "COMPLETE" and may_go_on(
        part, {**part.experiment.values, **part.space.values(trial.params)}
    ):
        return
    if trial.state.is_finished():
        files.replace(checkpoint, run_folder.OVER)
        run_folder.remove_states(folder)
