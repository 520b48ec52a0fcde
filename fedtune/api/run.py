"""`fedtune.run`: one configuration trained on seeds that no search has seen: an exported one, or a method's own.

The record is a run directory like a search's (`kind: run`): trial i is the configuration on seed i, with its best
global model by the validation metric as `model-<seed>.safetensors` beside its rounds.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.runs import load as load_run
from fedtune.api.export import load
from fedtune.api.search import Result, carry_out
from fedtune.machine import shares
from fedtune.planning.checks import runs_folder, whole
from fedtune.planning.plan import Plan, device_of
from fedtune.planning.preflight import preflight
from fedtune.planning.request import Request, configuration, overrides
from fedtune.record.experiment import MAX_SEED, MAX_SEEDS, Experiment, final_seeds
from fedtune.record.run_directory import absolute
from search_spaces import presets, run_folder
from search_spaces.errors import UserError
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
class Final:
    """What a final run yields."""

    result: Result
    seeds: tuple[int, ...]
    #: Test metrics, by name in the order of `search_spaces.metrics`.
    metrics: Mapping[str, Spread]
    models: tuple[Path, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain data for --json; the deviation of a single seed is null."""
        spread = {name: {"mean": s.mean, "std": s.std if math.isfinite(s.std) else None, "values": list(s.values)} for name, s in self.metrics.items()}
        return self.result.to_json() | {"seeds": list(self.seeds), "metrics": spread, "models": [str(path) for path in self.models]}


def run(
    best: str | Path, *, space: str = "default", paper: bool = False, dataset: str | None = None, rounds: int | None = None,
    set: Sequence[str] | Mapping[str, object] = (), seeds: int = 3, seed: int = 0, name: str | None = None, runs_dir: str = "runs", data_dir: str | None = None,
    concurrency: int | None = None, cpus_per_trial: float | None = None, gpus_per_trial: float | None = None, address: str | None = None,
    plain: bool = False, quiet: bool = False, simulate: Callable[..., Any] | None = None,
) -> Final:
    """Trains the exported configuration `best` on `seeds` fresh seeds for all its planned rounds.

    `best` may also be a method's name: then `space` and `paper` say which fixed values and which profile it takes, and what
    that space would search has its default. `dataset`, `rounds` and `set` change single values of either.

    Raises `UserError`, before anything is created, with every problem of the file and the request."""
    problems: list[str] = []
    whole("seeds", seeds, 1, MAX_SEEDS, problems)
    whole("seed", seed, 0, MAX_SEED, problems)
    try:
        method, values, data = _configuration(str(best), space, paper, dataset, rounds, set, problems)
    except UserError as error:
        raise UserError(*problems, *error.problems) from None
    origin = data.get("provenance") or {}
    folder = runs_folder(runs_dir, name if name is not None else _free(runs_dir, f"{origin.get('run', method)}-final"), problems)
    packed, lag = shares.pack(shares.machine() if address is None else None, problems, trials=seeds if not problems else 1, lag=None, looks_back=False,
                               concurrency=concurrency, cpus=cpus_per_trial, gpus=gpus_per_trial)
    chosen = final_seeds(seed, seeds) if not problems else (0,)
    metric = _metric(data or _selected_by(method, space), float(values["validation_fraction"]))
    checked = preflight(method, values, chosen, data_dir, problems, (metric,), device_of(packed.gpus, address))
    if problems:
        raise UserError(*problems)
    experiment = Experiment(
        name=folder.name, kind="run", method=method, space=str(data.get("space", space)),
        profile="export" if data else "paper" if paper else "small", values=checked.values, metric=(metric,),
        select_on="validation" if metric.startswith("val_") else "test", trials=seeds, rounds=int(values["rounds"]), seed=seed, seeds=chosen,
        sampler="random", scheduler="none", lag=lag, data_dir=absolute(data_dir), concurrency=packed.concurrency,
        cpus_per_trial=packed.cpus, gpus_per_trial=packed.gpus, threads=packed.threads, address=address, source=data,
    )
    title = f"Final run of {origin.get('run', Path(best).name)}"
    fixed = Space(name=experiment.space, method=method, search={}, title=title, fix=checked.values, metric=(metric,))
    planned = Plan(folder, experiment, fixed, checked.facts, _notes(experiment, checked.facts, origin), checked.values)
    return report(carry_out(planned, plain=plain, quiet=quiet, simulate=simulate))


def _configuration(
    best: str, space: str, paper: bool, dataset: str | None, rounds: int | None, set: Sequence[str] | Mapping[str, object], problems: list[str],
) -> tuple[str, dict[str, Value], dict[str, Any]]:
    """Method, every parameter, and the exported file's content (empty for a method's own configuration)."""
    from trainables import registry

    request = Request(best, space, paper=paper, dataset=dataset, rounds=rounds, set=set if isinstance(set, Mapping) else tuple(set))
    if best in registry.methods():
        chosen = configuration(request, problems)
        return best, chosen, {}
    method, values, data = load(best)
    if paper or space != "default":
        problems.append("--paper and --space belong to a method's own run; an exported configuration is complete. Leave them out.")
    values |= overrides(dataclasses.replace(request, method=method), problems)
    return method, values, data


def report(result: Result) -> Final:
    """Mean and spread of the test metrics of a final run's complete trials, and its models."""
    run = load_run(result.folder)
    measured = [run.measured(number) for number in run.chosen]
    metrics = {}
    for metric in METRICS.values():
        values = tuple(of_trial[metric.name] for of_trial in measured if metric.name in of_trial)
        if values and not metric.timing and not metric.name.startswith("val_"):
            metrics[metric.name] = Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else math.nan, values)
    models = tuple(sorted((result.folder / run_folder.TRIALS).glob("*/model-*.safetensors")))
    return Final(result, Experiment.of(run).seeds, metrics, models)


def _selected_by(method: str, space: str) -> dict[str, Any]:
    """What a search of that space would select by, as an exported file says it."""
    from trainables import registry

    return {"metric": dict.fromkeys(presets.load(method, space, registry.declared(method)).metric)}


def _metric(data: Mapping[str, Any], validation_fraction: float) -> str:
    """What the search selected by decides which round's model is kept; without a validation share, its test twin."""
    names = [name for name in (data.get("metric") or {}) if name in METRICS] if isinstance(data.get("metric"), Mapping) else []
    name = names[0] if names else "val_global_accuracy"
    return name.removeprefix("val_") if validation_fraction == 0 else name


def _free(runs_dir: str, name: str) -> str:
    """`name`, or `name-2`, `name-3`, …: a name that was not asked for must not stand in the way."""
    base = Path(runs_dir).expanduser()
    return next(found for n in range(1, 10_000) if not (base / (found := name if n == 1 else f"{name}-{n}")).exists())


def _notes(experiment: Experiment, facts: Mapping[str, Any], origin: Mapping[str, Any]) -> tuple[str, ...]:
    notes = [f"{experiment.trials} fresh seeds ({experiment.seeds[0]} …), {experiment.rounds} rounds each, {experiment.concurrency} at once."]
    crowded = shares.crowding(experiment.concurrency, experiment.threads, shares.cores()) if experiment.address is None else None
    if crowded:
        notes.append(crowded)
    searched = (origin.get("dataset") or {}).get("hash") if isinstance(origin.get("dataset"), Mapping) else None
    if searched is not None and searched != facts["dataset"]["hash"]:
        notes.append(f"The data set {facts['dataset']['name']} is not the one the search saw (its content differs); the results are not comparable.")
    return tuple(notes)
