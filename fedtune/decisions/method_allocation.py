"""Which method the next trial of `fedtune auto` goes to, and when trials of different methods are compared.

A method's first trial is its paper's values. Every method keeps a minimum of trials: as long as some have fewer, the
one with the fewest is next, in the order in which they are listed. After that every second trial goes to the method on
which least was spent, so that a method which had bad luck at first is not given up, and every other one to the method
from which it promises the largest gain per cost,

    E[max(N(μ_m, v_m) - μ*, 0)] / c_m

by how much a configuration like the method's last `race.WINDOW` ones is expected to beat the best configuration of
all methods. μ* is the best mean, μ_m and v_m are mean and variance of those configurations under the model of
`analysis.estimate` over all methods' trials, the variance beside the mean of all that ran to their end, and c_m is what
a trial of the method costs, which early stopping makes small. With `equal` every trial goes to the method on which
least was spent.

A budget in time is counted by the clock (`ByClock`). What a round of a method costs is then what its last trials took,
and before there are any what was timed. A trial is begun where its price (`fedtune.decisions.prices`) leaves enough for
what comes after the search: for the first fresh seeds of every method's best configuration and for the leader's final
run, at least what was planned for them.

Rungs lie at equal cost. The cheapest method's rungs, at the rounds g, g·η, g·η², … (`early_stopping.rungs`), give the
costs; of another method the rung is the first round that reaches such a cost, where that is not before round g nor
after two thirds of its rounds. A trial that ended with all its rounds for less counts with its last value.

What one method's best configuration teaches another: a trial with its values of the parameters that both search.

A learning rate or a number of local steps that is good for one method is often good for another. So while a better
configuration is known of another method, a trial of this one has its own best configuration (its paper's values, as
long as it has no other), in which every parameter that the better one has as well takes the value from there, as far as
this method's space holds it. Where the method has had that configuration already, its sampler proposes the trial.

Every method is taught by this rule, so it favours none. It costs nothing and looks at no more than a sampler does:
trials that the next one may see.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.estimate import standing
from fedtune.decisions import prices
from fedtune.decisions.early_stopping import Halving, LearningCurve, Rule, Vector
from fedtune.decisions.history import DONE, WAIT, Answer, History, Next
from fedtune.decisions.known_points import Point
from fedtune.decisions.next_trial import configuration, next_trial
from fedtune.decisions.race import WINDOW, of_a_new_one
from fedtune.decisions.shared_budget import Allocation, ByClock, elapsed
from search_spaces import run_folder
from search_spaces.metrics import is_unreached
from search_spaces.parameter import Value

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from search_spaces.space import Space

#: Costs are sums of measured numbers: so much of a round is rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class MethodTrial:
    """A trial that has ended: the place of its method, and itself under names and a number that no other one has."""

    method: int
    trial: FrozenTrial

    @property
    def rounds(self) -> int:
        return int(self.trial.user_attrs.get("rounds", 0))


def propose(history: History, allocation: Allocation) -> Next | Answer:
    """The next trial of the method that comes next. It is begun only where the cost of all trials before it
    leaves room in the budget for a whole one; a trial that still runs counts with all its rounds there. Of a budget by
    the clock it is begun where it ends in time; the first one of all is begun in any case."""
    number = len(history.order)
    seen = history.seen(0, len(history.trials[0]))
    if seen is None:
        return WAIT
    names = [part.experiment.method for part in history.parts]
    known = history.by_run(seen)
    together = [pooled(names, part, place, trial) for place, (part, trial) in zip(seen, known, strict=True)]
    later = [part for place, (part, _) in enumerate(history.order) if place not in seen]
    for place in order(allocation, together, later):
        if allocation.clock is not None:
            found = _trial_of(history, place, known, number)
            if number == 0 or _fits(history, allocation, allocation.clock, found):
                return found
            continue
        if _spent_of_budget(history, allocation) + allocation.whole(place) <= allocation.budget * (1 + 1e-9):
            return _trial_of(history, place, known, number)
        if not history.ended:
            return WAIT  # what these leave may yet be enough for this one
    return DONE


def _fits(history: History, allocation: Allocation, clock: ByClock, found: Next) -> bool:
    """Whether a trial that begins now ends while the search may last, by what the trials of its method took. What comes
    after the search is priced by every method's best trial."""
    ended = [trial for place in range(len(history.parts)) for trial in history.of(place)]
    part, trials, starts = history.parts[found.part], history.of(found.part), prices.starts(ended)
    first = part.points.of(0)
    timed = {} if first is None else part.space.params(first.values), allocation.costs[found.part]
    known = prices.learnt(part.space, trials, timed, starts.warm)
    price = allocation.whole(found.part) if known is None else known.of_a_trial(found.trial.params, allocation.rounds)
    bests = [_price_of_best(history, allocation, place) + starts.warm for place in range(len(history.parts))]
    now = elapsed(ended, clock.begun)
    return now + price <= clock.end_of_search(bests, starts.cold)


