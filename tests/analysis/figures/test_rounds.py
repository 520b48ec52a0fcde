"""Metrics against the round: lines of methods and variants, panels of data sets and conditions."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from analysis.figures import curves, rounds, traffic
from analysis.labels import Labels
from analysis.runs import load_runs
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.analysis import synthetic, varied


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rounds")
    varied.fairness(folder / "fairness")
    varied.crossed(folder / "crossed")
    synthetic.write(folder / "one", failures=False, trials=8)
    synthetic.write(folder / "other", failures=False, trials=8, method="fedavg", shift=-0.05, seed=5)
    return folder


def at_round(folder: Path, trial: int, metric: str, number: int) -> list[float]:
    """A trial's values in a round, one of each seed, read from its file alone."""
    lines = (folder / run_folder.trial_folder(trial) / run_folder.ROUNDS).read_text().splitlines()
    return [row[metric] for row in map(json.loads, lines) if row["round"] == number]


def on(folder: Path, target: Path, dataset: str) -> Path:
    """The same run on another data set."""
    shutil.copytree(folder, target)
    request = yaml.safe_load((target / run_folder.EXPERIMENT).read_text())
    values = {**request["values"], "dataset": dataset}
    (target / run_folder.EXPERIMENT).write_text(yaml.safe_dump({**request, "values": values}))
    return target


def test_a_line_per_variant_a_panel_per_condition_and_the_band_of_its_seeds(root: Path) -> None:
    runs = load_runs(root / "fairness")
    assert rounds.needs(runs) is None
    drawing = rounds.data(runs, ["amp", "wlp"])
    assert list(drawing.panels) == [(m, f"ω = {w:g}") for m in ("amp", "wlp") for w in varied.OMEGAS]
    assert list(drawing.rows) == ["dfrd, merge_op = mul", "dfrd, merge_op = add"] and not drawing.note
    for row in drawing.table.to_dict("records"):
        trial = 3 * drawing.rows.index(row["row"]) + row["panel"] % 3
        values = np.array(at_round(root / "fairness", trial, row["metric"], row["round"]))
        assert row["n"] == 3 and row["mean"] == pytest.approx(values.mean())
        assert row["std"] == pytest.approx(values.std(ddof=1))
    assert len(drawing.table) == 2 * 3 * 2 * 3, "metrics, conditions, variants, rounds"
    drawn = rounds.plot(drawing, Labels.of(runs))
    lines = [trace for trace in drawn.data if trace.fill is None]
    bands = [trace for trace in drawn.data if trace.fill == "toself"]
    assert len(lines) == len(bands) == 12
    assert [trace.name for trace in drawn.data if trace.showlegend] == list(drawing.rows)
    np.testing.assert_allclose(bands[0].y[:3], np.array(lines[0].y) + np.array(lines[0].customdata)[:, 0])
    first = drawing.table[(drawing.table["panel"] == 0) & (drawing.table["row"] == drawing.rows[0])]
    np.testing.assert_allclose(lines[0].y, 100 * first["mean"])
    assert drawn.layout.xaxis3.domain[0] > drawn.layout.xaxis2.domain[1], "conditions stand side by side"


def test_bands_of_many_lines_are_fainter(root: Path) -> None:
    drawing = rounds.data(load_runs(root / "fairness"), ["amp"])

    def opacity(lines: int) -> float:
        many = dataclasses.replace(drawing, rows=[*drawing.rows, *map(str, range(lines - 2))])
        bands = [trace for trace in rounds.plot(many, Labels.of(load_runs(root / "fairness"))).data if trace.fill]
        (found,) = {float(band.fillcolor.rstrip(")").split(",")[-1]) for band in bands}
        return found

    assert opacity(2) == opacity(4) == 2 * opacity(8) > 0


def test_runs_of_two_methods_have_the_lines_of_their_chosen_trials(root: Path) -> None:
    runs = load_runs([root / "one", root / "other"])
    drawing = rounds.data(runs)
    assert list(drawing.panels) == [("global_accuracy", ""), ("local_accuracy", "")]
    assert list(drawing.rows) == ["dfrd", "fedavg"] and drawing.note.startswith("Of a search a line is the best")
    for run, row in zip(runs, drawing.rows, strict=True):
        part = drawing.table[(drawing.table["row"] == row) & (drawing.table["metric"] == "local_accuracy")]
        best = run.best
        assert best is not None
        expected = [np.mean(at_round(run.path, best, "local_accuracy", n)) for n in part["round"]]
        np.testing.assert_allclose(part["mean"], expected)


