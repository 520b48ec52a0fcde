"""`fedtune.auto`: which method, which hyper-parameters, how sure, and the model, within one budget.

Three steps, each of which is left out when it was done before, so that what was interrupted goes on:

1. a search over all methods (`fedtune.execution.auto_queue`), each with a run directory of its own below `search/`;
2. every method's best configuration (`best/METHOD.yaml`) on fresh seeds, the same for all, below `fresh/`;
3. the leader on further seeds below `final/`, with its models.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from analysis import auto as reading
from analysis.auto import Auto
from analysis.runs import load_run as load
from fedtune.api.auto_driven import Driven
from fedtune.api.auto_result import AutoResult
from fedtune.api.going_on import going_on
from fedtune.api.search import complete
from fedtune.console import progress
from fedtune.console.busy import busy
from fedtune.machine.cluster import check_address
from fedtune.option import fields_of
from fedtune.options import AutoRequest, Progress, ResumeRequest
from fedtune.planning.auto_plan import AutoPlan, plan_auto
from fedtune.planning.placed import check_placement, crowded, left_cluster
from fedtune.planning.unchanged import check_unchanged
from fedtune.record.auto_record import AutoRecord, Part, create_auto
from fedtune.record.experiment import Experiment
from fedtune.record.provenance import provenance
from fedtune.record.run_directory import lock
from search_spaces import run_folder
from search_spaces.errors import Shown, UserError, sentence
from search_spaces.files import check_replaceable
from search_spaces.space import Space


@fields_of(AutoRequest)
def auto(request: AutoRequest) -> AutoResult:
    """Searches over `methods` (names, or `all`) within a `budget` (a length of time such as `30m`, a count such as
    `600rounds`, traffic such as `2GB`), compares the best configuration of each on fresh seeds and trains the leader.

    Raises `UserError`, before anything is created, with every problem of the request. Ctrl-C ends it cleanly, and
    `resume` goes on."""
    with busy(progress.style(request.plain, request.quiet), "planning") as say:
        plan = plan_auto(request, say)
    return carry_out_auto(plan, request)


def carry_out_auto(plan: AutoPlan, shown: Progress) -> AutoResult:
    """Creates the folder of a plan and drives it to its end."""
    check_address(plan.searches[0][0].address)
    style = progress.style(shown.plain, shown.quiet)
    for note in plan.notes:
        progress.ProgressDisplay(plan.searches[0][0], style).say(note)
    create_auto(plan.folder, plan.record, [_part(*search) for search in plan.searches])
    with lock(plan.folder):
        return Driven(plan.folder, plan.record, plan.searches[0][0].address, style, shown.simulate).result()


def _part(experiment: Experiment, space: Space, facts: Mapping[str, Any]) -> Part:
    made = provenance(device="cuda" if experiment.gpus_per_trial else "cpu", **facts)
    return Part(experiment.method, experiment.to_yaml(), space.to_json(), made, experiment.directions)


def resume_auto(request: ResumeRequest) -> AutoResult:
    """`fedtune.resume` of what `auto` began. What it finds is what it would have found uninterrupted."""
    found = reading.load(request.run)
    address, other_versions = request.address, request.other_versions
    record = AutoRecord.read(found.path)
    searches = {name: Experiment.of(run) for name, run in found.searches.items()}
    placed = {name: dataclasses.replace(begun, address=address) for name, begun in searches.items()}
    lead = next(iter(placed.values()))
    says = [] if found.over else _placed(lead, address)
    says += [left_cluster(begun, address) or "" for begun in searches.values()]
    for name, run in found.searches.items():
        says += check_unchanged(run, *complete(run.path, placed[name]), other_versions=other_versions)
    says += _unchanged_later(found, address, other_versions=other_versions)
    if (best := found.path / run_folder.BEST).exists() and not best.is_dir():
        raise UserError(sentence(str(best), "a folder", Shown("a file"), fix="Move it away; it is written again."))
    check_replaceable(best / f"{method}.yaml" for method in searches)
    style = progress.style(request.plain, request.quiet)
    for note in filter(None, dict.fromkeys(says)):
        progress.ProgressDisplay(lead, style).say(note)
    with lock(found.path):
        return Driven(found.path, record, address, style, request.simulate).result()


def _unchanged_later(found: Auto, address: str | None, *, other_versions: bool) -> list[str]:
    """Notes on the runs that came after the search and are to go on. Raises `UserError` where one cannot go on as it
    was begun, or cannot be read."""
    for folder in (found.path / top / name for top in (run_folder.FRESH, run_folder.FINAL) for name in found.searches):
        if folder.exists() and not folder.is_dir():
            load(folder)  # which says so
    later = going_on((*found.fresh.values(), *([] if found.final is None else [found.final])), address)
    return [note for here in later for note in check_unchanged(*here, other_versions=other_versions)]


def _placed(lead: Experiment, address: str | None) -> list[str]:
    """What is said of how the trials are placed. Raises `UserError` where they cannot be placed so."""
    problems: list[str] = []
    check_placement(lead, problems, fix="Give --address to join a cluster that has them, or go on where it was begun.")
    told = crowded(lead, problems, asked=None)
    if problems:
        raise UserError(*problems)
    check_address(address)
    return [told or ""]
