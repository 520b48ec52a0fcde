"""Reading a study, as Optuna itself would."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from analysis.runs.study import REPORTS, read_study
from search_spaces.errors import UserError


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Trials that reported values of every kind, or nothing."""
    path = tmp_path / "study.db"
    made = optuna.create_study(storage=f"sqlite:///{path}", directions=["maximize"])
    reports: list[dict[int, float]] = [{1: 0.5, 2: 0.25}, {}, {3: math.inf, 1: -math.inf, 2: math.nan}, {7: 1}]
    made.add_trials([create_trial(state=TrialState.PRUNED, intermediate_values=values) for values in reports])
    return path


def test_trials_are_those_that_optuna_reads(study: Path) -> None:
    directions, trials = read_study(study)
    theirs = optuna.load_study(study_name=None, storage=f"sqlite:///{study}").trials
    for trial in theirs:
        trial.intermediate_values = dict(sorted(trial.intermediate_values.items()))
    assert directions == ("maximize",)
    assert [repr(trial) for trial in trials] == [repr(trial) for trial in theirs]
    assert [len(trial.intermediate_values) for trial in trials] == [2, 0, 3, 1]


def test_the_file_is_left_as_it_was(study: Path) -> None:
    before = study.read_bytes()
    study.chmod(0o400)
    read_study(study)
    assert study.read_bytes() == before and [path.name for path in study.parent.iterdir()] == [study.name]


@pytest.mark.parametrize("wrong", ["intermediate_value = NULL", "intermediate_value_type = 'OTHER'"])
def test_a_report_that_is_no_number_is_told(wrong: str, study: Path) -> None:
    with sqlite3.connect(study) as database:
        database.execute(f"UPDATE {REPORTS} SET {wrong} WHERE step = 1 AND intermediate_value_type = 'FINITE'")
    with pytest.raises(UserError, match="cannot be read as an Optuna study"):
        read_study(study)
