"""What `analysis.runs.load` makes of good, live, torn and foreign directories."""

from __future__ import annotations

import json
import math
import shutil
import stat
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest

from analysis.runs import load_run, load_runs, run_names
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests import study_file
from tests.analysis import synthetic
from tests.study_file import journal


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(root / "tpe", tmp_path / "copy"))


def test_every_trial_is_a_row_with_its_outcome(root: Path) -> None:
    run = load_run(root / "tpe")
    states = run.trials["state"].value_counts().to_dict()
    assert states == {"COMPLETE": 14, "PRUNED": 7, "FAIL": 2, "RUNNING": 1}
    assert run.trials.set_index("number").loc[8, "stop_reason"] == "diverged"
    assert run.keys == ["alpha", "lambda"] and run.metrics == ("val_global_accuracy",) and run.maximise
    done = run.trials[run.trials["state"] == "COMPLETE"]
    assert run.best == done.sort_values("value")["number"].iloc[-1]


def test_rounds_are_tidy_and_means_are_over_seeds(root: Path) -> None:
    run = load_run(root / "tpe")
    lines = [
        json.loads(x) for x in (root / "tpe" / run_folder.trial_folder(0) / run_folder.ROUNDS).read_text().splitlines()
    ]
    mine = run.rounds[run.rounds["trial"] == 0]
    assert len(mine) == len(lines) == 9 * 2 and "client_accuracy" not in run.rounds.columns
    expected = np.mean([x["global_accuracy"] for x in lines if x["round"] == 4])
    row = run.curves[(run.curves["trial"] == 0) & (run.curves["round"] == 4)].iloc[0]
    assert row["global_accuracy"] == pytest.approx(expected) and row["seeds"] == 2
    assert run.last(0, "global_accuracy") == {x["seed"]: x["global_accuracy"] for x in lines if x["round"] == 9}


def test_a_torn_last_line_is_left_out_and_the_later_of_two_lines_counts(copy: Path) -> None:
    path = copy / run_folder.trial_folder(0) / run_folder.ROUNDS
    first = json.loads(path.read_text().splitlines()[0])
    with path.open("a") as file:
        file.write(
            json.dumps(first | {"global_accuracy": 0.123, "train_loss": None}) + "\n" + '{"round": 10, "seed": 0, "glob'
        )
    run = load_run(copy)
    mine = run.rounds[(run.rounds["trial"] == 0) & (run.rounds["seed"] == first["seed"])].set_index("round")
    assert 10 not in mine.index and mine.loc[1, "global_accuracy"] == 0.123 and np.isnan(mine.loc[1, "train_loss"])


def test_a_line_that_is_complete_but_lacks_its_newline_is_not_trusted(copy: Path) -> None:
    path = copy / run_folder.trial_folder(0) / run_folder.ROUNDS
    path.write_text(path.read_text() + json.dumps({"round": 10, "seed": 0, "global_accuracy": 1.0}))
    assert int(load_run(copy).curves.query("trial == 0")["round"].max()) == 9


def test_missing_trial_folders_and_side_files_leave_the_rest_readable(copy: Path) -> None:
    shutil.rmtree(copy / run_folder.TRIALS)
    (copy / run_folder.SPACE).unlink()
    (copy / run_folder.PROVENANCE).write_text("{half")
    run = load_run(copy)
    assert (
        run.rounds.empty
        and run.curves.empty
        and len(run.trials) == 24
        and run.keys == ["alpha", "lambda"]
        and run.provenance == {}
    )
    assert run.config(run.best or 0)["alpha"] == run.parameters(run.best or 0)["alpha"]


@pytest.mark.parametrize("line", ["[" * 100_000, '{"round": 1e999, "seed": 0}', "[]"])
def test_a_line_that_is_no_row_is_passed_over(copy: Path, line: str) -> None:
    path = copy / run_folder.trial_folder(0) / run_folder.ROUNDS
    before = load_run(copy).rounds
    path.write_text(line + "\n" + path.read_text())
    pd.testing.assert_frame_equal(load_run(copy).rounds, before)


