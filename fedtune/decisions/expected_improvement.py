"""The sampler `ei`: the configuration that promises most by the search's own model (expected improvement).

Optuna's samplers take every value as it was measured. The model of `analysis.estimate` knows what one seed's noise is,
what several seeds have in common, and how unsure it is what a stopped trial would have ended with. So `CANDIDATES`
configurations are drawn, every value as likely as any other, and the trial is the one with the largest

    E[max(f(x) - μ*, 0)] / c(x)

of equal ones the first (Jones, Schonlau and Welch 1998). f(x) has the model's posterior mean. Its variance is that of
f(x) minus the mean of all completed configurations: a seed's effect that all configurations share cancels in this
difference, so it cannot make a configuration look promising. μ* is the best posterior mean of a completed
configuration, or of one that runs. A federation that is under way counts as if its value were known and were exactly
what is expected (the kriging believer, Ginsbourger, Le Riche and Carraro 2010): it moves no mean, and what is unknown
near it falls. By arrival the rounds that it has by then are told as well, as those of a trial that was stopped after
them (`next_trial.under_way`). Nor is a trial so near to one that runs that the noise of one seed could not tell them
apart, where any other is drawn: E[(f(x) - f(r))²] is at least that noise's variance. c(x) is 1, or in a space with
marks (`search_spaces.cost`) what a round of x costs, as a part of the dearest one: expected improvement per second
(Snoek, Larochelle and Adams 2012, section 3.2). Trials of a search have the same rounds, and early stopping ends a
cheap one as it does a dear one, so the rounds cancel. c(x) comes from the marks, never from a clock: with measured
seconds the same seed would give other trials on another machine.

Where many run, several are proposed at once, by one fit of the model: one for every `BESIDE` that run. They are chosen
one after the other from among the same `JOINT` draws, and each that was chosen counts as one that runs for those after
it. A trial is then proposed before its slot is free, so it sees a few results less, at most as many as there are slots
by `BESIDE`; without that a thousand slots wait for their proposals.

What the search has had already is not drawn again, as long as `TRIES` draws find anything else. While a trial can look
at fewer than `FEWEST` others or fewer than are proposed at once, or while fewer than two ran to their end, it is a
point of a sequence that fills the space evenly (`fedtune.decisions.sampling.spread`), however many trials begin at
once. A configuration that failed on a seed, or did not reach its target, counts as if it had ended with the worst value
that any other trial had last: that of which nothing is known would promise much.
"""

from __future__ import annotations

import copy
import itertools
import math
from bisect import insort
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analysis.estimate import configuration, standing
from analysis.estimate.posterior import Floats, on_one_thread
from analysis.estimate.winner import MOST, missed_target
from fedtune.decisions.conditions import without
from fedtune.decisions.optuna_samplers import EI
from fedtune.decisions.race import gain
from fedtune.decisions.sampling import generator, spread, uniform
from search_spaces import cost, run_folder
from search_spaces.errors import UserError
from search_spaces.metrics import is_unreached

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from search_spaces.dimension import Dimension
    from search_spaces.parameter import Value
    from search_spaces.space import Space

#: Draws among which a proposal is chosen, and how many are drawn at most to find so many.
CANDIDATES, TRIES = 200, 4000
#: So many run for each that is proposed at once, and so many are drawn where that is more than one.
BESIDE, JOINT = 32, 400
#: So few trials say too little.
FEWEST = 3


class Ahead(NamedTuple):
    """What was proposed at once for several trials of a run, of which some are still to be begun."""

    #: The number of the first of these trials; by the places of those that ran beside it, the rounds that they had.
    first: int
    beside: Mapping[int, int]
    trials: Sequence[FrozenTrial]

    def of(self, number: int) -> tuple[FrozenTrial, dict[int, int]] | None:
        """What trial `number` is to be, and of the trials before it that had not ended when it was proposed, by their
        places, the rounds that it sees."""
        if not self.first <= number < self.first + len(self.trials):
            return None
        return self.trials[number - self.first], {**self.beside, **dict.fromkeys(range(self.first, number), 0)}


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


class Tried(Container[Mapping[str, Any]]):
    """The configurations that a search has had, as values by name."""

    def __init__(self, conditions: Collection[str] = ()) -> None:
        """conditions: names of parameters that are no part of a configuration."""
        self._conditions = conditions
        self._keys: set[object] = set()

    @classmethod
    def of(cls, trials: Iterable[FrozenTrial], conditions: Collection[str] = ()) -> Tried:
        """Those of these trials."""
        found = cls(conditions)
        for trial in trials:
            found.add(trial)
        return found

    def add(self, trial: FrozenTrial) -> None:
        self._keys.add(_key(without(trial, self._conditions).params))

    def __contains__(self, params: object) -> bool:
        return isinstance(params, Mapping) and _key(params) in self._keys


