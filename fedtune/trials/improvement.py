"""The sampler `ei`: the configuration that promises most by the search's own model (expected improvement).

Optuna's samplers take every value as it was measured. The model of `analysis.estimate` knows what one seed's noise is,
what several seeds have in common, and how unsure it is what a stopped trial would have ended with. So `CANDIDATES`
configurations are drawn, every value as likely as any other, and the trial is the one with the largest

    E[max(f(x) - μ*, 0)] / c(x)

of equal ones the first (Jones, Schonlau and Welch 1998). f(x) has the mean that the model believes of x, and the
variance beside the mean of what ran to its end, so that what a seed does to all alike promises nothing; μ* is the best
mean of what ran to its end. c(x) is 1, or in a space with marks (`search_spaces.cost`) what a round of x costs, as a
part of the dearest one: expected improvement per second (Snoek, Larochelle and Adams 2012, section 3.2). Trials of a
search have the same rounds, and early stopping ends a cheap one as it does a dear one, so the rounds cancel. c(x) comes
from the marks, never from a clock: with measured seconds the same seed would give other trials on another machine.

Draws that the search has had already are left out, unless it has had all of them. The first one that is left is the
trial while it can look at fewer than `FEWEST` others, or while fewer than two ran to their end. What failed, or did not
reach its target, counts with the worst value there is: that of which nothing is known would promise much.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.estimate import standing
from analysis.estimate.winner import MOST, missed_target
from fedtune.trials.drawn import uniform
from fedtune.trials.racing import gain
from fedtune.trials.samplers import EI
from search_spaces import cost, run_folder
from search_spaces.errors import UserError

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from search_spaces.dimension import Dimension
    from search_spaces.space import Space

#: Draws among which a proposal is chosen.
CANDIDATES = 200
#: So few trials say too little.
FEWEST = 3


def check(search: Mapping[str, Dimension]) -> None:
    """Raises `UserError` where the marks of a run's space say no costs (somebody edited the file)."""
    problem = cost.problem(search, run_folder.SPACE)
    if problem is not None:
        raise UserError(problem)


def note(sampler: str, search: Mapping[str, Dimension]) -> str | None:
    """What the user is told of the marks of a space; None where there are none."""
    found = cost.marked(search)
    if not found:
        return None
    named = " and ".join(f"{key} ({dimension.cost:g} of a round)" for key, dimension in found.items())
    if sampler == EI:
        return f"Proposals are compared by what they promise per second of cost, which depends on {named}."
    return f"The space marks the cost of {named}; costs are not compared by the sampler {sampler}, only by {EI}."


def proposed(
    space: Space, known: Sequence[FrozenTrial], had: Iterable[Mapping[str, Any]], sign: float, seed: int, number: int
) -> FrozenTrial:
    """Trial `number` of a search with this `seed`, after the `known` trials, which have ended. had: values by name of
    all trials before it.

    sign: 1 where more is better, -1 where less is."""
    from optuna.trial import TrialState, create_trial

    digest = hashlib.blake2b(f"{seed}/{number}/candidates".encode(), digest_size=8).digest()
    rng = random.Random(int.from_bytes(digest, "big"))
    before = {tuple(sorted(params.items())) for params in had}
    draws = [space.params(uniform(space, rng)) for _ in range(CANDIDATES)]
    draws = [params for params in draws if tuple(sorted(params.items())) not in before] or draws
    chosen = best(draws, known, sign, space) if len(known) >= FEWEST else draws[0]
    kinds = space.distributions()
    return create_trial(
        state=TrialState.RUNNING, params=dict(chosen), distributions={name: kinds[name] for name in chosen}
    )


def best(
    draws: Sequence[Mapping[str, Any]], known: Sequence[FrozenTrial], sign: float, space: Space
) -> Mapping[str, Any]:
    """Of the `draws`, values by name, the one that promises most per cost after the `known` trials."""
    kinds = space.distributions()
    asked = [(params, {name: kinds[name] for name in params}) for params in draws]
    found = standing(_told(known, sign), sign, candidates=asked)
    if found is None:
        return draws[0]
    belief, winner = found.belief, found.ranking[0]
    variance = belief.beside(found.able)
    gains = [
        gain(float(belief.mean[place] - belief.mean[winner]), math.sqrt(variance[place])) for place in found.candidates
    ]
    worth = [one / cost.of_a_round(space.search, params) for one, params in zip(gains, draws, strict=True)]
    return draws[worth.index(max(worth))]


def _told(known: Sequence[FrozenTrial], sign: float) -> list[FrozenTrial]:
    """The trials as the model is to see them: what failed or missed its target as the worst of those that ran to their
    end; of more than it reads, half the best and half from among all others, so that it knows of poor regions too."""
    from optuna.trial import TrialState, create_trial

    whole = [trial for trial in known if trial.state == TrialState.COMPLETE and not missed_target(trial)]
    worst = min((sign * trial.values[0] for trial in whole), default=0.0) * sign
    told = []
    for trial in known:
        if trial.state == TrialState.FAIL or missed_target(trial):
            number, kinds = trial.number, trial.distributions
            trial = create_trial(value=worst, params=trial.params, distributions=kinds, user_attrs=trial.user_attrs)
            trial.number = number
        told.append(trial)
    if len(told) <= MOST:
        return told
    told.sort(key=lambda trial: (trial.state != TrialState.COMPLETE, -sign * _last(trial), trial.number))
    others = told[MOST // 2 :]
    return told[: MOST // 2] + others[:: math.ceil(len(others) / (MOST - MOST // 2))]


def _last(trial: FrozenTrial) -> float:
    """Its value, or where it was stopped the last one it had."""
    if trial.values:
        return float(trial.values[0])
    return float(trial.intermediate_values.get(max(trial.intermediate_values, default=0), -math.inf))
