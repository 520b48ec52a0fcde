"""Generated features of a run: from its files alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from analysis.figures import averages, boundary, features, images
from analysis.labels import Labels
from analysis.runs import Run, load_run
from analysis.runs import images as kept_files
from search_spaces import kept_images, run_folder
from tests.analysis.figures.kept import name_classes

SEED = 7


def arrays(shift: int) -> dict[str, np.ndarray]:
    """Of two classes three generated points each and four test images; a unit is 1000."""
    made = 1000 * np.array([[[0, 0], [1, 0], [0, 1]], [[5, 5], [6, 5], [5, 6]]]) + shift
    seen = np.array([[0, 0], [500, 250], [5000, 5000], [-1000, 0]]) + shift
    return {
        "features": made,
        "features_seen": seen,
        "features_labels": np.array([0, 0, 1, 1]),
        "features_share": np.array([620, 210]),
    }


def write(folder: Path, trial: int, round_: int, found: dict[str, np.ndarray]) -> None:
    np.savez_compressed(folder / run_folder.trial_folder(trial) / kept_images.name_of(SEED, round_), **found)


@pytest.fixture
def run(root: Path, tmp_path: Path) -> Run:
    folder = Path(shutil.copytree(root / "final", tmp_path / "run"))
    write(folder, 0, 1, arrays(0))
    write(folder, 0, 3, arrays(7000))
    return load_run(folder)


def test_the_last_round_is_drawn_in_the_units_of_features(run: Run) -> None:
    assert features.needs([run]) is None
    drawing = features.data([run])
    table = drawing.table
    seen, made = table[table["source"] == "seen"], table[table["source"] == "made"]
    assert seen[["class", "x", "y"]].to_numpy().tolist() == [[0, 7, 7], [0, 7.5, 7.25], [1, 12, 12], [1, 6, 7]]
    assert made[["class", "x", "y"]].to_numpy().tolist() == [
        *([0, x, y] for x, y in ((7, 7), (8, 7), (7, 8))),
        *([1, x, y] for x, y in ((12, 12), (13, 12), (12, 13))),
    ]
    assert drawing.note == "After round 3."
    drawn = features.plot(drawing, Labels.of([run]))
    assert drawn.layout.xaxis.title.text == "first component, 62 % of the variance"
    assert drawn.layout.yaxis.title.text == "second, 21 % of the variance"
    assert [trace.name for trace in drawn.data if trace.showlegend is not False] == ["class 0", "class 1"]


def test_classes_have_the_names_of_the_data(run: Run) -> None:
    """A number alone is no name."""
    named = name_classes(run, ["<cat>", "1"])
    drawn = features.plot(features.data([named]), Labels.of([named]))
    assert [trace.name for trace in drawn.data if trace.showlegend is not False] == ["&lt;cat&gt;", "class 1"]


def test_runs_side_by_side_are_called_by_their_names(run: Run, tmp_path: Path) -> None:
    other = load_run(Path(shutil.copytree(run.path, tmp_path / "other")))
    drawn = features.plot(features.data([run, other]), Labels.of([run, other]))
    assert [a.text for a in drawn.layout.annotations if a.text and "run" in a.text] != []
    assert {trace.xaxis for trace in drawn.data} == {"x", "x2"}


def test_features_are_no_images(run: Run) -> None:
    for figure in (images, averages, boundary):
        assert figure.needs([run]) is not None


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("features", np.zeros((2, 3), dtype=np.int64)),
        ("features", np.zeros((0, 3, 2), dtype=np.int64)),
        ("features", np.zeros((2, 3, 3), dtype=np.int64)),
        ("features_seen", np.zeros((3, 2), dtype=np.int64)),
        ("features_labels", np.zeros((4, 1), dtype=np.int64)),
        ("features_share", np.zeros(3, dtype=np.int64)),
    ],
)
def test_a_file_of_another_shape_is_left_out(run: Run, name: str, wrong: np.ndarray) -> None:
    write(run.path, 0, 3, arrays(0) | {name: wrong})
    assert not kept_files.images_of_trial(run, 0).at(SEED, 3)


def test_without_features_it_says_what_is_needed(root: Path) -> None:
    assert "fedmdcg, fedcg or fedgen" in str(features.needs([load_run(root / "final")]))
