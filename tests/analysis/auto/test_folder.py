"""What the folder of `fedtune auto` says as a whole, and of one that was interrupted: what is known so far, and how it
goes on."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from analysis.auto import Auto, load, load_one
from analysis.auto.record import AutoRecord
from analysis.report import build
from analysis.report.anonymous import anonymous
from analysis.runs.mappings import read_yaml
from fedtune.record.run_directory import write_document
from search_spaces import run_folder
from tests.analysis import several, synthetic
from tests.analysis.auto.test_leaderboard import final
from tests.analysis.page_text import words
from tests.security import prepared


def planning(tmp_path: Path, **changes: Any) -> AutoRecord:
    """The record of a search over several methods, with these changes."""
    return dataclasses.replace(AutoRecord.read(prepared.several(tmp_path / "several")), **changes)


@pytest.mark.parametrize(("planned", "over"), [(2, True), (3, False)])
def test_it_is_over_when_all_seeds_of_the_final_run_have_ended(tmp_path: Path, planned: int, over: bool) -> None:
    """A seed that is missing has not begun."""
    auto = Auto(tmp_path, planning(tmp_path, final=planned), {}, {})
    vars(auto)["final"] = final(tmp_path / "run", 0.4, (10**9, 10**9 + 1))
    assert auto.over is over


def test_without_a_final_run_it_is_not_over(tmp_path: Path) -> None:
    auto = Auto(tmp_path, planning(tmp_path, final=2), {}, {})
    vars(auto)["final"] = None
    assert not auto.over


def test_a_run_of_one_method_is_none_of_several(tmp_path: Path) -> None:
    run = final(tmp_path / "run", 0.4, (10**9, 10**9 + 1))
    assert load_one(run.path) is None and load_one([run.path]) is None and load_one([run.path, run.path]) is None


def test_an_anonymous_report_names_no_path_in_why_a_method_was_left_out(tmp_path: Path) -> None:
    folder = prepared.several(tmp_path / "run")
    record = folder / run_folder.AUTO
    why = "/home/someone/mine.npz has one channel"
    write_document(record, read_yaml(record) | {"excluded": [{"name": "dfrd", "why": why}]})
    assert why in build(folder, tmp_path / "named.html").read_text()
    page = build(folder, tmp_path / "page.html", anonymous=True).read_text()
    assert "someone" not in page and page.count("mine.npz has one channel") == 2, "in the table's notes and below"


@pytest.fixture
def half(tmp_path: Path) -> Path:
    """Two of three methods were run on fresh seeds, the third is in the middle of its search."""
    folder = several.write(tmp_path / "half finished")
    shutil.rmtree(folder / run_folder.FINAL)
    shutil.rmtree(folder / run_folder.FRESH / "fedprox")
    search = folder / run_folder.SEARCHES / "fedprox"
    shutil.rmtree(search)
    settings = {"keys": ("alpha", "lr", "merge_op"), "trials": 12, "cells": 4, "title": "FedProx", "figures": ()}
    synthetic.write(search, method="fedprox", shift=-0.12, failures=False, **settings)
    return folder


def test_a_half_finished_search_over_methods_says_what_is_known_and_how_it_goes_on(half: Path, tmp_path: Path) -> None:
    html = build(half, tmp_path / "page.html").read_text()
    said = words(html)
    assert (
        re.search("dfrd leads, (not )?told from fedavg on 5 fresh seeds", said)
        and "have not ended yet" in said
        and "nan" not in said.split()
    )
    assert f"fedtune resume '{half}'" in said
    rows = {row.method: row for row in load(half).rows}
    assert {name for name, row in rows.items() if row.fresh} == {"dfrd", "fedavg"} and rows["fedprox"].done == 4
    assert "final run of" not in said and "fedprox" in said
    assert set(re.findall(r'data-figure="(auto-\w+)"', html)) == {"auto-leaderboard", "auto-budget", "auto-expected"}


@pytest.mark.parametrize("ended", [2, 3])
def test_while_the_final_run_goes_on_the_page_says_so(ended: int, tmp_path: Path) -> None:
    folder = several.write(tmp_path / "begun")
    shutil.rmtree(folder / run_folder.FINAL / "dfrd")
    final(folder / run_folder.FINAL / "dfrd", 0.5, several.FINAL[:ended])
    said = words(build(folder, tmp_path / "page.html").read_text())
    assert ("have not ended yet" in said) is (f"fedtune resume {folder} copy" in said) is (ended < 3)
    assert "leads, told from all others on 5 fresh seeds" in said
    assert (f"fedtune run {folder}/best/dfrd.yaml --seeds 5" in said) is (ended == 3), "as the terminal says"


def test_an_anonymous_page_names_the_folder_alone(tmp_path: Path) -> None:
    """Not its place, and not nothing; so do the parts of the search."""
    folder = prepared.several(tmp_path / "half finished")
    said = words(build(folder, tmp_path / "page.html", anonymous=True).read_text())
    named = re.findall(r"fedtune resume ('[^']*'|\S+)", said)
    assert named and set(named) == {"'half finished'"} and str(tmp_path) not in said
    part = load(folder).searches["fedavg"]
    assert (part.record.resumed, anonymous(part).record.resumed) == (str(folder), "half finished")
