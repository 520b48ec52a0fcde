"""What status, search and export say of a run under several conditions of the experiment."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import fedtune
from analysis.runs import load_run
from fedtune.api.search import result_of
from fedtune.commands import _output, _status_output
from fedtune.execution.driver import Outcome
from search_spaces.errors import UserError
from tests.fedtune.conftest import varied
from tests.fedtune.played import begin, play


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crossed grid of 6 configurations under two conditions; the fake likes alpha near 0.3 and lambda near 0.7."""
    folder = tmp_path_factory.mktemp("told") / "run"
    begin(folder, where=varied(10.0, 0.1), sampler="grid", scheduler="none", trials=12)
    play(folder)
    return folder


def test_status_has_the_best_of_each_condition_and_none_in_all(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = fedtune.status(run)
    assert found["best"] is None and [one["condition"] for one in found["by_condition"]] == [
        {"omega": 10.0},
        {"omega": 0.1},
    ]
    assert [one["params"] for one in found["by_condition"]] == [{"alpha": 0.0, "lambda": 0.5}] * 2, (
        "nearest to the optimum"
    )
    _status_output.status(load_run(run), found, as_json=False)
    said = capsys.readouterr().out
    assert (
        "Under omega=10: best: trial 2, " in said and "Under omega=0.1: best: trial 3, " in said and "Best:" not in said
    )


def test_a_search_ends_well_and_says_what_is_best_where(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = result_of(run, Outcome(finished=True))
    assert found.best is None and [one.number for one in found.by_condition] == [2, 3]
    _output.result(found, as_json=False)
    said = capsys.readouterr().out
    assert "Under omega=0.1: best: trial 3" in said and "no trial ran to its end" not in said.lower()


def test_export_needs_the_condition(run: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"has 2 conditions of the experiment.*--where omega=10\. It has: omega=10; omega=0\.1\."
    ):
        fedtune.export(run)
    with pytest.raises(UserError, match="has no condition of that kind"):
        fedtune.export(run, where=["omega=3"])
    with pytest.raises(UserError, match=r"Unknown condition 'omga' \(--where\)\. Did you mean 'omega'"):
        fedtune.export(run, where=["omga=3"])
    with pytest.raises(UserError, match="--trial and --where both choose"):
        fedtune.export(run, trial=1, where=["omega=10"])
    written = tmp_path / "best.yaml"
    found = fedtune.export(run, written, where=["omega=0.10"])
    assert found["provenance"]["trial"] == 3 and found["condition"] == {"omega": 0.1}
    assert found["parameters"]["omega"] == 0.1 and found["searched"] == ["alpha", "lambda"]
    assert yaml.safe_load(written.read_text())["condition"] == {"omega": 0.1}
    assert fedtune.export(run, trial=2)["condition"] == {"omega": 10.0}
