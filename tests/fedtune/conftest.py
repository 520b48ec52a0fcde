"""A run on the fake simulation: real Ray, real study, real run directory, no training."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedtune.api.search import Result, carry_out
from fedtune.console import progress
from fedtune.options import Progress
from fedtune.planning.plan import Plan
from fedtune.record.experiment import Experiment
from fedtune.record.journal import StudyFile
from fedtune.record.run_directory import create
from search_spaces import run_folder
from search_spaces.dimension import Dimension
from search_spaces.parameter import Parameter
from search_spaces.space import Space
from tests.fedtune import fake


def timing(key: str) -> bool:
    """Numbers that depend on the machine; two equal runs may differ in these only."""
    return key.startswith("seconds")


def space(**fix: Any) -> Space:
    alpha = Parameter("alpha", "real", 0.5, "", low=0.0, high=2.0)
    lam = Parameter("lambda_", "real", 0.5, "", low=0.0, high=1.0)
    return Space(
        "two",
        "fedavg",
        {
            "alpha": Dimension(alpha, 0.0, 2.0, grid=(0.0, 1.0, 2.0)),
            "lambda": Dimension(lam, 0.0, 1.0, grid=(0.0, 0.5)),
        },
        fix=fix,
    )


def varied(*omega: float, where: Space | None = None) -> Space:
    """The space under these values of ω as conditions."""
    declared = Parameter("omega", "real", 0.1, "", low=1e-3, high=1e4, log=True)
    vary = {"omega": Dimension(declared, 0.1, 10.0, True, grid=omega)}
    return dataclasses.replace(space() if where is None else where, vary=vary)


def experiment(folder: Path, **changes: Any) -> Experiment:
    basis = Experiment(
        name=folder.name,
        kind="search",
        method="fedavg",
        space="two",
        profile="small",
        values={"rounds": 9},
        metric=("val_global_accuracy",),
        select_on="validation",
        trials=12,
        rounds=9,
        seed=0,
        seeds=(0, 1),
        sampler="tpe",
        scheduler="asha",
        concurrency=2,
        cpus_per_trial=0.5,
    )
    values = {**basis.values, **changes.pop("values", {})}
    changed = dataclasses.replace(basis, **changes)
    return dataclasses.replace(changed, values=values | {"rounds": changed.rounds})


@pytest.fixture
def conduct(ray_cluster: None, tmp_path: Path) -> Callable[..., Result]:
    """`conduct("name", trials=…)` runs a whole search on the fake and returns its result."""

    def call(name: str, **changes: Any) -> Result:
        folder = tmp_path / name
        simulate = changes.pop("simulate", fake.Fake)
        plan = Plan(folder, experiment(folder, **changes), space(), {}, (), {})
        return carry_out(plan, Progress(quiet=True, simulate=simulate))

    return call


def start(folder: Path, **changes: Any) -> Experiment:
    """Only creates the run directory."""
    made = experiment(folder, **changes)
    create(folder, made, space(), {})
    return made


def watch(made: Experiment) -> progress.ProgressDisplay:
    return progress.ProgressDisplay(made, "quiet")


def frozen(folder: Path) -> list[dict[str, Any]]:
    """Everything a run records of its trials that is not a timing: states, values, curves, parameters, attributes,
    rows."""
    found = []
    for trial in StudyFile(folder).study.get_trials(deepcopy=False):
        rows = (folder / run_folder.trial_folder(trial.number) / run_folder.ROUNDS).read_text().splitlines()
        found.append(
            {
                "number": trial.number,
                "state": trial.state.name,
                "values": trial.values,
                "params": trial.params,
                "system": trial.system_attrs,
                "curve": trial.intermediate_values,
                "attributes": {k: v for k, v in trial.user_attrs.items() if not timing(k)},
                "rows": [{k: v for k, v in json.loads(row).items() if not timing(k)} for row in rows],
            }
        )
    return found
