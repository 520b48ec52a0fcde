"""Which trial comes next, and when it is stopped: functions of what has happened so far, without Ray and without files.

    propose(history) -> Next | WAIT | DONE
    stop_rule(history, part, number) -> Rule

A search proposes what its sampler does (`next_trial.py`). Where it has several conditions, every configuration is run
under each of them (`conditions.py`): trials are stopped by what trials under the same condition did, and samplers see
each configuration once. A race (`race.py`) may give a known configuration a further seed in place of a new one, and the
last trials of a search give further seeds to those that may be the best (`confirmation.py`). Its first trials end
early, and the best of these runs to its end (`initial_design.py`). Of several methods that share a budget
`method_allocation.py` proposes the next trial. Of runs that only stand beside one another, the cells of a table, the
one of which fewest trials have begun is next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fedtune.decisions import confirmation, initial_design, method_allocation, race
from fedtune.decisions.early_stopping import Later, Never, Rule
from fedtune.decisions.history import DONE, WAIT, Answer, History, Next
from fedtune.decisions.next_trial import next_trial, proposed_configuration
from fedtune.record.experiment import further_seed
from search_spaces import run_folder

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


def propose(history: History) -> Next | Answer:
    """The trial to begin now; `WAIT` while that depends on one that runs, `DONE` where every trial has been begun."""
    if history.allocation is not None:
        return method_allocation.propose(history, history.allocation)
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
    if (seen := history.seen(place, number)) is None:
        return WAIT
    further = history.kept.tally(place, history.first(place, number), race.FurtherSeeds, history.trials[place])
    if (again := initial_design.going_on(begun, seen, e, further.repeated)) is not None:
        return next_trial(history, place, begun[again], {run_folder.OF: again})
    first = part.crossed.first(number)
    origin: Mapping[str, Any]
    if first < number:  # under a further condition the configuration is that of the first one
        trial, origin = begun[first], {key: value for key, value in begun[first].user_attrs.items() if key == "from"}
    else:
        point = part.points.of(part.crossed.place(number - further.count))
        trial, origin = proposed_configuration(history, place, seen, point)
    own = {"seed": e.seeds[number]} if e.kind == "run" else {}
    return next_trial(history, place, trial, {**own, **origin})


def _federation(history: History, place: int) -> Next | Answer:
    """The next trial where each is a single federation: of a new configuration, or a further seed of one that is
    known, which a race or the confirmation gives."""
    part, begun = history.parts[place], history.of(place)
    e, number = part.experiment, len(begun)
    if not race.has_budget(begun, e):
        return DONE if history.ended or not e.races else WAIT  # rounds that running trials are spared can be spent
    everything = history.first(place, number)
    further = history.kept.tally(place, everything, race.FurtherSeeds, history.trials[place], e.taken)
    if history.late and e.confirm or not confirmation.explores(begun, e, further.confirming):
        before = history.first(place, len(confirmation.before(begun)))
        if any(other in before for other in history.running(place)):
            return WAIT
        if rivals := history.kept.tally(place, before, confirmation.Rivals, e.signs[0]).numbers:
            confirmed = begun[rivals[(number - before.end) % len(rivals)]]
            return _one_seed(history, place, confirmed, {run_folder.CONFIRMS: True})
    if (seen := history.seen(place, number)) is None:
        return WAIT
    if (again := initial_design.going_on(begun, seen, e, further.repeated)) is not None:
        return next_trial(history, place, begun[again], {run_folder.OF: again, "seed": begun[again].user_attrs["seed"]})
    new = number - further.count
    more, again = part.points.more(new), None
    if e.races and number >= e.taken:
        known, running = seen.trials(), seen.rest(number)
        again = race.repeated(known, running, sign=e.signs[0], rounds=e.rounds, most=len(e.seeds), new=more)
    if again is not None:
        return _one_seed(history, place, begun[again], {})
    if not more:
        return DONE
    return _one_seed(history, place, *proposed_configuration(history, place, seen, part.points.of(new)))


def _one_seed(history: History, place: int, trial: FrozenTrial, attributes: Mapping[str, Any]) -> Next:
    """The trial of a configuration on its next seed: on the same one it would only give the same value again, whoever
    proposed it."""
    first, seeds = history.kept.tally(place, history.first(place, len(history.trials[place])), race.Seeds).of(trial)
    own: dict[str, Any] = {"seed": further_seed(history.parts[place].experiment.seeds, len(seeds))}
    own |= {} if first is None else {run_folder.OF: first}
    return next_trial(history, place, trial, {**own, **attributes})


# -- when a trial is stopped -------------------------------------------------------------------------------------------


def stop_rule(history: History, place: int, number: int) -> Rule:
    """The rule by which trial `number` of a run is stopped; what it may look at has ended."""
    part, trial = history.parts[place], history.trials[place][number]
    if race.is_further(trial):
        return Never()  # a configuration is known by now
    e, allocation = part.experiment, history.allocation
    if number < e.initial:
        return initial_design.First(initial_design.last_round(e.grace))
    seen = history.seen(place, number) or history.first(place, 0)
    if allocation is not None and number > 0:
        curves = [(other, history.curve(other, one)) for other, one in history.by_run(seen)]
        return method_allocation.rule(allocation, place, curves, e.grace, e.reduction_factor)
    # A method is judged by its paper's values, so these always run to their end.
    known = seen if allocation is None else history.first(place, 0)
    given = history.trials[place], part.space.vary.keys(), e.signs, e.scheduler, e.rounds, e.grace, e.reduction_factor
    found = history.kept.tally(place, known, initial_design.FirstSeeds, *given).rule(trial)
    before = trial.user_attrs.get(run_folder.WENT_ON)
    return Later(before, found) if isinstance(before, int) else found
