"""A race over seeds: fedtune's search, whose budget also buys further seeds of configurations that are known.

This is a candidate for `fedtune search`, measured here before it becomes one. A configuration starts with one
federation, on the first seed. Those that run to their end are rivals, and a rival may get further seeds, up to `MOST`:
seed k is the same for all of them, so that they are compared on pairs.

Rounds and seeds are traded by one rule: the next federation is that which promises the largest gain per round. With
the model of `analysis.estimate`, whose means are μ and variances v, σ² one seed's noise where configurations are
compared on the same seeds, and μ* the best mean,

    rival i     E[max(μ_i + s_i Z, m) - max(μ_i, m)],  m the best mean among the others,  s_i² = v_i² / (v_i + σ²)
                what one more seed is worth: by how much the winner's mean is expected to rise when its value is known
                (the knowledge gradient, Frazier, Powell and Dayanik 2008)
    a new one   E[max(N(μ_n, v_n) - μ*, 0)] / c
                by how much a configuration like the last `WINDOW` ones is expected to beat the best. μ_n and v_n are
                their mean and variance, c is their cost in whole federations, which early stopping makes small

A rival that is better than the best with a probability of at most `RISK` is dropped: it gets no further seed unless the
others' next values bring it back. A federation that is under way counts as if its value were known already, without
moving any mean. As everything in fedtune's queue, trial n is decided by trials 0 … n - lag alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.estimate import Standing, standing
from analysis.estimate.winner import RISK, configuration
from fedtune.trials.early_stopping import Never
from fedtune.trials.queue import Proposal, TrialQueue
from tests.benchmarks.replay.searcher import Setting
from tests.benchmarks.replay.searchers.present import Present, StudyInMemory

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: Seeds that a configuration can get.
MOST = 10
#: So many configurations are tried before one gets a second seed, and so many last ones say what a new one promises.
FIRST, WINDOW = 6, 10
#: User attribute of a further seed: the trial whose configuration it has.
OF = "of"


class RacingQueue(TrialQueue):
    """fedtune's queue, in which a trial may be a further seed of an earlier one's configuration."""

    most = MOST

    def propose(self) -> Proposal | None:
        number = self.started
        known = self._known(number)
        if known is None:
            return None
        running = [self._trials[n] for n in range(len(known), number)]
        again = repeated(known, running, rounds=self.experiment.rounds, most=self.most)
        if again is None:
            self._create(number, known)
            return Proposal(number, self.space.values(self._trials[number].params), self._rule(known))
        self._repeat(number, self._trials[again])
        return Proposal(number, self.space.values(self._trials[number].params), Never())

    def seed_of(self, number: int) -> int:
        """The place of a trial's seed."""
        return int(self._trials[number].user_attrs.get("seed", 0))

    def _repeat(self, number: int, first: FrozenTrial) -> None:
        import optuna

        seed = sum(configuration(trial) == configuration(first) for trial in self._trials.values())
        self._study.add(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState.RUNNING,
                params=first.params,
                distributions=first.distributions,
                user_attrs={OF: first.number, "seed": seed},
            )
        )
        self._remember(number)

    def _rule(self, known: Sequence[FrozenTrial]) -> Any:
        return super()._rule([trial for trial in known if OF not in trial.user_attrs])

    def _shown(self, known: Sequence[FrozenTrial]) -> list[FrozenTrial | None]:
        """A sampler sees a configuration once, with the mean over its seeds."""
        import optuna

        values: dict[Any, list[float]] = {}
        for trial in known:
            if trial.state.name == "COMPLETE":
                values.setdefault(configuration(trial), []).append(trial.values[0])
        merged = []
        for trial in known:
            if OF in trial.user_attrs:
                continue
            if trial.state.name == "COMPLETE":
                trial = optuna.trial.create_trial(
                    values=[float(np.mean(values[configuration(trial)]))],
                    params=trial.params,
                    distributions=trial.distributions,
                    system_attrs=trial.system_attrs,
                    intermediate_values=trial.intermediate_values,
                )
            merged.append(trial)
        return super()._shown(merged)


class Racing(Present):
    """The race, with the defaults of `fedtune search` otherwise."""

    def __init__(self, setting: Setting, **changes: Any) -> None:
        super().__init__(setting, each=1, **changes)
        self.queue: RacingQueue = RacingQueue(Path(), self.experiment, setting.space, StudyInMemory())
        self.queue.most = min(MOST, setting.seeds)

    def seeds_of(self, number: int) -> tuple[int, ...]:
        return (self.queue.seed_of(number),)


def repeated(known: Sequence[FrozenTrial], running: Sequence[FrozenTrial], *, rounds: int, most: int) -> int | None:
    """The trial whose configuration gets a further seed; None where a new configuration promises more.

    known: trials that have ended; running: those after them."""
    found = standing(known, 1.0)
    tried = [trial for trial in known if OF not in trial.user_attrs]
    if found is None or len(tried) < FIRST:
        return None
    gains = _of_rivals(found, known, running, most)
    best = max(gains, key=lambda number: (gains[number], -number), default=None)
    return None if best is None or of_a_new_one(found, tried, rounds) >= gains[best] else best


def _of_rivals(
    found: Standing, known: Sequence[FrozenTrial], running: Sequence[FrozenTrial], most: int
) -> Mapping[int, float]:
    """By number, what a further seed is worth for every rival that may have one."""
    belief, noise, ranking = found.belief, found.belief.own, found.ranking
    by_number = {trial.number: trial for trial in known}
    seeds = Counter(configuration(trial) for trial in (*known, *running))
    under_way = Counter(configuration(trial) for trial in running)
    gains: dict[int, float] = {}
    for i in ranking if len(ranking) > 1 else ():
        key = configuration(by_number[found.numbers[i]])
        if seeds[key] >= most or i != ranking[0] and belief.better(i, ranking[0]) <= RISK:
            continue
        rest = max(float(belief.mean[j]) for j in ranking if j != i)
        moves = further(float(belief.variance[i]), noise, under_way[key])
        gains[found.numbers[i]] = gain(-abs(float(belief.mean[i]) - rest), moves)
    return gains


def of_a_new_one(found: Standing, tried: Sequence[FrozenTrial], rounds: int) -> float:
    """What a new configuration is worth, per whole federation."""
    last = {trial.number for trial in tried[-WINDOW:]}
    places = [i for i, number in enumerate(found.numbers) if number in last]
    if not places:  # all of them failed
        return 0.0
    mean, variance = found.belief.mean[places], found.belief.variance[places]
    cost = float(np.mean([trial.user_attrs.get("rounds", rounds) for trial in tried[-WINDOW:]])) / rounds
    apart = float(mean.mean() - found.belief.mean[found.ranking[0]])
    return gain(apart, math.sqrt(float(mean.var() + variance.mean()))) / max(cost, 1 / rounds)


def further(variance: float, noise: float, under_way: int) -> float:
    """By how much (standard deviation) a mean of that variance moves with one more value, when those under way are
    known."""
    if variance <= 0 or noise <= 0:
        return 0.0 if under_way else math.sqrt(max(variance, 0.0))
    rest = variance * noise / (noise + under_way * variance)
    return rest / math.sqrt(rest + noise)


def gain(mean: float, spread: float) -> float:
    """E[max(N(mean, spread²), 0)]."""
    if spread <= 0:
        return max(mean, 0.0)
    z = mean / spread
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return mean * 0.5 * math.erfc(-z / math.sqrt(2)) + spread * density
