"""Which configuration of a search is the best, and how sure that is: by estimate, not by the highest single value.

The highest of many noisy values is mostly luck. So the winner is the configuration with the highest posterior mean
under `analysis.estimate.posterior`, among those of which a federation ran to its end; its estimate, an interval, and
the configurations that cannot be told from it come from the same model. What is estimated is the mean of the metric
after the last round over all seeds, those included that nobody has run.

A configuration that did not reach the target of `rounds_to_target` or `bytes_to_target` on one of its seeds has no such
mean, so it has no place in the model.

Where a search ends with a confirmation (`fedtune.decisions.confirmation`), two beliefs about the winner's mean are as
credible as each other: that of all federations, and that of the confirmed configurations' federations alone. In the
first all others say how large the noise is and what the winner's neighbours are like, which may be wrong where it is;
the second knows little but what several seeds measured.

What a search gained over the paper's values is said of the best of several, so its interval pays for the choice: with
k configurations that cannot be told from the winner, itself included, it holds with probability 1 - (1 - `LEVEL`) / k,
as if each of the k were compared (Bonferroni). k is at most `LOOKS`: configurations that are close to one another are
not independent, and replays have the claims (docs/defaults.md).

A federation's last value is one round's, so the second half of its curve stands for it. A trial that was stopped early
informs the model about its neighbours: its last value, plus what trials that ran to their end gained from that round
on, as unsure as that is. `analysis.estimate.ends` has both. What one says that lost what it had learnt stays its own
(`analysis.estimate.stability`).

Of a search that goes on a trial that has not ended informs it like one that was stopped where it is, and may be ahead
of all that ran to their end (`ahead`): on many slots the best are mostly among those that run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.estimate.coordinates import coordinates, widths
from analysis.estimate.ends import Measured, ends_of, tails_of
from analysis.estimate.posterior import Federations, Floats, Posterior, averaged, on_one_thread, posterior
from analysis.estimate.prior import FLAT, Prior
from analysis.estimate.stability import unstable
from search_spaces import run_folder
from search_spaces.metrics import is_unreached

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: By trial and seed, the values by round.
BySeed = Mapping[int, Mapping[int, Mapping[int, float]]]
#: Probability of stated intervals; a configuration that is better than the winner with more than `RISK` is not told
#: from it.
LEVEL, RISK = 0.9, 0.05
#: The interval of the gain over the paper's values pays for so many comparisons at most.
LOOKS = 4
#: The model reads at most so many federations, those with the best values: its cost grows with their number cubed.
MOST = 160
#: A trial that has not ended can be ahead once it has this share of all rounds.
UNFINISHED = 0.25


@dataclass(frozen=True)
class Standing:
    """What a search knows of its configurations, in the order of their first trials."""

    #: The first trial of each that ran to its end, else its first trial.
    numbers: tuple[int, ...]
    belief: Posterior
    #: Federations that ran to their end.
    seeds: tuple[int, ...]
    #: How many different seeds all federations have.
    all_seeds: int
    sign: float
    #: Trials that are unstable (`analysis.estimate.stability`).
    unstable: tuple[int, ...] = ()
    #: Places in the belief of configurations that somebody asked about (`candidates` of `standing`).
    candidates: tuple[int, ...] = ()
    #: By trial, the place of its configuration.
    place: Mapping[int, int] = field(default_factory=dict)
    #: Places of configurations of which no federation ran to its end.
    stopped: Collection[int] = ()
    #: Places of configurations of which a federation is under way.
    running: tuple[int, ...] = ()
    #: Places of configurations of which no federation ran to its end, and one that goes on has come so far that it may
    #: be ahead; they may win too.
    unfinished: Collection[int] = ()
    #: Where some were confirmed: the standing by the federations of these configurations alone.
    confirmed: Standing | None = None

    @property
    def able(self) -> list[int]:
        """Places of the configurations that may win."""
        return [i for i, seeds in enumerate(self.seeds) if seeds or i in self.unfinished]

    @property
    def ended(self) -> Standing:
        """The same, where only those may win of which a federation ran to its end."""
        return replace(self, unfinished=())

    @property
    def ranking(self) -> list[int]:
        """The same places, the best estimate first; of equal ones the first."""
        return sorted(self.able, key=lambda i: (-self.belief.mean[i], i))

    @cached_property
    def beside(self) -> Floats:
        """(m,): the variance of each mean beside the mean of those that may win: what a seed does to all alike, which
        cancels where configurations are compared, is no part of it."""
        return self.belief.beside(self.able)

    @property
    def ranked(self) -> list[int]:
        """Their numbers."""
        return [self.numbers[i] for i in self.ranking]


@dataclass(frozen=True)
class Estimate:
    """What a search says of its winner, in the unit of its metric."""

    #: The winner's first trial that ran to its end.
    trial: int
    #: The mean over all seeds: its estimate, and the interval that holds it with probability `level`.
    mean: float
    low: float
    high: float
    level: float
    #: Federations of the winner that ran to their end, and different seeds of all configurations.
    seeds: int
    all_seeds: int
    #: The standard deviation of one seed's noise in the value after the last round; the part of it that remains where
    #: two configurations are compared on the same seeds.
    noise: float
    paired_noise: float
    #: The standard deviation of the estimates of all configurations that ran to their end.
    spread: float
    #: First trials of the configurations that cannot be told from the winner, itself included, best first; of how many.
    tied: tuple[int, ...]
    configurations: int
    #: Seeds for each of the winner and the next one that would tell these two apart; None where there is no other.
    settled_by: int | None
    #: The trial of the paper's values, where something is known of them; where they ran to their end, by how much the
    #: winner is better than these, and the interval that holds it with probability `gain_level`.
    paper: int | None = None
    gain: float | None = None
    gain_low: float | None = None
    gain_high: float | None = None
    gain_level: float = LEVEL
    #: Trials that lost what they had learnt (`analysis.estimate.stability`).
    unstable: tuple[int, ...] = ()

    @property
    def better(self) -> bool:
        """Whether the winner is told to be better than the paper's values."""
        return self.gain_low is not None and self.gain_low > 0 and self.paper != self.trial


