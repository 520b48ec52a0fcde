"""Racing: whether the next federation tries a new configuration, or gives one that is known a further seed.

A configuration starts with one federation, on the first seed. Those that run to their end are rivals, and a rival may
get further seeds: seed k is the same for all of them, so that they are compared on pairs. The budget is counted in
seed-rounds: rounds of single federations, over all trials.

Rounds and seeds are traded by one rule: the next federation is that which promises the largest gain per round. In the
model of `analysis.estimate` μ are the posterior means and v the variances of their differences from the mean of all
completed configurations (of k rivals the rival itself is one, which takes up to 1/k away): a seed's effect that all
share cancels, and cannot make a rival look promising. σ² is one
seed's noise where configurations are compared on the same seeds, and μ* the best mean:

    rival i     E[max(μ_i + s_i Z, m) - max(μ_i, m)],  m the best mean among the others,  s_i² = v_i² / (v_i + σ²)
                what one more seed is worth: by how much the winner's mean is expected to rise when its value is known
                (the knowledge gradient, Frazier, Powell and Dayanik 2008)
    a new one   E[max(N(μ_n, s_n²) - μ*, 0)] / c,  s_n² = v_n² / (v_n + σ²)
                by how much the mean of a configuration like the last `WINDOW` ones is expected to beat the best when
                one value of it is known, as of a rival. μ_n and v_n are their mean and variance, c is their cost in
                whole federations, which early stopping makes small

A rival that is better than the best with a probability of at most `RISK` is dropped: it gets no further seed unless the
others' next values bring it back. A federation that is under way counts as if its value were known already, without
moving any mean.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from analysis.estimate import Standing, configuration, standing
from analysis.estimate.winner import RISK
from analysis.runs.race import first_of, is_repeated
from search_spaces import run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from fedtune.record.experiment import Experiment

#: Seeds that a configuration can get where the user names no number of them.
MOST = 10
#: So many configurations are tried before one gets a second seed, and so many last ones say what a new one promises.
FIRST, WINDOW = 6, 10


def is_further(trial: FrozenTrial) -> bool:
    """Whether a trial is a further seed of an earlier one's configuration."""
    return first_of(trial) is not None


class FurtherSeeds:
    """Which trials of a run are further seeds, of all that have begun from number `since` on."""

    def __init__(self, trials: Mapping[int, FrozenTrial], since: int = 0) -> None:
        """trials: all of the run, by number."""
        self._trials, self._since = trials, since
        self.count = self.confirming = 0
        #: The trials whose configurations ran to their end as another one (`initial_design`).
        self.repeated: list[int] = []

    def add(self, trial: FrozenTrial) -> None:
        if trial.number < self._since or (first := first_of(trial)) is None:
            return
        self.count += 1
        self.confirming += bool(trial.user_attrs.get(run_folder.CONFIRMS))
        if is_repeated(trial, self._trials):
            self.repeated.append(first)


class Seeds:
    """On which seeds every configuration has begun."""

    def __init__(self) -> None:
        self._of: dict[object, tuple[int, set[int]]] = {}

    def add(self, trial: FrozenTrial) -> None:
        self._of.setdefault(configuration(trial), (trial.number, set()))[1].add(trial.user_attrs["seed"])

    def of(self, trial: FrozenTrial) -> tuple[int | None, set[int]]:
        """The number of the first trial of this one's configuration, and its seeds."""
        return self._of.get(configuration(trial), (None, set()))


