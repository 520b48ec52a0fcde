"""Trials as a study has them, made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import FrozenTrial, TrialState, create_trial


def frozen_trial(
    number: int,
    params: Mapping[str, Any],
    value: float | None = None,
    state: TrialState | None = None,
    *,
    curve: Mapping[int, float] | Sequence[float] = (),
    kinds: Mapping[str, BaseDistribution] | None = None,
    system: Mapping[str, Any] | None = None,
    **attributes: Any,
) -> FrozenTrial:
    """A trial with these parameters, which are numbers of 0 to 100 where `kinds` says nothing else. Without a state it
    has completed where it has a value, and runs where it has none. curve: by round, or from round 1 on. attributes: of
    these those that are not None."""
    found = create_trial(
        state=state or (TrialState.RUNNING if value is None else TrialState.COMPLETE),
        value=value,
        params=dict(params),
        distributions={name: (kinds or {}).get(name, FloatDistribution(0, 100)) for name in params},
        intermediate_values=dict(curve if isinstance(curve, Mapping) else enumerate(curve, start=1)),
        user_attrs={name: what for name, what in attributes.items() if what is not None},
        system_attrs=dict(system or {}),
    )
    found.number = number
    return found
