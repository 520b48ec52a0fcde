"""`fedtune export RUN --table`: every curve that a run recorded, and nothing that it did not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import fedtune
from analysis.curve_table import STEPS, load
from fedtune import cli
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.fedtune.conftest import start
from tests.fedtune.played import asked


@pytest.fixture
def searched(tmp_path: Path) -> Path:
    return asked(tmp_path / "searched", trials=8, scheduler="asha").path


def test_a_table_holds_what_the_rounds_say(searched: Path, tmp_path: Path) -> None:
    card = fedtune.export(searched, tmp_path / "curves.npz", table=True)
    table = load(tmp_path / "curves.npz")
    assert table.card == card and table.validation.shape == (8, 2, 9)
    stopped = 0
    for number in range(8):
        lines = (searched / run_folder.trial_folder(number) / run_folder.ROUNDS).read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        for name, curves in (("val_global_accuracy", table.validation), ("global_accuracy", table.test)):
            for row in rows:
                got = curves[number, table.seeds.index(row["seed"]), row["round"] - 1]
                assert abs(got - row[name]) <= 0.5 / STEPS * (1 + 1e-9)
            assert np.isfinite(curves[number]).sum() == len(rows)
        stopped += len(rows) < 18
        assert table.configurations[number].keys() == {"alpha", "lambda"}
    assert 0 < stopped < 8, "some were stopped early, and have no values afterwards"
    assert np.allclose(table.seconds, 0.01)
    assert card["metric"] == {"validation": "val_global_accuracy", "test": "global_accuracy"}
    assert card["direction"] == "maximize" and card["seeds"] == [0, 1] and table.space.name == "two"


def test_the_command_line_says_what_was_written(
    searched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["export", str(searched), "--table", "-o", "curves.npz"]) == 0
    assert "curves.npz: 8 configurations, 2 seeds, 9 rounds. curves.json describes them." in capsys.readouterr().out
    assert run(["export", str(searched), "--table", "-o", "curves.npz", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seeds"] == [0, 1]
    for arguments, words in (
        (["--table"], "-o curves.npz"),
        (["--table", "-o", "curves.yaml"], "a file ending in .npz"),
        (["--table", "-o", "curves.npz", "--trial", "1"], "cannot be given together with --trial"),
        (["--table", "-o", "nowhere/curves.npz"], "there is no directory"),
    ):
        assert run(["export", str(searched), *arguments]) == 2
        assert words in " ".join(capsys.readouterr().err.split())


def run(arguments: list[str]) -> int:
    with mock.patch.object(sys, "argv", ["fedtune", *arguments]), pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0)


def test_a_run_without_an_ended_trial_has_no_curves(tmp_path: Path) -> None:
    start(tmp_path / "begun")
    with pytest.raises(UserError, match="no trial that has ended"):
        fedtune.export(tmp_path / "begun", tmp_path / "curves.npz", table=True)
    assert not (tmp_path / "curves.npz").exists()
