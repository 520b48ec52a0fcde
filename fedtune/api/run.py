"""`fedtune.run`: one configuration trained on seeds that no search has seen: an exported one, a search's winner, or a
method's own.

The record is a run directory like a search's (`kind: run`): trial i is the configuration on seed i, with its best
global model by the validation metric as `model-<seed>.safetensors` beside its rounds, and the clients' own models of
that round as `clients-<seed>.safetensors` where the method has such.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.runs import load_run
from fedtune import option
from fedtune.api.export import load, winner_of
from fedtune.api.findings import CLIENTS, GLOBAL, Findings, model_files
from fedtune.api.search import Best, Result, carry_out
from fedtune.machine import resources
from fedtune.option import fields_of
from fedtune.options import RunRequest
from fedtune.planning.checks import RUNS, named_folder
from fedtune.planning.objects import spelled
from fedtune.planning.plan import Plan, device_of, placed, placement
from fedtune.planning.preflight import preflight
from fedtune.planning.settings import overrides, settled
from fedtune.record.experiment import Experiment, final_seeds
from search_spaces import presets
from search_spaces.errors import UserError
from search_spaces.files import given
from search_spaces.metrics import METRICS
from search_spaces.parameter import Value
from search_spaces.space import Space


@dataclass(frozen=True)
class Spread:
    """A metric over seeds, at the last round."""

    mean: float
    #: Sample standard deviation; nan for one seed.
    std: float
    values: tuple[float, ...]


@dataclass(frozen=True)
class Final(Findings):
    """A final run's metrics and models, and what is to be read of it."""

    result: Result
    seeds: tuple[int, ...]
    #: Test metrics, by name in the order of `search_spaces.metrics`.
    metrics: Mapping[str, Spread]
    models: tuple[Path, ...]
    #: By seed the file with the clients' own models, of a method whose clients have such.
    client_models: tuple[Path, ...] = ()

    @property
    def folder(self) -> Path:  # type: ignore[override]
        """The run directory."""
        return self.result.folder

    @property
    def best(self) -> Best | None:
        """The trial with the best value."""
        return self.result.best

    def to_json(self) -> dict[str, Any]:
        """Plain data for --json; the deviation of a single seed is null."""
        spread = {
            name: {"mean": s.mean, "std": s.std if math.isfinite(s.std) else None, "values": list(s.values)}
            for name, s in self.metrics.items()
        }
        return self.result.to_json() | {
            "seeds": list(self.seeds),
            "metrics": spread,
            "models": [str(path) for path in self.models],
            "client_models": [str(path) for path in self.client_models],
        }


@fields_of(RunRequest)
def run(request: RunRequest) -> Final:
    """Trains the exported configuration `best` on `seeds` fresh seeds for all its planned rounds.

    `best` may also be the run directory of a search, whose winner is trained, or a method's name. For a method `space`
    and `paper` say which fixed values and which profile are used, and a parameter that this space would search has its
    default. In all cases `dataset`, `rounds` and `set` change single values. `keep_images` keeps images of the method's
    generator at every evaluated round (`search_spaces.kept_images`).

    Raises `UserError`, before anything is created, with every problem of the file and the request."""
    return report(carry_out(plan_run(request, request.seeds), request))


def plan_run(request: RunRequest, count: int, *, after: int = 0) -> Plan:
    """The plan of a final run over `count` seeds, those that come after the first `after` of the request's."""
    request = spelled(request)
    problems: list[str] = []
    problems.extend(option.problems(request))
    try:
        method, values, data, chosen = _configuration(request, problems)
    except UserError as error:
        raise UserError(*problems, *error.problems) from None
    origin = data.get("provenance") or {}
    name = request.name if request.name is not None else _free(f"{origin.get('run', method)}-final")
    folder = named_folder(str(name), problems)
    seeds = final_seeds(request.seed, after + count)[after:] if not problems else (0,)
    packing = placement(request, problems, trials=len(seeds))
    metric = _metric(data or _selected_by(method, request.space), float(values["validation_fraction"]))
    checked = preflight(
        method,
        values,
        seeds,
        request.data_dir,
        problems,
        (metric,),
        device_of(packing.gpus, request.address),
        keep_images=request.keep_images,
    )
    if problems:
        raise UserError(*problems)
    experiment = Experiment(
        name=folder.name,
        kind="run",
        method=method,
        space=str(data.get("space", request.space)),
        profile="export" if data else "paper" if request.paper else "small",
        values=checked.values,
        metric=(metric,),
        select_on="validation" if metric.startswith("val_") else "test",
        trials=count,
        rounds=int(checked.values["rounds"]),
        seed=request.seed,
        seeds=seeds,
        sampler="random",
        scheduler="none",
        **placed(request, packing),
        source=data,
    )
    title = f"Final run of {origin.get('run', method)}"
    fixed = Space(name=experiment.space, method=method, search={}, title=title, fix=checked.values, metric=(metric,))
    notes = (*chosen, *_notes(experiment, checked.facts, origin))
    return Plan(folder, experiment, fixed, checked.facts, notes, checked.values)


