"""Decision boundaries of a run on points of a plane: from its files alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from analysis.figures import averages, boundary, images
from analysis.labels import Labels
from analysis.runs import Run, load_run
from search_spaces import kept_images
from tests.analysis.figures import kept


@pytest.fixture
def run(root: Path, tmp_path: Path) -> Run:
    """Class 1 is predicted where the second value is large, by the local models where the first one is."""
    folder = Path(shutil.copytree(root / "final", tmp_path / "run"))
    upper = np.zeros((kept_images.SIDE, kept_images.SIDE), dtype=np.int64)
    upper[kept_images.SIDE // 2 :] = 1
    points = np.array([[10, 200], [200, 10], [30, 40]], dtype=np.uint8)
    of_data = {"data_points": points, "data_labels": np.array([1, 0, 0])}
    kept.write(folder, 7, None, of_data)
    painted = np.zeros((2, 3, 2, 1, 1), dtype=np.uint8)
    painted[1, :, 0], painted[1, :, 1] = 50, 60
    generator = {"generator": painted, "generator_mean": painted[:, 0], "generator_count": np.array([64, 2])}
    for round_ in range(1, 10):
        kept.write(folder, 7, round_, {"plane": upper, "teacher": upper.T} | (generator if round_ > 1 else {}))
    return load_run(folder)


def test_points_and_predictions_stand_in_their_rounds(run: Run) -> None:
    assert boundary.needs([run]) is None
    drawing = boundary.data([run])
    table = drawing.table
    assert sorted(set(table["round"])) == [1, 3, 6, 9]
    of_data = table[(table["round"] == 9) & (table["source"] == "data")]
    assert of_data[["class", "x", "y"]].to_numpy().tolist() == [[1, 10, 200], [0, 200, 10], [0, 30, 40]]
    painted = table[(table["round"] == 9) & (table["source"] == "generator")]
    # Of class 1 two images were painted; the third place of the file is empty.
    assert painted[["class", "x", "y"]].to_numpy().tolist() == [[0, 0, 0]] * 3 + [[1, 50, 60]] * 2
    assert set(table[table["round"] == 1]["source"]) == {"data"}
    assert set(drawing.planes) == {(r, name) for r in (1, 3, 6, 9) for name in ("plane", "teacher")}


def test_the_line_runs_where_the_prediction_changes(run: Run) -> None:
    drawn = boundary.plot(boundary.data([run]), Labels())
    lines = [trace for trace in drawn.data if trace.type == "contour"]
    assert len(lines) == 2 * 4
    z, y = np.asarray(lines[0].z), np.asarray(lines[0].y)
    assert (z[y < 127] == 0).all() and (z[y > 128.5] == 1).all()
    assert sorted(trace.name for trace in lines if trace.showlegend) == [
        "boundary of the global model",
        "boundary of the local models",
    ]


def test_points_are_no_images(run: Run) -> None:
    assert images.needs([run]) is not None and averages.needs([run]) is not None


def test_runs_on_images_say_what_is_needed(root: Path, tmp_path: Path) -> None:
    assert "two-dimensional data" in str(boundary.needs([kept.with_images(root, tmp_path / "run")]))
