"""From what a user asked for to the experiment that will be run, with every problem of the request found first."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtune.machine import shares
from fedtune.planning.preflight import preflight
from fedtune.planning.request import Request, settled
from fedtune.record.experiment import MAX_SEED, MAX_SEEDS, Experiment, search_seeds
from fedtune.record.run_directory import absolute, exists
from fedtune.trials.samplers import SAMPLERS
from fedtune.trials.schedulers import SCHEDULERS, default_grace
from search_spaces.dimension import Dimension
from search_spaces.errors import UserError, sentence, unknown
from search_spaces.files import cannot_write
from search_spaces.metrics import METRICS
from search_spaces.parameter import Value, canonical
from search_spaces.space import Space

TRIALS = 30
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|h|d)?")


@dataclass(frozen=True)
class Plan:
    """A request that can be carried out."""

    folder: Path
    experiment: Experiment
    space: Space
    #: Recorded with the run: data set's and partition's hashes.
    facts: Mapping[str, Any]
    notes: tuple[str, ...]
    #: One configuration in the middle of the space, for a measured estimate.
    middle: Mapping[str, Value]
    #: What was asked for, where a plan can still be packed by measuring.
    request: Request | None = None


def plan(request: Request) -> Plan:
    """Checks all of a request. Raises one `UserError` with every problem; writes nothing but the data set's cache."""
    problems: list[str] = []
    folder = _folder(request, problems)
    seconds = seconds_of(request.time, problems)
    whole("seed", request.seed, 0, MAX_SEED, problems)
    whole("seeds", request.seeds, 1, MAX_SEEDS, problems)
    whole("trials", request.trials, 1, 1_000_000, problems)
    whole("reduction-factor", request.reduction_factor, 2, 100, problems)
    whole("grace", request.grace, 1, 100_000, problems)
    _known("sampler", request.sampler, SAMPLERS, problems)
    _known("scheduler", request.scheduler, SCHEDULERS, problems)
    _known("choice of --select-on", request.select_on, ("validation", "test"), problems)
    _known("packing", request.pack, shares.PACKS, problems, "--pack")
    if request.pack == "auto" and request.address is not None:
        problems.append("--pack auto measures the machine it is called on, and --address is another. Give --concurrency, --cpus-per-trial and "
                        "--gpus-per-trial instead.")
    for name in request.metrics:
        _known("metric", canonical(name), METRICS, problems, "--metric")

    from trainables import registry

    try:
        declared = registry.declared(request.method)
    except UserError as error:
        raise UserError(*problems, *error.problems) from None
    space, values, options = settled(request, declared, problems)
    space = dataclasses.replace(space, search={k: d for k, d in space.search.items() if k not in values},
                                fix={k: v for k, v in values.items() if k in declared})
    sampler = request.sampler or str(options.get("sampler", "tpe"))
    scheduler = request.scheduler or str(options.get("scheduler", "none" if sampler == "grid" else "asha"))
    where = f"the space {space.name}"
    if request.sampler is None:
        _known("sampler", sampler, SAMPLERS, problems, where)
    if request.scheduler is None:
        _known("scheduler", scheduler, SCHEDULERS, problems, where)
    if request.seeds is None and int(options.get("seeds", 1)) > MAX_SEEDS:
        problems.append(sentence("seeds", f"a whole number in [1, {MAX_SEEDS}]", options["seeds"], where))
    select_on = request.select_on or ("test" if request.paper and space.select_on_test else "validation")
    metrics = _metrics(request.metrics or space.metric, select_on)
    rounds = values.get("rounds", declared["rounds"].default)
    if "rounds" in space.search:
        problems.append("rounds cannot be searched; the budget of a trial is what trials are compared at. Fix it with --rounds.")
    if select_on == "validation" and not values.get("validation_fraction", declared["validation_fraction"].default) \
            and any(name.startswith("val_") for name in metrics):
        problems.append("validation_fraction is 0, so there is nothing to select on. Raise it with --set validation_fraction=0.1, or give --select-on test.")
    for name in metrics:
        needed = METRICS[name].needs if name in METRICS else ""
        if needed and not values.get(needed, declared[needed].default) and needed not in space.search:
            problems.append(f"{name} is measured only where {needed} is above 0, and it is 0. Raise it with --set {needed}=VALUE.")
    trials = _trials(request, space, sampler, options, problems)
    _combination(space, sampler, scheduler, metrics, problems)
    grace = request.grace if request.grace is not None else default_grace(int(rounds), max(2, request.reduction_factor))
    if scheduler != "none" and isinstance(rounds, int) and grace >= rounds and grace > 1:
        problems.append(sentence("grace", f"below the {rounds} rounds of a trial", grace, "--grace"))
    here = shares.machine()
    looks_back = scheduler != "none" or sampler not in ("random", "grid")
    packed, lag = shares.pack(
        here if request.address is None else None, problems, trials=trials, lag=request.lag, looks_back=looks_back,
        concurrency=request.concurrency, cpus=request.cpus_per_trial, gpus=request.gpus_per_trial,
    )
    seeds = search_seeds(request.seed, int(request.seeds or options.get("seeds", 1)))
    middle = {**values, **_middle(space.search.values())}
    facts = preflight(request.method, middle, seeds, request.data_dir, problems, metrics, device_of(packed.gpus, request.address))
    if problems:
        raise UserError(*dict.fromkeys(problems))
    experiment = Experiment(
        name=folder.name, kind="search", method=request.method, space=space.name, profile="paper" if request.paper else "small",
        values=values, metrics=metrics, select_on=select_on, trials=trials, rounds=int(rounds), seed=request.seed, seeds=seeds,  # type: ignore[arg-type]
        sampler=sampler, scheduler=scheduler, reduction_factor=request.reduction_factor, grace=grace, lag=lag, time=seconds,
        data_dir=absolute(request.data_dir), concurrency=packed.concurrency, cpus_per_trial=packed.cpus, gpus_per_trial=packed.gpus, threads=packed.threads,
        address=request.address,
    )
    space = dataclasses.replace(space, metric=metrics)
    return Plan(folder, experiment, space, facts, _notes(request, experiment, space, here), middle, request)


