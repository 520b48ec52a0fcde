"""Contract of every figure, over the registry, and what single figures must show."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import plotly.graph_objects as go
import pytest

from analysis.estimate import standing
from analysis.estimate.prior import FLAT_OF_SHARES
from analysis.figures import (
    anytime,
    curves,
    figures,
    heatmap,
    history,
    importance,
    outcomes,
    parallel,
    partition,
    slices,
    surface,
    traffic,
)
from analysis.labels import Labels
from analysis.runs import Run, load_run
from search_spaces import run_folder
from tests.analysis import synthetic

RUNS = ("grid", "tpe", "wide", "other", "final", "pareto")


@pytest.mark.parametrize("name", figures())
@pytest.mark.parametrize("run_name", RUNS)
def test_every_figure_draws_or_says_why_not(name: str, run_name: str, loaded: dict[str, Run]) -> None:
    one, runs = figures()[name], [loaded[run_name]]
    if one.many:
        runs.append(loaded["other"])
    reason = one.needs(runs)
    if reason is not None:
        assert reason.endswith(".") and len(reason) > 20
        return
    drawing = one.data(runs)
    table = drawing if isinstance(drawing, pd.DataFrame) else drawing.table
    assert isinstance(table, pd.DataFrame) and len(table) and not table.attrs
    before = table.copy()
    picture = one.plot(drawing, Labels.of(runs))
    pd.testing.assert_frame_equal(table, before)
    assert picture.data and picture.layout.height > 100
    assert {"wide", "narrow"} <= set(picture.layout.meta)
    text = picture.to_json()
    assert "NaN" not in json.dumps(json.loads(text)["layout"]) and "Infinity" not in text


@pytest.mark.parametrize("name", figures())
def test_every_figure_says_how_to_read_it(name: str) -> None:
    one = figures()[name]
    assert one.title and one.data.__doc__ and len(one.read) == 2 and all(s.endswith(".") for s in one.read)


@pytest.mark.parametrize("name", figures())
def test_an_empty_or_unfinished_run_never_breaks_a_figure(name: str, root: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(root / "tpe", tmp_path / "bare"))
    shutil.rmtree(folder / run_folder.TRIALS)
    one, run = figures()[name], load_run(folder)
    runs = [run, run] if one.many else [run]
    if one.needs(runs) is None:
        assert one.draw(runs, Labels.of(runs)).data


def test_a_grid_shows_every_cell_with_its_value_and_marks_the_chosen_one(loaded: dict[str, Run]) -> None:
    run = loaded["grid"]
    drawing = heatmap.data([run])
    table = drawing.table
    assert drawing.mode == "grid" and (drawing.x, drawing.y) == ("alpha", "lambda")
    assert list(dict.fromkeys(table["metric"])) == [
        "val_global_accuracy",
        "val_local_accuracy",
        "global_accuracy",
        "local_accuracy",
    ]
    picture = heatmap.plot(drawing, Labels.of([run]))
    maps = [t for t in picture.data if isinstance(t, go.Heatmap)]
    cells = [t for t in picture.data if isinstance(t, go.Scatter) and t.mode == "text"]
    assert len(maps) == len(cells) == 4 and all(
        np.asarray(m.z).shape == (5, 6) and len(c.text) == 30 for m, c in zip(maps, cells, strict=True)
    )
    trial = run.frozen[7]
    at = (synthetic.LAMBDA.index(trial.params["lambda"]), synthetic.ALPHA.index(trial.params["alpha"]))
    mean = np.mean(list(run.last(7, "global_accuracy").values()))
    assert np.asarray(maps[2].z)[at] == pytest.approx(100 * mean)
    assert len(picture.layout.shapes) == 4
    # Global and local side by side: both panels of a row at the same height, the second to the right.
    assert (
        picture.layout.yaxis.domain == picture.layout.yaxis2.domain
        and picture.layout.xaxis2.domain[0] > picture.layout.xaxis.domain[1]
    )
    narrow = picture.layout.meta["narrow"]
    assert (
        narrow["xaxis.domain"] == narrow["xaxis2.domain"] == [0.0, 1.0]
        and narrow["yaxis.domain"][0] > narrow["yaxis2.domain"][1]
    )


def test_a_half_finished_grid_shows_what_is_planned_what_ended_otherwise_and_the_noise(tmp_path: Path) -> None:
    run = load_run(synthetic.write(tmp_path / "part", sampler="grid", rounds=3, seeds=(0,), cells=21))
    drawing = heatmap.data([run])
    assert "20 of 30 trials have ended." in drawing.note
    picture = heatmap.plot(drawing, Labels.of([run]))
    values = next(t for t in picture.data if isinstance(t, go.Heatmap))
    assert np.asarray(values.z).shape == (5, 6)
    marks = next(t for t in picture.data if isinstance(t, go.Scatter) and "○" in (t.text or ()))
    by_cell = {(x, y): mark for x, y, mark in zip(marks.x, marks.y, marks.text, strict=True)}
    cells = [(a, b) for a in range(6) for b in range(5)]
    for number, cell in enumerate(cells):
        state = run.frozen[number].state.name if number < 21 else "planned"
        expected = {"PRUNED": "×", "FAIL": "!", "RUNNING": "…", "planned": "○", "COMPLETE": None}[state]
        assert by_cell.get(cell) == expected, (number, state)
    assert run.estimate is not None
    assert f"one seed: ± {100 * run.estimate.paired_noise:.2g}" in picture.layout.annotations[0].text


def test_cells_that_cannot_be_told_from_the_best_are_hatched(loaded: dict[str, Run]) -> None:
    run = loaded["grid"]
    assert run.estimate is not None
    estimate = replace(run.estimate, tied=(run.estimate.trial, 3, 22))
    table = heatmap.data([run]).table
    tied = set(table.loc[table["tied"], "trial"])
    assert tied == set(run.estimate.tied) - {run.estimate.trial}
    run.__dict__["estimate"], before = estimate, run.estimate
    try:
        picture = heatmap.plot(heatmap.data([run]), Labels.of([run]))
    finally:
        run.__dict__["estimate"] = before
    lines = [t for t in picture.data if isinstance(t, go.Scatter) and t.mode == "lines" and t.xaxis in (None, "x")]
    drawn = {(round(x), round(y)) for t in lines for x, y in zip(t.x, t.y, strict=True) if x is not None}
    assert drawn == {(3 // 5, 3 % 5), (22 // 5, 22 % 5)}
    for line in lines:
        for x0, x1, y0, y1 in zip(line.x[::3], line.x[1::3], line.y[::3], line.y[1::3], strict=True):
            x, y = (np.linspace(a, b, 20) - round((a + b) / 2) for a, b in ((x0, x1), (y0, y1)))
            assert not ((abs(x) < 0.35) & (abs(y) < 0.19)).any(), "no line runs through a number"


def test_free_samples_are_dots_and_a_metric_has_one_scale(loaded: dict[str, Run]) -> None:
    """Validation and test data of a metric share their colours, and global and local accuracy do not."""
    run = loaded["tpe"]
    drawing = heatmap.data([run])
    assert drawing.mode == "points" and "stopped early" in drawing.note
    picture = heatmap.plot(drawing, Labels.of([run]))
    points = [
        t for t in picture.data if isinstance(t, go.Scatter) and t.mode == "markers" and t.marker.coloraxis is not None
    ]
    done = run.trials[run.trials["state"] == "COMPLETE"]
    assert sorted(points[0].x) == sorted(done["alpha"])
    assert not any(isinstance(t, go.Contour) for t in picture.data), "nothing is claimed between noisy dots"
    scales = [picture.layout[f"coloraxis{n}"] for n in ("", "2", "3", "4")]
    ends = [(scale.cmin, scale.cmax) for scale in scales]
    both = run.finals.loc[done["number"], ["val_global_accuracy", "global_accuracy"]]
    assert ends[0] == ends[2] == pytest.approx((100 * both.min().min(), 100 * both.max().max()))
    assert ends[1] == ends[3] != ends[0]


def test_with_more_than_two_parameters_the_two_most_important_are_drawn(loaded: dict[str, Run]) -> None:
    run = loaded["wide"]
    drawing = heatmap.data([run])
    shares = importance.data([run]).sort_values("importance", ascending=False)["key"].tolist()
    assert {drawing.x, drawing.y} == set(shares[:2]) and "most important" in drawing.note


def test_the_surface_is_what_the_model_says_at_each_place(loaded: dict[str, Run]) -> None:
    """One place by itself, asked of the estimate's model with its values written out: so no axis is taken for the
    other, and what is on no axis has the winner's values."""
    run = loaded["wide"]
    assert run.best is not None
    drawing = surface.data([run])
    picture = surface.plot(drawing, Labels.of([run]))
    mean, std = (t for t in picture.data if isinstance(t, go.Contour))
    assert drawing.y is not None
    x, y = mean.x[5], mean.y[20]
    winner = run.trial(run.best)
    values = {**winner.params, drawing.x: x, drawing.y: y}
    found = standing(run.frozen, 1.0, run._by_seed, [(values, winner.distributions)], prior=FLAT_OF_SHARES)
    assert found is not None
    (place,) = found.candidates
    assert mean.z[20][5] == pytest.approx(100 * found.belief.mean[place])
    able = [i for i, seeds in enumerate(found.seeds) if seeds]
    assert std.z[20][5] == pytest.approx(100 * np.sqrt(found.belief.beside(able)[place]))
    assert np.ptp(mean.z, axis=0).max() > 0 and np.ptp(mean.z, axis=1).max() > 0
    marks = [t for t in picture.data if isinstance(t, go.Scatter) and t.xaxis == "x"]
    for state, place in (("PRUNED", 0), ("RUNNING", 1)):
        drawn = {int(number): value for number, value in marks[place].customdata}
        last = {
            t.number: 100 * t.intermediate_values[max(t.intermediate_values)]
            for t in run.frozen
            if t.state.name == state
        }
        assert drawn == pytest.approx(last) != {}, "each with its last value"
    symbols = Labels.of([run], markup=False)
    held = [symbols.setting(key, value) for key, value in winner.params.items() if key not in (drawing.x, drawing.y)]
    assert held and f"the chosen trial's values: {', '.join(held)}." in picture.layout.meta["note"]


