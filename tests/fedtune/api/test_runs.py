"""The list of a folder's runs: finished, half-done and unreadable ones."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedtune
from analysis.runs import load_run
from analysis.runs import run as run_module
from analysis.runs.best import Best
from analysis.runs.requirements import Kept
from analysis.runs.rounds import Lines, read_lines
from fedtune.api.search import result_of
from fedtune.cli import app
from fedtune.execution.driver import Outcome
from search_spaces import run_folder
from search_spaces.errors import UserError
from search_spaces.metrics import UNREACHED
from tests.analysis import synthetic
from tests.analysis.reproduce import folders
from tests.fedtune.played import begin, searched
from tests.fedtune.queues import begun, take
from trainables.worker.job import Ending


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished search, one that has begun, a torn one, and two things that are no runs."""
    where = tmp_path_factory.mktemp("several") / "runs"
    searched(where / "a-search")
    begin(where / "begun", trials=7)
    searched(where / "torn")
    (where / "torn" / run_folder.EXPERIMENT).write_text("version: [")
    (where / "notes").mkdir()
    (where / "best.yaml").write_text("method: fedavg\n")
    return where


def test_a_folder_of_an_unknown_user_is_refused() -> None:
    with pytest.raises(UserError, match="The path '~nobody-of-that-name/runs' cannot be used"):
        fedtune.runs("~nobody-of-that-name/runs")


def test_every_run_has_a_row(folder: Path) -> None:
    rows = {Path(row["run"]).name: row for row in fedtune.runs(folder)}
    assert list(rows) == ["a-search", "begun", "torn"]
    assert rows["a-search"] == fedtune.status(folder / "a-search") | {"problem": None}
    assert (rows["begun"]["state"], rows["begun"]["trials"], rows["begun"]["done"]) == ("resumable", 7, 0)
    assert rows["torn"].keys() == {"run", "problem"} and "experiment.yaml" in rows["torn"]["problem"]


def test_a_reproduction_is_one_row_of_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of DFRD's Fig. 5 all is run, of FedKF's Table V all cells but the last."""
    figure, table = folders.heatmap(tmp_path / "a-figure"), folders.table(tmp_path / "b-table")
    first, second = fedtune.runs(tmp_path)
    assert (first["kind"], first["name"], first["state"], first["done"]) == (
        "reproduction",
        "dfrd-fig5",
        "finished",
        60,
    )
    planned = len(table.reproduction.rows) * len(table.reproduction.places)
    assert second["state"] == "resumable" and second["cells"] == {"over": planned - 1, "planned": planned}
    monkeypatch.setenv("COLUMNS", "220")
    lines = CliRunner().invoke(app, ["runs", str(tmp_path)]).stdout.splitlines()[3:]
    assert f"reproduction, {figure.reproduction.title}, 1 of 1 runs ended" in lines[0] and "finished" in lines[0]
    assert f"{planned - 1} of {planned} runs ended" in lines[1]
    assert fedtune.status(table.path) | {"problem": None} == second
    said = CliRunner().invoke(app, ["status", str(table.path)]).stdout
    assert f"{planned - 1} of {planned} runs ended, {second['done']} federations trained, 0 failed." in said
    assert f"fedtune resume {table.path}" in said
    (table.path / run_folder.REPRODUCTION).write_text("version: [")
    assert fedtune.runs(tmp_path)[1].keys() == {"run", "problem"}


def test_only_the_winners_rounds_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all trials take seconds of a large run, and only several seeds or a requirement need them."""
    searched(tmp_path / "one-seed", seeds=(0,))
    read: list[list[int]] = []

    def noting(path: Path, numbers: Sequence[int]) -> Lines:
        read.append(list(numbers))
        return read_lines(path, numbers)

    monkeypatch.setattr(run_module, "read_lines", noting)
    best = fedtune.status(tmp_path / "one-seed")["best"]
    assert read == [[best["trial"]]]


def test_they_are_shown_a_line_each(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    done = CliRunner().invoke(app, ["runs", str(folder)])
    lines = done.stdout.splitlines()
    assert done.exit_code == 0 and len(lines) == 3 + 3
    assert "a-search" in lines[3] and "finished" in lines[3] and "6/6" in lines[3] and "[" in lines[3]
    assert "begun" in lines[4] and "resumable" in lines[4] and "0/7" in lines[4]
    assert "torn" in lines[5] and "unreadable" in lines[5]


def test_a_target_that_was_not_reached_has_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `fedtune search --json` says it; the study holds a number there, which Optuna wants."""
    run = tmp_path / "run"
    queue = begun(run, metric=("rounds_to_target",), trials=1)
    take(queue)
    queue.finish(0, Ending("completed", 9, None, {9: (UNREACHED,)}))
    said = json.loads(CliRunner().invoke(app, ["runs", str(tmp_path), "--json"]).stdout)[0]["best"]
    assert said == json.loads(CliRunner().invoke(app, ["status", str(run), "--json"]).stdout)["best"]
    assert said["values"] == {"rounds_to_target": None}
    searched = result_of(run, Outcome(finished=True)).to_json()["best"]
    assert {"trial": searched.pop("number"), **searched} == said
    monkeypatch.setenv("COLUMNS", "200")
    assert "not reached" in CliRunner().invoke(app, ["runs", str(tmp_path)]).stdout


def test_of_a_final_run_the_mean_is_told_and_no_seed_is_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = (1000000007, 1000000008)
    folder = synthetic.write(tmp_path / "final", keys=(), trials=2, seeds=seeds, kind="run", failures=False)
    monkeypatch.setenv("COLUMNS", "200")
    head, means = CliRunner().invoke(app, ["status", str(folder)]).stdout.splitlines()
    assert head.endswith("final: finished. 2 of 2 seeds done, 0 failed.")
    ends = [load_run(folder).measured(number) for number in (0, 1)]
    shown = [
        f"{name} {100 * statistics.fmean(over):.2f} % ± {100 * statistics.stdev(over):.2f} %"
        for name in ("val_global_accuracy", "global_accuracy")
        for over in [[end[name] for end in ends]]
    ]
    assert means == f"Mean over 2 seeds: {', '.join(shown)}."


def test_a_seed_of_a_final_run_is_told_by_its_number(tmp_path: Path) -> None:
    take(begun(tmp_path / "final", kind="run", seeds=(1000000007, 1000000008), trials=2))
    lines = CliRunner().invoke(app, ["status", str(tmp_path / "final")]).stdout.splitlines()
    assert sum(line.startswith("  seed 1000000007: round 0 of 9") for line in lines) == 1, lines


def test_a_requirement_that_was_not_measured_has_null() -> None:
    """JSON has no nan."""
    best = Best(0, {"global_accuracy": 0.5}, {}, {}, kept=(Kept("rounds_to_target<=5", math.nan, False, None),))
    assert best.to_json()["kept"][0] == {
        "requirement": "rounds_to_target<=5",
        "value": None,
        "holds": False,
        "probability": None,
    }


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"There is no folder '.*none' with runs"):
        fedtune.runs(tmp_path / "none")
    assert fedtune.runs(tmp_path) == []
