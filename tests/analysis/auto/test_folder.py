"""What the folder of `fedtune auto` says as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.auto import Auto, load_one
from analysis.report import build
from analysis.runs.mappings import read_yaml
from fedtune.record.run_directory import write_document
from search_spaces import run_folder
from tests.analysis.auto.test_leaderboard import final
from tests.security.prepared import several


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


def test_an_anonymous_report_names_no_path_in_why_a_method_was_left_out(tmp_path: Path) -> None:
    folder = several(tmp_path / "run")
    record = folder / run_folder.AUTO
    why = "/home/someone/mine.npz has one channel"
    write_document(record, read_yaml(record) | {"excluded": [{"name": "dfrd", "why": why}]})
    assert why in build(folder, tmp_path / "named.html").read_text()
    page = build(folder, tmp_path / "page.html", anonymous=True).read_text()
    assert "someone" not in page and page.count("mine.npz has one channel") == 2, "in the table's notes and below"
