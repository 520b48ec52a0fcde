"""`fedtune export RUN --study study.db`: all trials as a study of Optuna's in SQLite."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna_dashboard._note import get_note_from_system_attrs

from fedtune import export
from search_spaces.errors import UserError
from tests.fedtune.played import searched


def test_a_study_of_all_trials_is_one_that_optuna_opens(tmp_path: Path) -> None:
    run, path = searched(tmp_path / "run", trials=6, sampler="random", rounds=4), tmp_path / "a b?#%20é.db"
    path.write_text("what was there before")
    assert export(run.path, study=path) == {"study": str(path), "trials": 6}
    engine = {"creator": lambda: sqlite3.connect(path, check_same_thread=False)}
    storage = optuna.storages.RDBStorage("sqlite://", engine_kwargs=engine)
    study = optuna.load_study(study_name=None, storage=storage)
    assert study.metric_names == list(run.metrics)
    trials = study.trials
    for found, trial in zip(trials, run.frozen, strict=True):
        assert (found.state, found.params, found.values) == (trial.state, trial.params, trial.values)
        assert found.intermediate_values == trial.intermediate_values
        assert (found.datetime_start, found.datetime_complete) == (trial.datetime_start, trial.datetime_complete)
        metrics = {k.removeprefix("metric:"): v for k, v in found.user_attrs.items() if k.startswith("metric:")}
        assert metrics == run.ends[trial.number] and found.user_attrs == trial.user_attrs | {
            f"metric:{name}": value for name, value in metrics.items()
        }
    attributes = storage.get_study_system_attrs(study._study_id)
    told = [get_note_from_system_attrs(attributes, trial._trial_id)["body"] for trial in trials]
    assert [n for n, note in enumerate(told) if "**The winner.**" in note] == [run.best]
    assert sorted(p.name for p in tmp_path.iterdir()) == [path.name, "run"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"study": "study.sqlite"}, "output must be a file ending in .db"),
        ({"study": "study.db", "output": "best.yaml"}, "must be given alone"),
        ({"study": "study.db", "table": "t.npz"}, "must be given alone"),
    ],
)
def test_a_study_that_cannot_be_exported(tmp_path: Path, asked: dict[str, Any], says: str) -> None:
    run = searched(tmp_path / "run", trials=2, sampler="random", rounds=2)
    with pytest.raises(UserError, match=says):
        export(run.path, **asked)
