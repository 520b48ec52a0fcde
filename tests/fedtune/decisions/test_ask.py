"""Asking a sampler of Optuna for a trial."""

from __future__ import annotations

import pytest
from optuna.trial import TrialState, create_trial

from fedtune.decisions.optuna_samplers import EI, SAMPLERS, ask, make_sampler
from tests.fedtune.conftest import space


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != EI])
@pytest.mark.parametrize("known", [False, True])
def test_optuna_prints_nothing(
    name: str, known: bool, recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    """Its samplers warn that some of their arguments are experimental, which is no news for users."""
    where = space()
    kinds = where.distributions()
    points = [{"alpha": 0.25 + 0.1 * k, "lambda": 0.1 * k} for k in range(1, 9)]
    seen = [create_trial(values=[0.1 * k], params=where.params(p), distributions=kinds) for k, p in enumerate(points)]
    point = points[0] if known else None
    made = ask(make_sampler(name, 0, 8, seen[:3]), ["val_global_accuracy"], seen, where, point)
    assert made.state == TrialState.RUNNING and made.number == 8
    assert where.values(made.params) == points[0] or not known
    assert not recwarn.list and not caplog.records
