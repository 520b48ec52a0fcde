"""Reading a study, as Optuna itself would."""

from __future__ import annotations

import contextlib
import math
import shutil
import sqlite3
from pathlib import Path

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from analysis.runs.stored import REPORTS
from analysis.runs.study import read_study
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


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with two objectives and parameters of every kind, whose trials are in every state."""
    path = tmp_path_factory.mktemp("lived") / "study.db"
    made = optuna.create_study(storage=f"sqlite:///{path}", directions=["maximize", "minimize"])
    distributions = {
        "alpha": FloatDistribution(0.0, 2.0),
        "lr": FloatDistribution(1e-4, 1.0, log=True),
        "lambda": FloatDistribution(0.0, 1.0, step=0.25),
        "clients": IntDistribution(2, 64, log=True),
        "merge_op": CategoricalDistribution(["mul", "add", None, True, 0.5, 3]),
    }
    for number in range(9):
        trial = made.ask(distributions)
        trial.set_user_attr("rounds", number)
        trial.set_user_attr("text", 'ω’s "part" </script>\x1b[31m')
        made._storage.set_trial_system_attr(trial._trial_id, "origin", {"from": [1, None]})
        if number < 7:
            state = [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.FAIL][number % 3]
            values = [[0.1 * number, math.inf], None][state != TrialState.COMPLETE]
            made.tell(trial, values=values, state=state)
    made.enqueue_trial({"alpha": 0.5})
    return path


def test_every_kind_of_parameter_value_and_state_is_as_optuna_reads_it(lived: Path) -> None:
    """The moments too, which a file keeps in UTC."""
    directions, trials = read_study(lived)
    theirs = optuna.load_study(study_name=None, storage=f"sqlite:///{lived}").trials
    assert directions == ("maximize", "minimize")
    assert [repr(trial) for trial in trials] == [repr(trial) for trial in theirs]
    assert {trial.state.name for trial in trials} == {"COMPLETE", "FAIL", "RUNNING", "WAITING"}
    assert [type(value) for value in trials[0].params.values()] == [type(v) for v in theirs[0].params.values()]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE trials SET state = 'RUN' WHERE number = 0", "'RUN' is no TrialState"),
        ("UPDATE trials SET datetime_start = 'noon'", "Invalid isoformat string: 'noon'"),
        ("UPDATE trial_values SET value_type = 'HUGE'", "a value is of the unknown kind 'HUGE'"),
        ("DELETE FROM trial_values WHERE objective = 0", "a trial lacks the value of an objective"),
        ("UPDATE study_directions SET direction = 'UP'", "'UP' is no StudyDirection"),
        ("UPDATE trial_params SET distribution_json = '{'", "Expecting property name"),
        ("UPDATE trial_user_attributes SET value_json = 'x'", "Expecting value"),
        ("DROP TABLE trial_params", "no such table: trial_params"),
    ],
    ids=["state", "moment", "kind", "objective", "direction", "distribution", "attribute", "table"],
)
def test_a_row_that_optuna_did_not_write_is_told(change: str, told: str, lived: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(lived, tmp_path))
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute(change)
    with pytest.raises(UserError, match=f"cannot be read as an Optuna study: {told}"):
        read_study(path)


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
