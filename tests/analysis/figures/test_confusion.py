"""The confusion matrix of a final run: counts over its seeds, shares by class, and names of classes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

from analysis.figures import confusion
from analysis.labels import Labels
from analysis.runs import Run, load_run
from search_spaces import run_folder

TEST = {1000: [[3, 1], [0, 4]], 1001: [[2, 2], [1, 3]], 1002: [[4, 0], [0, 0]]}


def recorded(root: Path, folder: Path) -> Run:
    """The final run of three seeds, one trial each, with what its models take two classes for."""
    shutil.copytree(root / "final", folder)
    for trial, (seed, counts) in enumerate(TEST.items()):
        place = folder / run_folder.trial_folder(trial)
        stored = {str(seed): {"round": 9, "test": counts, "validation": [[1, 0], [0, 1]]}}
        (place / run_folder.CONFUSION).write_text(json.dumps(stored))
        names = {"0": [[1, 1]], "hash": {"0": "x"}, "classes": ["<cat>", "dog"], "clients": []}
        (place / run_folder.PARTITION).write_text(json.dumps(names))
    return load_run(folder)


def test_cells_are_shares_of_their_class_over_all_seeds(root: Path, tmp_path: Path) -> None:
    run = recorded(root, tmp_path / "final")
    drawing = confusion.data([run])
    test = drawing.table[drawing.table["part"] == "test"]
    assert test["samples"].tolist() == [9, 3, 1, 7]
    assert test["share"].tolist() == pytest.approx([9 / 12, 3 / 12, 1 / 8, 7 / 8])
    assert drawing.note == (
        "The samples of 3 seeds, each with its own model, are added up. Most often <cat> is taken for dog: 25 % of its "
        "test samples."
    )
    picture = confusion.plot(drawing, Labels.of([run]))
    cells = [trace for trace in picture.data if isinstance(trace, go.Heatmap)]
    assert [np.asarray(one.z).tolist() for one in cells] == [[[75, 25], [12.5, 87.5]], [[100, 0], [0, 100]]]
    assert list(cells[0].text[0]) == ["&lt;cat&gt; taken for &lt;cat&gt;", "&lt;cat&gt; taken for dog"]
    assert list(picture.layout.yaxis.ticktext) == ["&lt;cat&gt;", "dog"] == list(picture.layout.xaxis.ticktext)
    scales = {(picture.layout[name].cmin, picture.layout[name].cmax) for name in ("coloraxis", "coloraxis2")}
    assert scales == {(0, 100)}
    assert confusion.FIGURE.needs([run]) is None


def test_a_class_without_samples_is_empty_and_names_that_do_not_fit_are_numbers(root: Path, tmp_path: Path) -> None:
    run = recorded(root, tmp_path / "final")
    for trial, seed in enumerate(TEST):
        path = run.path / run_folder.trial_folder(trial) / run_folder.CONFUSION
        path.write_text(json.dumps({str(seed): {"round": 9, "test": [[2, 0, 0], [0, 0, 0], [0, 0, 1]]}}))
    drawing = confusion.data([load_run(run.path)])
    assert drawing.table["share"].isna().tolist() == [False] * 3 + [True] * 3 + [False] * 3
    assert list(drawing.classes) == ["0", "1", "2"]
    assert drawing.note.endswith("No test sample is taken for another class.")


@pytest.mark.parametrize("text", ["", "[]", '{"1000": {"test": [[1, 2]]}}', '{"1000": {"test": [[1, -2], [0, 1]]}}'])
def test_what_is_no_matrix_is_not_drawn(text: str, root: Path, tmp_path: Path) -> None:
    run = recorded(root, tmp_path / "final")
    for trial in range(len(TEST)):
        (run.path / run_folder.trial_folder(trial) / run_folder.CONFUSION).write_text(text)
    reason = confusion.FIGURE.needs([load_run(run.path)])
    assert reason is not None and "fedtune run" in reason
