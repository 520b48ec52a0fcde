"""Studies written at once into SQLite files as Optuna writes them, for which it takes a transaction per value."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from optuna.distributions import distribution_to_json
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial
from sqlalchemy.pool import StaticPool

from analysis.runs.stored import NOT_FINITE

_WORDS = {value: word for word, value in NOT_FINITE.items() if not math.isnan(value)}


def write(path: Path, name: str, directions: Sequence[str], trials: Sequence[FrozenTrial]) -> None:
    """Makes the study `name`, whose trials these are in order, the content of the file `path`. `directions`: `maximize`
    or `minimize` for every objective."""
    with closing(sqlite3.connect(":memory:")) as study:
        study.deserialize(_empty())
        study.execute("INSERT INTO studies (study_id, study_name) VALUES (1, ?)", (name,))
        study.executemany(
            "INSERT INTO study_directions (direction, study_id, objective) VALUES (?, 1, ?)",
            [(direction.upper(), objective) for objective, direction in enumerate(directions)],
        )
        for key, trial in enumerate(trials, 1):
            _add(study, key, trial)
        study.commit()
        path.write_bytes(study.serialize())


def _add(study: sqlite3.Connection, key: int, trial: FrozenTrial) -> None:
    def rows(table: str, columns: str, found: list[tuple[object, ...]]) -> None:
        marks = ", ".join("?" for _ in columns.split())
        names = ", ".join(columns.split())
        study.executemany(f"INSERT INTO {table} (trial_id, {names}) VALUES ({key}, {marks})", found)

    moments = _moment(trial.datetime_start), _moment(trial.datetime_complete)
    columns = "number study_id state datetime_start datetime_complete"
    rows("trials", columns, [(key - 1, 1, trial.state.name, *moments)])
    rows("trial_values", "objective value value_type", [(n, *_number(v)) for n, v in enumerate(trial.values or [])])
    drawn = [(name, value, trial.distributions[name]) for name, value in trial.params.items()]
    rows(
        "trial_params",
        "param_name param_value distribution_json",
        [(name, kind.to_internal_repr(value), distribution_to_json(kind)) for name, value, kind in drawn],
    )
    for whose, attributes in (("user", trial.user_attrs), ("system", trial.system_attrs)):
        texts: list[tuple[object, ...]] = [(name, json.dumps(value)) for name, value in attributes.items()]
        rows(f"trial_{whose}_attributes", "key value_json", texts)
    rows(
        "trial_intermediate_values",
        "step intermediate_value intermediate_value_type",
        [(step, *_number(value)) for step, value in trial.intermediate_values.items()],
    )


def _number(value: float) -> tuple[float | None, str]:
    if math.isnan(value):
        return None, "NAN"
    return (None, _WORDS[value]) if value in _WORDS else (value, "FINITE")


def _moment(local: datetime | None) -> str | None:
    if local is None:
        return None
    return local.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


@cache
def _empty() -> bytes:
    """The tables as Optuna makes them, without a study."""
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as study:
        RDBStorage("sqlite://", engine_kwargs={"creator": lambda: study, "poolclass": StaticPool}).remove_session()
        return study.serialize()
