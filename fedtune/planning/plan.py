"""From what a user asked for to the experiment that will be run, with every problem of the request found first."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtune import option
from fedtune.decisions import own_sampler
from fedtune.decisions.optuna_samplers import EI
from fedtune.machine import resources
from fedtune.options import AUTO, RunRequest, SearchRequest, own_samplers
from fedtune.planning import checks
from fedtune.planning.budget import Budget, budgeted
from fedtune.planning.checks import named_folder, seconds_of
from fedtune.planning.conditions import conditions_allow, crossing_notes, under_conditions
from fedtune.planning.objects import spelled
from fedtune.planning.preflight import preflight
from fedtune.planning.selection import Selection, selectable, selected_by
from fedtune.planning.settings import settled
from fedtune.planning.warm_start import known, opened
from fedtune.record.experiment import Experiment
from fedtune.record.provenance import provenance, sampler_file
from fedtune.record.run_directory import TakenTrial, absolute, create
from search_spaces.dimension import Dimension
from search_spaces.errors import UserError
from search_spaces.parameter import Value, canonical
from search_spaces.run_folder import ARRIVAL
from search_spaces.space import Space


@dataclass(frozen=True)
class Plan:
    """A request that can be carried out."""

    folder: Path
    experiment: Experiment
    space: Space
    #: Recorded with the run: the method's title, the data set's and the partition's hashes.
    facts: Mapping[str, Any]
    notes: tuple[str, ...]
    #: Every parameter of one configuration in the middle of the space, as it was checked: for measuring.
    middle: Mapping[str, Value]
    #: What was asked for; None where `--slots auto` cannot be applied to the plan.
    request: SearchRequest | None = None
    #: Results of earlier runs, those of the first trials.
    taken: tuple[TakenTrial, ...] = ()

    def create(self, folder: Path | None = None) -> None:
        """Makes the run directory, or one for it at `folder`, where several are made under another name first. Raises
        `UserError` where it exists or the disk refuses."""
        made = provenance(device="cuda" if self.experiment.gpus_per_trial else "cpu", **self.facts)
        create(self.folder if folder is None else folder, self.experiment, self.space, made, self.taken)


def plan(request: SearchRequest) -> Plan:
    """Checks all of a request. Raises one `UserError` with every problem; writes nothing but the data set's cache."""
    request = spelled(request)
    problems: list[str] = []
    folder, time = _folder(request, problems), _options(request, problems)
    space = (settings := settled(request, problems)).space
    selection = selected_by(request, settings, problems)
    budget = budgeted(request, settings, len(selection.metric), problems)
    _combination(request, space, budget, selection, problems)
    packing = placement(request, problems, trials=budget.trials, order=request.order)
    earlier = opened(option.several(request.warm_start), request.method, {*_keys(space)}, problems)
    middle = settings.values | middle_values((*space.search.values(), *space.vary.values()))
    device = device_of(packing.gpus, request.address)
    data, required = request.data_dir, tuple(one.metric for one in selection.require)
    checked = preflight(
        request.method, middle, budget.seeds, data, problems, selection.metric, device, required, request.keep_images
    )
    facts = {**checked.facts, **under_conditions(request, space, checked, budget.seeds, problems)}
    if (own := sampler_file(budget.sampler)) is not None:
        facts["sampler_file"] = own
    if problems:
        raise UserError(*dict.fromkeys(problems))
    experiment = Experiment(
        name=folder.name,
        kind="search",
        method=request.method,
        space=space.name,
        profile="paper" if request.paper else "small",
        values=settings.values,
        metric=selection.metric,
        select_on=selection.select_on,
        trials=budget.trials,
        rounds=budget.rounds,
        seed=request.seed,
        seeds=budget.seeds,
        sampler=budget.sampler,
        scheduler=budget.scheduler,
        grace=budget.grace,
        require=tuple(map(str, selection.require)),
        budget=budget.seed_rounds,
        time=time,
        **placed(request, packing),
    )
    space = dataclasses.replace(space, metric=selection.metric)
    start = known(experiment, space, facts, earlier)
    notes = (*_notes(request, experiment, space), *_at_once(request, start.experiment), *settings.notes, *start.notes)
    return Plan(folder, start.experiment, space, {**facts, **start.facts}, notes, checked.values, request, start.taken)


def _folder(request: SearchRequest, problems: list[str]) -> Path:
    """The run directory, which is not there yet."""
    name = request.name if request.name is not None else f"{request.method}-{Path(request.space).stem}"
    return named_folder(str(name), problems)


def _keys(space: Space) -> Iterable[str]:
    """What trials differ in: the searched parameters and the conditions."""
    return (*(dimension.key for _, dimension in space.dimensions()), *space.vary)


def _options(request: SearchRequest, problems: list[str]) -> float | None:
    """Checks every option that can be checked by itself, and returns the wall-clock budget in seconds."""
    problems.extend(option.problems(request))
    if request.slots == AUTO and request.address is not None:
        problems.append(
            "--slots auto measures this machine, and --address names another one. Give a number "
            "and --per-trial instead."
        )
    for name in request.metric:
        checks.known("metric", canonical(name), selectable(), problems, "--metric")
    return seconds_of(request.time, problems)


