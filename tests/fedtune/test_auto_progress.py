"""What is shown while the fresh seeds of several methods are trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedtune.console.progress import FreshDisplay
from fedtune.record.experiment import Experiment
from tests.fedtune.conftest import experiment


def test_a_seed_is_named_with_its_method_whatever_its_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    final = replace(experiment(tmp_path, seeds=(7, 8)), kind="run")
    other = replace(final, method="fedprox")

    def home(number: int) -> tuple[Experiment, int]:
        return (final, other)[number // 2], number % 2

    watch = FreshDisplay(replace(final, trials=4), "plain", home)
    for number in range(4):
        watch.started(number, {})
        watch.finished(number, "FAIL", None, "it diverged")
    assert [line for line in capsys.readouterr().err.splitlines() if "failed:" in line] == [
        f"Seed {seed} of {method} failed: it diverged" for method in ("fedavg", "fedprox") for seed in (7, 8)
    ]