def seconds_of(time: str | float | None, problems: list[str]) -> float | None:
    """`90`, `90s`, `30m`, `2h`, `1d` in seconds."""
    if time is None:
        return None
    match = _TIME.fullmatch(str(time).strip().lower())
    if match is None or not float(match[1]) > 0:
        problems.append(sentence("time", "a length such as 90s, 30m, 2h or 1d", time, "--time"))
        return None
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400, None: 1}[match[2]]


def runs_folder(runs_dir: str, name: str, problems: list[str]) -> Path:
    """`runs_dir/name`, which must be free and writable."""
    folder = Path(runs_dir).expanduser().resolve() / name
    if _NAME.fullmatch(name) is None:
        problems.append(sentence("name", "letters, digits, dots, dashes and underscores, starting with a letter or digit", name, "--name"))
    elif folder.exists():
        problems.extend(exists(folder).problems)
    else:
        problems.extend(_unwritable(folder.parent))
    return folder


def _unwritable(folder: Path) -> list[str]:
    import os

    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not existing.is_dir():
        return [sentence("runs-dir", "a directory", str(existing), "--runs-dir")]
    if not os.access(existing, os.W_OK | os.X_OK):
        return list(cannot_write(folder, "permission denied", "Choose another place with --runs-dir.").problems)
    return []


def _folder(request: Request, problems: list[str]) -> Path:
    name = request.name if request.name is not None else f"{request.method}-{Path(request.space).stem}"
    return runs_folder(request.runs_dir, name, problems)


def whole(name: str, value: int | None, low: int, high: int, problems: list[str]) -> None:
    """Adds the standard sentence where `value` is neither None nor a whole number in [low, high]."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high):
        problems.append(sentence(name, f"a whole number in [{low}, {high}]", value, f"--{name}"))


def _known(kind: str, word: str | None, known: Iterable[str], problems: list[str], where: str = "") -> None:
    if word is not None and word not in known:
        problems.append(unknown(kind, word, known, where))


def _metrics(names: Sequence[str], select_on: str) -> tuple[str, ...]:
    """The recorded metrics to select by: the validation twins where there are such, or the test ones."""
    plain = [canonical(name).removeprefix("val_") for name in names]
    return tuple(dict.fromkeys(f"val_{name}" if select_on == "validation" and f"val_{name}" in METRICS else name for name in plain))


def _trials(request: Request, space: Space, sampler: str, options: Mapping[str, Value], problems: list[str]) -> int:
    if sampler == "grid":
        cells = space.cells()
        if request.trials is not None and request.trials > cells:
            problems.append(sentence("trials", f"at most {cells}, the cells of the grid", request.trials, "--trials"))
        return request.trials or cells
    return request.trials or int(options.get("trials", TRIALS))


def _combination(space: Space, sampler: str, scheduler: str, metrics: Sequence[str], problems: list[str]) -> None:
    if not space.search:
        problems.append("Every parameter of the space is fixed by --set, so nothing is left to search. Leave one out.")
    if sampler == "cmaes":
        if len(metrics) > 1:
            problems.append("The sampler cmaes optimises one metric. Give one --metric, or use --sampler nsga2 or tpe.")
        numbers = [d for d in space.search.values() if d.parameter.kind in ("real", "integer")]
        if space.search and len(numbers) < 2:
            problems.append(f"The sampler cmaes needs at least two searched numbers, and this space has {len(numbers)}. Use --sampler tpe.")
    if scheduler == "median" and len(metrics) > 1:
        problems.append("The median rule compares one metric. Give one --metric, or use --scheduler asha.")


def _middle(dimensions: Iterable[Dimension]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for dimension in dimensions:
        values = dimension.values()
        value = values[len(values) // 2]
        found[dimension.key] = value
        found |= _middle(dimension.children.get(str(value), ()))
    return found


def device_of(gpus: float, address: str | None) -> str | None:
    """What a trial will run on; None where that is on a cluster that is joined later."""
    return None if address is not None else "cuda" if gpus else "cpu"


def _notes(request: Request, experiment: Experiment, space: Space, here: shares.Machine) -> tuple[str, ...]:
    dataset = experiment.values.get("dataset", "digits")
    at = f"{dataset}, {experiment.rounds} rounds, {len(experiment.seeds)} seed{'s' * (len(experiment.seeds) > 1)}"
    if request.paper:
        notes = [f"Profile paper: {at}." + (" Selects on the test set, as the paper did." if experiment.select_on == "test" else "")]
    else:
        paper = space.profiles.get("paper")
        how = f" The paper's setting ({paper.get('dataset', dataset)}, {paper.get('rounds', '?')} rounds): add --paper." if paper else ""
        notes = [f"Profile small: {at}.{how}"]
    if request.pack == "auto" or request.address is not None:
        return tuple(notes)
    e = experiment
    held = shares.held_back(e.concurrency, e.threads, here.cores, lag=e.lag, trials=e.trials) if e.looks_back else None
    crowded = shares.crowding(e.concurrency, e.threads, here.cores)
    return (*notes, *(note for note in (held, crowded) if note))
