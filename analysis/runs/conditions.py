"""The conditions of the experiment that a run's trials are under, such as ω = 0.1 on one data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def conditions(varied: Sequence[Mapping[str, Any]], trials: Sequence[FrozenTrial]) -> list[dict[str, Any]]:
    """The different conditions of these trials, in the order in which `varied` lists the values; one empty condition
    where nothing is varied."""
    keys = [str(item["key"]) for item in varied]
    found: list[dict[str, Any]] = []
    for trial in trials:
        condition = {key: trial.params[key] for key in keys if key in trial.params}
        if condition not in found:
            found.append(condition)
    listed = {str(item["key"]): _listed(item) for item in varied}
    return sorted(found or [{}], key=lambda condition: [_place(listed[key], condition.get(key)) for key in keys])


def holds(condition: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    """Whether `values` are under the condition."""
    return all(key in values and values[key] == value for key, value in condition.items())


def named(condition: Mapping[str, Any]) -> str:
    """`omega=0.1, dataset=digits`, as it is typed after --where; empty for the empty condition."""
    return ", ".join(f"{key}={show(value)}" for key, value in condition.items())


def show(value: Any) -> str:
    """A value as it is typed."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def means(text: str, value: Any) -> bool:
    """Whether what was typed stands for the value."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(text) == value
        except ValueError:
            return False
    return show(value) == (text.lower() if isinstance(value, bool) else text)


def _listed(item: Mapping[str, Any]) -> list[Any]:
    return list(item.get("grid") or item.get("options") or [False, True])


def _place(listed: Sequence[Any], value: Any) -> int:
    return listed.index(value) if value in listed else len(listed)