def test_a_whole_number_that_no_float_holds_is_infinite(copy: Path) -> None:
    path = copy / run_folder.trial_folder(0) / run_folder.ROUNDS
    path.write_text('{"round": 99, "seed": 0, "amp": ' + "9" * 400 + "}\n" + path.read_text())
    found = load_run(copy).rounds
    assert found.loc[(found["trial"] == 0) & (found["round"] == 99), "amp"].tolist() == [math.inf]


def test_the_number_of_rounds_of_a_live_trial_comes_from_its_file(copy: Path) -> None:
    study_file.change(copy / run_folder.STUDY, lambda trial: trial["user_attrs"].pop("rounds"))
    assert load_run(copy).trials.set_index("number").loc[23, "rounds"] == 4


def test_a_read_only_folder_can_be_read_and_nothing_is_left_in_it(copy: Path) -> None:
    before = sorted(p.name for p in copy.iterdir())
    for path in [copy, *copy.rglob("*")]:
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    try:
        assert len(load_run(copy).trials) == 24
        assert sorted(p.name for p in copy.iterdir()) == before
    finally:
        for path in [copy, *copy.rglob("*")]:
            path.chmod(path.stat().st_mode | stat.S_IWUSR)


def test_reading_does_not_change_the_study_and_works_while_a_driver_writes(copy: Path) -> None:
    live = optuna.load_study(study_name=None, storage=journal(copy))
    running = live.ask()
    content = (copy / run_folder.STUDY).read_bytes()
    assert load_run(copy).trials["state"].tolist()[-1] == "RUNNING"
    assert (copy / run_folder.STUDY).read_bytes() == content
    live.tell(running, state=optuna.trial.TrialState.FAIL)
    assert load_run(copy).trials["state"].tolist()[-1] == "FAIL"


def test_a_moved_run_with_odd_characters_in_its_path(copy: Path, tmp_path: Path) -> None:
    target = tmp_path / "a b?#%20é" / "<script>"
    target.parent.mkdir()
    copy.rename(target)
    run = load_run(target)
    assert run.name == "<script>" and len(run.trials) == 24 and not run.rounds.empty


def test_of_two_objectives_the_knee_of_the_front_is_chosen(tmp_path: Path) -> None:
    folder = synthetic.write(tmp_path / "two", trials=25, metric=("val_global_accuracy", "fm"))
    last = load_run(folder).finals["global_accuracy"]

    def conflicting(trial: dict[str, Any], number: int) -> None:  # what is to be low is high where the first one is
        if trial["values"]:
            trial["values"][1] = last[number]

    for number in range(25):
        study_file.change(folder / run_folder.STUDY, partial(conflicting, number=number), number)
    run = load_run(folder)
    ends = {t.number: t.values for t in run.frozen if t.state.name == "COMPLETE"}
    assert 2 < len(run.front) < len(ends)
    first, second = ({number: sign * ends[number][i] for number in run.front} for i, sign in ((0, 1), (1, -1)))

    def gain(number: int) -> float:
        return sum((of[number] - min(of.values())) / (max(of.values()) - min(of.values())) for of in (first, second))

    assert run.best == max(run.front, key=gain) and gain(run.best) > 1
    assert run.ranked[0] == run.best and sorted(run.ranked) == sorted(ends)


