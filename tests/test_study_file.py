"""A study that tests write at once is, row by row, the one that Optuna writes."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

from tests import study_file

KINDS = {
    "alpha": FloatDistribution(1e-3, 2.0, log=True),
    "clients": IntDistribution(0, 10, step=5),
    "flag": CategoricalDistribution((False, True)),
}
PARAMS = {"alpha": 0.1, "clients": 5, "flag": True}


def content(path: Path) -> dict[str, list[Any]]:
    """Every table, and the rows of each."""
    with closing(sqlite3.connect(path)) as study:
        tables = study.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()
        rows = {
            name: study.execute(f"SELECT * FROM {name}").fetchall()
            for name, text in tables
            if text is not None and text.startswith("CREATE TABLE")
        }
        return {"": tables, **rows}


def test_every_row_is_as_optuna_writes_it(tmp_path: Path) -> None:
    drawn: dict[str, Any] = {"params": PARAMS, "distributions": KINDS}
    trials = [
        create_trial(
            values=[0.1, math.inf],
            **drawn,
            user_attrs={"rounds": 3, "curve": "{}", "share": [0.5, 1.0], "z": None, "a": {"ä": True}},
            system_attrs={"NSGAIISampler:generation": 0},
        ),
        create_trial(state=TrialState.RUNNING, params={}, distributions={}),
        create_trial(
            state=TrialState.PRUNED, **drawn, intermediate_values={3: 0.25, 1: math.nan, 2: math.inf, 4: -math.inf}
        ),
        create_trial(state=TrialState.FAIL, **drawn),
    ]
    trials[2].datetime_start = datetime(2026, 7, 1, 12)  # no microseconds
    trials[2].datetime_complete = datetime(2026, 12, 1, 0, 30, 0, 5)
    directions: list[Literal["maximize", "minimize"]] = ["maximize", "minimize"]
    storage = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/theirs.db")
    optuna.create_study(storage=storage, study_name="it's", directions=directions).add_trials(trials)
    storage.remove_session()
    storage.engine.dispose()
    study_file.write(tmp_path / "ours.db", "it's", directions, trials)
    assert content(tmp_path / "ours.db") == content(tmp_path / "theirs.db")
