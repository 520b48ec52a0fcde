"""What is shown while several methods are searched, and while their fresh seeds are trained."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from fedtune.api.auto import seed_name
from fedtune.console.progress import AutoDisplay, SeveralDisplay
from fedtune.decisions.history import Part
from search_spaces.space import Space
from tests.fedtune.conftest import experiment


@pytest.mark.parametrize(
    ("metric", "values", "shown"),
    [
        ("val_global_accuracy", (0.65, 0.81234, 0.7), ("70.00 %", "81.23 %")),
        ("bytes_up", (9e7, 5e7, 6e7), ("60 MB", "50 MB")),
    ],
)
def test_methods_are_ranked_by_values_with_their_unit(
    metric: str, values: tuple[float, ...], shown: tuple[str, str], tmp_path: Path
) -> None:
    """Trials 0 and 2 are of FedAvg, whose first one is its worst."""
    method_of = ("fedavg", "fedprox", "fedavg").__getitem__
    watch = AutoDisplay(
        experiment(tmp_path, metric=(metric,)), "quiet", {"fedavg": 1.0, "fedprox": 2.0, "moon": 4.0}, 72.0, method_of
    )
    for number, value in enumerate(values):
        watch.started(number, {})
        watch.round(number, 9, (value,))
        watch.finished(number, "COMPLETE", (value,), None)
    own, best = shown
    line = watch.line()
    assert f"best {best} (trial 1)  50 % of the budget: 3 done, 0 pruned, 0 failed, 0 running" in line
    assert line.endswith(f"new best: fedprox {best}, fedavg {own}")
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(watch._panel())
    rows = [row.split() for row in console.export_text().splitlines()]
    assert [*filter(lambda row: row and row[0] in watch.costs, rows)] == [
        ["fedprox", *best.split(), "1", "1", "0"],
        ["fedavg", *own.split(), "2", "2", "0"],
        ["moon", "0", "0"],
    ]


def test_a_seed_is_named_with_its_method_whatever_its_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    final = replace(experiment(tmp_path, seeds=(7, 8)), kind="run")
    other = replace(final, method="fedprox")

    parts = [Part(tmp_path, one, Space("two", one.method, {})) for one in (final, other)]
    watch = SeveralDisplay(replace(final, trials=4), "plain", lambda n: seed_name(parts[n // 2], n % 2))
    for number in range(4):
        watch.started(number, {})
        watch.finished(number, "FAIL", None, "it diverged")
    assert [line for line in capsys.readouterr().err.splitlines() if "failed:" in line] == [
        f"Seed {seed} of {method} failed: it diverged" for method in ("fedavg", "fedprox") for seed in (7, 8)
    ]