def placement(
    request: SearchRequest | RunRequest, problems: list[str], *, trials: int, order: str | None = None
) -> resources.Packing:
    """How many trials run at once, and the part of the machine that each has."""
    return resources.pack(
        resources.machine() if request.address is None else None,
        problems,
        trials=trials,
        slots=request.slots if isinstance(request.slots, int) else None,
        order=order,
        cpus=request.cpus_per_trial,
        gpus=request.gpus_per_trial,
    )


def placed(request: SearchRequest | RunRequest, packing: resources.Packing) -> dict[str, Any]:
    """Fields of an experiment, of a search's as of a final run's: where trials run, and what they keep."""
    return {
        "data_dir": absolute(request.data_dir),
        "order": packing.order,
        "lag": resources.lag(packing.slots),
        "early": resources.early(packing.slots),
        "concurrency": packing.concurrency,
        "cpus_per_trial": packing.cpus,
        "gpus_per_trial": packing.gpus,
        "threads": packing.threads,
        "address": request.address,
        "keep_images": request.keep_images,
    }


def _combination(
    request: SearchRequest, space: Space, budget: Budget, selection: Selection, problems: list[str]
) -> None:
    """Adds a problem for choices that each are possible and cannot be combined."""
    search = space.search
    conditions_allow(space, budget.sampler, problems, races=budget.seed_rounds > 0, starts=bool(request.warm_start))
    several = len(selection.metric) > 1
    if budget.seed_rounds and several:
        problems.append("A race compares one metric. Give one --metric, or leave --race out.")
    if not search and not space.vary:
        problems.append(
            "Every parameter of the space is fixed by --set, so nothing is left to search. Leave one of them out."
        )
    if budget.sampler in (EI, "cmaes") and several:
        problems.append(
            f"The sampler {budget.sampler} optimises one metric. Give one --metric, or use --sampler nsga2 or tpe."
        )
    if budget.sampler == "cmaes":
        numbers = [d for d in search.values() if d.parameter.kind in ("real", "integer") and not d.only]
        if search and len(numbers) < 2:
            problems.append(
                f"The sampler cmaes needs at least two searched numbers, and this space has {len(numbers)}. Use "
                f"--sampler {EI}."
            )
    if budget.sampler in own_samplers():
        try:
            own_sampler.load(budget.sampler)
        except UserError as error:
            problems.extend(error.problems)
    if budget.scheduler == "median" and several:
        problems.append("The median rule compares one metric. Give one --metric, or use --scheduler asha.")


def middle_values(dimensions: Iterable[Dimension]) -> dict[str, Value]:
    """The searched parameters of one configuration in the middle of a space."""
    found: dict[str, Value] = {}
    for dimension in dimensions:
        values = dimension.values()
        value = values[len(values) // 2]
        found[dimension.key] = value
        found |= middle_values(dimension.children.get(str(value), ()))
    return found


def device_of(gpus: float, address: str | None) -> str | None:
    """The device that a trial will run on; None on a cluster, whose devices are not known yet."""
    return None if address is not None else "cuda" if gpus else "cpu"


def _notes(request: SearchRequest, experiment: Experiment, space: Space) -> tuple[str, ...]:
    e = experiment
    dataset = e.values.get("dataset") or " and ".join(map(str, space.vary["dataset"].values()))
    at = f"{dataset}, {e.rounds} rounds, {'up to ' * e.races}{len(e.seeds)} seed{'s' * (len(e.seeds) > 1)}"
    if request.paper:
        notes = [
            f"Profile paper: {at}." + (" Selects on the test set, as the paper did." if e.select_on == "test" else "")
        ]
    else:
        paper = space.profiles.get("paper")
        how = (
            f" The paper's setting ({paper.get('dataset', dataset)}, {paper.get('rounds', '?')} rounds): add --paper."
            if paper
            else ""
        )
        notes = [f"Profile small: {at}.{how}"]
    if e.races and request.race is None:
        notes.append(
            f"A race: every configuration begins with one seed, and gets up to {len(e.seeds)} where they are worth it; "
            f"--no-race gives each of them all."
        )
    return (*notes, *crossing_notes(e.trials, e.sampler, space))


def _at_once(request: SearchRequest, e: Experiment) -> list[str]:
    """Notes on how many trials run at the same time, and on what that means for the record; `--slots auto` makes its
    own."""
    notes = []
    if e.looks_back and e.order == ARRIVAL and e.concurrency > 1:
        notes.append(
            "A trial is proposed from all that have ended by then, so the same seed may give other trials. With "
            "--order fixed it gives the same ones, and slots wait for one another."
        )
    if request.slots == AUTO or request.address is not None:
        return notes
    if isinstance(request.slots, int) and e.concurrency < min(request.slots, e.to_run):
        notes.append(f"{request.slots} slots: what is proposed is that. Here {e.concurrency} of them run at once.")
    crowded = resources.crowding(e.concurrency, e.threads, resources.machine().cores)
    return [*notes, *([crowded] if crowded else [])]
