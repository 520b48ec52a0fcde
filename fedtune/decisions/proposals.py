"""Which trial comes next, and when it is stopped: functions of what has happened so far, without Ray and without files.

    propose(history) -> Next | WAIT | DONE
    stop_rule(history, part, number) -> Rule

A search proposes what its sampler does (`configuration`). Where it has several conditions, every configuration is run
under each of them (`conditions.py`): trials are stopped by what trials under the same condition did, and samplers see
each configuration once. A race (`race.py`) may give a known configuration a further seed in place of a new one, and the
last trials of a search give further seeds to those that may be the best (`confirmation.py`). Of several methods that
share a budget `method_allocation.py` says which one the next trial belongs to. Of runs that only stand beside one
another, the cells of a table, the one of which fewest trials have begun is next.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.estimate import configuration as configuration_of
from fedtune.decisions import (
    confirmation,
    early_stopping,
    expected_improvement,
    method_allocation,
    own_sampler,
    prices,
    race,
)
from fedtune.decisions.conditions import merged, without
from fedtune.decisions.early_stopping import Later, LearningCurve, Never, Rule
from fedtune.decisions.history import DONE, WAIT, Answer, History, Next, Part
from fedtune.decisions.known_points import Point
from fedtune.decisions.method_allocation import Allocation, ByClock, taught
from fedtune.decisions.optuna_samplers import EI, ask, make_sampler, seen_by_sampler
from fedtune.decisions.sampling import generator
from fedtune.record.experiment import BLIND_SAMPLERS, further_seed
from fedtune.record.journal import curve
from search_spaces import run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def propose(history: History) -> Next | Answer:
    """The trial to begin now; `WAIT` while that depends on one that runs, `DONE` where every trial has been begun."""
    if history.allocation is not None:
        return _of_a_method(history)
    answers: list[Next | Answer] = []
    for place in sorted(range(len(history.parts)), key=lambda place: (len(history.trials[place]), place)):
        single = history.parts[place].experiment.single
        answers.append(_federation(history, place) if single else _configuration(history, place))
        if isinstance(answers[-1], Next):
            return answers[-1]
    return DONE if all(answer is DONE for answer in answers) else WAIT


def _configuration(history: History, place: int) -> Next | Answer:
    """The next trial of a search that gives every configuration all of its seeds, or of a final run, of which every
    trial is one seed."""
    part, begun = history.parts[place], history.of(place)
    e, number = part.experiment, len(begun)
    if number >= e.trials:
        return DONE
    seen = history.seen(place, number)
    if seen is None:
        return WAIT
    first = part.crossed.first(number)
    if first < number:  # under a further condition the configuration is that of the first one
        proposed, origin = begun[first], str(begun[first].user_attrs.get("from", ""))
    else:
        point = part.points.of(part.crossed.place(number))
        proposed, origin = configuration(part, begun, _trials(seen), point)
    return _next(history, place, proposed, origin, {"seed": e.seeds[number]} if e.kind == "run" else {})


def _federation(history: History, place: int) -> Next | Answer:
    """The next trial where each is a single federation: of a new configuration, or a further seed of one that is
    known, which a race or the confirmation gives."""
    part, begun = history.parts[place], history.of(place)
    e, number = part.experiment, len(begun)
    if not race.has_budget(begun, e):
        return DONE if history.ended or not e.races else WAIT  # rounds that running trials are spared can be spent
    if history.late and e.confirm or not confirmation.explores(begun, e):
        if not all(trial.state.is_finished() for trial in confirmation.before(begun)):
            return WAIT
        confirmed = confirmation.next_confirmed(begun, e.signs[0])
        if confirmed is not None:
            return _one_seed(history, place, begun[confirmed], "", {run_folder.CONFIRMS: True})
    seen = history.seen(place, number)
    if seen is None:
        return WAIT
    known = _trials(seen)
    running = _others(begun, known)
    new = number - sum(race.is_further(trial) for trial in begun[e.taken :])
    more, again = part.points.more(new), None
    if e.races and number >= e.taken:
        again = race.repeated(known, running, sign=e.signs[0], rounds=e.rounds, most=len(e.seeds), new=more)
    if again is not None:
        return _one_seed(history, place, begun[again], "", {})
    return _one_seed(history, place, *configuration(part, begun, known, part.points.of(new)), {}) if more else DONE


def _one_seed(
    history: History, place: int, proposed: FrozenTrial, origin: str, attributes: Mapping[str, Any]
) -> Next | Answer:
    """The trial of a configuration on its next seed: on the same one it would only give the same value again, whoever
    proposed it."""
    begun, key = history.of(place), configuration_of(proposed)
    same = [trial.number for trial in begun if configuration_of(trial) == key]
    own: dict[str, Any] = {"seed": further_seed(history.parts[place].experiment.seeds, len(same))}
    own |= {run_folder.OF: same[0]} if same else {}
    return _next(history, place, proposed, origin, {**own, **attributes})


def _of_a_method(history: History) -> Next | Answer:
    """The next trial of the method that the allocation names. It is begun only where the cost of all trials before it
    leaves room in the budget for a whole one; a trial that still runs counts with all its rounds there. Of a budget by
    the clock it is begun where it ends in time; the first one of all is begun in any case."""
    allocation, number = history.allocation, len(history.order)
    assert allocation is not None
    seen = history.seen(0, len(history.trials[0]))
    if seen is None:
        return WAIT
    names = [part.experiment.method for part in history.parts]
    places = [int(trial.user_attrs[run_folder.PLACE]) for _, trial in seen]
    merged_trials = [
        method_allocation.merged(names, part, place, trial) for place, (part, trial) in zip(places, seen, strict=True)
    ]
    later = [part for place, (part, _) in enumerate(history.order) if place not in set(places)]
    for place in method_allocation.order(allocation, merged_trials, later):
        if allocation.clock is not None:
            found = _trial_of(history, place, seen, number)
            if number == 0 or _fits(history, allocation, allocation.clock, found):
                return found
            continue
        if _spent(history, allocation) + allocation.whole(place) <= allocation.budget * (1 + 1e-9):
            return _trial_of(history, place, seen, number)
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
    now = method_allocation.elapsed(ended, clock.begun)
    return now + price <= clock.end_of_search(bests, starts.cold)


def _price_of_best(history: History, allocation: Allocation, place: int) -> float:
    """What the rounds of the trial took that is a method's best so far; before there is one, what those of its paper's
    values are to take."""
    whole = [trial for trial in history.of(place) if trial.state.name == "COMPLETE"]
    best = max(whole, key=lambda trial: allocation.sign * trial.values[0], default=None)
    return allocation.whole(place) if best is None else float(best.user_attrs.get("seconds", 0.0))


def _spent(history: History, allocation: Allocation) -> float:
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
    proposed, origin = configuration(part, begun, known, point)
    return _next(history, place, proposed, origin, {run_folder.PLACE: number})


def _next(history: History, place: int, proposed: FrozenTrial, origin: str, attributes: Mapping[str, Any]) -> Next:
    """The trial with the condition that it is run under, and with what is recorded of it."""
    from optuna.trial import TrialState, create_trial

    part, number = history.parts[place], len(history.trials[place])
    cell = part.points.of(number) if part.experiment.sampler == "grid" and part.crossed.several else None
    condition = part.crossed.condition(number) if cell is None else part.space.condition_of(cell.values)
    varied = {key: part.space.vary[key].distribution() for key in condition}
    attributes = dict(attributes) | ({"from": origin} if origin else {})
    if part.experiment.order == run_folder.ARRIVAL and (beside := history.unseen(place, number)):
        attributes[run_folder.BESIDE] = beside
    trial = create_trial(
        state=TrialState.RUNNING,
        params=proposed.params | condition,
        distributions=proposed.distributions | varied,
        system_attrs={key: value for key, value in proposed.system_attrs.items() if key != "fixed_params"},
        user_attrs=attributes,
    )
    return Next(place, trial)


# -- what a configuration is -------------------------------------------------------------------------------------------


def configuration(
    part: Part, begun: Sequence[FrozenTrial], known: Sequence[FrozenTrial], point: Point | None
) -> tuple[FrozenTrial, str]:
    """What the next trial of a run is to be, after those that have `begun` of which it may look at the `known` ones,
    and where its values come from (empty: the sampler). point: its values, where they are known."""
    e, number = part.experiment, len(begun)
    if point is not None:
        # What a sampler proposes is thrown away, so a cheap one is asked, and shown nothing. Only NSGA-II is to note to
        # which generation the trial belongs.
        name, seen = (e.sampler, shown(part, known)) if e.sampler == "nsga2" else ("random", [])
        return ask(make_sampler(name, e.seed, number), e.metric, seen, part.space, point.values), point.origin
    conditions = part.space.vary.keys()
    if e.sampler == EI:
        had = [without(trial, conditions).params for trial in begun]
        seen = _configurations(part, known)
        running = [without(trial, conditions) for trial in _others(begun, known)]
        return expected_improvement.proposed(part.space, seen, had, e.signs[0], e.seed, number, running), ""
    if part.sampler is not None:
        rng = generator(e.seed, number, "own sampler")
        seen = _configurations(part, known)
        return own_sampler.proposed(part.sampler, e.sampler, part.space, seen, e.signs, rng), ""
    sampler = make_sampler(e.sampler, e.seed, number, begun[: e.taken])
    # Of thousands of trials a copy takes longer than all else; one that does not look at them is shown none.
    seen = [] if e.sampler in BLIND_SAMPLERS else shown(part, known)
    return ask(sampler, e.metric, seen, part.space, None), ""


def _configurations(part: Part, known: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The finished trials; of one that ran under several conditions each configuration once, without these."""
    seen = shown(part, known) if part.crossed.several else known
    return [without(trial, part.space.vary.keys()) for trial in seen]


