"""What is shown while the fresh seeds of several methods are trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedtune.api.auto import seed_name
from fedtune.console.progress import SeveralDisplay
from fedtune.decisions.history import Part
from search_spaces.space import Space
from tests.fedtune.conftest import experiment


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
