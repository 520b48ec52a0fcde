"""The trials of a study, from the rows of its SQLite file.

Optuna reads its files through SQLAlchemy and Alembic, which take half a second of a processor to import, and makes an
object of every row, of which a search has a hundred times as many as trials. Its tables are plain, so they are read as
such; what comes out are Optuna's own trials, equal to those that it reads itself.
"""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlite3 import Connection

    from optuna.trial import FrozenTrial

#: The study's table of what trials reported after each round, and its words for values that are no number.
REPORTS = "trial_intermediate_values"
NOT_FINITE = {"INF_POS": math.inf, "INF_NEG": -math.inf, "NAN": math.nan}


def studies(connection: Connection) -> list[int]:
    """The keys of the studies in the file."""
    return [study for (study,) in connection.execute("SELECT study_id FROM studies ORDER BY study_id")]


def directions(connection: Connection, study: int) -> tuple[str, ...]:
    """`maximize` or `minimize` (or `not_set`) for every objective."""
    from optuna.study import StudyDirection

    rows = connection.execute(
        "SELECT direction FROM study_directions WHERE study_id = ? ORDER BY study_direction_id", (study,)
    )
    return tuple(_member(StudyDirection, name).name.lower() for (name,) in rows)


def trials(connection: Connection, study: int) -> list[FrozenTrial]:
    """All trials by number, with their reports in the order of rounds."""
    from optuna.trial import FrozenTrial, TrialState

    values, reports = _values(connection), _reports(connection)
    user, system = _attributes(connection, "user"), _attributes(connection, "system")
    params = _params(connection)
    found = []
    columns = "trial_id, number, state, datetime_start, datetime_complete"
    for key, number, state, start, end in connection.execute(
        f"SELECT {columns} FROM trials WHERE study_id = ? ORDER BY trial_id", (study,)
    ):
        drawn = params.get(key, {})
        found.append(
            FrozenTrial(
                trial_id=key,
                number=number,
                state=_member(TrialState, state),
                value=None,
                values=values.get(key),
                datetime_start=_moment(start),
                datetime_complete=_moment(end),
                params={name: value for name, (value, _) in drawn.items()},
                distributions={name: distribution for name, (_, distribution) in drawn.items()},
                user_attrs=user.get(key, {}),
                system_attrs=system.get(key, {}),
                intermediate_values=reports.get(key, {}),
            )
        )
    return sorted(found, key=lambda trial: trial.number)


def _params(connection: Connection) -> dict[int, dict[str, tuple[Any, Any]]]:
    """The value and the distribution of every parameter, by the trial's key in the study and the parameter's name."""
    from optuna.distributions import json_to_distribution

    known: dict[str, Any] = {}  # many trials, few distributions
    found: dict[int, dict[str, tuple[Any, Any]]] = {}
    for trial, name, value, text in connection.execute(
        "SELECT trial_id, param_name, param_value, distribution_json FROM trial_params ORDER BY param_id"
    ):
        if text not in known:
            known[text] = json_to_distribution(text)
        found.setdefault(trial, {})[name] = (known[text].to_external_repr(value), known[text])
    return found


def _attributes(connection: Connection, whose: str) -> dict[int, dict[str, Any]]:
    """The user's attributes of every trial, or the system's."""
    table = f"trial_{whose}_attributes"
    found: dict[int, dict[str, Any]] = {}
    for trial, name, text in connection.execute(
        f"SELECT trial_id, key, value_json FROM {table} ORDER BY trial_{whose}_attribute_id"
    ):
        found.setdefault(trial, {})[name] = json.loads(text)
    return found


def _values(connection: Connection) -> dict[int, list[float]]:
    """What trials ended with, a number for each objective."""
    found: dict[int, list[float]] = {}
    rows = "SELECT trial_id, objective, value, value_type FROM trial_values ORDER BY trial_id, objective"
    for trial, objective, value, kind in connection.execute(rows):
        mine = found.setdefault(trial, [])
        if objective != len(mine):
            raise ValueError("a trial lacks the value of an objective")
        mine.append(value if kind == "FINITE" else _not_finite(kind))  # who reads trials checks what they end with
    return found


def _reports(connection: Connection) -> dict[int, dict[int, float]]:
    """What trials reported, by round."""
    found: dict[int, dict[int, float]] = {}
    columns = "trial_id, step, intermediate_value, intermediate_value_type"
    for trial, step, value, kind in connection.execute(f"SELECT {columns} FROM {REPORTS} ORDER BY trial_id, step"):
        if kind == "FINITE" and type(value) is not float:
            raise ValueError(f"a trial's report of round {step} is no number")
        found.setdefault(trial, {})[step] = value if kind == "FINITE" else _not_finite(kind)
    return found


def _not_finite(kind: str) -> float:
    if kind not in NOT_FINITE:
        raise ValueError(f"a value is of the unknown kind {kind!r}")
    return NOT_FINITE[kind]


def _member(kind: Any, name: object) -> Any:
    """The member of one of Optuna's enumerations that a file names."""
    if name not in kind.__members__:
        raise ValueError(f"{name!r} is no {kind.__name__}")
    return kind[name]


def _moment(text: str | None) -> datetime | None:
    """A recorded moment, which Optuna keeps in UTC, in the local time of this machine, as Optuna gives it."""
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=UTC).astimezone().replace(tzinfo=None)