def _configuration(
    request: RunRequest, problems: list[str]
) -> tuple[str, dict[str, Value], dict[str, Any], tuple[str, ...]]:
    """Method, every parameter, the exported configuration (empty for a method's own), and what the user is told of
    values that nobody has given."""
    from trainables import registry

    if registry.is_method(method := registry.named(request.method)):
        named = dataclasses.replace(request, best=method)
        settings = settled(named, problems)
        return method, {**settings.defaults, **settings.values}, {}, settings.chosen
    is_folder = given(request.method).is_dir()
    method, values, data = winner_of(request.method) if is_folder else load(request.method)
    if request.paper or request.space != "default":
        problems.append(
            "--paper and --space belong to a method's own run; an exported configuration is complete. Leave them out."
        )
    values |= overrides(request, method, problems)
    return method, values, data, ()


def report(result: Result) -> Final:
    """Mean and spread of the test metrics of a final run's complete trials, and its models."""
    run = load_run(result.folder)
    measured = [run.measured(number) for number in run.chosen]
    metrics = {}
    for metric in METRICS.values():
        values = tuple(of_trial[metric.name] for of_trial in measured if metric.name in of_trial)
        if metric.to_target and len(values) < len(measured):
            continue  # the seeds that did reach it would flatter
        if values and not metric.timing and not metric.name.startswith("val_"):
            metrics[metric.name] = Spread(
                statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else math.nan, values
            )
    models, of_clients = (tuple(model_files(result.folder, start)) for start in (GLOBAL, CLIENTS))
    return Final(result, Experiment.of(run).seeds, metrics, models, of_clients)


def _selected_by(method: str, space: str) -> dict[str, Any]:
    """What a search of that space would select by, as an exported file says it."""
    from trainables import registry

    return {"metric": dict.fromkeys(presets.load(method, space, registry.declared(method)).metric)}


def _metric(data: Mapping[str, Any], validation_fraction: float) -> str:
    """The metric that decides which round's model is kept: the one the search selected by, or, without validation
    data, the same metric on the test set."""
    names = (
        [name for name in (data.get("metric") or {}) if name in METRICS]
        if isinstance(data.get("metric"), Mapping)
        else []
    )
    name = names[0] if names else "val_global_accuracy"
    return name.removeprefix("val_") if validation_fraction == 0 else name


def _free(name: str) -> str:
    """The first of `name`, `name-2`, `name-3`, … that is not taken; for a name that the user did not choose."""
    names = (name if n == 1 else f"{name}-{n}" for n in range(1, 10_000))
    return next(found for found in names if not (Path(RUNS) / found).exists())


def _notes(experiment: Experiment, facts: Mapping[str, Any], origin: Mapping[str, Any]) -> tuple[str, ...]:
    notes = [
        f"{experiment.trials} fresh seeds ({experiment.seeds[0]} …), {experiment.rounds} rounds each, "
        f"{experiment.concurrency} at the same time."
    ]
    crowded = (
        resources.crowding(experiment.concurrency, experiment.threads, resources.cores())
        if experiment.address is None
        else None
    )
    if crowded:
        notes.append(crowded)
    searched = (origin.get("dataset") or {}).get("hash") if isinstance(origin.get("dataset"), Mapping) else None
    if searched is not None and searched != facts["dataset"]["hash"]:
        notes.append(
            f"The data set {facts['dataset']['name']} is not the one the search used (its content differs), so the "
            f"results cannot be compared."
        )
    return tuple(notes)
