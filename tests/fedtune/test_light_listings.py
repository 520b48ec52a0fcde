"""A listing imports nothing that it does not show: what computes, draws or reads runs would take most of its time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedtune.api import catalogue, reproductions

#: Each takes between a tenth of a second of a processor and two seconds to import.
HEAVY = {"torch", "ray", "optuna", "sqlalchemy", "pandas", "pyarrow", "plotly", "scipy", "sklearn", "matplotlib"}

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


@pytest.mark.parametrize("command", ["runs", "status"])
def test_reading_a_run_neither_computes_nor_draws(command: str, tmp_path: Path, small_run: Path) -> None:
    words = ["runs", str(small_run.parent)] if command == "runs" else ["status", str(small_run)]
    found = imported(words, tmp_path)
    assert not {"torch", "ray", "plotly", "scipy.stats", "sklearn", "matplotlib"} & found
    assert "fedtune.planning.plan" not in found and "analysis.report" not in found


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.analysis import synthetic

    return synthetic.write(tmp_path_factory.mktemp("runs") / "small", trials=6, rounds=3, failures=False)