@on_one_thread
def standing(
    trials: Sequence[FrozenTrial],
    sign: float,
    by_seed: BySeed | None = None,
    candidates: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]] = (),
    running: Sequence[FrozenTrial] = (),
    *,
    jointly: bool = False,
    prior: Prior = FLAT,
) -> Standing | None:
    """The standing after these trials of a search for one metric, or None where fewer than two federations ran to
    their end.

    sign: 1 where more is better, -1 where less is. by_seed: of trials over several seeds, the curves by seed; without
    it a trial counts as one federation. candidates: configurations of which nothing is known, as (values, Optuna's
    distributions) by name; the belief covers them too. running: trials under way, of which it is known where they are
    (`posterior.Federations`). jointly: whether it is asked too what the candidates tell of one another. prior: what is
    known of the model from elsewhere."""
    found = _measured(trials, sign, by_seed or {})
    if sum(m.complete for m in found) < 2:
        return None
    found = sorted(sorted(found, key=lambda m: (-m.complete, -m.value))[:MOST], key=lambda m: m.trial.number)
    keys = list(dict.fromkeys(m.configuration for m in found))
    place = {key: i for i, key in enumerate(keys)}
    first: dict[int, FrozenTrial] = {}
    for m in sorted(found, key=lambda m: (not m.complete, not _goes_on(m.trial), m.trial.number)):
        first.setdefault(place[m.configuration], m.trial)
    points = [(first[i].params, first[i].distributions) for i in range(len(keys))]
    for trial in running:
        if (key := configuration(trial)) not in place:
            place[key] = len(points)
            points.append((trial.params, trial.distributions))
    under_way = tuple(place[configuration(trial)] for trial in running)
    tails = tails_of(found)
    ends, fallen = ends_of(found, sign, tails), unstable(found, tails)
    federations = Federations(
        coordinates([*points, *candidates]),
        np.array([place[m.configuration] for m in found]),
        _shares(found),
        ends.value,
        ends.covariance,
        asked=0 if jointly else len(candidates),
        last_round=ends.last_round,
        unstable=tuple({place[m.configuration] for m in fallen}),
        running=under_way,
        widths=widths([*points, *candidates]) if candidates else (),
    )
    further = {configuration(trial) for trial in trials if trial.user_attrs.get(run_folder.CONFIRMS)}
    confirmed = None
    if further and not candidates and not running and len(further) < len(keys):
        confirmed = standing([trial for trial in trials if configuration(trial) in further], sign, by_seed, prior=prior)
    all_seeds = len({seed for m in found for seed in m.seeds})
    whole = [place[m.configuration] for m in found if m.complete]
    seeds = [int(count) for count in np.bincount(whole, minlength=len(keys))]
    least = UNFINISHED * max((max(m.curve) for m in found if m.complete and m.curve), default=math.inf)
    far = {place[m.configuration] for m in found if _goes_on(m.trial) and max(m.curve) >= least}
    return Standing(
        tuple(first[i].number for i in range(len(keys))),
        posterior(federations, prior),
        tuple(seeds),
        all_seeds,
        sign,
        tuple(sorted({m.trial.number for m in fallen})),
        tuple(range(len(points), len(points) + len(candidates))),
        {trial.number: place[key] for trial in trials if (key := configuration(trial)) in place},
        [i for i, many in enumerate(seeds) if not many],
        under_way,
        [i for i in sorted(far) if not seeds[i]],
        confirmed,
    )


