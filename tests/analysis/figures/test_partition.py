"""Partitions of several runs, and under several conditions, side by side."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import yaml

from analysis.figures import partition
from analysis.labels import Labels
from analysis.runs import Run, load_run
from search_spaces import run_folder
from tests.analysis import varied


def record(folder: Path, trial: int, counts: list[list[int]], **config: object) -> None:
    place = folder / run_folder.trial_folder(trial)
    (place / run_folder.PARTITION).write_text(json.dumps({"0": counts, "hash": {"0": str(counts)}}))
    stored = yaml.safe_load((place / run_folder.CONFIG).read_text())
    (place / run_folder.CONFIG).write_text(yaml.safe_dump(stored | config))


def test_a_panel_for_each_condition_on_one_scale(tmp_path: Path) -> None:
    folder = varied.fairness(tmp_path / "run")
    counts = {10.0: [[8, 8], [8, 8]], 1.0: [[12, 4], [4, 12]], 0.1: [[16, 0], [0, 16]]}
    for trial in load_run(folder).frozen:
        record(folder, trial.number, counts[trial.params["omega"]], omega=trial.params["omega"])
    run = load_run(folder)
    drawing = partition.data([run])
    found = {panel.settings["omega"]: panel.counts.tolist() for panel in drawing.panels}
    assert found == counts
    drawn = partition.plot(drawing, Labels.of([run]))
    assert [a.text for a in drawn.layout.annotations] == ["<b>ω = 10</b>", "<b>ω = 1</b>", "<b>ω = 0.1</b>"]
    assert len({trace.marker.sizeref for trace in drawn.data}) == 1
    assert [samples for _, _, samples in drawn.data[2].customdata] == [16, 16]  # empty places have no bubble


def test_of_several_runs_the_same_partition_stands_once(root: Path, tmp_path: Path) -> None:
    runs: list[Run] = []
    for name, omega, counts in (("a", 1.0, [[3, 1]]), ("b", 0.1, [[4, 0]]), ("c", 0.1, [[4, 0]])):
        shutil.copytree(root / "final", tmp_path / name)
        run = load_run(tmp_path / name)
        for trial in run.frozen:
            record(run.path, trial.number, counts, omega=omega)
        runs.append(load_run(tmp_path / name))
    drawing = partition.data(runs)
    assert [panel.run for panel in drawing.panels] == ["a", "b"]
    assert np.array_equal(drawing.table.groupby("panel")["samples"].sum(), [4, 4])


def test_where_no_setting_differs_the_runs_name_the_panels(root: Path, tmp_path: Path) -> None:
    runs = []
    for name, counts in (("one", [[3, 1]]), ("other", [[1, 3]])):
        shutil.copytree(root / "final", tmp_path / name)
        for trial in load_run(tmp_path / name).frozen:
            record(tmp_path / name, trial.number, counts)
        runs.append(load_run(tmp_path / name))
    drawn = partition.plot(partition.data(runs), Labels())
    assert {"<b>one</b>", "<b>other</b>"} <= {a.text for a in drawn.layout.annotations}


def test_classes_and_clients_of_the_users_own_are_told_by_name(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "final", tmp_path / "run")
    for trial in load_run(tmp_path / "run").frozen:
        path = tmp_path / "run" / run_folder.trial_folder(trial.number) / run_folder.PARTITION
        names = {"classes": ["ill", "well <b>"], "clients": ["a hospital of a long name", "south"]}
        path.write_text(json.dumps({"0": [[3, 1], [0, 2]], "hash": {"0": "x"}, **names}))
    drawn = partition.plot(partition.data([load_run(tmp_path / "run")]), Labels())
    assert list(drawn.layout.yaxis.ticktext) == ["ill", "well &lt;b&gt;"]
    assert list(drawn.layout.xaxis.ticktext) == ["a hospital of…", "south"]
    told = [tuple(entry) for entry in drawn.data[0].customdata]
    assert told[0] == ("a hospital of a long name", "ill", 3) and told[2] == ("south", "well &lt;b&gt;", 2)
