"""What one of Optuna's samplers proposes for a trial, asked on a view of the study that holds what it may see."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedtune.record.journal import quiet_optuna
from fedtune.trials.known_points import Point
from search_spaces.metrics import METRICS

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

    from search_spaces.space import Space


def asked(
    sampler: BaseSampler, metrics: Sequence[str], seen: Sequence[FrozenTrial], space: Space, point: Point | None
) -> FrozenTrial:
    """The trial, running. seen: the finished trials as the sampler is to see them. point: the trial's values, where
    they are known already; the sampler then notes whatever it needs to know of the trial."""
    import optuna

    with quiet_optuna(), warnings.catch_warnings():
        warnings.simplefilter("ignore", category=UserWarning)
        view = optuna.create_study(
            directions=[METRICS[name].direction for name in metrics],
            sampler=sampler,
            pruner=optuna.pruners.NopPruner(),
        )
        view.add_trials(seen)
        if point is not None:
            view.enqueue_trial(space.params(point.values))
        space.suggest(view.ask())
        # `view.trials` would copy all of them, which takes longer than TPE.
        made: FrozenTrial = view.get_trials(deepcopy=False)[-1]
        if point is None or not isinstance(sampler, optuna.samplers.BaseGASampler):
            return made
        # Optuna leaves a trial whose values are given out of every generation, and so out of what is learnt.
        sampler.get_trial_generation(view, made)
        return view.get_trials(deepcopy=False)[-1]
