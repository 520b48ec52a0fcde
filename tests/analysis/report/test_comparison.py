"""The report of several runs of which one varies conditions of the experiment."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs

from analysis.figures import figure
from analysis.pivots import pivots
from analysis.report.build import document
from analysis.report.comparison import side_by_side
from analysis.report.page import Page
from analysis.runs import load_runs
from analysis.tables.compare import compare
from search_spaces.errors import UserError
from tests.analysis import synthetic, varied


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("across")
    varied.fairness(folder / "a")
    varied.fairness(folder / "b", method="fedavg", shift=-0.1)
    synthetic.write(folder / "begun", keys=("alpha",), trials=1)
    fixed = {"omega": 1.0}
    synthetic.write(folder / "one", keys=(), seeds=(0, 1), kind="run", rounds=3, method="moon", fixed=fixed)
    return folder


def shown(*folders: Path) -> str:
    """The part of the report that is of all runs."""
    page = Page("x")
    side_by_side(page, load_runs(folders))
    return "".join(page.sections)


def test_it_has_the_figure_the_table_and_the_boxes_of_conditions(root: Path) -> None:
    page = document(load_runs([root / "a", root / "b"])).replace(get_plotlyjs(), "")
    head = page.split('id="r1-run"')[0]
    assert (
        re.findall(r'data-figure="([\w-]+)"', head) == ["factor", "rounds", "boxes"]
        and head.count('class="pivot"') == 2
    )
    assert "completed trial in each" not in page
    table = pivots([root / "a", root / "b"], variants=["merge_op"]).tables[0]
    for row in ("dfrd, merge_op = add", "fedavg, merge_op = mul"):
        for omega in varied.OMEGAS:
            assert table.text(row, (omega,)) in unescape(head).replace("\u00a0", " ")


def test_a_run_made_for_one_condition_stands_in_its_column(root: Path) -> None:
    head = shown(root / "a", root / "one")
    assert ">moon</th>" in head and 'data-figure="factor"' in head


def test_a_run_without_a_result_is_named(root: Path) -> None:
    head = shown(root / "a", root / "begun")
    assert "begun has no completed trial yet." in head and 'class="pivot"' in head


def test_why_runs_cannot_be_set_side_by_side_is_said(root: Path, tmp_path: Path) -> None:
    """One of them varies what the other does not have."""
    other = varied.fairness(tmp_path / "other", varied=("merge_op", "omega"))
    head = shown(other, root / "one")
    assert "Unknown parameter of one &#x27;merge_op&#x27;" in head and "pivot" not in head


def test_curves_over_rounds_are_drawn_and_paired_tests_say_what_they_need(root: Path) -> None:
    runs = load_runs([root / "a", root / "b"])
    assert figure("rounds").needs(runs) is None
    assert {of for _, of in figure("rounds").data(runs).panels} == {f"ω = {omega:g}" for omega in varied.OMEGAS}
    with pytest.raises(UserError, match="The run 'a' was made under several conditions") as caught:
        compare([root / "a", root / "b"])
    assert len(caught.value.problems) == 2 and "completed" not in str(caught.value)
