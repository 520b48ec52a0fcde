"""Synthetic run directories, written once per session."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.runs import Run, load_run
from tests.analysis import synthetic


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds grid (30 trials), tpe (24, all outcomes), wide (40, four parameters), other (8, FedAvg), final (3 seeds),
    pareto (two objectives)."""
    folder = tmp_path_factory.mktemp("runs")
    synthetic.write(folder / "grid", sampler="grid", rounds=3)
    synthetic.write(folder / "tpe", trials=24)
    synthetic.write(folder / "wide", trials=40, keys=("alpha", "lambda", "lr", "merge_op"), published=None, figures=())
    synthetic.write(
        folder / "other",
        trials=8,
        keys=("lr",),
        method="fedavg",
        shift=-0.08,
        failures=False,
        published=None,
        figures=(),
    )
    synthetic.write(
        folder / "final", keys=(), seeds=(1000, 1001, 1002), kind="run", failures=False, published=None, figures=()
    )
    synthetic.write(folder / "pareto", trials=10, metric=("val_global_accuracy", "bytes_up"), failures=False)
    return folder


@pytest.fixture(scope="session")
def loaded(root: Path) -> dict[str, Run]:
    """The same, read."""
    return {folder.name: load_run(folder) for folder in root.iterdir()}
