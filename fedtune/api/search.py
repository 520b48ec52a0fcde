"""`fedtune.search`, and `fedtune.resume` of a single run: a request is carried out in its run directory."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.runs import load_run as load
from analysis.runs import shapes
from analysis.runs.mappings import read_json
from fedtune.api.best import Best as Best
from fedtune.api.best import best_by_condition, best_of
from fedtune.api.findings import Findings
from fedtune.console import progress
from fedtune.decisions.known_points import KnownPoints
from fedtune.decisions.race import is_over
from fedtune.execution import driver
from fedtune.execution.outcome import damaged
from fedtune.machine import resources
from fedtune.machine.cluster import check_address
from fedtune.option import fields_of
from fedtune.options import AUTO, Progress, ResumeRequest, SearchRequest
from fedtune.planning.checks import seconds_of
from fedtune.planning.pack_auto import packed
from fedtune.planning.placed import check_placement, crowded, left_cluster
from fedtune.planning.plan import Plan, plan
from fedtune.planning.unchanged import check_unchanged
from fedtune.record.experiment import Experiment
from fedtune.record.provenance import provenance
from fedtune.record.run_directory import create, lock
from search_spaces import run_folder
from search_spaces.errors import UserError
from search_spaces.shell import quote
from search_spaces.space import Space


@dataclass(frozen=True)
class Result(Findings):
    """How far a run has come after a command, and what is to be read of it."""

    folder: Path
    counts: Mapping[str, int]
    best: Best | None
    finished: bool
    interrupted: bool = False
    out_of_time: bool = False
    seconds: float = 0.0
    #: How many of the trials were not run: their results are those of earlier runs.
    taken: int = 0
    #: Where trials are under several conditions of the experiment: the best under each of them, and none in all.
    by_condition: tuple[Best, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data for --json."""
        plain = dataclasses.asdict(self) | {"folder": str(self.folder)}
        if self.best is not None:
            plain["best"]["values"] = self.best.measured
        for told, best in zip(plain["by_condition"], self.by_condition, strict=True):
            told["values"] = best.measured
        return plain


@fields_of(SearchRequest)
def search(request: SearchRequest) -> Result:
    """Searches the hyper-parameters of `method`, selecting by one `metric` or by several, and beginning with what
    earlier runs found (`warm_start`: the directory of one, or several).

    Progress goes to stderr, the run directory to `runs_dir/name`. Raises `UserError`, before anything is created, with
    every problem of the request. Ctrl-C ends it cleanly, and `resume` goes on."""
    planned = plan(request)
    return carry_out(packed(planned) if request.concurrency == AUTO else planned, request)


def carry_out(planned: Plan, shown: Progress) -> Result:
    """Creates the run directory of a plan and drives it to its end.

    Raises `UserError`, before anything is created, where no cluster answers at the plan's address."""
    check_address(planned.experiment.address)
    style = progress.style(shown.plain, shown.quiet)
    watch = progress.ProgressDisplay(planned.experiment, style, varied=tuple(planned.space.vary))
    for note in planned.notes:
        watch.say(note)
    create(
        planned.folder,
        planned.experiment.to_yaml(),
        planned.space.to_json(),
        provenance(device="cuda" if planned.experiment.gpus_per_trial else "cpu", **planned.facts),
        planned.experiment.directions,
        planned.taken,
    )
    with lock(planned.folder):
        return driven(planned.folder, planned.experiment, planned.space, watch, shown.simulate)


def resume_run(request: ResumeRequest) -> Result:
    """`fedtune.resume` of a single run, a search or a final run."""
    found = load(request.run)
    folder, experiment = found.path, Experiment.of(found)
    check_whole(folder, experiment)
    problems: list[str] = []
    cpus, gpus, address = request.cpus_per_trial, request.gpus_per_trial, request.address
    asked: dict[str, Any] = {
        "time": seconds_of(request.time, problems),
        "concurrency": request.concurrency,
        "cpus_per_trial": cpus,
        "gpus_per_trial": gpus,
    }
    given = {key: value for key, value in asked.items() if value is not None}
    placed = dataclasses.replace(experiment, **given, address=address)
    if bool(placed.gpus_per_trial) != bool(experiment.gpus_per_trial):
        had = "on a GPU" if experiment.gpus_per_trial else "without a GPU"
        problems.append(
            f"{folder} was begun {had}, and on other hardware its numbers would change. Leave out "
            f"--gpus-per-trial, or begin a new run."
        )
    resources.check_shares(problems, cpus=cpus, gpus=gpus)
    check_placement(placed, problems)
    told = crowded(placed, problems, asked=request.concurrency if cpus is not None else None)
    if problems:
        raise UserError(*problems)
    whole_run = complete(folder, placed)  # before the lock, so that a damaged run gets no lock file
    over = is_over(found.frozen, experiment) and not damaged(folder, experiment, found.frozen)
    if not over:
        check_address(address)
    notes = [] if over else check_unchanged(found, *whole_run, other_versions=request.other_versions)
    style = progress.style(request.plain, request.quiet)
    watch = progress.ProgressDisplay(placed, style, varied=tuple(whole_run[1].vary))
    for note in (told, left_cluster(experiment, address), *notes):
        if note:
            watch.say(note)
    with lock(folder):
        return driven(folder, *whole_run, watch, request.simulate)


def check_whole(folder: Path, experiment: Experiment) -> None:
    """Raises `UserError` where the run is one method's part of `fedtune auto`, which decides what comes next in it."""
    if experiment.part:
        raise UserError(
            f"{folder} is the part of one method in a search over several. Go on with all of it: "
            f"`fedtune resume {quote(str(folder.parent.parent))}`."
        )


def result_of(folder: Path, outcome: driver.Outcome, seconds: float = 0.0) -> Result:
    """The result of a run, read from its directory."""
    run = load(folder)
    counts = dict(Counter(trial.state.name for trial in run.frozen))  # plain, as `asdict` cannot copy a Counter
    ended = outcome.finished, outcome.interrupted, outcome.out_of_time
    several = best_by_condition(run)
    return Result(folder, counts, best_of(run), *ended, seconds, run.taken, several)


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


def driven(
    folder: Path,
    experiment: Experiment,
    space: Space,
    watch: progress.ProgressDisplay,
    simulate: Callable[..., Any] | None,
) -> Result:
    """Drives a run whose lock is held."""
    started = time.monotonic()
    with watch:
        try:
            outcome = driver.drive(folder, experiment, space, watch, simulate=simulate)
        except KeyboardInterrupt:
            # Before Ray took over the signal: nothing was under way.
            outcome = driver.Outcome(finished=False, interrupted=True)
    return result_of(folder, outcome, time.monotonic() - started)
