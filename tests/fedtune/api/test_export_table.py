"""`fedtune export RUN … --table FILE`: every curve that runs recorded, and nothing that they did not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

import fedtune
from analysis.curve_table import STEPS, load
from fedtune import cli
from fedtune.record.run_directory import create
from search_spaces import run_folder
from search_spaces.errors import UserError
from search_spaces.space import Space
from tests.fedtune import played
from tests.fedtune.conftest import experiment, start
from tests.fedtune.played import asked


@pytest.fixture
def searched(tmp_path: Path) -> Path:
    return asked(tmp_path / "searched", trials=8, scheduler="asha").path


def test_a_table_holds_what_the_rounds_say(searched: Path, tmp_path: Path) -> None:
    card = fedtune.export(searched, table=tmp_path / "curves.npz")
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
        assert table.whole[number].all() == (len(rows) == 18), "what was stopped is told from what diverged"
        assert table.configurations[number].keys() == {"alpha", "lambda"}
    assert 0 < stopped < 8, "some were stopped early, and have no values afterwards"
    assert np.allclose(table.seconds, 0.01)
    assert card["metric"] == {"validation": "val_global_accuracy", "test": "global_accuracy"}
    assert card["direction"] == "maximize" and card["seeds"] == [0, 1] and table.space.name == "two"


def test_the_command_line_says_what_was_written(
    searched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["export", str(searched), "--table", "curves.npz"]) == 0
    assert "curves.npz: 8 configurations, 2 seeds, 9 rounds. curves.json describes them." in capsys.readouterr().out
    assert run(["export", str(searched), "--table", "curves.npz", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seeds"] == [0, 1]
    for arguments, words in (
        (["--table", "curves.yaml"], "a file ending in .npz"),
        (["--table", "curves.npz", "--trial", "1"], "must be given alone"),
        (["--table", "curves.npz", "--study", "study.db"], "must be given alone"),
        (["--table", "nowhere/curves.npz"], "there is no directory"),
        ([str(searched)], "Give --table FILE, or one run"),
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
        fedtune.export(tmp_path / "begun", table=tmp_path / "curves.npz")
    assert not (tmp_path / "curves.npz").exists()


def test_runs_over_one_space_make_one_table(tmp_path: Path) -> None:
    """Searches with the same proposals on other seeds, and a final run of the second one's first configuration: six
    configurations on three seeds, and one of them on two more. Every value is that of the run that has it."""
    first = played.searched(tmp_path / "first")
    second = played.searched(tmp_path / "second", seeds=(1, 2))
    values = dict(second.frozen[0].params)
    made = experiment(tmp_path / "final", kind="run", seeds=(7, 8), trials=2, values=values, scheduler="none")
    create(made_at := tmp_path / "final", made, Space("two", "fedavg", {}), {})
    final = played.play(made_at)
    fedtune.export([final.path, first.path, second.path], table=tmp_path / "all.npz")
    table = load(tmp_path / "all.npz")
    assert sorted(table.seeds) == [0, 1, 2, 7, 8] and len(table.configurations) == 6
    columns = [table.seeds.index(seed) for seed in (0, 1, 2)]
    assert table.whole[:, columns].all() and table.whole.sum() == 6 * 3 + 2
    row = table.configurations.index(values)
    for one, number, seed in ((first, 3, 0), (second, 3, 2), (final, 1, 8)):
        rounds = one.rounds[(one.rounds["trial"] == number) & (one.rounds["seed"] == seed)]
        place = row if one is final else table.configurations.index(dict(one.frozen[number].params))
        got = table.validation[place, table.seeds.index(seed)]
        assert got == pytest.approx(rounds["val_global_accuracy"].to_numpy(), abs=0.5 / STEPS * (1 + 1e-9))


def test_how_often_the_test_set_was_measured_keeps_no_runs_apart(tmp_path: Path) -> None:
    runs = [
        played.searched(tmp_path / how, seeds=(place,), values={"eval_test": how})
        for place, how in enumerate(("end", "every"))
    ]
    fedtune.export([run.path for run in runs], table=tmp_path / "all.npz")
    assert load(tmp_path / "all.npz").seeds == (0, 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rounds": 6}, "must have the same rounds, got 9"),
        ({"values": {"omega": 0.1}}, "must have the same omega, got 1"),
        ({"metric": ("global_accuracy",), "select_on": "test"}, "must have the same metric, got another"),
    ],
)
def test_runs_that_do_not_belong_together_make_no_table(tmp_path: Path, changes: Any, words: str) -> None:
    first = played.searched(tmp_path / "first", values={"omega": 1.0})
    second = played.searched(tmp_path / "second", **{"values": {"omega": 1.0}, **changes})
    with pytest.raises(UserError, match=words):
        fedtune.export([first.path, second.path], table=tmp_path / "all.npz")
    assert not [*tmp_path.glob("all.*")]