@pytest.mark.parametrize(("keys", "kind"), [(("alpha", "merge_op"), go.Heatmap), (("lr",), go.Scatter)])
def test_a_surface_of_a_choice_has_cells_and_of_one_parameter_is_a_line(
    keys: tuple[str, ...], kind: type, tmp_path: Path
) -> None:
    run = load_run(synthetic.write(tmp_path / "other", keys=keys, trials=12))
    assert surface.needs([run]) is None
    picture = surface.plot(surface.data([run]), Labels.of([run]))
    (first, *_) = (t for t in picture.data if isinstance(t, kind))
    if kind is go.Heatmap:
        assert picture.layout.yaxis.type == "category" and list(first.y) == ["mul", "add", "cat"]
    else:
        assert picture.layout.xaxis.type == "log" and len(picture.layout.annotations) == 1


def test_a_choice_is_drawn_on_an_axis_of_options(tmp_path: Path) -> None:
    mixed = load_run(synthetic.write(tmp_path / "mixed", keys=("alpha", "merge_op"), trials=12))
    assert heatmap.data([mixed]).mode == "points"
    picture = heatmap.plot(heatmap.data([mixed]), Labels.of([mixed]))
    assert picture.layout.yaxis.type == "category"


def test_curves_always_hold_the_best_trial_and_stay_few(
    loaded: dict[str, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "LIMIT", 5)
    run = loaded["grid"]
    drawing = curves.data([run])
    table = drawing.table
    assert table["trial"].nunique() <= 6 and table.loc[table["best"], "trial"].unique().tolist() == [run.best]
    assert "of 30 trials are drawn" in drawing.note
    picture = curves.plot(drawing, Labels.of([run]))
    assert len(picture.data) <= 4 * 4


def test_a_band_is_one_standard_deviation_over_seeds(loaded: dict[str, Run]) -> None:
    run = loaded["tpe"]
    table = curves.data([run]).table
    row = table[table["best"] & (table["round"] == 9) & (table["metric"] == "global_accuracy")].iloc[0]
    values = list(run.last(run.best or 0, "global_accuracy").values())
    assert row["mean"] == pytest.approx(np.mean(values)) and row["std"] == pytest.approx(np.std(values, ddof=1))


def test_a_final_runs_curve_is_the_mean_of_its_seeds(loaded: dict[str, Run]) -> None:
    run = loaded["final"]
    table = curves.data([run]).table
    row = table[table["best"] & (table["round"] == 9) & (table["metric"] == "global_accuracy")].iloc[0]
    assert row["seeds"] == 3 and row["mean"] == pytest.approx(np.mean(list(run.over_seeds("global_accuracy").values())))


def test_seeds_of_a_final_run_have_no_history(loaded: dict[str, Run]) -> None:
    assert history.FIGURE.needs([loaded["tpe"]]) is None
    assert "seeds of one configuration" in str(history.FIGURE.needs([loaded["final"]]))


def test_the_best_so_far_stands_at_what_all_trials_up_to_it_took(loaded: dict[str, Run]) -> None:
    """Counted here from the rows of the files, of stopped and failed trials too."""
    run = loaded["tpe"]
    table = anytime.data([run])
    assert list(table["best"]) == list(history.data([run])["best"]) and len(table) > 2
    seconds, lines = 0.0, 0
    spent = {}
    for folder in sorted((run.path / run_folder.TRIALS).iterdir()):
        rows = [json.loads(line) for line in (folder / run_folder.ROUNDS).read_text().splitlines() if line]
        seconds, lines = seconds + sum(row.get("seconds") or 0.0 for row in rows), lines + len(rows)
        spent[int(folder.name)] = (seconds, lines / run.experiment["rounds"])
    assert len(spent) > len(table), "some were stopped"
    for row in table.itertuples():
        assert (row.seconds, row.federations) == pytest.approx(spent[row.number])


def test_the_history_keeps_the_best_so_far_and_its_test_value(loaded: dict[str, Run]) -> None:
    run = loaded["tpe"]
    table = history.data([run])
    assert table["best"].is_monotonic_increasing and table["leader"].iloc[-1] == run.best
    assert table["twin_value"].iloc[-1] == pytest.approx(
        np.mean(list(run.last(run.best or 0, "global_accuracy").values()))
    )


def test_importance_finds_what_matters_and_refuses_few_trials(loaded: dict[str, Run], tmp_path: Path) -> None:
    shares = importance.data([loaded["wide"]])
    assert shares["importance"].sum() == pytest.approx(1.0) and shares.sort_values("importance")["key"].iloc[-1] == "lr"
    assert (shares["low"] <= shares["high"]).all()
    few = load_run(synthetic.write(tmp_path / "few", trials=5, failures=False))
    assert importance.needs([few]) == "Importance needs 8 completed trials, there are 5."


def test_of_many_parameters_the_result_comes_first_and_the_most_important_are_drawn(tmp_path: Path) -> None:
    run = load_run(synthetic.write(tmp_path / "many", trials=40, keys=(*synthetic.many(15), "lr"), failures=False))
    drawing = parallel.data([run])
    picture = parallel.plot(drawing, Labels.of([run]))
    titles = picture.layout.xaxis.ticktext
    assert len(titles) == 16 + 2 and titles[0].startswith("Global accuracy") and "η" in titles[2]
    assert set(drawing.keys) == set(run.keys), "every axis is there"
    assert picture.layout.meta["least"] > 1500, "and can be reached by scrolling"
    found = slices.data([run])
    assert len(found.keys) == 8 and found.keys[0] == "lr" and "Of 16 parameters the 8 most important" in found.note
    assert (
        "40 completed trials are few for 16 parameters"
        in importance.FIGURE.draw([run], Labels.of([run])).layout.meta["note"]
    )


def test_the_importances_of_a_run_are_computed_once_for_all_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, compute = [], optuna.importance.get_param_importances

    def counted(study: optuna.Study, **options: Any) -> dict[str, float]:
        asked.append([trial.number for trial in study.get_trials(states=[optuna.trial.TrialState.COMPLETE])])
        return compute(study, **options)

    monkeypatch.setattr(optuna.importance, "get_param_importances", counted)
    run = load_run(synthetic.write(tmp_path / "many", trials=40, keys=(*synthetic.many(15), "lr"), failures=False))
    for one in (heatmap, slices, parallel, importance):
        one.data([run])
    done = [trial.number for trial in run.frozen if trial.state.name == "COMPLETE"]
    assert asked.count(done) == 1 and len(asked) == 1 + importance.RESAMPLES


def test_partition_counts_are_those_recorded(root: Path, loaded: dict[str, Run]) -> None:
    run = loaded["tpe"]
    stored = json.loads((root / "tpe" / run_folder.trial_folder(run.best or 0) / run_folder.PARTITION).read_text())["0"]
    table = partition.data([run]).table
    assert table["samples"].sum() == np.sum(stored)
    assert all(stored[c][k] == n for c, k, n in table[["client", "class", "samples"]].to_numpy())


def test_outcomes_count_every_trial(loaded: dict[str, Run]) -> None:
    table = outcomes.data([loaded["tpe"]])
    assert table["outcome"].value_counts().to_dict() == {
        "completed": 14,
        "scheduler": 7,
        "diverged": 1,
        "error": 1,
        "running": 1,
    }


def test_traffic_adds_up_both_directions(loaded: dict[str, Run]) -> None:
    table = traffic.data([loaded["tpe"]]).table
    row = table[(table["trial"] == 0) & (table["round"] == 9)].iloc[0]
    assert row["sent"] == pytest.approx(9 * (1_200_000 + 1_202_000) / 1e6)


def test_of_a_final_runs_seeds_none_is_chosen(loaded: dict[str, Run]) -> None:
    """The strong line is their mean, over what they sent on average, and opens no trial."""
    run = loaded["final"]
    drawing = traffic.data([run])
    last = drawing.table[drawing.table["best"] & (drawing.table["metric"] == "global_accuracy")].iloc[-1]
    assert last["value"] == pytest.approx(np.mean(list(run.over_seeds("global_accuracy").values())))
    assert last["sent"] == pytest.approx(drawing.table.loc[~drawing.table["best"], "sent"].max())
    one, mean = [trace for trace in traffic.plot(drawing, Labels.of([run])).data if trace.showlegend]
    assert (one.name, mean.name) == ("one seed each", "mean of the seeds") and mean.meta is None
    assert [trace.name for trace in traffic.FIGURE.draw([loaded["tpe"]], Labels.of([loaded["tpe"]])).data[:2]] == [
        "other trials",
        "chosen",
    ]


@pytest.mark.parametrize("name", list(figures()))
def test_no_figure_of_a_final_run_speaks_of_a_chosen_trial(name: str, loaded: dict[str, Run]) -> None:
    run, figure = loaded["final"], figures()[name]
    if figure.needs([run]) is None:
        assert "chosen" not in str([trace.name for trace in figure.draw([run], Labels.of([run])).data])
