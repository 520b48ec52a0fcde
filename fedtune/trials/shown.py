"""What a sampler is shown of trials that have ended.

Of one that did not run to its end:
    TPE, CMA-ES   a stopped trial as stopped, with its last value; a diverged or failed one as stopped at once, the
                  worst there is
    GP, NSGA-II   they read complete trials only: a stopped one counts as complete with its last value, a diverged or
                  failed one with the worst value seen. With several metrics a stopped trial is not shown, as the rounds
                  and bytes it did not spend would make it look good.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from search_spaces.metrics import UNREACHED, is_unreached

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, TrialState


def shown(known: Sequence[FrozenTrial], signs: Sequence[float], *, completes_only: bool) -> list[FrozenTrial | None]:
    """`known` as a sampler is to see them, None where it is not to; `completes_only` where it reads no others.

    signs: +1 per metric that is maximised, -1 per one that is minimised."""
    from optuna.trial import TrialState

    complete = [trial for trial in known if trial.state == TrialState.COMPLETE]
    worst = [min((s * t.values[i] for t in complete), default=math.nan) * s for i, s in enumerate(signs)]
    reached = [
        min((s * t.values[i] for t in complete if not is_unreached(t.values[i])), default=s * UNREACHED) * s
        for i, s in enumerate(signs)
    ]
    found: list[FrozenTrial | None] = []
    for trial in known:
        state, values, last = trial.state, trial.values, {}
        if state == TrialState.PRUNED and trial.intermediate_values:
            step = max(trial.intermediate_values)
            last = {step: trial.intermediate_values[step]}
        if state == TrialState.PRUNED and completes_only and last:  # (of several metrics no round is kept)
            state, values = TrialState.COMPLETE, list(last.values())
        elif state == TrialState.FAIL and completes_only:
            state, values = (TrialState.COMPLETE, worst) if complete else (state, None)
        elif state == TrialState.FAIL:
            state, values = TrialState.PRUNED, None
        if state == TrialState.PRUNED:
            values = None
        if completes_only and values:  # beside `UNREACHED` a Gaussian process would see no other difference
            values = [known_worst if is_unreached(v) else v for v, known_worst in zip(values, reached, strict=True)]
        found.append(_as(trial, state, values, last))
    return found


def _as(
    trial: FrozenTrial, state: TrialState, values: list[float] | None, last: dict[int, float]
) -> FrozenTrial | None:
    """`trial` with another state, values and curve; None where it failed."""
    from optuna.trial import TrialState, create_trial

    if state not in (TrialState.COMPLETE, TrialState.PRUNED):
        return None
    return create_trial(
        state=state,
        values=values,
        params=trial.params,
        distributions=trial.distributions,
        system_attrs=trial.system_attrs,
        intermediate_values=last,
    )
