"""`fedtune.run`: one configuration trained on seeds that no search has seen: an exported one, a search's winner, or a
method's own.

The record is a run directory like a search's (`kind: run`): trial i is the configuration on seed i, with its best
global model by the validation metric as `model-<seed>.safetensors` beside its rounds, and the clients' own models of
that round as `clients-<seed>.safetensors` where the method has such.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.runs import load_run
from analysis.tables.partitions import one_partition
from fedtune.api.findings import CLIENTS, GLOBAL, Findings, model_files
from fedtune.api.search import Best, Result, carry_out
from fedtune.machine import cluster
from fedtune.option import fields_of
from fedtune.options import RunRequest
from fedtune.planning.plan import plan
from fedtune.record.experiment import Experiment
from search_spaces.metrics import METRICS


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
    #: A sentence where all seeds share one partition.
    partition: str | None = None

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


@fields_of(RunRequest, cluster.ahead)
def run(request: RunRequest) -> Final:
    """Trains the exported configuration `best` on `seeds` fresh seeds for all its planned rounds.

    `best` may also be the run directory of a search, whose winner is trained, or a method's name. For a method `space`
    and `paper` say which fixed values and which profile are used, and a parameter that this space would search has its
    default. In all cases `dataset`, `rounds` and `set` change single values. `keep_images` keeps images of the method's
    generator at every evaluated round (`search_spaces.kept_images`).

    Raises `UserError`, before anything is created, with every problem of the file and the request."""
    return report(carry_out(plan(request), request))


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
    experiment = Experiment.of(run)
    shared = one_partition(experiment.values, len(experiment.seeds))
    return Final(result, experiment.seeds, metrics, models, of_clients, shared)