def over_seeds(known: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Every configuration of the `known` trials once, with the mean over its seeds, as samplers see it."""
    from optuna.trial import create_trial

    values: dict[object, list[float]] = {}
    for trial in known:
        if trial.state.name == "COMPLETE":
            values.setdefault(configuration(trial), []).append(trial.values[0])
    found = []
    for trial in known:
        if is_further(trial):
            continue
        if trial.state.name == "COMPLETE":
            trial = create_trial(
                values=[float(np.mean(values[configuration(trial)]))],
                params=trial.params,
                distributions=trial.distributions,
                system_attrs=trial.system_attrs,
            )
        found.append(trial)
    return found


def spent(trials: Sequence[FrozenTrial], experiment: Experiment) -> int:
    """Seed-rounds that a race's trials took; one that still runs counts with all its rounds. Results of earlier runs
    cost nothing."""
    own = [trial for trial in trials if trial.number >= experiment.taken]
    return sum(int(trial.user_attrs["rounds"]) if trial.state.is_finished() else experiment.rounds for trial in own)


def has_budget(trials: Sequence[FrozenTrial], experiment: Experiment, kept: int = 0) -> bool:
    """Whether the budget reaches for one more whole federation, of a run that is no race for one more trial, beside so
    many whole ones that are kept."""
    if not experiment.races:
        return len(trials) + kept < experiment.trials
    return spent(trials, experiment) + (1 + kept) * experiment.rounds <= experiment.budget


def unfinished(trials: Sequence[FrozenTrial], experiment: Experiment) -> list[FrozenTrial]:
    """Those of `trials` that ran all the rounds there were then, and fewer than there are now."""
    if not experiment.rounds_before:
        return []
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    return [trial for trial in complete if int(trial.user_attrs.get("rounds", 0)) < experiment.rounds]


def is_over(trials: Sequence[FrozenTrial], experiment: Experiment) -> bool:
    """Whether a run has ended with these trials: a race with its budget, every other run with its last trial."""
    if not all(trial.state.is_finished() for trial in trials) or unfinished(trials, experiment):
        return False
    return not has_budget(trials, experiment)


def repeated(
    known: Sequence[FrozenTrial],
    running: Sequence[FrozenTrial],
    *,
    sign: float,
    rounds: int,
    most: int,
    new: bool = True,
) -> int | None:
    """The trial whose configuration gets a further seed; None where a new configuration promises more.

    known: trials that have ended; running: those after them. sign: 1 where more is better, -1 where less is. most:
    seeds a configuration can get. new: whether there are configurations that were not tried; where there are none, the
    rival that promises most gets a seed, or else the configuration with the fewest, and None says that all failed."""
    found = standing(known, sign)
    tried = [trial for trial in known if not is_further(trial)]
    gains = {} if found is None or new and len(tried) < FIRST else _of_rivals(found, known, running, most)
    best = max(gains, key=lambda number: (gains[number], -number), default=None)
    if found is not None and best is not None:
        promised = of_a_new_one(found, tried, rounds, found.belief.own) if new else -math.inf
        return best if promised < gains[best] else None
    return None if new else _fewest(known, running)


def _fewest(known: Sequence[FrozenTrial], running: Sequence[FrozenTrial]) -> int | None:
    """The first trial of the configuration with the fewest seeds, of those that did not fail; of equal ones the first.
    A configuration that was stopped early comes after those that were not."""
    everything = (*known, *running)
    seeds = Counter(configuration(trial) for trial in everything)
    failed = {configuration(trial) for trial in known if trial.state.name == "FAIL"}
    stopped = {configuration(trial) for trial in known if trial.state.name == "PRUNED"}
    able = [trial for trial in everything if not is_further(trial) and configuration(trial) not in failed]
    order = {t.number: (configuration(t) in stopped, seeds[configuration(t)], t.number) for t in able}
    return min(order, key=lambda number: order[number], default=None)


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
        moves = further(float(found.beside[i]), noise, under_way[key])
        gains[found.numbers[i]] = gain(-abs(float(belief.mean[i]) - rest), moves)
    return gains


def of_a_new_one(found: Standing, tried: Sequence[FrozenTrial], rounds: int, noise: float = 0.0) -> float:
    """What a new configuration is worth, per whole federation. noise: variance of the value by which it will be known;
    0: its mean itself will be."""
    last = {trial.number for trial in tried[-WINDOW:]}
    places = [i for i, number in enumerate(found.numbers) if number in last]
    if not places:  # all of them failed
        return 0.0
    mean, variance = found.belief.mean[places], found.beside[places]
    cost = float(np.mean([trial.user_attrs.get("rounds", rounds) for trial in tried[-WINDOW:]])) / rounds
    apart = float(mean.mean() - found.belief.mean[found.ranking[0]])
    moves = further(float(mean.var() + variance.mean()), noise, 0)
    return gain(apart, moves) / max(cost, 1 / rounds)


def further(variance: float, noise: float, under_way: int) -> float:
    """By how much (standard deviation) a mean of that variance moves with one more value, when those under way are
    known."""
    variance = max(variance, 0.0)  # rounding
    if noise <= 0:
        return 0.0 if under_way else math.sqrt(variance)
    rest = variance * noise / (noise + under_way * variance)
    return rest / math.sqrt(rest + noise)


def gain(mean: float, spread: float) -> float:
    """E[max(N(mean, spread²), 0)]."""
    if spread <= 0:
        return max(mean, 0.0)
    z = mean / spread
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return mean * 0.5 * math.erfc(-z / math.sqrt(2)) + spread * density
