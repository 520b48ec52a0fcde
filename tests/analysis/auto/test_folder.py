"""What the folder of `fedtune auto` says as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.auto import Auto, load_one
from tests.analysis.auto.test_leaderboard import final


@pytest.mark.parametrize(("planned", "over"), [(2, True), (3, False)])
def test_it_is_over_when_all_seeds_of_the_final_run_have_ended(tmp_path: Path, planned: int, over: bool) -> None:
    """A seed that is missing has not begun."""
    auto = Auto(tmp_path, {"final": planned}, {}, {})
    vars(auto)["final"] = final(tmp_path / "run", 0.4, (10**9, 10**9 + 1))
    assert auto.over is over


def test_without_a_final_run_it_is_not_over(tmp_path: Path) -> None:
    auto = Auto(tmp_path, {"final": 2}, {}, {})
    vars(auto)["final"] = None
    assert not auto.over


def test_a_run_of_one_method_is_none_of_several(tmp_path: Path) -> None:
    run = final(tmp_path / "run", 0.4, (10**9, 10**9 + 1))
    assert load_one(run.path) is None and load_one([run.path]) is None and load_one([run.path, run.path]) is None
