"""Studies that are whole databases and hold what no search has written: refused in one sentence, soon and with little
memory."""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path

import optuna
import pytest
import yaml

from analysis.runs import load
from fedtune.record.study import NotWritten, StudyFile
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.fedtune.conftest import space, start
from trainables.worker.rounds_jsonl import Damaged, first_rows


def changed(folder: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(folder / run_folder.STUDY)) as study, study:
        assert study.execute(statement, values).rowcount > 0


def refused(folder: Path, says: str) -> None:
    """By whoever reads the run, and by whoever goes on with it."""
    for reads in (load, StudyFile):
        with pytest.raises(UserError, match=says) as told:
            reads(folder)
        assert len(told.value.problems) == 1 and run_folder.STUDY in str(told.value)


ATTRIBUTES = [
    *(("rounds", value) for value in ('"x"', "[1]", "null", "1e999", "NaN", "-1", "true", "2.5", "9" * 400)),
    *(("seed", value) for value in ('"x"', "null", "1.0")),
    *((name, '"1"') for name in ("seconds", "audited", "of", "place", "went_on")),
    *(("share", value) for value in ("1", "[1]", '["a", "b"]', "[1e999, 0]", "null", "[1, 2, 3]")),
    *(("grace", value) for value in ("1", "[]", '{"round": "x"}', '{"round": 1, "trials": 2, "correlations": [1]}')),
    *(("curve", value) for value in ("1", '"x"', '"[1]"', '"{\\"x\\": [1]}"', '"{\\"1\\": [1, 2]}"', '"{\\"1\\": 1}"')),
    *((name, "5") for name in ("error", "from", "stop_reason")),
    ("stop_reason", '"tired"'),
]


@pytest.mark.parametrize(("name", "value"), ATTRIBUTES)
def test_an_attribute_of_another_shape(copy: Path, name: str, value: str) -> None:
    trial = 3
    with closing(sqlite3.connect(copy / run_folder.STUDY)) as study, study:
        study.execute("DELETE FROM trial_user_attributes WHERE trial_id = ? AND key = ?", (trial, name))
    changed(copy, "INSERT INTO trial_user_attributes (trial_id, key, value_json) VALUES (?, ?, ?)", trial, name, value)
    refused(copy, f"{name} must be .*trial 2")


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE trials SET number = 77 WHERE trial_id = 3", "number of a trial must be 2"),
        ("UPDATE trials SET number = 77 - number WHERE trial_id IN (1, 2)", "number of a trial must be 0"),
        ("UPDATE trial_values SET value = 'x' WHERE trial_id = 1", "values must be 1 finite number"),
        ("UPDATE trial_values SET value_type = 'INF_POS', value = NULL WHERE trial_id = 1", "values must be 1 finite"),
        ("DELETE FROM trial_values WHERE trial_id = 1", "values must be 1 finite number"),
        (
            "UPDATE trial_intermediate_values SET intermediate_value = 'x' WHERE trial_id = 1",
            "report of round 1 is no number|value of a round must",
        ),
        ("UPDATE trial_params SET param_value = 'x' WHERE trial_id = 1", "must be a value of its distribution|be read"),
        (
            "UPDATE trial_params SET param_value = 9e999 WHERE trial_id = 1",
            "must be a value of its distribution|be read",
        ),
        ("UPDATE trials SET state = 'TIRED' WHERE trial_id = 1", "be read"),
        ("UPDATE trials SET datetime_start = 'x' WHERE trial_id = 1", "be read"),
        ("UPDATE trial_user_attributes SET value_json = '{' WHERE trial_id = 1", "be read"),
    ],
)
def test_a_row_of_another_shape(copy: Path, statement: str, says: str) -> None:
    changed(copy, statement)
    refused(copy, says)


#: By table: what Optuna writes of a new trial.
OF_A_TRIAL = (
    "trial_params",
    "trial_user_attributes",
    "trial_system_attributes",
    "trial_values",
    "trial_intermediate_values",
    "trial_heartbeats",
)


def orphaned(folder: Path, table: str, trial: int | str) -> None:
    """A row of `table` belongs to a trial that is not there."""
    with closing(sqlite3.connect(folder / run_folder.STUDY)) as study, study:
        study.execute("INSERT INTO trial_heartbeats (trial_id, heartbeat) VALUES (1, '2026-01-01 00:00:00.000000')")
        study.execute(
            "INSERT INTO trial_system_attributes (trial_id, key, value_json) VALUES (1, 'cma:generation', '0')"
        )
        key = f"SELECT min(rowid) FROM {table} WHERE trial_id = 1"
        assert study.execute(f"UPDATE {table} SET trial_id = ? WHERE rowid = ({key})", (trial,)).rowcount == 1


