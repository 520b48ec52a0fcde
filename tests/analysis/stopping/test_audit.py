"""What audited trials say of early stopping, against numbers worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

from analysis.estimate import standing
from analysis.stopping import Audit, as_stopped, audit, audit_sentences
from tests.analysis.estimate.test_winner import trials

STOPPED = TrialState.PRUNED


def rising(last: float) -> list[float]:
    """A curve of four rounds."""
    return [last - 0.3, last - 0.2, last - 0.1, last]


def audited(last: float, round_: int = 2) -> tuple[Any, ...]:
    return rising(last), TrialState.COMPLETE, {"audited": round_, "stop_reason": "completed", "rounds": 4}


def study(*more: tuple[Any, ...]) -> list[Any]:
    """Three trials far apart, of which the first wins, one that was stopped, and further ones."""
    rest = [(0.02 + 0.01 * i, *given) for i, given in enumerate(more)]
    stopped = (0.05, [0.2, 0.3], STOPPED, {"stop_reason": "scheduler", "rounds": 2})
    return trials((0.01, rising(0.8)), (0.001, rising(0.3)), (0.1, rising(0.4)), stopped, *rest)


def test_without_an_audited_trial_nothing_is_claimed() -> None:
    found = audit(study(), 1.0)
    assert found == Audit(1, (), 0, {}, None, None, None)
    assert audit_sentences(found, str) == [
        "Audit of early stopping: no audited trial has ended yet, so what stopping costs is not known."
    ]
    assert audit([], 1.0) == Audit(0, (), None, {}, None, None, None)
    assert audit(trials((0.01, *audited(0.5))), 1.0).trials == (), "there is no winner to compare with"


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_they_are_compared_with_the_winner_without_them(sign: float) -> None:
    given = study(audited(0.85), audited(0.7), audited(0.9))
    if sign < 0:
        for trial in given:
            trial.intermediate_values = {r: -v for r, v in trial.intermediate_values.items()}
            trial.values = None if trial.values is None else [-v for v in trial.values]
    found = audit(given, sign)
    assert (found.stopped, found.trials, found.winner) == (1, (4, 5, 6), 0)
    assert found.above == pytest.approx({4: 0.05, 6: 0.1})
    assert found.regret == pytest.approx(0.15 / 3)
    assert found.low is None and found.high is None
    everything = standing(given, sign)
    assert everything is not None and everything.ranked[0] in (4, 6), "an audited trial may win"


def test_a_draw_with_the_winner_is_not_above_it() -> None:
    assert audit(study(audited(0.8)), 1.0).above == {}


def test_who_counts() -> None:
    diverged = ([0.1, 0.2, 0.1], TrialState.FAIL, {"audited": 2, "stop_reason": "diverged", "rounds": 4})
    failed = ([0.1, 0.2, 0.1], TrialState.FAIL, {"audited": 2, "stop_reason": "error", "rounds": 4})
    runs = ([0.1, 0.2, 0.1], TrialState.RUNNING, {"audited": 2, "stop_reason": "interrupted", "rounds": 3})
    found = audit(study(audited(0.9), diverged, failed, runs), 1.0)
    assert (found.trials, found.above) == ((4, 5), pytest.approx({4: 0.1}))
    assert found.regret == pytest.approx(0.05) and found.stopped == 1


def test_an_interval_needs_five() -> None:
    four, five = (audit(study(*[audited(0.5 + 0.01 * i) for i in range(n)]), 1.0) for n in (4, 5))
    assert four.high is None
    # None of five: a share p would give that with probability (1 - p)^5, which is 0.05 at the upper end.
    assert (five.low, five.high) == (0.0, pytest.approx(1 - 0.05**0.2))
    one = audit(study(*[audited(0.5 + 0.01 * i) for i in range(4)], audited(0.95)), 1.0)
    assert one.low is not None and one.high is not None
    # One of five: 1 - (1 - p)^5 is 0.05 at the lower end, (1 - p)^5 + 5 p (1 - p)^4 at the upper.
    assert one.low == pytest.approx(1 - 0.95**0.2)
    assert (1 - one.high) ** 5 + 5 * one.high * (1 - one.high) ** 4 == pytest.approx(0.05)


def test_the_values_of_several_seeds_choose_the_winner() -> None:
    given = study(audited(0.7))
    by_seed = {0: {0: 0.7, 1: 0.9}, 1: {0: 0.3, 1: 0.3}, 2: {0: 0.4, 1: 0.4}, 4: {0: 0.6, 1: 0.8}}
    assert audit(given, 1.0, by_seed).winner == 0


def test_as_it_would_be_had_it_been_stopped() -> None:
    trial = trials((0.01, *audited(0.8, round_=3)))[0]
    found = as_stopped(trial)
    assert (found.state, found.values, found.number) == (TrialState.PRUNED, None, 0)
    assert found.intermediate_values == pytest.approx({1: 0.5, 2: 0.6, 3: 0.7})
    assert found.user_attrs == {"audited": 3, "stop_reason": "scheduler", "rounds": 3}
    assert trial.state == TrialState.COMPLETE and len(trial.intermediate_values) == 4, "the trial itself is unchanged"
    for other in (*study()[:4], optuna.trial.create_trial(state=TrialState.RUNNING, user_attrs={"audited": 1})):
        assert as_stopped(other) is other


def four(value: float) -> str:
    return f"{value:.4f}"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            Audit(3, (7,), 2, {}, 0.0, None, None),
            "Audit of early stopping: 1 trial of the 4 that the rule would have stopped ran to its end; it did not end "
            "above the winner without it, trial 2. That is too few for an interval.",
        ),
        (
            Audit(30, (7, 9), 2, {9: 0.0125}, 0.00625, None, None),
            "Audit of early stopping: 2 trials of the 32 that the rule would have stopped ran to their end; 1 of them "
            "ended above the winner without them, trial 2: trial 9 by 0.0125. These are too few for an interval. On "
            "average over the audited trials, stopping cost 0.0063 for each.",
        ),
        (
            Audit(5, (1, 2, 3, 4, 5), 0, {}, 0.0, 0.0, 1 - 0.05**0.2),
            "Audit of early stopping: 5 trials of the 10 that the rule would have stopped ran to their end; none of "
            "them ended above the winner without them, trial 0. Of all trials that the rule stops, 0 to 45 % would "
            "have ended above the winner (90 % interval).",
        ),
    ],
)
def test_in_words(found: Audit, said: str) -> None:
    assert " ".join(audit_sentences(found, four)) == said


def test_of_many_the_worst_are_named() -> None:
    above = {n: n / 100 for n in range(1, 6)}
    found = Audit(0, tuple(range(1, 7)), 0, above, 0.025, 0.4, 0.9)
    assert (
        "trial 5 by 0.0500, trial 4 by 0.0400, trial 3 by 0.0300 and 2 more by less." in audit_sentences(found, four)[0]
    )
    assert math.isclose(sum(above.values()) / 6, 0.025)
