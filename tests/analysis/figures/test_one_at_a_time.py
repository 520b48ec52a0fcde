"""Each parameter alone: lines through the defaults, one or two runs, and what is said where there are none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from analysis.figures import one_at_a_time
from analysis.labels import Labels
from analysis.loaded import load as loaded_of
from analysis.report import build
from analysis.runs import Run, load_run
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.analysis import synthetic, varied
from tests.analysis.browser import BROWSER, Shown
from tests.analysis.report.test_drawn import VIEWS, faults


def through(folder: Path, *defaults: float) -> Path:
    """The run, said to have these defaults."""
    space = json.loads((folder / run_folder.SPACE).read_text())
    for item, default in zip(space["search"], defaults, strict=True):
        item["declared"] = {"default": default}
    (folder / run_folder.SPACE).write_text(json.dumps(space))
    return folder


def together(drawing: one_at_a_time.Drawing) -> list[list[str]]:
    """The parameters of every panel."""
    return [list(dict.fromkeys(part["key"])) for _, part in drawing.table.groupby("panel")]


@pytest.fixture
def grid(root: Path, tmp_path: Path) -> Path:
    """The 30-cell grid of α × λ, whose lines go through α = 0.75, λ = 0.5."""
    return through(Path(shutil.copytree(root / "grid", tmp_path / "grid")), 0.75, 0.5)


def test_a_line_holds_the_trials_that_differ_from_the_defaults_in_it_alone(grid: Path) -> None:
    run = load_run(grid)
    drawing = one_at_a_time.data([run])
    assert drawing.keys == ["alpha", "lambda"]
    assert [(metric, keys) for (metric, _), keys in zip(drawing.panels, together(drawing), strict=True)] == [
        (metric, [key]) for metric in ("global_accuracy", "local_accuracy") for key in ("alpha", "lambda")
    ], "values differ, so that each has an axis of its own"
    for key, other, default in (("alpha", "lambda", 0.5), ("lambda", "alpha", 0.75)):
        line = drawing.table[(drawing.table["key"] == key) & (drawing.table["metric"] == "global_accuracy")]
        expected = {t.params[key]: t.number for t in run.frozen if t.params[other] == default}
        assert dict(zip(line["x"], line["trial"], strict=True)) == expected and len(expected) >= 5
        for _, row in line.iterrows():
            values = list(run.last(row["trial"], "global_accuracy").values())
            assert row["mean"] == pytest.approx(np.mean(values)) and row["std"] == pytest.approx(np.std(values, ddof=1))
            assert row["n"] == len(values) == 2
    picture = one_at_a_time.plot(drawing, Labels.of([run]))
    assert [t.name for t in picture.data if t.showlegend and t.mode] == ["α", "λ"]
    shown = next(t for t in picture.data if t.name == "α" and t.mode)
    first = drawing.table[(drawing.table["panel"] == 0)].sort_values("x")
    assert list(shown.y) == pytest.approx(list(100 * first["mean"]))


def test_parameters_with_the_same_values_share_a_panel(tmp_path: Path) -> None:
    values = (0.25, 0.5, 0.75)
    points = [{"alpha": 0.5, "lambda": 0.5}]
    points += [{"alpha": 0.5, "lambda": 0.5} | {key: v} for key in ("alpha", "lambda") for v in values if v != 0.5]
    folder = synthetic.write(tmp_path / "same", points=points, rounds=2, failures=False, figures=())
    drawing = one_at_a_time.data([load_run(through(folder, 0.5, 0.5))], ["global_accuracy"])
    assert drawing.panels == [("global_accuracy", "")] and together(drawing) == [["alpha", "lambda"]]
    assert [sorted(part["x"]) for _, part in drawing.table.groupby("key")] == [list(values)] * 2
    figure = one_at_a_time.plot(drawing, Labels.of([load_run(folder)]))
    assert figure.layout.xaxis.title.text == "α, λ" and list(figure.layout.xaxis.tickvals) == list(values)


def test_two_runs_are_panels_named_by_their_data(grid: Path, tmp_path: Path) -> None:
    twin = Path(shutil.copytree(grid, tmp_path / "twin"))
    assert {of for _, of in one_at_a_time.data([load_run(grid), load_run(twin)]).panels} == {"grid", "twin"}
    for path in (twin / run_folder.TRIALS).rglob(run_folder.CONFIG):
        path.write_text(path.read_text().replace("digits", "rotated_digits"))
    figure = loaded_of([grid, twin]).figure("one_at_a_time", metrics=["local_accuracy"])
    assert len([note for note in figure.layout.annotations if "Local accuracy" in str(note.text)]) == 4


def test_where_there_are_no_lines_it_says_so(loaded: dict[str, Run], grid: Path, tmp_path: Path) -> None:
    assert "differ in one number only" in str(one_at_a_time.needs([loaded["tpe"]]))
    crossed = load_run(varied.fairness(tmp_path / "crossed"))
    assert one_at_a_time.needs([crossed]) is not None and one_at_a_time.needs([load_run(grid)]) is None
    with pytest.raises(UserError, match="psnr was not measured"):
        one_at_a_time.data([load_run(grid)], ["psnr"])


@pytest.mark.parametrize("name", [pytest.param("one_at_a_time", marks=BROWSER)])
@VIEWS
def test_on_a_page_nothing_is_clipped_or_overlaps(
    name: str, width: int, dark: bool, paper: bool, grid: Path, tmp_path: Path, browser: Shown
) -> None:
    page = build(grid, tmp_path / "page.html")
    assert f'data-figure="{name}"' in page.read_text()
    assert faults(browser, page, width, dark, paper) == []