def test_a_search_with_few_trials_is_one_line_unless_it_walks_a_grid(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "few", failures=False, trials=3)
    (run,) = load_runs(tmp_path / "few")
    assert list(rounds.data([run]).rows) == ["dfrd"]
    best = rounds.data([run]).table.query("metric == 'global_accuracy'")
    assert run.best is not None
    np.testing.assert_allclose(
        best["mean"], [np.mean(at_round(run.path, run.best, "global_accuracy", n)) for n in best["round"]]
    )


def test_lines_of_one_method_are_told_apart_by_the_run(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "one", tmp_path / "again")
    assert list(rounds.data(load_runs([root / "one", tmp_path / "again"])).rows) == ["dfrd (one)", "dfrd (again)"]


def test_a_panel_for_each_data_set_and_each_number_of_clients(root: Path, tmp_path: Path) -> None:
    runs = load_runs([root / "one", root / "other", on(root / "one", tmp_path / "one-svhn", "svhn")])
    drawing = rounds.data(runs, ["global_accuracy"])
    own = str(runs[0].value("dataset"))
    assert list(drawing.panels) == [("global_accuracy", own), ("global_accuracy", "svhn")] and own != "svhn"
    assert list(drawing.rows) == ["dfrd", "fedavg"], "lines have the same names in both panels"
    assert set(drawing.table.loc[drawing.table["panel"] == 1, "row"]) == {"dfrd"}
    synthetic.write(tmp_path / "more", failures=False, fixed={"clients": 40})
    synthetic.write(tmp_path / "fewer", failures=False, fixed={"clients": 5})
    many = rounds.data(load_runs([tmp_path / "fewer", tmp_path / "more"]), ["global_accuracy"])
    assert [of for _, of in many.panels] == ["clients = 5", "clients = 40"] and list(many.rows) == ["dfrd"]


def test_a_metric_that_only_one_of_the_runs_measured_is_its_line_alone(root: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(root / "other", tmp_path / "bare")
    for path in bare.rglob(run_folder.ROUNDS):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        path.write_text("".join(json.dumps({k: v for k, v in row.items() if k != "wlp"}) + "\n" for row in rows))
    runs = load_runs([root / "one", bare])
    assert set(rounds.data(runs, ["wlp"]).table["row"]) == {"dfrd"}
    with pytest.raises(UserError, match=r"^psnr was not measured in one, bare\. Choose another --metric\.$"):
        rounds.data(runs, ["psnr"])


def test_it_says_what_it_needs(root: Path, tmp_path: Path) -> None:
    empty = shutil.copytree(root / "one", tmp_path / "empty")
    shutil.rmtree(empty / run_folder.TRIALS)
    assert str(rounds.needs(load_runs(empty))).startswith("Curves over rounds need a metric that was measured")
    one, bare = load_runs([root / "one", empty])
    assert "every run; empty has none." in str(rounds.needs([one, dataclasses.replace(bare, frozen=[])]))


def test_a_test_set_that_was_measured_at_the_end_has_no_curve(root: Path, tmp_path: Path) -> None:
    ended = shutil.copytree(root / "one", tmp_path / "ended")
    for path in ended.rglob(run_folder.CONFIG):
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "eval_test": "end"}))
    runs = load_runs([ended, root / "other"])
    assert {metric for metric, _ in rounds.data(runs).panels} == {"val_global_accuracy", "val_local_accuracy"}
    with pytest.raises(UserError, match=r"^wlp was measured only where a trial may end in ended, other, .*val_wlp, or"):
        rounds.data(runs, ["wlp"])
    drawing = curves.data(runs[:1])
    assert all(metric.startswith("val_") for metric in drawing.table["metric"])
    assert "no curve of it" in drawing.note and "no curve of it" not in curves.data(runs[1:]).note
    sent = [traffic.data([run]) for run in runs]
    assert ["no curve of it" in drawing.note for drawing in sent] == [True, False]
    assert [{metric.startswith("val_") for metric in drawing.table["metric"]} for drawing in sent] == [{True}, {False}]
    assert set(sent[0].table["round"]) == set(sent[1].table["round"])