@on_one_thread
def estimate(
    found: Standing,
    level: float = LEVEL,
    ends: tuple[float, float] = (-math.inf, math.inf),
    fresh: int | None = None,
    paper: int | None = None,
) -> Estimate:
    """What is to be said of the winner. ends: the smallest and the largest value that the metric can have; no estimate
    lies beyond. fresh: the interval is that of its mean over so many fresh seeds, in place of all there could be.
    paper: the trial that has the paper's values, for a comparison with the winner."""
    (best, *others), belief, sign = found.ranking, found.belief, found.sign
    beliefs, number = [(belief, best)], found.numbers[best]
    if found.confirmed is not None and number in found.confirmed.numbers:
        beliefs.append((found.confirmed.belief, found.confirmed.numbers.index(number)))
    expected, bounds = averaged(beliefs, level, fresh)
    mean, *around = (min(max(sign * value, ends[0]), ends[1]) for value in (expected, *bounds))
    tied = [best, *(i for i in others if belief.better(i, best) > RISK)]
    known = None if paper is None else found.place.get(paper)
    paid = 1 - (1 - level) / min(len(tied), LOOKS)
    whole = None if known in found.stopped else known
    gain, low, high = (None, None, None) if whole is None else belief.apart(best, whole, paid)
    return Estimate(
        trial=found.numbers[best],
        mean=mean,
        low=min(around),
        high=max(around),
        level=level,
        seeds=found.seeds[best],
        all_seeds=found.all_seeds,
        noise=math.sqrt(belief.own + belief.shared + belief.last_round),
        paired_noise=math.sqrt(belief.own + belief.last_round),
        spread=float(np.std(belief.mean[found.able])),
        tied=tuple(found.numbers[i] for i in tied),
        configurations=len(found.able),
        settled_by=_settled_by(belief, best, others),
        paper=None if known is None else found.numbers[known],
        gain=gain,
        gain_low=low,
        gain_high=high,
        gain_level=paid,
        unstable=found.unstable,
    )


def ahead(trials: Sequence[FrozenTrial], found: Standing | None, sign: float, rounds: int) -> int | None:
    """The trial that has not ended and leads all the same: its configuration has the best estimate, or, before there is
    a `found` standing, it has the best last value, among those that ran to their end and those with `UNFINISHED` of all
    `rounds`, if these are two or more. None where one leads that ran to its end."""
    if found is not None:
        best = found.ranking[0]
        return found.numbers[best] if best in found.unfinished else None
    last, going = {}, {trial.number for trial in trials if _goes_on(trial)}
    for trial in trials:
        if not (curve := trial.intermediate_values):
            continue
        far = trial.state.name == "COMPLETE" or trial.number in going and max(curve) >= UNFINISHED * rounds
        if far and math.isfinite(value := curve[max(curve)]) and not is_unreached(value):
            last[trial.number] = sign * value
    if len(last) < 2:
        return None
    leader = max(last, key=lambda number: (last[number], -number))
    return leader if leader in going else None


