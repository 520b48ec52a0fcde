"""The pictures of a figure, a test for each kind: what is drawn is what the runs' files hold."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from analysis.figures import box
from analysis.reproduce.claims import decide
from analysis.reproduce.declaration import FIGURES, declared, known
from analysis.reproduce.folder import Made
from analysis.reproduce.page import write_all
from analysis.reproduce.pictures import NO_RESULT, NOT_MEASURED, Picture, pictures
from search_spaces import run_folder
from tests.analysis.reproduce import folders


def picture(made: Made, name: str) -> Picture:
    (found,) = [one for one in pictures(made) if one.name == name]
    return found


def recorded(run: Path, metric: str) -> dict[tuple[int, int], float]:
    """By round and seed, read from the files alone."""
    lines = [line for path in run.glob(f"trials/*/{run_folder.ROUNDS}") for line in path.read_text().splitlines()]
    return {(row["round"], row["seed"]): row[metric] for row in map(json.loads, lines)}


def test_every_kind_is_declared_of_some_figure() -> None:
    assert {name for one in map(declared, known()) for name in one.figures} == set(FIGURES)


def test_curves_have_a_band_over_seeds(tmp_path: Path) -> None:
    made = folders.curves(tmp_path)
    ((_, drawn),) = picture(made, "rounds").figures
    for row in made.reproduction.rows:
        values = recorded(made.runs[row.name, ()].path, "amp")
        (line,) = [trace for trace in drawn.data if trace.name == row.name]
        means = [100 * np.mean([values[r, seed] for seed in (1000, 1001, 1002)]) for r in range(1, 7)]
        assert list(line.x) == [1, 2, 3, 4, 5, 6] and list(line.y) == pytest.approx(means)
    assert sum(trace.fill == "toself" for trace in drawn.data) == 2


def test_lines_stand_over_a_condition(tmp_path: Path) -> None:
    made = folders.shares(tmp_path)
    ((_, drawn),) = picture(made, "factor").figures
    lines = {trace.name: list(trace.x) for trace in drawn.data if trace.name}
    assert lines == {row: [1, 2, 4, 8, 12, 16, 20] for row in ("FedAvg", "FedAvg (OCA)")}
    cell = recorded(made.runs["FedAvg (OCA)", (16,)].path, "amp")
    (line,) = [trace for trace in drawn.data if trace.name == "FedAvg (OCA)"]
    assert line.y[5] == pytest.approx(100 * np.mean([cell[5, seed] for seed in (1000, 1001, 1002)]))


def test_a_box_holds_every_cell_and_seed_of_its_row(tmp_path: Path) -> None:
    made = folders.lines(tmp_path)
    table = box.drawing(made.cells, ["local_accuracy"], made.values).table
    for row in ("λ₁", "λ₅"):
        own = table[table["box"] == row]
        expected = [
            value
            for place in ((0,), (0.5,), (1.0,))
            for (round_, _), value in sorted(recorded(made.runs[row, place].path, "local_accuracy").items())
            if round_ == 5
        ]
        assert own["y"].tolist() == expected and set(own["value"]) == {"0", "0.5", "1"}
    ((_, drawn),) = picture(made, "box").figures
    assert {trace.name for trace in drawn.data} == {row.name for row in made.reproduction.rows}


def test_partitions_have_a_panel_each(tmp_path: Path) -> None:
    made = folders.partitions(tmp_path)
    ((_, drawn),) = picture(made, "partition").figures
    assert [note.text for note in drawn.layout.annotations if "ω" in note.text] == [
        f"<b>ω = {value}</b>" for value in ("1", "0.1", "0.01")
    ]
    most = [max(samples for _, _, samples in trace.customdata) for trace in drawn.data]
    assert [10 * (samples // 10) for samples in most] == [10, 100, 1000]


def test_images_stand_under_the_name_of_their_row(tmp_path: Path) -> None:
    """Two rows have kept none: they are left out."""
    made = folders.painted(tmp_path)
    assert [heading for heading, _ in picture(made, "images").figures] == ["mul", "add", "cat"]
    means = dataclasses.replace(made, reproduction=dataclasses.replace(made.reproduction, figures=("averages",)))
    assert [heading for heading, _ in picture(means, "averages").figures] == ["mul", "add", "cat"]
    none = dataclasses.replace(made, runs={key: run for key, run in made.runs.items() if key[0] == "none"})
    assert "with --set keep_images=true of a method" in picture(none, "images").missing


def test_rebuilt_images_stand_side_by_side(tmp_path: Path) -> None:
    made = folders.attacked(tmp_path)
    ((_, drawn),) = picture(made, "attack").figures
    (under,) = [trace for trace in drawn.data if trace.type == "scatter"]
    assert len(under.text) == 2 * len(made.reproduction.rows) and {"5.0", "11.0"} <= set(under.text)


def test_a_page_has_its_pictures_or_says_why_not(tmp_path: Path) -> None:
    made = folders.shares(tmp_path)
    text = write_all(made, decide(made), "again", finished=True).read_text(encoding="utf-8")
    assert 'data-figure="factor"' in text and "of the two leads, under the same seed" in text
    one = dataclasses.replace(made, runs={("FedAvg", (1,)): made.runs["FedAvg", (1,)]})
    assert "needs two conditions that have been run" in picture(one, "factor").missing
    assert picture(dataclasses.replace(made, runs={}), "factor").missing == NO_RESULT
    other = dataclasses.replace(made, reproduction=dataclasses.replace(made.reproduction, metrics=("gd_loss",)))
    assert picture(other, "factor").missing == NOT_MEASURED
