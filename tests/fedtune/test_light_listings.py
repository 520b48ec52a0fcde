"""A listing imports nothing that it does not show: what computes, draws or reads runs would take most of its time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import fedtune
from fedtune.api import catalogue, reproductions
from tests.fedtune import kinds

#: Each takes between a tenth of a second of a processor and two seconds to import.
HEAVY = {"torch", "ray", "optuna", "sqlalchemy", "pandas", "pyarrow", "plotly", "scipy", "sklearn", "matplotlib"}

#: What reading runs, finding their best and testing methods against a leader does without.
NOT_FOR_RUNS = (HEAVY - {"optuna", "scipy"}) | {
    "alembic",
    "scipy.stats",
    "scipy.optimize",
    "scipy.spatial",
    "fedtune.planning.plan",
    "analysis.report",
}

CODE = """\
import json, sys
from fedtune.cli import main
sys.argv = ["fedtune", *json.loads(sys.argv[1])]
try:
    main()
except SystemExit as end:
    code = end.code or 0
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


def imported(words: list[str], where: Path) -> set[str]:
    """The modules of a process that carried out a command line in the folder `where`."""
    done = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(words)], capture_output=True, text=True, check=True, cwd=where
    )
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0 and done.stdout
    return set(modules)


@pytest.fixture(scope="module", autouse=True)
def remembered() -> None:
    """What the listings show is remembered when it was found once."""
    catalogue.methods(), catalogue.methods("dfrd"), catalogue.spaces("dfrd"), reproductions.reproductions()


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["search", "--help"],
        ["auto", "--help"],
        ["report", "--help"],
        ["runs", "--help"],
        ["methods"],
        ["methods", "dfrd"],
        ["spaces"],
        ["spaces", "dfrd"],
        ["metrics"],
        ["datasets"],
        ["reproduce"],
        ["completion", "bash"],
    ],
    ids=" ".join,
)
def test_a_listing_imports_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    assert not HEAVY & imported(words, tmp_path)


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kinds.write(tmp_path_factory.mktemp("every") / "runs")


def test_the_runs_of_every_kind_are_listed_without_what_computes_or_draws(every_kind: Path, tmp_path: Path) -> None:
    """Optuna's trials and two small parts of SciPy are what reading and judging them takes."""
    rows = {Path(row["run"]).name: row for row in fedtune.runs(every_kind)}
    assert {row["problem"] for row in rows.values()} == {None}
    assert {row["kind"] for row in rows.values()} == {"search", "run", "auto", "reproduction"}
    assert rows["auto"]["leaderboard"][1]["p"] is not None, "the methods were tested against the leader"
    assert len(rows["conditions"]["by_condition"]) == 3 and rows["race"]["best"]["estimate"]
    assert not NOT_FOR_RUNS & imported(["runs", str(every_kind)], tmp_path)


@pytest.mark.parametrize("name", ["required", "auto"])
def test_the_status_of_a_run_neither_computes_nor_draws(name: str, every_kind: Path, tmp_path: Path) -> None:
    """Of a search with a requirement, and of one over several methods: the other ways into the same files are above."""
    assert not NOT_FOR_RUNS & imported(["status", str(every_kind / name)], tmp_path)


def test_a_word_is_completed_without_anything_heavy(
    every_kind: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs among the words: their folders are looked at, not read."""
    monkeypatch.setenv("_FEDTUNE_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"fedtune status {every_kind}/")
    monkeypatch.setenv("COMP_CWORD", "2")
    found = imported(["status"], tmp_path)
    assert not HEAVY & found and "numpy" not in found
