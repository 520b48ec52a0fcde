"""From what a user asked for to the run that will be made, with every problem of the request found first.

A search and a final run are planned in one way: what is trained and selected by is read from the request (`Subject`),
then the machine is shared out, the federation is built once, and the experiment follows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.runs.conditions import named, show
from fedtune import option
from fedtune.decisions import initial_design, own_sampler
from fedtune.decisions.confirmation import LEAST, federations
from fedtune.decisions.early_stopping import REDUCTION, SCHEDULERS, default_grace
from fedtune.decisions.optuna_samplers import EI, SAMPLERS, usual
from fedtune.decisions.race import MOST
from fedtune.execution import trackers
from fedtune.machine import cluster, resources
from fedtune.options import AUTO, MAX_SEEDS, AutoRequest, RunRequest, SearchRequest, own_samplers
from fedtune.planning import checks, configuration, pack_auto, pack_cluster, warm_start
from fedtune.planning.checks import RUNS, named_folder, seconds_of
from fedtune.planning.earlier_searches import note, said_before
from fedtune.planning.objects import spelled
from fedtune.planning.preflight import Checked, preflight, under_conditions
from fedtune.planning.selection import Selection, is_measured_at_end, selectable, selected_by
from fedtune.planning.settings import FEW_VALIDATED, MORE_VALIDATED, Settings, overrides, settled
from fedtune.planning.warm_start import known, opened
from fedtune.record.experiment import Experiment, datasets, final_seeds, search_seeds
from fedtune.record.provenance import provenance, sampler_file
from fedtune.record.run_directory import TakenTrial, absolute, create
from fedtune.record.storage import check_uri
from search_spaces import presets, requirements, run_folder
from search_spaces.dimension import Dimension
from search_spaces.errors import UserError, sentence
from search_spaces.metrics import METRICS
from search_spaces.parameter import Value, canonical
from search_spaces.run_folder import ARRIVAL
from search_spaces.space import Space

#: Trials of a search that says no number of them.
TRIALS = 30
#: How much faster a server is in bfloat16 on a processor with AMX, and what is said where that is most of a round.
FASTER = "several times as fast (DFRD's on 32×32 was 4.8 times)"
AMX = (
    f"This processor computes with bfloat16 (AMX): with --set precision=bf16 the server is {FASTER}. The models' "
    f"passes are rounded then; weights and losses stay float32."
)


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
    #: Results of earlier runs, those of the first trials.
    taken: tuple[TakenTrial, ...] = ()

    def create(self, folder: Path | None = None) -> None:
        """Makes the run directory, or one for it at `folder`, where several are made under another name first. Raises
        `UserError` where it exists or the disk refuses."""
        made = provenance(device="cuda" if self.experiment.gpus_per_trial else "cpu", **self.facts)
        create(self.folder if folder is None else folder, self.experiment, self.space, made, self.taken)


@dataclass(frozen=True)
class Budget:
    """How many trials, rounds and seeds a search has, and which sampler proposes and which scheduler stops trials."""

    sampler: str
    scheduler: str
    trials: int
    rounds: int
    grace: int
    seeds: tuple[int, ...]
    #: Seed-rounds of a race, 0 where the search is none.
    seed_rounds: int
    #: Federations at the end that confirm.
    confirm: int = 0
    #: First trials that end at the first rung.
    initial: int = 0


@dataclass(frozen=True)
class Subject:
    """What a request asks to be trained: the configurations of a space, or in a final run a single one."""

    folder: Path
    #: What is recorded of the request, but for its share of the machine.
    experiment: Experiment
    #: What is searched. That of a final run has nothing to search.
    space: Space
    #: What the user is told of values that nobody has given, and of the space.
    notes: tuple[str, ...] = ()


def plan(request: SearchRequest | RunRequest, settings: Settings | None = None, *, after: int = 0) -> Plan:
    """Checks all of a request, and with `--slots auto` measures how many trials are to run at once. Raises one
    `UserError` with every problem; writes nothing but the data set's cache.

    settings: those of the request, where they are known already. after: of a final run, so many of the fresh seeds are
    left to another run."""
    request = dataclasses.replace(request, **spelled(request))
    problems = list(option.problems(request))
    if isinstance(request, SearchRequest):
        subject = _search(request, settings, problems)
    else:
        subject = _final_run(request, settings, after, problems)
    experiment, space = subject.experiment, subject.space
    order = request.order if isinstance(request, SearchRequest) else None
    packing = placement(request, problems, trials=experiment.width, order=order)
    earlier = []
    if isinstance(request, SearchRequest):
        keys = {*(dimension.key for _, dimension in space.dimensions()), *space.vary}
        earlier = opened(warm_start.named(request.warm_start, problems), request.method, keys, problems)
    middle = {**experiment.values, **middle_values((*space.search.values(), *space.vary.values()))}
    device = device_of(packing.gpus, request.address)
    check_uri(request.storage, problems)
    checked = preflight(
        experiment.method,
        middle,
        experiment.seeds,
        request.data_dir,
        problems,
        experiment.metric,
        device,
        [requirements.read(text).metric for text in experiment.require],
        request.keep_images,
    )
    several = under_conditions(experiment.method, space, middle, experiment.seeds, request.data_dir, problems)
    facts = {**checked.facts, **several}
    if (own := sampler_file(experiment.sampler)) is not None:
        facts["sampler_file"] = own
    if problems:
        raise UserError(*dict.fromkeys(problems))
    experiment = dataclasses.replace(
        experiment,
        order=packing.order,
        lag=resources.lag(packing.slots),
        early=resources.early(packing.slots),
        concurrency=packing.concurrency,
        cpus_per_trial=packing.cpus,
        gpus_per_trial=packing.gpus,
        bundle=packing.bundle,
        threads=packing.threads,
    )
    if not isinstance(request, SearchRequest):
        notes = (*subject.notes, *_notes_of_final_run(experiment, facts))
        if not experiment.source:  # what was searched with another arithmetic is not run with this one
            notes = (*notes, *_slow_arithmetic(space, checked))
        space = dataclasses.replace(space, fix=experiment.values)
        return Plan(subject.folder, experiment, space, facts, notes, middle)
    start = known(experiment, space, facts, earlier)
    alone = warm_start.NONE in option.several(request.warm_start)
    said = None if alone else said_before(subject.folder, experiment, space, facts)
    made, facts = dataclasses.replace(experiment, learnt=said, **start.fields), {**facts, **start.facts}
    if made.taken:  # the search does not begin with nothing
        made = initial_design.without(made)
    notes = (
        *_notes(request, made, space),
        *_few_validated(experiment, checked),
        *_slow_arithmetic(space, checked),
        *_at_once(request, made),
        *subject.notes,
        *start.notes,
        *note(said),
    )
    if request.slots == AUTO:
        packed = pack_auto.packed if request.address is None else pack_cluster.packed
        made, facts["packing"], lines = packed(made, middle, request)
        notes = (*notes, *lines)
    return Plan(subject.folder, made, space, facts, notes, middle, start.taken)


# -- a search ----------------------------------------------------------------------------------------------------------


def _search(request: SearchRequest, settings: Settings | None, problems: list[str]) -> Subject:
    """The configurations that a search may try, what it selects by and what it may spend."""
    name = request.name if request.name is not None else f"{request.method}-{Path(request.space).stem}"
    folder, time = named_folder(str(name), problems), _options(request, problems)
    settings = settings or settled(request, problems)
    selection = selected_by(request, settings, problems)
    if is_measured_at_end(request, settings, selection):
        fixed = {**settings.space.fix, "eval_test": "end"}
        left = dataclasses.replace(settings.space, fix=fixed)
        settings = dataclasses.replace(settings, space=left, values={**settings.values, "eval_test": "end"})
    budget = budgeted(request, settings, len(selection.metric), problems)
    _combination(request, settings.space, budget, selection, problems)
    space = dataclasses.replace(settings.space, metric=selection.metric)
    experiment = Experiment(
        name=folder.name,
        kind="search",
        method=request.method,
        space=space.name,
        profile="paper" if request.paper else "small",
        values=settings.values,
        metric=selection.metric,
        select_on=selection.select_on,
        require=tuple(map(str, selection.require)),
        trials=budget.trials,
        rounds=budget.rounds,
        seeds=budget.seeds,
        sampler=budget.sampler,
        scheduler=budget.scheduler,
        grace=budget.grace,
        budget=budget.seed_rounds,
        confirm=budget.confirm,
        initial=budget.initial,
        time=time,
        log=_trackers(request),
        **_given(request),
    )
    return Subject(folder, experiment, space, settings.notes)


def _given(request: SearchRequest | RunRequest) -> dict[str, Any]:
    """What every request says as it is recorded."""
    return {
        "seed": request.seed,
        "data_dir": absolute(request.data_dir),
        "address": request.address,
        "keep_images": request.keep_images,
        "storage": request.storage,
    }


def _options(request: SearchRequest, problems: list[str]) -> float | None:
    """Checks what else can be checked of single options, and returns the wall-clock budget in seconds."""
    if request.bundle > 1 and request.slots == AUTO and request.address is not None:
        problems.append(
            "On a cluster --slots auto measures trials in processes of their own, and a bundle puts several into one. "
            "Give a number of slots with it."
        )
    for name in request.metric:
        checks.known("metric", canonical(name), selectable(), problems, "--metric")
    for name in _trackers(request):
        checks.known("tracker", name, run_folder.TRACKERS, problems, "--log")
        if name in run_folder.TRACKERS:
            try:
                trackers.check(name)
            except UserError as error:
                problems.extend(error.problems)
    return seconds_of(request.time, problems)


def _trackers(request: SearchRequest) -> tuple[str, ...]:
    """Where trials are told too."""
    return tuple(dict.fromkeys(name.strip() for name in (request.log or "").split(",") if name.strip()))


def budgeted(request: SearchRequest, settings: Settings, metrics: int, problems: list[str]) -> Budget:
    """The budget that the request gives; what it leaves out comes from the space's profile, or else is the default.

    metrics: how many the search selects by."""
    space, profile, where = settings.space, settings.options, f"the space {settings.space.name}"
    sampler = request.sampler or str(profile.get("sampler", usual(metrics) if space.search else "grid"))
    scheduler = request.scheduler or str(profile.get("scheduler", "none" if sampler == "grid" else "asha"))
    if request.sampler is None:
        checks.known("sampler", sampler, (*SAMPLERS, *own_samplers()), problems, where)
    if request.scheduler is None:
        checks.known("scheduler", scheduler, SCHEDULERS, problems, where)
    seeds = int(request.seeds or profile.get("seeds", 1))
    if request.seeds is None and seeds > MAX_SEEDS:
        problems.append(sentence("seeds", f"a whole number in [1, {MAX_SEEDS}]", seeds, where))
    rounds = int(settings.value("rounds"))
    if "rounds" in space.search or "rounds" in space.vary:
        problems.append(
            "rounds cannot be searched or varied, as trials are compared after the same number of rounds. Fix it with "
            "--rounds."
        )
    trials = request.trials or (space.cells() if sampler == "grid" else whole_blocks(space, profile.get("trials")))
    if sampler == "grid" and trials > space.cells():
        problems.append(sentence("trials", f"at most {space.cells()}, the cells of the grid", trials, "--trials"))
    can_race = _can_race(request, space, sampler)
    races = request.race if request.race is not None else seeds > 1 and can_race
    most = min(MOST if races and seeds == 1 else seeds, MAX_SEEDS)
    confirms = can_race and (races or seeds == 1)
    if request.confirm and not confirms:
        problems.append(
            "confirm must be false for a grid, for several metrics or conditions, and for several seeds with "
            "--no-race: a confirmation compares single federations by one metric. Leave confirm out."
        )
    wanted = not races if request.confirm is None else request.confirm
    confirm = federations(trials * (seeds if races else 1)) if confirms and wanted else 0
    if request.confirm and confirms and not confirm:
        problems.append(sentence("trials", f"at least {LEAST} where confirm is true", trials, "--trials"))
    single = sampler == EI and scheduler == "asha" and not races and seeds == 1 and can_race
    grace = default_grace(rounds, REDUCTION)
    initial = initial_design.size(trials, rounds, grace, REDUCTION) if single else 0
    return Budget(
        sampler,
        scheduler,
        trials,
        rounds,
        grace,
        search_seeds(request.seed, most),
        trials * rounds * seeds if races else 0,
        confirm,
        initial,
    )


def _can_race(request: SearchRequest, space: Space, sampler: str) -> bool:
    """Whether a search can give further seeds to some of its configurations, and does so where nothing is said: one
    metric, under one condition, and no grid, which wants every seed of every cell."""
    return sampler != "grid" and len(request.metric or space.metric) == 1 and len(space.conditions()) < 2


def whole_blocks(space: Space, profiles: object) -> int:
    """How many trials a search has that was given no number: the profile's, or 30, rounded up so that the last
    configuration is run under every condition too."""
    asked = TRIALS if profiles is None else int(str(profiles))
    conditions = len(space.conditions())
    return -(-asked // conditions) * conditions


def _combination(
    request: SearchRequest, space: Space, budget: Budget, selection: Selection, problems: list[str]
) -> None:
    """Adds a problem for choices that each are possible and cannot be combined."""
    search = space.search
    conditions_allow(
        space,
        budget.sampler,
        problems,
        races=budget.seed_rounds > 0,
        starts=bool(warm_start.named(request.warm_start, [])),
    )
    several = len(selection.metric) > 1
    if budget.seed_rounds and several:
        problems.append("A race compares one metric. Give one --metric, or leave --race out.")
    if not search and not space.vary:
        problems.append(
            "Every parameter of the space is fixed by --set, so nothing is left to search. Leave one of them out."
        )
    if budget.sampler == EI and several:
        problems.append(f"The sampler {EI} optimises one metric. Give one --metric, or use --sampler nsga2 or tpe.")
    if budget.sampler in own_samplers():
        try:
            own_sampler.load(budget.sampler)
        except UserError as error:
            problems.extend(error.problems)
    if budget.scheduler == "median" and several:
        problems.append("The median rule compares one metric. Give one --metric, or use --scheduler asha.")


def conditions_allow(space: Space, sampler: str, problems: list[str], *, races: bool, starts: bool) -> None:
    """Adds a problem for choices that cannot be combined with conditions.

    races: whether it is a race; starts: whether it begins with what earlier runs found."""
    if not space.search and space.vary and sampler != "grid":
        problems.append(
            f"The space varies only conditions of the experiment ({', '.join(space.vary)}), so there is nothing for "
            f"the sampler {sampler} to propose. Leave --sampler out."
        )
    if len(space.conditions()) < 2:
        return
    one = f"Choose one condition with --set, such as --set {named(space.conditions()[0]).replace(', ', ' --set ')}"
    if races:
        problems.append(f"A race compares configurations under one condition. {one}, or leave --race out.")
    if starts and sampler != "grid":
        problems.append(f"--warm-start begins a search under one condition. {one}, or leave --warm-start out.")


def _notes(request: SearchRequest, experiment: Experiment, space: Space) -> tuple[str, ...]:
    e = experiment
    dataset = " and ".join(datasets(e, space))
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
    if e.initial:
        notes.append(
            f"The first {e.initial} trials end after round {initial_design.last_round(e.grace)}; then the best of them "
            "runs to its end, as a trial of its own."
        )
    if e.confirm:
        what = "the last fifth of its budget" if e.races else f"the last {e.confirm} of {e.trials} trials"
        notes.append(
            f"The search ends with a confirmation: {what} are further seeds of the configurations that may be the "
            "best; --no-confirm tries new ones instead."
        )
    return (*notes, *crossing_notes(e.trials, e.sampler, space))


def _few_validated(e: Experiment, checked: Checked) -> list[str]:
    """What is said where a search selects on so few validation samples that chance among them is more than half of what
    a seed does (`docs/defaults.md`), unless the share of them is searched or varied."""
    fraction, count = float(e.values.get("validation_fraction", 0.0)), checked.validation
    if not 0 < count < FEW_VALIDATED or not 0 < fraction < MORE_VALIDATED or e.select_on != "validation":
        return []
    chance = 100 * math.sqrt(0.8 * 0.2 / count)
    return [
        f"Validation data: {count} samples. At 80 % accuracy chance alone moves it by {chance:.1f} points. More of "
        f"them ({count * MORE_VALIDATED / fraction:.0f}, and fewer to train on): --set validation_fraction="
        f"{MORE_VALIDATED:g}."
    ]


def _slow_arithmetic(space: Space, checked: Checked) -> list[str]:
    """The sentence where bfloat16 would make the server faster and precision is not searched."""
    return [AMX] if checked.bfloat16_pays and "precision" not in {**space.search, **space.vary} else []


def crossing_notes(trials: int, sampler: str, space: Space) -> list[str]:
    """How the trials are spread over the conditions."""
    conditions = space.conditions()
    if len(conditions) < 2:
        return []
    values = "; ".join(
        f"{key} {', '.join(show(value) for value in dimension.values())}" for key, dimension in space.vary.items()
    )
    whole, rest = divmod(trials, len(conditions))
    several = f"{whole} configuration{'s' * (whole != 1)}" if space.search else "the fixed configuration"
    part = f", and one more under the first {rest} of them" if rest else ""
    said = f"{trials} trials: {several} under each of {len(conditions)} conditions ({values}){part}."
    asks = sampler != "grid" and space.search
    return [f"{said} The sampler looks for the configuration, never for a condition." if asks else said]


def _at_once(request: SearchRequest, e: Experiment) -> list[str]:
    """Notes on how many trials run at the same time, and on what that means for the record; `--slots auto` makes its
    own."""
    notes = []
    if request.bundle > 1:
        notes.append(
            f"Up to {e.bundle} trials share a process; their clients train as one program where they are stacked "
            "(executor vmap) and of equal shape. Results are those of single trials up to rounding."
            + (f" {request.bundle:g} do not run at once on one GPU or core." if e.bundle < request.bundle else "")
        )
    if e.looks_back and e.order == ARRIVAL and e.concurrency > 1:
        notes.append(
            "A trial is proposed from all that have ended by then, so the same seed may give other trials. With "
            "--order fixed it gives the same ones, and slots wait for one another."
        )
    if request.address is not None and request.gpus_per_trial is None and e.gpus_per_trial:
        notes.append(
            f"The cluster has GPUs, so each trial has {e.gpus_in_words}. On its cores instead: --per-trial gpus=0."
        )
    if request.slots == AUTO or request.address is not None:
        return notes
    if isinstance(request.slots, int) and e.concurrency < min(request.slots, e.width):
        notes.append(f"Trials are proposed as on {request.slots} slots; here {e.concurrency} of them run at once.")
    crowded = resources.crowding(-(-e.concurrency // e.bundle), e.threads, resources.machine().cores)
    return [*notes, *([crowded] if crowded else [])]


# -- a final run -------------------------------------------------------------------------------------------------------


def _final_run(request: RunRequest, settings: Settings | None, after: int, problems: list[str]) -> Subject:
    """The configuration that a final run trains, and its fresh seeds: those that come after the first `after`."""
    from trainables import own_metrics, registry

    source: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    try:
        if registry.is_method(method := registry.named(request.method)):
            settings = settings or settled(dataclasses.replace(request, best=method), problems)
            values, notes = {**settings.defaults, **settings.values}, settings.chosen
            metrics: Iterable[str] = presets.load(method, request.space, registry.declared(method)).metric
        else:
            method, values, source = configuration.chosen(request.method)
            if request.paper or request.space != "default":
                problems.append(
                    "--paper and --space belong to a method's own run; an exported configuration is complete. Leave "
                    "them out."
                )
            values |= overrides(request, registry.declared(method), problems)
            metrics = source["metric"] if isinstance(source.get("metric"), Mapping) else ()
            own_metrics.declare(own_metrics.references(str(values.get("own_metrics", own_metrics.NONE))))
    except UserError as error:
        raise UserError(*problems, *error.problems) from None
    origin = source.get("provenance") or {}
    found = origin.get("run", method)
    if "round" in origin:
        taken = f"when its configuration was taken, in round {origin['round']}"
        notes = (*notes, f"Trial {origin.get('trial')} of {found} had not run to its end {taken}.")
    folder = named_folder(str(request.name if request.name is not None else _free(f"{found}-final")), problems)
    # The metric by which it was selected decides which round's model is kept; the same on test data, where there are no
    # validation data.
    metric = next((name for name in metrics if name in METRICS), "val_global_accuracy")
    metric = metric.removeprefix("val_") if not values["validation_fraction"] else metric
    seeds = final_seeds(request.seed, after + request.seeds)[after:] if not problems else (0,)
    space = Space(str(source.get("space", request.space)), method, {}, title=f"Final run of {found}", metric=(metric,))
    experiment = Experiment(
        name=folder.name,
        kind="run",
        method=method,
        space=space.name,
        profile="export" if source else "paper" if request.paper else "small",
        values=values,
        metric=space.metric,
        select_on="validation" if metric.startswith("val_") else "test",
        trials=len(seeds),
        rounds=int(values["rounds"]),
        seeds=seeds,
        sampler="random",
        scheduler="none",
        source=source,
        **_given(request),
    )
    return Subject(folder, experiment, space, notes)


def _free(name: str) -> str:
    """The first of `name`, `name-2`, `name-3`, … that is not taken; for a name that the user did not choose."""
    names = (name if n == 1 else f"{name}-{n}" for n in range(1, 10_000))
    return next(found for found in names if not (Path(RUNS) / found).exists())


def _notes_of_final_run(e: Experiment, facts: Mapping[str, Any]) -> list[str]:
    at_once = f"{e.trials} fresh seeds ({e.seeds[0]} …), {e.rounds} rounds each, {e.concurrency} at the same time."
    crowded = None if e.address is not None else resources.crowding(e.concurrency, e.threads, resources.cores())
    searched = (e.source.get("provenance") or {}).get("dataset")
    content = searched.get("hash") if isinstance(searched, Mapping) else None
    differs = None
    if content is not None and content != facts["dataset"]["hash"]:
        differs = (
            f"The data set {facts['dataset']['name']} is not the one the search used (its content differs), so the "
            f"results cannot be compared."
        )
    return [note for note in (at_once, crowded, differs) if note]


# -- where it runs -----------------------------------------------------------------------------------------------------


def placement(
    request: SearchRequest | RunRequest | AutoRequest, problems: list[str], *, trials: int, order: str | None = None
) -> resources.Packing:
    """How many trials run at once, and the part of the machine that each has. On a cluster too that is a part of a GPU
    where there are GPUs; `--slots auto` measures which part (`pack_cluster.py`)."""
    packing = resources.pack(
        resources.machine() if request.address is None else None,
        problems,
        trials=trials,
        slots=request.slots if isinstance(request.slots, int) else None,
        order=order,
        cpus=request.cpus_per_trial,
        gpus=request.gpus_per_trial,
        bundle=request.bundle,
    )
    if request.address is None or request.gpus_per_trial is not None or request.slots == AUTO or problems:
        return packing
    try:
        machines = cluster.machines(request.address)
        return dataclasses.replace(packing, gpus=resources.usual_gpus(machines, request.bundle))
    except UserError as error:
        problems.extend(error.problems)
        return packing


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
