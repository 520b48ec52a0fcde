"""A metric against a condition, boxes of several runs, and the report of a run under several conditions."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from analysis.figures import factor, figure, rounds, spread
from analysis.labels import Labels
from analysis.runs import load_runs
from analysis.tables.cells import cells
from search_spaces import run_folder
from tests.analysis import synthetic, varied


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("factor")
    varied.fairness(folder / "fairness")
    varied.crossed(folder / "crossed")
    return folder


def test_a_line_per_variant_with_the_band_of_its_seeds(root: Path) -> None:
    runs = load_runs(root / "fairness")
    assert factor.needs(runs) is None
    drawing = factor.data(runs)
    assert drawing.key == "omega" and list(drawing.values) == [0.1, 1.0, 10.0] and drawing.numeric
    assert drawing.panels[0][0] == "global_accuracy" and len(drawing.rows) == 2
    at = drawing.table[(drawing.table["metric"] == "global_accuracy") & (drawing.table["row"] == drawing.rows[1])]
    for row in at.to_dict("records"):
        mean, std = varied.mean_std(
            varied.last(root / "fairness", 3 + varied.OMEGAS.index(row["x"]), "global_accuracy")
        )
        assert (row["mean"], row["std"], row["n"]) == (pytest.approx(mean), pytest.approx(std), 3)
    drawn = factor.plot(drawing, Labels.of(runs))
    assert drawn.layout.xaxis.type == "log" and list(drawn.layout.xaxis.ticktext) == ["0.1", "1", "10"]
    lines = [trace for trace in drawn.data if trace.mode == "lines+markers"]
    bands = [trace for trace in drawn.data if trace.fill == "toself"]
    assert len(lines) == len(bands) == 2 * len(drawing.panels)
    assert sorted(trace.name for trace in drawn.data if trace.showlegend) == sorted(drawing.rows)
    np.testing.assert_allclose(bands[0].y[:3], np.array(lines[0].y) + np.array(lines[0].customdata)[:, 1])


def test_a_point_a_line_and_a_dot_open_the_trial_behind_them(root: Path, tmp_path: Path) -> None:
    runs = load_runs(root / "fairness")
    labels = Labels.of(runs)
    lines = [trace for trace in factor.plot(factor.data(runs), labels).data if trace.mode == "lines+markers"]
    assert [[point[0] for point in line.customdata] for line in lines[:2]] == [[2, 1, 0], [5, 4, 3]]
    assert {line.meta["trial"] for line in lines} == {"customdata"}
    curves = [trace for trace in rounds.plot(rounds.data(runs), labels).data if trace.mode == "lines"]
    assert {trace.meta["trial"] for trace in curves if trace.fill is None} == set(range(6))
    boxes = spread.plot(spread.data(runs), labels).data
    assert {trace.meta["trial"] for trace in boxes} == {"customdata"}
    assert {number for trace in boxes for number in trace.customdata} == set(range(6))
    seeds = synthetic.write(tmp_path / "final", keys=(), seeds=(7, 8), rounds=3, kind="run", failures=False, figures=())
    final = rounds.plot(rounds.data(load_runs(seeds), ["amp"]), labels).data[-1]
    assert final.mode == "lines" and final.meta["trial"] is None, "its seeds are trials of their own"


def test_small_multiples_over_data_sets(root: Path) -> None:
    drawing = factor.drawing(cells(load_runs(root / "crossed")), ["amp", "wlp"])
    assert drawing.key == "omega" and list(drawing.panels) == [
        (m, d) for m in ("amp", "wlp") for d in ("digits", "svhn")
    ]


def test_runs_on_a_data_set_each_have_a_panel_each(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    shutil.copytree(root / "fairness", folder)
    request = yaml.safe_load((folder / run_folder.EXPERIMENT).read_text())
    values = {**request["values"], "dataset": "svhn"}
    (folder / run_folder.EXPERIMENT).write_text(yaml.safe_dump({**request, "values": values}))
    runs = load_runs([root / "fairness", folder])
    drawing = factor.data(runs)
    own = str(runs[0].value("dataset"))
    assert {panel for _, panel in drawing.panels} == {own, "svhn"} and own != "svhn"
    assert drawing.key == "omega" and len(drawing.rows) == 2, "lines have the same names in both"


def test_numbers_of_clients_rise(root: Path, tmp_path: Path) -> None:
    folders = []
    for clients in (20, 10):
        folders.append(tmp_path / str(clients))
        shutil.copytree(root / "fairness", folders[-1])
        request = yaml.safe_load((folders[-1] / run_folder.EXPERIMENT).read_text())
        values = {**request["values"], "clients": clients}
        (folders[-1] / run_folder.EXPERIMENT).write_text(yaml.safe_dump({**request, "values": values}))
    panels = [of for _, of in factor.data(load_runs(folders), ["amp"]).panels]
    assert panels == ["clients = 10", "clients = 20"]


def test_names_stand_side_by_side_and_no_line_joins_them(root: Path) -> None:
    found = cells(load_runs(root / "crossed"), ["dataset"], where={"omega": "1"})
    drawing = factor.drawing(found, ["amp"])
    assert not drawing.numeric and list(drawing.values) == ["digits", "svhn"]
    (trace,) = factor.plot(drawing, Labels.of(found.runs)).data
    assert trace.mode == "markers" and list(trace.x) == [0, 1] and trace.error_y.array[0] > 0


def test_without_conditions_it_says_what_it_needs(tmp_path: Path) -> None:
    runs = load_runs(synthetic.write(tmp_path / "plain", failures=False))
    assert str(factor.needs(runs)).startswith("A metric against a condition needs trials under two conditions")
    assert figure("factor").across and not figure("heatmap").across


def test_boxes_hold_all_completed_trials_with_each_seed(root: Path) -> None:
    found = cells(load_runs(root / "fairness"))
    drawn = spread.plot(spread.drawing(found, ["global_accuracy"]), Labels.of(found.runs))
    assert len(drawn.data) == 3 and [trace.showlegend for trace in drawn.data] == [True, False, False]
    for place, box in enumerate(drawn.data):
        values = [v for n in (place, place + 3) for v in varied.last(root / "fairness", n, "global_accuracy").values()]
        np.testing.assert_allclose(sorted(box.y), sorted(100 * np.array(values)))


def test_boxes_of_several_runs_by_name(root: Path, tmp_path: Path) -> None:
    synthetic.write(tmp_path / "one", failures=False, kind="run", seeds=(0, 1, 2, 3))
    synthetic.write(tmp_path / "other", failures=False, method="fedavg", trials=6)
    runs = load_runs([tmp_path / "one", tmp_path / "other"])
    assert spread.needs(runs) is None
    drawing = spread.data(runs, ["wlp"])
    assert list(drawing.panels) == [("wlp", "")] and list(drawing.rows) == ["dfrd", "fedavg"]
    assert drawing.table.groupby("row").size().to_dict() == {"dfrd": 4, "fedavg": 6 * 2}
    variants = spread.data(load_runs(root / "fairness"), ["amp"])
    assert [of for _, of in variants.panels] == ["ω = 10", "ω = 1", "ω = 0.1"] and len(variants.rows) == 2
    assert set(variants.table.groupby(["panel", "row"]).size()) == {3}