def _price_of_best(history: History, allocation: Allocation, place: int) -> float:
    """What the rounds of the trial took that is a method's best so far; before there is one, what those of its paper's
    values are to take."""
    whole = [trial for trial in history.of(place) if trial.state.name == "COMPLETE"]
    best = max(whole, key=lambda trial: allocation.sign * trial.values[0], default=None)
    return allocation.whole(place) if best is None else float(best.user_attrs.get("seconds", 0.0))


def _spent_of_budget(history: History, allocation: Allocation) -> float:
    """What the trials so far took of the budget; one that still runs counts with all its rounds."""
    total = 0.0
    for number, (place, _) in enumerate(history.order):
        trial = history.trial(number)
        rounds = int(trial.user_attrs["rounds"]) if trial.state.is_finished() else allocation.rounds
        total += allocation.prices[place] * rounds
    return total


def _trial_of(history: History, place: int, seen: Sequence[tuple[int, FrozenTrial]], number: int) -> Next:
    """The next trial of a method: what another method's best configuration teaches, else what its sampler proposes,
    which is shown that method's trials only."""
    part, begun = history.parts[place], history.of(place)
    known = [trial for other, trial in seen if other == place]
    point = part.points.of(len(begun))
    if point is None:
        of_all = [(history.parts[other].space, trial) for other, trial in seen]
        point = taught(part.space, begun, known, of_all, part.experiment.signs[0])
    proposed, attributes = configuration(part, begun, known, point)
    return next_trial(history, place, proposed, {run_folder.PLACE: number, **attributes})


def pooled(names: Sequence[str], method: int, number: int, trial: FrozenTrial) -> MethodTrial:
    """`trial` of the method at that place of `names` as one point of the space of all methods, in which the method is a
    choice and its parameters belong to that option."""
    from optuna.distributions import CategoricalDistribution
    from optuna.trial import FrozenTrial

    name = names[method]
    own = {f"{name}.{key}": distribution for key, distribution in trial.distributions.items()}
    return MethodTrial(
        method,
        FrozenTrial(
            number=number,
            trial_id=number,
            state=trial.state,
            value=None,
            values=trial.values,
            datetime_start=None,
            datetime_complete=None,
            params={"method": name, **{f"{name}.{key}": value for key, value in trial.params.items()}},
            distributions={"method": CategoricalDistribution(list(names)), **own},
            user_attrs=trial.user_attrs,
            system_attrs={},
            intermediate_values=trial.intermediate_values,
        ),
    )


def order(allocation: Allocation, known: Sequence[MethodTrial], later: Sequence[int]) -> list[int]:
    """The methods' places, the one that the next trial should go to first.

    known: trials that have ended, in order; later: the methods of those after them."""
    begun = Counter([*(seen.method for seen in known), *later])
    places = range(len(allocation.costs))
    spent = [_spent(allocation, known, later, place) for place in places]
    lacking = any(begun[place] < allocation.least for place in places)
    if allocation.equal or not lacking and sum(begun.values()) % 2:
        return sorted(places, key=lambda place: (spent[place], place))
    promised = _promised(allocation, known)
    return sorted(
        places,
        key=lambda place: (
            (0, begun[place], 0.0, place)
            if begun[place] < allocation.least
            else (1, 0, -promised[place], spent[place], place)
        ),
    )


