"""Studies that are whole databases and hold what no search has written: refused in one sentence, soon and with little
memory."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path

import optuna
import pytest

from analysis.runs import load
from fedtune.record.study import StudyFile
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.analysis import synthetic
from tests.fedtune.conftest import space, start
from trainables.worker.rounds_jsonl import Damaged, first_rows


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("runs") / "tpe", trials=8, figures=())


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "run")


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
        ("UPDATE trial_values SET value = 'x' WHERE trial_id = 1", "values must be 1 finite number"),
        ("UPDATE trial_values SET value_type = 'INF_POS', value = NULL WHERE trial_id = 1", "values must be 1 finite"),
        ("DELETE FROM trial_values WHERE trial_id = 1", "values must be 1 finite number"),
        ("UPDATE trial_intermediate_values SET intermediate_value = 'x' WHERE trial_id = 1", "value of a round must"),
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
