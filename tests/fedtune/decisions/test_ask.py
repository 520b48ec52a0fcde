"""Asking a sampler of Optuna for a trial."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState, create_trial

from fedtune.decisions import next_trial
from fedtune.decisions.optuna_samplers import EI, SAMPLERS, ask, make_sampler
from tests.fedtune.conftest import space
from tests.fedtune.played import asked


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
    made = ask(make_sampler(name, 0, 8), ["val_global_accuracy"], seen, where, point)
    assert made.state == TrialState.RUNNING and made.number == 8
    assert where.values(made.params) == points[0] or not known
    assert not recwarn.list and not caplog.records


def test_a_sampler_that_looks_at_nothing_is_shown_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of trials would be copied for each proposal. What is proposed is the same, which others tell."""
    shown: list[int] = []

    def counted(sampler: Any, metric: Any, seen: Sequence[Any], *rest: Any) -> Any:
        shown.append(len(seen))
        assert not any(rest[2:]), "on one slot nothing runs beside a proposal"
        return ask(sampler, metric, seen, *rest)

    monkeypatch.setattr(next_trial, "ask", counted)
    asked(tmp_path / "random", sampler="random", trials=4)
    assert shown == [0] * 4
    asked(tmp_path / "tpe", sampler="tpe", trials=4, concurrency=1, lag=1)
    assert shown[4:] == [0, 1, 2, 3]
