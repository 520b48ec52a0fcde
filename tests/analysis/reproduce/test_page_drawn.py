"""The page as a browser draws it: nothing clipped, nothing overlapping, no request, readable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from analysis.reproduce.claims import decide
from analysis.reproduce.page import write_all
from tests.analysis.browser import BROWSER, Shown
from tests.analysis.report.test_drawn import VIEWS, faults
from tests.analysis.reproduce import folders

pytestmark = BROWSER
PICTURES = ("curves", "shares", "partitions", "painted", "attacked")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("made")
    found = {"heatmap": folders.heatmap(root / "fig5"), "table": folders.table(root / "table5")}
    found["brackets"] = folders.brackets(root / "table1", record=folders.FASHION)
    found["lines"] = folders.lines(root / "fig6")
    found |= {kind: getattr(folders, kind)(root / kind) for kind in PICTURES}
    return {
        name: write_all(made, decide(made), f"fedtune reproduce {made.reproduction.name} --small", finished=False)
        for name, made in found.items()
    }


@pytest.mark.covering
@VIEWS
@pytest.mark.parametrize("name", ["heatmap", "table", "brackets", "lines", *PICTURES])
def test_nothing_is_clipped_overlaps_or_is_hard_to_read(
    name: str, width: int, dark: bool, paper: bool, pages: dict[str, Path], browser: Shown
) -> None:
    assert faults(browser, pages[name], width, dark, paper) == []


def test_on_paper_heads_stand_over_their_columns_and_the_papers_numbers_are_no_larger(
    pages: dict[str, Path], browser: Shown
) -> None:
    browser.look(pages["table"], 703, dark=False, paper=True)
    script = """JSON.stringify([...document.querySelectorAll("table.pivot")].map((table) => {
        const style = (e) => getComputedStyle(e), cell = table.querySelector("tbody td");
        return [style([...table.querySelectorAll("thead th")].at(-1)).textAlign, style(cell).textAlign,
            [...table.querySelectorAll("td .small")].length > 0,
            [...table.querySelectorAll("td .small")].every((e) => parseFloat(style(e).fontSize) < 11.6)];
    }))"""
    found = json.loads(browser.value(script))
    assert found and all(one == ["right", "right", True, True] for one in found), found
