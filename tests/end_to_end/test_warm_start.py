"""A search that starts from an earlier one, by the real command line: what is taken is true and outlives its source."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from analysis.runs import load_run
from fedtune.cli import app
from search_spaces import run_folder
from tests.end_to_end.cli import fedtune, search
from tests.fedtune.conftest import frozen

BUDGET = ("--rounds", 2, "--scheduler", "none")


@pytest.fixture(scope="module")
def first(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search of three trials."""
    cwd = tmp_path_factory.mktemp("first")
    done = search(toy, cwd, "first", *BUDGET, "--trials", 3)
    assert done.returncode == 0, done.stderr
    assert "Trial 0 has the paper's values: lr 0.01," in done.stderr
    assert load_run(cwd / "runs" / "first").frozen[0].params["lr"] == 0.01
    return cwd / "runs" / "first"


def test_results_are_taken_and_outlive_the_earlier_run(first: Path, toy: Path, tmp_path: Path) -> None:
    earlier = shutil.copytree(first, tmp_path / "runs" / "first")
    before = frozen(first)
    done = search(toy, tmp_path, "second", *BUDGET, "--trials", 1, "--warm-start", earlier)
    assert done.returncode == 0, done.stderr
    assert "first: 3 of 3 complete trials in this space; the results of 3 are taken and not run again." in done.stderr
    printed = " ".join(done.stdout.split())  # a terminal breaks lines
    assert "4 trials done" in printed and "3 of those done are results of earlier runs." in printed
    shutil.rmtree(earlier)
    second = tmp_path / "runs" / "second"
    done = fedtune("extend", second, "--trials", 1, cwd=tmp_path)
    assert done.returncode == 0 and "The search of 4 trials gets 1 more" in done.stderr, done.stderr
    after = frozen(second)
    assert [(t["values"], t["params"], t["curve"], t["rows"]) for t in after[:3]] == [
        (t["values"], t["params"], t["curve"], t["rows"]) for t in before
    ]
    assert len(after) == 5 and all(not (second / f"trials/{n:04d}" / run_folder.CHECKPOINT).exists() for n in range(3))
    longer = search(toy, tmp_path, "longer", *BUDGET, "--trials", 2, "--warm-start", first)
    assert longer.returncode == 0 and frozen(tmp_path / "runs" / "longer") == after
    for words in (["report"], ["export", "--trial", "1", "-o", str(tmp_path / "one.yaml")], ["status"]):
        read = CliRunner().invoke(app, [words[0], str(second), *words[1:]])
        assert read.exit_code == 0, read.exception
    assert "result of first trial 1" in (second / run_folder.REPORT).read_text()
    assert yaml.safe_load((tmp_path / "one.yaml").read_text())["provenance"]["from"] == "first trial 1"


@pytest.mark.guard("a search that starts from another")
def test_points_are_run_where_results_do_not_hold(first: Path, toy: Path, tmp_path: Path) -> None:
    words = ("--rounds", 3, "--scheduler", "none", "--trials", 8, "--warm-start", first, "--dry-run", "--json")
    done = search(toy, tmp_path, "second", *words)
    plan = json.loads(done.stdout)
    assert (plan["trials"], plan["taken"]) == (8, 0), done.stderr
    done = search(toy, tmp_path, "second", *words[:-1])
    printed = " ".join(done.stdout.split())
    assert "the best 2 are run first. Results are not taken, as the runs differ in rounds." in printed, printed
    assert not (tmp_path / "runs").exists()


def test_a_run_of_another_method_is_refused(first: Path, toy: Path, tmp_path: Path) -> None:
    done = fedtune("search", "fedprox", "--dataset", toy, "--warm-start", first, cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr and not (tmp_path / "runs").exists()
    assert "searches the method 'fedavg' and this search is of 'fedprox', so nothing can be taken from it" in (
        " ".join(done.stderr.split())
    )
