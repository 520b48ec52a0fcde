"""Optuna's samplers: how fedtune sets them up, what they are shown of trials that have ended, and how they are asked.

What a sampler is shown of a trial that did not run to its end:
    TPE           a stopped trial as stopped, with its last value; a diverged or failed one as stopped at once, the
                  worst there is
    GP, NSGA-II   they read complete trials only: a stopped one counts as complete with its last value, a diverged or
                  failed one with the worst value seen. With several metrics a stopped trial is not shown, as the rounds
                  and bytes it did not spend would make it look good.

TPE and GP are shown the trials that run as well (`ASK_WHAT_RUNS`), after those that have ended, so that the next one
does not lie beside them: TPE counts these among the bad ones (constant liar, Ginsbourger, Le Riche and Carraro 2010),
GP looks for what improves on whatever they may become (Optuna's qLogEI, its points chosen one after the other). NSGA-II
draws the trials of a generation independently of one another.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, get_args

from fedtune.options import Sampler
from fedtune.record.journal import quiet_optuna
from search_spaces.metrics import METRICS, UNREACHED, is_unreached
from search_spaces.parameter import Value

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial, TrialState

    from search_spaces.space import Space


#: Expected improvement by the search's own model (`expected_improvement.py`).
EI = "ei"
SAMPLERS: tuple[str, ...] = get_args(Sampler)

#: Random trials before Optuna's model-based samplers start. Fixed, so that a search of 20 extended by 20 is a search of
#: 40.
STARTUP = 6

#: Configurations per generation of NSGA-II; Optuna's 50 would leave a search of usual length at random.
POPULATION = 12

#: Samplers that read trials which still run.
ASK_WHAT_RUNS = ("tpe", "gp")


def usual(metrics: int) -> str:
    """The sampler of a search that optimises so many metrics, where the user names none."""
    return EI if metrics == 1 else "tpe"


@quiet_optuna()
def make_sampler(name: str, seed: int, number: int) -> BaseSampler:
    """The sampler of trial `number`. (`grid` proposes by itself and needs one only to exist; `ei` needs none.)"""
    import optuna

    digest = hashlib.blake2b(f"{seed}/{number}".encode(), digest_size=4).digest()
    own = int.from_bytes(digest, "big")
    if name == "tpe":
        return optuna.samplers.TPESampler(
            seed=own, n_startup_trials=STARTUP, group=True, multivariate=True, constant_liar=True
        )
    if name == "gp":
        return optuna.samplers.GPSampler(seed=own, n_startup_trials=STARTUP, deterministic_objective=False)
    if name == "nsga2":
        return optuna.samplers.NSGAIISampler(seed=own, population_size=POPULATION)
    if name in ("random", "grid"):
        return optuna.samplers.RandomSampler(seed=own)
    raise ValueError(f"sampler {name!r}")


def ask(
    sampler: BaseSampler,
    metrics: Sequence[str],
    seen: Sequence[FrozenTrial],
    space: Space,
    values: Mapping[str, Value] | None,
    running: Sequence[FrozenTrial] = (),
) -> FrozenTrial:
    """The trial, running. seen: the finished trials as the sampler is to see them. values: the trial's, where
    they are known already; the sampler then notes whatever it needs to know of the trial. running: trials without a
    result, of which the sampler sees the parameters."""
    import optuna
    from optuna.trial import TrialState, create_trial

    with quiet_optuna(), warnings.catch_warnings():
        warnings.simplefilter("ignore", category=UserWarning)
        view = optuna.create_study(
            directions=[METRICS[name].direction for name in metrics],
            sampler=sampler,
            pruner=optuna.pruners.NopPruner(),
        )
        view.add_trials(seen)
        for one in running:
            params, kinds = one.params, one.distributions
            view.add_trial(create_trial(state=TrialState.RUNNING, params=params, distributions=kinds))
        if values is not None:
            view.enqueue_trial(space.params(values))
        space.suggest(view.ask())
        # `view.trials` would copy all of them, which takes longer than TPE.
        made: FrozenTrial = view.get_trials(deepcopy=False)[-1]
        if values is None or not isinstance(sampler, optuna.samplers.BaseGASampler):
            return made
        # Optuna leaves a trial whose values are given out of every generation, and so out of what is learnt.
        sampler.get_trial_generation(view, made)
        return view.get_trials(deepcopy=False)[-1]


def seen_by_sampler(
    known: Sequence[FrozenTrial], signs: Sequence[float], *, completes_only: bool
) -> list[FrozenTrial | None]:
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
