"""`fedtune.resume`: goes on with what was interrupted, whichever command began it."""

from __future__ import annotations

import dataclasses
from typing import Any

from analysis.runs import load_run
from fedtune import option
from fedtune.api.auto import AutoResult, resume_auto
from fedtune.api.reproduce import Reproduced, resume_reproduction
from fedtune.api.search import Result, driven
from fedtune.machine import cluster, resources
from fedtune.option import fields_of
from fedtune.options import ResumeRequest
from fedtune.planning.checks import named_folder, seconds_of
from fedtune.planning.resumption import check_whole, going_on
from fedtune.record.experiment import Experiment
from fedtune.record.mirror import check_same, fetch
from fedtune.record.run_directory import lock
from fedtune.record.storage import check_uri, folder_name, is_uri
from search_spaces import run_folder
from search_spaces.errors import UserError
from search_spaces.files import given


@fields_of(ResumeRequest, cluster.ahead)
def resume(request: ResumeRequest) -> Result | AutoResult | Reproduced:
    """Goes on with an interrupted run; every trial continues from its last checkpoint. A finished run is left as it is,
    but for trials whose rows are damaged: those are computed again.

    A new time budget may be given, and another placement (concurrency, shares); a search over several methods and a
    figure or table of a paper go on as they were begun, and take neither. It runs on this machine, or on the Ray
    cluster at `address`; the address that the run was begun with is not taken from its record. What would change the
    run's numbers cannot be changed, with one exception: `other_versions` accepts other versions of libraries, of which
    the run's record then tells.

    `run` may be the URI of a mirror (`storage`): the run directory is made again in `runs`, and goes on with its
    mirror there.

    Raises `UserError`, before anything is written, where the data set is gone or changed, versions are others, or no
    cluster answers at `address`."""
    fetched: str | None = None
    if is_uri(str(request.run)):
        request, fetched = _fetched(request)
    several = run_folder.made_by(given(request.run))
    placing = ("slots", "per_trial", "time")
    placed = [f"--{name.replace('_', '-')}" for name in placing if getattr(request, name) is not None]
    if several and placed:
        raise UserError(
            f"{request.run} was made by `fedtune {several}` and goes on as it was begun. Leave {', '.join(placed)} out."
        )
    if several == "reproduce":
        return resume_reproduction(request, fetched)
    return resume_auto(request, fetched) if several else _resume_run(request, fetched)


def _fetched(request: ResumeRequest) -> tuple[ResumeRequest, str]:
    """Makes the run directory of a mirror, and the request one about it, with a line that tells so."""
    uri, problems = str(request.run), list(option.problems(request))
    check_uri(uri, problems)
    check_uri(request.storage, problems)
    folder = named_folder(folder_name(uri), problems)
    if problems:
        raise UserError(*problems)
    told = fetch(uri, folder)
    return dataclasses.replace(request, run=str(folder), storage=request.storage or uri), told


def _resume_run(request: ResumeRequest, fetched: str | None) -> Result:
    found = load_run(request.run)
    experiment = Experiment.of(found)
    check_whole(found.path, experiment)
    problems = list(option.problems(request))
    asked: dict[str, Any] = {"time": seconds_of(request.time, problems)}
    asked |= {name: getattr(request, name) for name in ("cpus_per_trial", "gpus_per_trial")}
    asked |= {"concurrency": request.slots}
    placed = {key: value for key, value in asked.items() if value is not None}
    if "gpus_per_trial" in placed:
        placed["gpus_by_kind"] = {}  # what is asked for holds of every kind
    if bool(placed.get("gpus_per_trial", experiment.gpus_per_trial)) != bool(experiment.gpus_per_trial):
        had = "on a GPU" if experiment.gpus_per_trial else "without a GPU"
        problems.append(
            f"{found.path} was begun {had}, and on other hardware its numbers would change. Leave out "
            f"gpus of --per-trial, or begin a new run."
        )
    resources.check_shares(problems, cpus=request.cpus_per_trial, gpus=request.gpus_per_trial)
    check_uri(request.storage, problems)
    goes_on = going_on(
        [found],
        request.address,
        given=placed,
        other_versions=request.other_versions,
        storage=request.storage,
        problems=problems,
    )
    check_same(request.storage, found.path)
    (part,) = goes_on.parts
    notes = goes_on.notes if fetched is None else [fetched, *goes_on.notes]
    with lock(part.folder):
        return driven(part, notes, request, request.storage)