class _Ranked(NamedTuple):
    """A trial as the model may be told of it: complete ones come first, then larger values, then earlier trials."""

    stopped: bool
    #: Its value with its sign turned so that less is better.
    loss: float
    number: int
    #: How many were counted before it.
    place: int
    trial: FrozenTrial
    #: Whether its value is the worst one instead of its own.
    bad: bool


class Told:
    """The trials as the model is to see them: those of bad configurations as complete ones with the worst value; of
    more than it reads, half the best and half evenly from among all others, so that it knows of poor regions too."""

    def __init__(self, sign: float, conditions: Collection[str] = ()) -> None:
        """sign: 1 where more is better, -1 where less is. conditions: names of parameters that are no part of a
        configuration."""
        self.sign, self._conditions = sign, conditions
        #: How many trials were counted, how many of them ran to their end, and of these how many to their target.
        self.count = self.complete = self.whole = 0
        self._ranked: list[_Ranked] = []
        #: Of every configuration whether it is bad, and the largest loss of one that is not.
        self._bad: dict[object, bool] = {}
        self._worst: float | None = None

    @classmethod
    def of(cls, trials: Iterable[FrozenTrial], sign: float) -> Told:
        """What the model is told of these trials."""
        found = cls(sign)
        for trial in trials:
            found.add(trial)
        return found

    def add(self, trial: FrozenTrial) -> None:
        trial = without(trial, self._conditions)
        key, value, complete = configuration(trial), _last(trial), trial.state.name == "COMPLETE"
        before = self._bad.get(key)
        bad = self._bad[key] = value is None or bool(before)
        loss = self._worst_loss if value is None or bad else -self.sign * value
        one = _Ranked(not bad and not complete, loss, trial.number, self.count, trial, bad)
        self.count += 1
        self.complete += complete
        self.whole += _whole(trial)
        insort(self._ranked, one)
        if before is False and bad or not bad and self._is_worst(loss) and any(self._bad.values()):
            self._rank()
        elif not bad and self._is_worst(loss):
            self._worst = loss

    def and_of(self, others: Iterable[FrozenTrial]) -> Told:
        """What the model is told of these others as well."""
        found = copy.copy(self)
        found._ranked, found._bad = [*self._ranked], {**self._bad}
        for trial in others:
            found.add(trial)
        return found

    def trials(self) -> list[FrozenTrial]:
        """Those that the model is told of, `MOST` at most."""
        half, rest = MOST // 2, len(self._ranked) - MOST // 2
        if self.count <= MOST:
            return [self._told(one) for one in sorted(self._ranked, key=lambda one: (one.number, one.place))]
        others = [self._ranked[half + i * rest // (MOST - half)] for i in range(MOST - half)]
        return [*map(self._told, (*self._ranked[:half], *others))]

    @property
    def _worst_loss(self) -> float:
        return 0.0 if self._worst is None else self._worst

    def _is_worst(self, loss: float) -> bool:
        return self._worst is None or loss > self._worst

    def _rank(self) -> None:
        """Ranks all anew, as a configuration has turned out to be bad, or another value is the worst one."""
        ranked = [one._replace(bad=self._bad[configuration(one.trial)]) for one in self._ranked]
        self._worst = max((one.loss for one in ranked if not one.bad), default=None)
        worst = self._worst_loss
        self._ranked = sorted(one._replace(stopped=False, loss=worst) if one.bad else one for one in ranked)

    def _told(self, one: _Ranked) -> FrozenTrial:
        from optuna.trial import create_trial

        trial = one.trial
        if not one.bad:
            return trial
        worst, kinds = -self.sign * one.loss, trial.distributions
        found = create_trial(value=worst, params=trial.params, distributions=kinds, user_attrs=trial.user_attrs)
        found.number = trial.number
        return found


def proposed(
    space: Space,
    told: Told,
    had: Container[Mapping[str, Any]],
    seed: int,
    number: int,
    running: Sequence[FrozenTrial] = (),
    most: int = 1,
) -> list[FrozenTrial]:
    """Trial `number` of a search with this `seed`, after the trials that have ended, of which the model is `told`,
    while others are `running`, and those after it as far as they are proposed at once, at `most` so many. had: values
    by name of all trials before it."""
    from optuna.trial import TrialState, create_trial

    count = max(1, min(most, len(running) // BESIDE))
    compared = told.count >= max(FEWEST, count) and told.whole >= 2
    drawn = (CANDIDATES if count == 1 else JOINT) if compared else 1
    draws = _drawn(space, seed, number, had, drawn)
    chosen = best(draws, told, space, running, count) if compared else draws[:1]
    kinds = space.distributions()
    return [
        create_trial(state=TrialState.RUNNING, params=dict(one), distributions={name: kinds[name] for name in one})
        for one in chosen
    ]


def _drawn(
    space: Space, seed: int, number: int, had: Container[Mapping[str, Any]], count: int = CANDIDATES
) -> list[dict[str, Value]]:
    """Values by name: `count` that are to be compared, without those that were `had` if others are found."""
    rng = generator(seed, number, "candidates")
    others = (uniform(space, rng) for _ in range(TRIES - 1))
    new: list[dict[str, Value]] = []
    old: list[dict[str, Value]] = []
    for values in itertools.chain([spread(space, seed, number)], others):
        params = space.params(values)
        (old if params in had else new).append(params)
        if len(new) == count:
            break
    return new or old[:count]


def _key(params: Mapping[str, Any]) -> object:
    """What values by name have in common with equal ones: samplers write a number between steps in different ways."""
    rounded = [(name, float(f"{value:.12g}") if isinstance(value, float) else value) for name, value in params.items()]
    return tuple(itertools.chain.from_iterable(sorted(rounded)))


@on_one_thread
def best(
    draws: Sequence[Mapping[str, Any]],
    told: Told,
    space: Space,
    running: Sequence[FrozenTrial] = (),
    count: int = 1,
) -> list[Mapping[str, Any]]:
    """Of the `draws`, values by name, the one that promises most per cost after the trials that the model is `told` of,
    beside the `running` ones; then the one that promises most beside it as well, up to `count` of them."""
    if told.whole < 2:
        return [draws[0]]
    kinds = space.distributions()
    asked = [(params, {name: kinds[name] for name in params}) for params in draws]
    found = standing(told.trials(), told.sign, candidates=asked, running=running, jointly=count > 1)
    if found is None:  # the same federation twice
        return [draws[0]]
    costs = [cost.of_a_round(space.search, params) for params in draws]
    mean, places = found.belief.mean, found.candidates
    expected = max(mean[place] for place in (found.ranking[0], *found.running))
    alike = np.any(found.belief.squared(places, found.running) < found.belief.own, axis=1)
    worth = _worth(mean[[*places]] - expected, found.beside[[*places]], alike, costs)
    chosen = [int(np.argmax(worth))]
    if count > 1:
        belief = found.belief.of(places, found.able)
        apart = belief.mean[:-1] - expected
        while len(chosen) < min(count, len(draws)):
            belief = belief.foreseen(chosen[-1:])
            # (Of those that ran it stays as it was: a thousand of them would have to be foreseen again.)
            near = np.any(belief.squared(range(len(draws)), chosen) < belief.own, axis=1)
            apart = apart - max(apart[chosen[-1]], 0.0)
            worth = _worth(apart, belief.beside([len(draws)])[:-1], alike | near, costs)
            worth[chosen] = -math.inf
            chosen.append(int(np.argmax(worth)))
    return [draws[place] for place in chosen]


def _worth(apart: Floats, variance: Floats, alike: NDArray[np.bool_], costs: Sequence[float]) -> Floats:
    """(n,): what each of n configurations promises per cost. apart: by how much its mean is above the best one; alike:
    whether the noise of a seed could not tell it from one that runs."""
    gains = [gain(float(mean), math.sqrt(square)) for mean, square in zip(apart, variance, strict=True)]
    if not alike.all():
        gains = [-1.0 if same else one for same, one in zip(alike, gains, strict=True)]
    return np.array([one / price for one, price in zip(gains, costs, strict=True)])


def _whole(trial: FrozenTrial) -> bool:
    """Whether it ran to its end, and to its target."""
    return trial.state.name == "COMPLETE" and not missed_target(trial)


def _last(trial: FrozenTrial) -> float | None:
    """The last value it had; None of one that failed, or had not reached its target by then."""
    if trial.state.name == "FAIL" or not (trial.values or trial.intermediate_values):
        return None
    value = trial.value if trial.values else trial.intermediate_values[max(trial.intermediate_values)]
    return None if value is None or is_unreached(value) else float(value)