@pytest.mark.parametrize("table", OF_A_TRIAL)
@pytest.mark.parametrize("trial", [9, 77, -1, "x"])
def test_a_row_of_a_trial_that_is_not_there(copy: Path, table: str, trial: int | str) -> None:
    orphaned(copy, table, trial)
    refused(copy, f"All rows of {table} must be those of a row in trials, got row .* of none")


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("UPDATE trials SET study_id = 7 WHERE trial_id = 3", "All rows of trials must be"),
        ("UPDATE study_directions SET study_id = 7", "All rows of study_directions must be|be read"),
        ("UPDATE studies SET study_id = 7", "All rows of study_directions must be|All rows of trials must be"),
    ],
)
def test_a_row_of_a_study_that_is_not_there(copy: Path, statement: str, says: str) -> None:
    changed(copy, statement)
    refused(copy, says)


@pytest.mark.parametrize(
    ("last", "says"),
    [
        (2**63 - 1, "trial_id of trial 7 must be at most"),
        (-5, "trial_id of trial 7 must be above that of trial 6, got -5"),
    ],
)
def test_numbers_that_leave_none_for_the_next_trial(copy: Path, last: int, says: str) -> None:
    with closing(sqlite3.connect(copy / run_folder.STUDY)) as study, study:
        tables = ["trials", *OF_A_TRIAL]
        assert sum(study.execute(f"UPDATE {t} SET trial_id = ? WHERE trial_id = 8", (last,)).rowcount for t in tables)
    refused(copy, says)


def test_a_study_whose_best_trial_would_be_the_worst(copy: Path) -> None:
    changed(copy, "UPDATE study_directions SET direction = 'MINIMIZE'")
    with pytest.raises(UserError, match="direction of val_global_accuracy must be maximize, got 'minimize'"):
        load(copy)


def test_a_study_with_fewer_objectives_than_metrics(copy: Path) -> None:
    path = copy / run_folder.EXPERIMENT
    changes = {"metric": ["val_global_accuracy", "bytes_up"]}
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))
    with pytest.raises(UserError, match="number of objectives must be 2, got 1"):
        load(copy)


def test_several_studies_in_one_file(copy: Path) -> None:
    changed(copy, "INSERT INTO studies (study_name) VALUES ('another')")
    refused(copy, "study")


def test_what_sqlite_refuses_to_write_is_one_sentence(tmp_path: Path) -> None:
    """A row that takes the place of the next trial's comes in after the study was read; nothing is written."""
    start(tmp_path / "run", trials=4)
    distribution = optuna.distributions.FloatDistribution(0.0, 1.0)
    trial = optuna.trial.create_trial(value=0.5, params={"alpha": 0.5}, distributions={"alpha": distribution})
    study = StudyFile(tmp_path / "run")
    study.add(trial)
    with closing(sqlite3.connect(study.path)) as database, database:
        database.execute("INSERT INTO trial_params (trial_id, param_name, param_value) VALUES (2, 'alpha', 0.5)")
    with pytest.raises(NotWritten, match=r"cannot be written: UNIQUE constraint failed.* no trial was scored") as told:
        study.add(trial)
    assert told.value.damaged and len(told.value.problems) == 1 and "\n" not in str(told.value)
    assert len(study.trials()) == 1
    study.close()


def test_rounds_without_end_are_not_counted_out(tmp_path: Path) -> None:
    path = tmp_path / run_folder.ROUNDS
    path.write_text("{}\n")
    tracemalloc.start()
    try:
        with pytest.raises(Damaged, match="lacks rows"):
            first_rows(path, 10**12, (0, 1))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


class Shell:
    """Runs a command when it is read from a pickle."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> object:
        return os.system, (self.command,)


def with_state(folder: Path, *states: str) -> None:
    """A run with one trial that has these states of CMA-ES."""
    start(folder, sampler="cmaes", trials=4)
    system = {f"cma:optimizer:{place}": text for place, text in enumerate(states)} | {"cma:generation": 0}
    params = dict.fromkeys(space().search, 0.5)
    distributions = {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in params}
    study = StudyFile(folder)
    study.add(optuna.trial.create_trial(value=0.5, params=params, distributions=distributions, system_attrs=system))
    study.close()


@pytest.mark.parametrize("split", [1, 2])
def test_a_samplers_state_runs_no_program(tmp_path: Path, split: int) -> None:
    ran = tmp_path / "ran"
    text = pickle.dumps(Shell(f"touch {ran}")).hex()
    with_state(tmp_path / "run", *([text] if split == 1 else [text[:20], text[20:]]))
    with pytest.raises(UserError, match=r"must be the state of CMA-ES, got another object .*trial 0"):
        StudyFile(tmp_path / "run")
    assert not ran.exists()


@pytest.mark.parametrize("state", ["", "x", "80", pickle.dumps([1]).hex(), pickle.dumps(json.loads).hex()])
def test_a_samplers_state_that_is_none(tmp_path: Path, state: str) -> None:
    with_state(tmp_path / "run", state)
    with pytest.raises(UserError, match="must be the state of CMA-ES"):
        StudyFile(tmp_path / "run")


def test_a_samplers_own_state_is_read(tmp_path: Path) -> None:
    from cmaes import CMA

    with_state(tmp_path / "run", pickle.dumps(CMA(mean=[0.5, 0.5], sigma=0.1)).hex())
    StudyFile(tmp_path / "run").close()
