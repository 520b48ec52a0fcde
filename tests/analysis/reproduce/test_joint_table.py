"""Tables of papers that were made again, read as one: layouts, several data sets, figures, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import fedtune
from analysis.loaded import load
from analysis.report.files import write_picture
from analysis.report.table_picture import text_table_picture
from analysis.reproduce.declaration import declared, known
from analysis.reproduce.folder import Setting, load_made
from analysis.reproduce.joint_table import Joined, joined
from analysis.reproduce.page import table_files
from fedtune.cli import app
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.analysis.browser import BROWSER, Shown
from tests.analysis.report.test_drawn import VIEWS, faults
from tests.analysis.reproduce import folders

#: What stands before the rows and above the columns of the papers' tables, read off them.
LAYOUTS = {
    "dfrd-table1": (("method",), ("dataset", "omega")),
    "dfrd-table2": (("method",), ("dataset", "rho")),
    **{f"dfrd-table{n}": (("method",), ("dataset",)) for n in (3, 4, 5, 10)},
    "dfrd-table11": (("clients",), ("dataset", "method")),
    "dfrd-table12": (("active_clients",), ("dataset", "method")),
    **{f"fedkf-table{n}": (("method",), ("dataset", "omega", "metric")) for n in (5, 6, 7)},
    "fedkf-table12": (("dataset", "metric"), ("method",)),
    "fedmdcg-table1": (("method",), ("dataset", "omega", "metric")),
    "fedmdcg-table2": (("method",), ("dataset",)),
    "fedmdcg-table3": (("method",), ("dataset", "omega", "metric")),
    **{f"dhf-table{n}": (("method",), ("partition", "dataset")) for n in (1, 2, 3)},
    "dhf-table4": (("method",), ("dataset", "target")),
}


def elsewhere(folder: Path, to: Path, dataset: str) -> Path:
    """The same on another data set."""
    shutil.copytree(folder, to)
    record = yaml.safe_load((to / run_folder.REPRODUCTION).read_text())
    record["here"]["dataset"] = dataset
    (to / run_folder.REPRODUCTION).write_text(yaml.safe_dump(record, allow_unicode=True))
    return to


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("joined")
    folders.table(folder / "table5")
    folders.brackets(folder / "table1", rounds=4)
    folders.heatmap(folder / "fig5")
    elsewhere(folder / "table1", folder / "rotated", "rotated_digits")
    return folder


@pytest.fixture(scope="module")
def two(root: Path) -> Joined:
    found = load([root / "table1", root / "rotated"])
    assert isinstance(found, Joined)
    return found


@pytest.mark.parametrize("name", LAYOUTS)
def test_tables_stand_as_in_the_paper(name: str) -> None:
    one = declared(name)
    keys = [*one.by, "method", *(["metric"] if len(one.metrics) > 1 else [])]
    assert (one.down, tuple(key for key in keys if key not in one.down)) == LAYOUTS[name]


def test_every_table_that_can_be_made_again_has_a_layout_or_the_usual_one() -> None:
    for name in set(known()) - set(LAYOUTS):
        assert declared(name).down == ("method",)


def test_metrics_stand_below_their_condition(root: Path) -> None:
    made = load_made(root / "table5")
    sheet = joined([made]).printed()
    assert sheet.columns[:4] == [
        ("digits", "ω = 1", "AMP [%]"),
        ("digits", "ω = 1", "FM"),
        ("digits", "ω = 1", "WLP [%]"),
        ("digits", "ω = 0.1", "AMP [%]"),
    ]
    assert [row for (row,) in sheet.rows] == [row.name for row in made.reproduction.rows]
    values = made.values("q-FFL", (0.1,), "wlp").values()
    assert sheet.at(("q-FFL",), ("digits", "ω = 0.1", "WLP [%]")).value.startswith(f"{100 * sum(values) / 3:.2f} ±")
    assert sheet.at(("FedKF (OCA)",), ("digits", "ω = 0.01", "FM")).value == "–", "that cell has not been run"
    assert "Made again on digits, model cnn_small, 10 clients, 5 rounds, 3 seeds." in sheet.notes


def test_what_the_table_varies_is_not_said_to_be_one_number() -> None:
    here = Setting("digits", "cnn_small", clients=10, rounds=1, seeds=2)
    assert here.said(declared("dfrd-table11").columns) == "digits, model cnn_small, 1 round, 2 seeds"
    assert here.said(declared("dfrd-table1").columns) == "digits, model cnn_small, 10 clients, 1 round, 2 seeds"


def test_other_labels_down_the_rows(root: Path) -> None:
    sheet = joined([load_made(root / "table5")]).printed(down=["omega", "metric"])
    assert sheet.rows[:2] == [("1", "AMP [%]"), ("1", "FM")] and sheet.columns[0] == ("digits", "FedAvg")


def test_two_data_sets_are_one_table(two: Joined) -> None:
    sheet = two.printed()
    assert sheet.head()[0] == [("digits", 3), ("rotated_digits", 3)]
    assert sheet.rows == [("FedAvg",), ("+ DFRD",)]
    for data in ("digits", "rotated_digits"):
        assert sheet.at(("+ DFRD",), (data, "ω = 0.1")).best and sheet.at(("FedAvg",), (data, "ω = 1")).bracket
    frame = two.table("pivot")
    assert len(frame) == 12 and set(frame["dataset"]) == {"digits", "rotated_digits"}
    assert len(set(frame["run"])) == 12


def test_figures_have_a_line_for_each_row_and_a_panel_for_each_data_set(two: Joined, root: Path) -> None:
    for name in ("factor", "rounds"):
        figure = two.figure(name, {"omega": 0.1} if name == "rounds" else None)
        titles = [str(note.text) for note in figure.layout.annotations if "accuracy" in str(note.text)]
        assert len(titles) == 2 and "rotated_digits" in titles[1], name
        assert {trace.name for trace in figure.data if trace.showlegend} == {"FedAvg", "+ DFRD"}
    made = load(root / "table5").figure("rounds", {"omega": 0.1, "method": "fedkf"}, ["amp", "fm", "wlp"])
    assert {trace.name for trace in made.data if trace.showlegend} == {
        row.name for row in declared("fedkf-table5").rows if row.method == "fedkf"
    }


def test_the_command_writes_it(root: Path, tmp_path: Path) -> None:
    both = [str(root / "table1"), str(root / "rotated")]
    for kind in ("tex", "md", "csv", "html"):
        done = CliRunner().invoke(app, ["figure", "pivot", *both, "-o", str(tmp_path / f"t.{kind}"), "--json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["file"].endswith(f"t.{kind}")
    assert r"\multicolumn{3}{c}{digits} & \multicolumn{3}{c}{rotated\_digits}" in (tmp_path / "t.tex").read_text()
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 13


def test_python_loads_it_by_its_folder(root: Path) -> None:
    found = fedtune.load(root / "table5")
    assert isinstance(found, Joined) and len(found.table("pivot")) == 3 * (9 * 3 - 1)
    both = fedtune.load([root / "table1", root / "rotated"])
    assert isinstance(both, Joined) and len(both.made) == 2


def test_the_files_of_a_reproduction_have_that_layout(root: Path) -> None:
    made = load_made(root / "table5")
    assert table_files(made)["md"] == joined([made]).printed().markdown()
    assert "digits, ω = 1, AMP" in table_files(made)["md"]


def test_what_cannot_be_joined_or_drawn(root: Path, two: Joined, tmp_path: Path) -> None:
    for paths, said in (
        ([root / "table1", root / "table5"], "Only one table of a paper .* got several tables: dfrd-table1, fedkf"),
        ([root / "table1", root / "table1"], "must be on different data sets, got digits, digits"),
        ([root / "fig5"], "is a heat map made again, not a table"),
        ([root / "table1", root / "fig5" / "cells" / "01-dfrd"], "Give such tables alone, or runs alone"),
    ):
        with pytest.raises(UserError, match=said):
            load(paths)
    with pytest.raises(UserError, match=r"No finished cell .* has omega=7"):
        two.printed(where={"omega": 7})
    with pytest.raises(UserError, match="Unknown figure or table of a reproduction 'heatmap'"):
        two.save("heatmap", tmp_path / "x.png")
    with pytest.raises(UserError, match="psnr was not measured"):
        two.printed(metrics=["psnr"])
    with pytest.raises(UserError, match="has its own rows and columns, got by"):
        two.save("pivot", tmp_path / "x.md", by=["omega"])
    with pytest.raises(UserError, match="needs two conditions or data sets"):
        joined([load_made(root / "table1")]).figure("factor", {"omega": 1})
    empty = dataclasses.replace(load_made(root / "table1"), runs={})
    with pytest.raises(UserError, match="has no finished cell yet"):
        joined([empty]).printed()


@pytest.fixture(scope="module")
def pages(two: Joined, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The table as a page, and its picture on one, so that a browser measures its texts."""
    folder = tmp_path_factory.mktemp("pages")
    picture = write_picture(text_table_picture(two.printed()), folder / "t.svg", "svg").read_text()
    # As wide as the picture, which has a width of its own: only then is it taken as drawn.
    plot = f'<div class="plot" data-figure="sheet" style="width:max-content">{picture}</div>'
    shown = f'<body style="margin:0"><script>{{}}</script>{plot}</body>'
    (folder / "picture.html").write_text(f"<!doctype html>{shown}", encoding="utf-8")
    return {"page": two.save("pivot", folder / "t.html"), "picture": folder / "picture.html"}


@pytest.mark.parametrize("mark", [pytest.param(mark, marks=BROWSER) for mark in ("page",)])
@VIEWS
def test_as_a_page_nothing_is_clipped_or_hard_to_read(
    mark: str, width: int, dark: bool, paper: bool, pages: dict[str, Path], browser: Shown
) -> None:
    assert faults(browser, pages[mark], width, dark, paper) == []


@pytest.mark.parametrize("mark", [pytest.param("picture", marks=BROWSER)])
def test_in_the_picture_no_text_overlaps(mark: str, pages: dict[str, Path], browser: Shown) -> None:
    assert faults(browser, pages[mark], 1200, False, False) == []