def test_a_final_run_is_all_of_its_trials(root: Path) -> None:
    run = load_run(root / "final")
    assert run.chosen == [0, 1, 2] and sorted(run.over_seeds("global_accuracy")) == [1000, 1001, 1002]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: None, "is not a directory"),
        (lambda p: p.mkdir(), "is not a run directory: experiment.yaml and study.journal are missing"),
        (
            lambda p: (p.mkdir(), (p / "inner").mkdir(), (p / "inner" / run_folder.EXPERIMENT).touch()),
            "It holds runs: inner",
        ),
        (
            lambda p: ((p / "search" / "dfrd").mkdir(parents=True), (p / run_folder.AUTO).touch()),
            r"'.*x' was made by `fedtune auto` and holds several runs. Give one of them: search/METHOD is a search, ",
        ),
        (
            lambda p: (
                (p / "cells" / "01-dfrd").mkdir(parents=True),
                (p / "cells" / "01-dfrd" / run_folder.EXPERIMENT).touch(),
                (p / run_folder.REPRODUCTION).touch(),
            ),
            "made by `fedtune reproduce` and holds several runs. Give one of them, such as .*x/cells/01-dfrd: cells/ ",
        ),
    ],
)
def test_what_is_no_run_is_told_in_one_sentence(tmp_path: Path, make: object, words: str) -> None:
    make(tmp_path / "x")  # type: ignore[operator]
    with pytest.raises(UserError, match=words) as caught:
        load_run(tmp_path / "x")
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        (run_folder.EXPERIMENT, b"version: 99\n", "version must be 1, the version this fedtune reads, got 99"),
        (run_folder.EXPERIMENT, b"a: [1\n", "cannot be read"),
        (run_folder.EXPERIMENT, b"\xff\xfe\x00", "cannot be read"),
        (run_folder.EXPERIMENT, b"- 1\n", "must be a mapping"),
        (run_folder.STUDY, b"", "is empty"),
        (run_folder.STUDY, b"no journal at all, but some text\n" * 100, "line 1, is not a line of a study"),
    ],
)
def test_broken_files_are_told_in_one_sentence(copy: Path, file: str, content: bytes, words: str) -> None:
    (copy / file).write_bytes(content)
    with pytest.raises(UserError, match=words):
        load_run(copy)


def test_all_problems_of_several_runs_are_told_at_once(root: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        load_runs([root / "tpe", tmp_path / "a", tmp_path / "b"])
    assert len(caught.value.problems) == 2


def test_runs_of_one_name_are_told_apart(root: Path, copy: Path, tmp_path: Path) -> None:
    twin = Path(shutil.copytree(copy, tmp_path / "elsewhere" / "copy"))
    assert run_names([load_run(copy), load_run(twin)]) == [f"{copy.parent.name}/copy", "elsewhere/copy"]
    assert run_names([load_run(copy), load_run(copy)]) == [f"{copy.parent.name}/copy #1", f"{copy.parent.name}/copy #2"]


def test_the_last_value_is_that_of_the_rounds_whatever_the_study_says(copy: Path) -> None:
    """A driver that was killed has told the study nothing, and what it told is a copy."""
    run = load_run(copy)
    number = run.best
    assert number is not None
    rows = [
        json.loads(line)
        for line in (copy / run_folder.trial_folder(number) / run_folder.ROUNDS).read_text().splitlines()
    ]
    last = [row["global_accuracy"] for row in rows if row["round"] == rows[-1]["round"]]
    assert run.finals.loc[number, "global_accuracy"] == pytest.approx(sum(last) / len(last))
    assert (
        run.measured(number)["global_accuracy"] == pytest.approx(sum(last) / len(last))
        and run.completed(number) == rows[-1]["round"]
    )


def test_a_metric_that_was_not_finite_for_one_seed_has_no_last_value(copy: Path) -> None:
    path = copy / run_folder.trial_folder(0) / run_folder.ROUNDS
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[-1]["global_accuracy"] = None
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len({row["seed"] for row in rows}) > 1, "the test needs several seeds"
    run = load_run(copy)
    assert np.isnan(run.finals.loc[0, "global_accuracy"]) and "global_accuracy" not in run.measured(0)
    assert np.isfinite(run.finals.loc[0, "local_accuracy"])


def test_a_cell_of_a_grid_may_have_the_papers_values(root: Path, tmp_path: Path) -> None:
    """No trial of a grid was begun as the paper's, and one of its cells may still be at all declared defaults."""
    folder = Path(shutil.copytree(root / "grid", tmp_path / "grid"))
    assert load_run(folder).paper is None, "nothing is known of defaults"
    stored = json.loads((folder / run_folder.SPACE).read_text())
    for item, default in zip(stored["search"], (0.5, 0.9), strict=True):
        item["declared"] = {"default": default}
    (folder / run_folder.SPACE).write_text(json.dumps(stored))
    run = load_run(folder)
    assert run.paper is not None and run.parameters(run.paper) == {"alpha": 0.5, "lambda": 0.9}
    assert run.estimate is not None and run.estimate.paper == run.paper and run.estimate.gain is not None
    stored["search"][0]["declared"] = {"default": 0.6}
    (folder / run_folder.SPACE).write_text(json.dumps(stored))
    assert load_run(folder).paper is None, "no cell lies there"
