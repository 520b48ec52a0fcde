"""Proposals that are compared by what they promise per second of cost, where a space marks what rounds cost.

A sampler proposes by value alone: that a configuration with a hundred local steps takes the time of many with five is
nothing to it. TPE draws `samplers.CANDIDATES` candidates from its density of good trials and takes the one at which
this density is largest relative to that of the other trials. In a space with marks (`search_spaces.cost`) it draws as
many, and the trial is the one with the largest

    E[max(f(x) - μ*, 0)] / c(x)

of equal ones the first: expected improvement per second (Snoek, Larochelle and Adams 2012, section 3.2). f(x) has the
mean that the model of `analysis.estimate` believes of x, and the variance beside the mean of what ran to its end, so
that what a seed does to all alike promises nothing; μ* is the best mean of what ran to its end, and c(x) is what a
round of x costs, as a part of the dearest one. Trials of a search have the same rounds, and early stopping ends a cheap
one as it does a dear one, so the rounds cancel.

c(x) comes from the marks, never from a clock: with measured seconds the same seed would give other trials on another
machine, or on the same one at a busier time.

There is nothing to compare while TPE draws at random, with fewer than `samplers.STARTUP` trials, or while the model has
fewer than two that ran to their end; then its first draw is the trial. The other samplers propose as if nothing
were marked. Random and grid search do not learn; Gaussian process, CMA-ES and NSGA-II learn from what they proposed
themselves or propose nearly the same point when they are asked again. With several metrics no one number says what a
configuration promises.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from analysis.estimate import standing
from fedtune.trials import samplers
from fedtune.trials.racing import gain
from search_spaces import cost, run_folder
from search_spaces.errors import UserError

if TYPE_CHECKING:
    import optuna
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

    from search_spaces.dimension import Dimension
    from search_spaces.space import Space


def make_sampler(seed: int, number: int) -> BaseSampler:
    """TPE for trial `number` of a search that compares costs: asked once, it draws once."""
    return samplers.make_sampler("tpe", seed, number, candidates=1)


def compares(sampler: str, metrics: Sequence[str], search: Mapping[str, Dimension]) -> bool:
    """Whether a search compares costs.

    Raises `UserError` where the marks say no costs (somebody edited the file)."""
    problem = cost.problem(search, run_folder.SPACE)
    if problem is not None:
        raise UserError(problem)
    return bool(cost.marked(search)) and sampler == "tpe" and len(metrics) == 1


def note(sampler: str, metrics: Sequence[str], search: Mapping[str, Dimension]) -> str | None:
    """What the user is told of the marks of a space; None where there are none."""
    found = cost.marked(search)
    if not found:
        return None
    named = " and ".join(f"{key} ({dimension.cost:g} of a round)" for key, dimension in found.items())
    if compares(sampler, metrics, search):
        return f"Proposals are compared by what they promise per second of cost, which depends on {named}."
    reason = f"with {len(metrics)} metrics" if sampler == "tpe" else f"by the sampler {sampler}"
    return f"The space marks the cost of {named}; costs are not compared {reason}, only by tpe for one metric."


def proposed(view: optuna.Study, space: Space, known: Sequence[FrozenTrial], sign: float) -> FrozenTrial:
    """What the sampler of `view`, which holds what it may look at of the `known` trials, proposes with regard to cost.

    sign: 1 where more is better, -1 where less is."""
    for _ in range(samplers.CANDIDATES):
        space.suggest(view.ask())
    return best(view.get_trials(deepcopy=False)[-samplers.CANDIDATES :], known, sign, space.search)


def best(
    drawn: Sequence[FrozenTrial], known: Sequence[FrozenTrial], sign: float, search: Mapping[str, Dimension]
) -> FrozenTrial:
    """Of the `drawn` proposals the one that promises most per cost after the `known` trials."""
    found = standing(known, sign, candidates=drawn)
    if found is None:
        return drawn[0]
    belief, winner = found.belief, found.ranking[0]
    variance = belief.beside(found.able)
    gains = [
        gain(float(belief.mean[place] - belief.mean[winner]), math.sqrt(variance[place])) for place in found.candidates
    ]
    worth = [one / cost.of_a_round(search, trial.params) for one, trial in zip(gains, drawn, strict=True)]
    return drawn[worth.index(max(worth))]