def _settled_by(belief: Posterior, best: int, others: Sequence[int]) -> int | None:
    """Seeds of each at which a paired comparison of last values tells the winner from the next one with probability
    0.8, at a one-sided risk of `RISK`, if their difference is what is estimated."""
    if not others:
        return None
    noise = belief.own + belief.last_round
    apart = float(belief.mean[best] - belief.mean[others[0]])
    if apart <= 0 or noise <= 0:
        return None
    normal = NormalDist()
    return max(2, math.ceil(2 * noise * (normal.inv_cdf(1 - RISK) + normal.inv_cdf(0.8)) ** 2 / apart**2))


def _measured(trials: Sequence[FrozenTrial], sign: float, by_seed: BySeed) -> list[Measured]:
    """Every federation once, without the configurations that failed on a seed or did not reach their target there."""
    found: dict[tuple[object, tuple[int, ...]], Measured] = {}
    failed = {configuration(trial) for trial in trials if trial.state.name == "FAIL" or missed_target(trial)}
    for trial in trials:
        key = configuration(trial)
        if trial.state.name not in ("COMPLETE", "PRUNED", "RUNNING") or key in failed:
            continue
        complete = trial.state.name == "COMPLETE"
        for seeds, value, curve in _curves(trial, by_seed.get(trial.number, {})):
            before = found.get((key, seeds))
            if (
                math.isfinite(value)
                and not is_unreached(value)
                and (before is None or (complete, len(curve)) > (before.complete, len(before.curve)))
            ):
                signed = {round_: sign * at for round_, at in curve.items()}
                found[key, seeds] = Measured(key, seeds, sign * value, trial, complete, signed)
    return list(found.values())


def _curves(
    trial: FrozenTrial, measured: Mapping[int, Mapping[int, float]]
) -> list[tuple[tuple[int, ...], float, Mapping[int, float]]]:
    """A trial's last values and curves, with the seeds that are in them: of one that was stopped early, one for all of
    them. measured: the curves by seed, of a trial over several."""
    mean = trial.intermediate_values
    if trial.state.name == "COMPLETE" and measured:
        return [((seed,), curve[max(curve)], curve) for seed, curve in measured.items()]
    if trial.state.name == "COMPLETE":
        return [((_seed(trial),), float(trial.values[0]), mean)]
    return [(tuple(measured) or (_seed(trial),), mean[max(mean)], mean)] if mean else []


def _shares(found: Sequence[Measured]) -> Floats:
    """(n, s): what each seed has in each value."""
    seeds = {seed: place for place, seed in enumerate(sorted({seed for m in found for seed in m.seeds}))}
    shares = np.zeros((len(found), len(seeds)))
    for row, m in zip(shares, found, strict=True):
        row[[seeds[seed] for seed in m.seeds]] = 1 / len(m.seeds)
    return shares


def configuration(trial: FrozenTrial) -> tuple[object, ...]:
    """What trials of the same configuration have in common: their parameters in one order, each after its name."""
    return tuple(itertools.chain.from_iterable(sorted(trial.params.items())))


def _goes_on(trial: FrozenTrial) -> bool:
    return trial.state.name == "RUNNING"


def missed_target(trial: FrozenTrial) -> bool:
    """Whether a trial ran to its end and did not reach the target that is its objective, on one seed or more."""
    return trial.state.name == "COMPLETE" and any(map(is_unreached, trial.values or ()))


def _seed(trial: FrozenTrial) -> int:
    """The seed of a trial of one federation; trials without one share theirs."""
    return int(trial.user_attrs.get("seed", -1))
