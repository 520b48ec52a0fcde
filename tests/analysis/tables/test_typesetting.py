"""Tables with labels on several levels: what stands where, over how much a label reaches, and the three formats."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis.pivots import pivots
from analysis.report.table_picture import BROAD, text_table_picture
from analysis.tables.pivot import Pivot, printed
from analysis.tables.typesetting import EMPTY, LineBelow, TextCell, TextTable
from search_spaces.errors import UserError
from tests.analysis import varied


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """crossed: two data sets under three ω, of two methods."""
    folder = tmp_path_factory.mktemp("sheets")
    varied.crossed(folder / "crossed")
    return folder


@pytest.fixture(scope="module")
def tables(root: Path) -> list[Pivot]:
    return list(pivots(root / "crossed", metrics=["amp", "fm"]).tables)


def small(**changes: object) -> TextTable:
    rows, columns = [("a", "x"), ("a", "y"), ("b", "x")], [("d", "1"), ("d", "2"), ("e", "1")]
    cells = [[TextCell("".join(row + column)) for column in columns] for row in rows]
    cells[0][0] = TextCell("best", "(1)", best=True)
    cells[1][0] = TextCell("t<d", tied=True)
    cells[2][2] = TextCell(EMPTY)
    values = {"title": "T", "sides": ["s", "t"], "rows": rows, "columns": columns, "cells": cells, "notes": ["N."]}
    return TextTable(**values | changes)  # type: ignore[arg-type]


def test_a_label_reaches_over_its_neighbours() -> None:
    assert small().head() == [[("d", 2), ("e", 1)], [("1", 1), ("2", 1), ("1", 1)]]
    assert small().before() == [[("a", 2), ("x", 1)], [("a", 0), ("y", 1)], [("b", 1), ("x", 1)]]


def test_the_formats_have_the_same_cells() -> None:
    page, tex, text = small().html(), small().latex(), small().markdown()
    assert '<th scope="rowgroup" rowspan="2">a</th>' in page and page.count('rowspan="2"') == 3
    assert 'colspan="2">d<' in page and "<b>best (1)</b>" in page and "<u>t&lt;d</u>" in page
    assert r" &  & \multicolumn{2}{c}{d} & e \\" in tex and r"\cmidrule(lr){3-4}\cmidrule(lr){5-5}" in tex
    assert r"s & t & 1 & 2 & 1 \\" in tex and r" & y & \underline{t\textless{}d} & ayd2 & aye1 \\" in tex
    assert "| s | t | d, 1 | d, 2 | e, 1 |" in text and "| b | x | bxd1 | bxd2 | – |" in text
    assert "| a | x | **best (1)** |" in text


def test_lines_below_a_value_have_their_look_on_a_page_and_a_terminal_leaves_those_out() -> None:
    lines = [LineBelow("89.7 ± 0.1", "(<8> ± 1)"), LineBelow("+2.5 agrees", look="verdict agrees")]
    made = TextTable("T", ["s"], [("x",)], [("1",)], [[TextCell("9 ± 1", "(8)", best=True, below=lines)]], [])
    page = made.html().replace("\u00a0", " ")
    assert '<b>9 ± 1 (8)</b><br><span class="small">89.7 ± 0.1 (&lt;8&gt; ± 1)</span><br>' in page
    assert '<br><span class="small verdict agrees">+2.5 agrees</span></td>' in page
    (written,) = made.rich(stacked=True).columns[1].cells
    assert [line.strip() for line in str(written).splitlines()] == ["9 ± 1 *", "(8)", "89.7 ± 0.1", "(<8> ± 1)"]
    (written,) = made.rich().columns[1].cells
    assert [line.strip() for line in str(written).splitlines()] == ["9 ± 1 (8) *", "89.7 ± 0.1 (<8> ± 1)"]


def test_a_part_has_the_cells_of_its_rows_and_columns() -> None:
    part = small(align="lrr").part([0, 2], [1, 2])
    assert (part.rows, part.columns, part.align) == ([("a", "x"), ("b", "x")], [("d", "2"), ("e", "1")], "rr")
    assert [[cell.value for cell in line] for line in part.cells] == [["axd2", "axe1"], ["bxd2", EMPTY]]


def test_the_same_label_below_another_group_is_written_again() -> None:
    columns = [("d", "1"), ("e", "1"), ("e", "1b")]
    assert small(columns=columns).head()[1] == [("1", 1), ("1", 1), ("1b", 1)]


def test_what_is_down_is_not_across(tables: list[Pivot]) -> None:
    """Every cell of every table is there once, wherever its labels stand."""
    for down in (("method",), ("metric", "method"), ("omega",), ("dataset", "metric")):
        made = printed(tables, down)
        there = [cell for line in made.cells for cell in line if cell.value != EMPTY]
        assert len(there) == sum(len(table.entries) for table in tables)
        assert sorted(cell.value for cell in there) == sorted(
            table.parts(*place)[0] for table in tables for place in table.entries
        )
    made = printed(tables, ("dataset", "metric"))
    assert list(made.sides) == ["data set", "metric"] and made.rows[:2] == [("digits", "AMP [%]"), ("digits", "FM")]
    assert [column[0] for column in made.columns] == ["ω = 10", "ω = 1", "ω = 0.1"]
    assert made.at(("svhn", "FM"), made.columns[2]).value == tables[1].parts("dfrd", ("svhn", 0.1))[0]
    assert "best mean of the methods under one condition" in made.notes[0]
    assert "best mean of the column" in printed(tables).notes[0]
    below = printed(tables, ("omega",))
    assert below.rows == [("10",), ("1",), ("0.1",)] and list(below.sides) == ["ω"]


def test_labels_that_are_not_there(tables: list[Pivot]) -> None:
    with pytest.raises(UserError, match=r"Unknown label of rows 'omga' \(--down\)"):
        printed(tables, ("omga",))


def test_a_picture_has_every_text_and_brackets_below_where_it_would_be_broad(root: Path) -> None:
    made = pivots(root / "crossed", metrics=["amp"], brackets="wlp").printed()
    figure = text_table_picture(made)
    written = [re.sub("<.*?>", "", str(note.text)) for note in figure.layout.annotations]
    for shown in (cell for line in made.cells for cell in line):
        assert shown.value in written and shown.bracket in written
    assert all(line in " ".join(written) for line in ("digits", "svhn", "ω = 10", "method"))
    narrow = text_table_picture(
        printed([pivots(root / "crossed", where={"dataset": "svhn"}, brackets="wlp").tables[0]])
    )
    assert narrow.layout.width <= BROAD
    one = [note.text for note in narrow.layout.annotations]
    assert any(" (" in line and "±" in line for line in one), "there is room for both in one line"
    assert all(
        0 <= note.x <= figure.layout.width and 0 <= note.y <= figure.layout.height for note in figure.layout.annotations
    )