def shown(part: Part, known: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The finished trials as the run's sampler is to see them."""
    e = part.experiment
    if part.crossed.several:
        return list(merged(known, part.crossed, e, part.space.vary.keys()))
    seen = race.over_seeds(known) if e.single else known
    shown = seen_by_sampler(seen, e.signs, completes_only=e.sampler in ("gp", "nsga2"))
    return [trial for trial in shown if trial is not None]


def _others(begun: Sequence[FrozenTrial], known: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials of a run that have begun and are not among the known ones."""
    numbers = {trial.number for trial in known}
    return [trial for trial in begun if trial.number not in numbers]


def _trials(seen: Sequence[tuple[int, FrozenTrial]]) -> list[FrozenTrial]:
    return [trial for _, trial in seen]


# -- when a trial is stopped -------------------------------------------------------------------------------------------


def stop_rule(history: History, place: int, number: int) -> Rule:
    """The rule by which trial `number` of a run is stopped; what it may look at has ended."""
    part, trial = history.parts[place], history.trials[place][number]
    if race.is_further(trial):
        return Never()  # a configuration is known by now
    seen = history.seen(place, number) or []
    e, allocation = part.experiment, history.allocation
    if allocation is not None and number > 0:
        curves = [(other, learning_curve(history.parts[other], one)) for other, one in seen]
        return method_allocation.rule(allocation, place, curves, e.grace, e.reduction_factor)
    # A method is judged by its paper's values, so these always run to their end.
    known = [] if allocation is not None else _trials(seen)
    here = part.space.condition_of(trial.params)
    alike = [one for one in known if not race.is_further(one) and part.space.condition_of(one.params) == here]
    found: Rule = Never()
    if e.scheduler != "none":
        curves_alike = [learning_curve(part, one) for one in alike]
        found = early_stopping.rule(
            e.scheduler, curves_alike, rounds=e.rounds, grace=e.grace, reduction=e.reduction_factor
        )
    before = trial.user_attrs.get(run_folder.WENT_ON)
    return Later(before, found) if isinstance(before, int) else found


def learning_curve(part: Part, trial: FrozenTrial) -> LearningCurve:
    """What stop rules read of a trial that has ended, turned so that larger is better."""
    signs = part.experiment.signs
    measured = {r: tuple(s * v for s, v in zip(signs, values, strict=True)) for r, values in curve(trial).items()}
    return LearningCurve(int(trial.user_attrs.get("rounds", 0)), measured)