def _spent(allocation: Allocation, known: Sequence[MethodTrial], later: Sequence[int], place: int) -> float:
    """What was spent on a method; a trial that may still run counts with all its rounds, so that the answer does not
    depend on when it ends."""
    own = [seen for seen in known if seen.method == place]
    to_come = allocation.rounds * sum(one == place for one in later)
    if allocation.clock is None:
        return allocation.costs[place] * (sum(seen.rounds for seen in own) + to_come)
    return sum(_seconds(seen) for seen in own) + to_come * _pace(allocation, own, place)


def _pace(allocation: Allocation, own: Sequence[MethodTrial], place: int) -> float:
    """What a round of the method at `place` costs, whose trials that have ended are its `own`."""
    last = own[-WINDOW:] if allocation.clock is not None else []
    seconds, rounds = sum(map(_seconds, last)), sum(seen.rounds for seen in last)
    return seconds / rounds if seconds > 0 and rounds else allocation.costs[place]


def _seconds(seen: MethodTrial) -> float:
    """What the rounds of a trial took."""
    return float(seen.trial.user_attrs.get("seconds", 0.0))


def _promised(allocation: Allocation, known: Sequence[MethodTrial]) -> list[float]:
    """By method, what a new trial of it promises per cost; nothing while there is no estimate. Variances are those
    beside the mean of all that ran to their end: what a seed does to all alike promises nothing."""
    found = standing([seen.trial for seen in known], allocation.sign)
    if found is None:
        return [0.0] * len(allocation.costs)
    gains = []
    for place in range(len(allocation.costs)):
        own = [seen for seen in known if seen.method == place]
        promised = of_a_new_one(found, [seen.trial for seen in own], allocation.rounds) if own else 0.0
        gains.append(promised / _pace(allocation, own, place))
    return gains


def rule(
    allocation: Allocation, place: int, known: Sequence[tuple[int, LearningCurve]], grace: int, reduction: int
) -> Rule:
    """The stop rule of a trial of the method at `place`, by the histories of known trials of all methods."""
    own = allocation.costs[place]
    others: dict[int, list[Vector]] = {}
    for level in levels(allocation, grace, reduction):
        rung = reaches(level, own)
        if rung < grace or 3 * rung > 2 * allocation.rounds:
            continue
        ends = [(history, reaches(level, allocation.costs[method])) for method, history in known]
        values = [history.at(min(end, allocation.rounds)) for history, end in ends]
        others[rung] = [value for value in values if value is not None]
    return Halving.of(reduction, others)


def levels(allocation: Allocation, grace: int, reduction: int) -> list[float]:
    """The costs at which trials are compared, up to two thirds of the dearest method's trial."""
    found, level = [], grace * min(allocation.costs)
    while 3 * level <= 2 * allocation.rounds * max(allocation.costs):
        found.append(level)
        level *= reduction
    return found


def reaches(level: float, cost: float) -> int:
    """The first round that reaches a cost, of a method whose round costs `cost`."""
    return max(1, math.ceil(level / cost - _ROUNDING))


def taught(
    space: Space,
    had: Sequence[FrozenTrial],
    known: Sequence[FrozenTrial],
    seen: Sequence[tuple[Space, FrozenTrial]],
    sign: float,
) -> Point | None:
    """The next trial of the method with this space; None where there is nothing to be taught.

    had: the method's trials, those that run included. known: those of them that the next one may look at; seen: all
    that it may look at, of every method. sign: 1 where more is better, -1 where less is."""
    good = [(of, trial) for of, trial in seen if _whole(trial) and not is_unreached(trial.values[0])]
    best = max(good, key=lambda item: sign * item[1].values[0], default=None)
    own = max((t for t in known if _whole(t)), key=lambda t: sign * t.values[0], default=None)
    if best is None or own is None or sign * own.values[0] >= sign * best[1].values[0]:
        return None
    values = _mixed(space, space.values(own.params), best[0].values(best[1].params))
    if any(space.values(trial.params) == values for trial in had):
        return None
    return Point(values, f"the best configuration of {best[0].method}")


def _whole(trial: FrozenTrial) -> bool:
    """Whether a trial ran to its end."""
    return trial.state.name == "COMPLETE"


def _mixed(space: Space, own: Mapping[str, Value], given: Mapping[str, Value]) -> dict[str, Value]:
    """`own` with what is `given`, one parameter after the other, where the result is still a point of the space."""
    values = dict(own)
    for key in own:
        changed = values | {key: given.get(key, own[key])}
        values = changed if space.searches(changed) else values
    return values
