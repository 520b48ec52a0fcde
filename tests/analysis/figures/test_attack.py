"""Rebuilt images of several runs as a matrix of methods and data sets."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from analysis.figures import attack
from analysis.labels import Labels
from analysis.runs import Run, load_run
from search_spaces import run_folder
from tests.analysis.figures.kept import name_classes
from tests.analysis.figures.test_images import pixels

SHAPE = (1, 4, 4)


def images(*levels: int) -> np.ndarray:
    return np.stack([np.full(SHAPE, level, dtype=np.uint8) for level in levels])


def attacked(root: Path, folder: Path, method: str, dataset: str, originals: np.ndarray, **changes: Any) -> Run:
    """A run of that method whose attack rebuilt images one level brighter than the originals."""
    shutil.copytree(root / "final", folder)
    request = yaml.safe_load((folder / run_folder.EXPERIMENT).read_text())
    values = {**request["values"], "dataset": dataset}
    (folder / run_folder.EXPERIMENT).write_text(yaml.safe_dump({**request, "values": values}))
    provenance = json.loads((folder / run_folder.PROVENANCE).read_text())
    (folder / run_folder.PROVENANCE).write_text(json.dumps(provenance | {"method_title": method}))
    count = len(originals)
    arrays: dict[str, Any] = {
        "original": originals,
        "recovered": originals + 1,
        "psnr": np.linspace(5.0, 6.0, count),
        "label": np.arange(count),
        "client": np.zeros(count, dtype=np.int64),
        "trial": np.array(0),
    }
    np.savez_compressed(folder / run_folder.ATTACK, **arrays | changes)
    return load_run(folder)


def test_a_column_per_method_and_a_panel_per_data_set(root: Path, tmp_path: Path) -> None:
    runs = [
        attacked(root, tmp_path / "a", "One", "digits", images(10, 20)),
        attacked(root, tmp_path / "b", "Two", "digits", images(10, 20)),
        attacked(root, tmp_path / "c", "One", "svhn", images(30, 40)),
    ]
    drawing = attack.data(runs)
    table = drawing.table.set_index(["dataset", "image", "column"])
    assert len(table) == 6 and table.loc[("digits", 1, "Two"), "psnr"] == 6.0
    assert int(table.loc[("svhn", 0, "One"), "recovered"].max()) == 31
    drawn = attack.plot(drawing, Labels())
    assert [a.text for a in drawn.layout.annotations] == ["<b>digits</b>", "<b>svhn</b>"]
    assert list(drawn.layout.xaxis.ticktext) == ["original", "One", "Two"]
    assert list(drawn.layout.yaxis.ticktext) == ["class 0", "class 1"]
    sheet = pixels(drawn.data[0].source)
    x, y = drawn.layout.xaxis.tickvals, drawn.layout.yaxis.tickvals
    assert [int(sheet[int(y[1]), int(at), 0]) for at in x] == [20, 21, 21]
    assert list(drawn.data[1].text) == ["5.0", "5.0", "6.0", "6.0"]
    named = [name_classes(run, ["zero", "one"]) for run in runs[:2]]
    assert list(attack.plot(attack.data(named), Labels()).layout.yaxis.ticktext) == ["zero", "one"]


def test_every_method_is_shown_though_its_clients_hold_other_images(root: Path, tmp_path: Path) -> None:
    runs = [
        attacked(root, tmp_path / "a", "One", "digits", images(10, 20, 30, 40)),
        attacked(root, tmp_path / "b", "Two", "digits", images(99)),
    ]
    drawing = attack.data(runs)
    assert drawing.table["image"].tolist() == [0, 1, 2, 4]
    assert "Where a place is empty" in drawing.note and drawing.note.endswith("1 further image is not drawn.")


def test_runs_of_one_method_are_called_by_their_names(root: Path, tmp_path: Path) -> None:
    runs = [attacked(root, tmp_path / name, "One", "digits", images(10)) for name in ("first", "second")]
    assert attack.data(runs).table["column"].tolist() == ["first", "second"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"recovered": images(1, 2, 3)},
        {"psnr": np.array([1.0, np.nan])},
        {"psnr": np.array([1.0])},
        {"original": images(1, 2).astype(float)},
        {"trial": np.array([1, 2, 3])},
    ],
    ids=lambda wrong: "-".join(wrong),
)
def test_a_file_that_is_not_what_it_should_be_is_left_out(root: Path, tmp_path: Path, wrong: dict[str, Any]) -> None:
    run = attacked(root, tmp_path / "a", "One", "digits", images(10, 20), **wrong)
    assert "fedtune attack RUN" in str(attack.needs([run]))
