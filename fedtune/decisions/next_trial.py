"""What the next trial of a run is, once it is decided of which one: its values, from a known point or from the run's
sampler, the condition that it is run under, and what is recorded of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedtune.decisions import expected_improvement, initial_design, own_sampler, race
from fedtune.decisions.conditions import merged, without
from fedtune.decisions.expected_improvement import Ahead, Told, Tried
from fedtune.decisions.history import History, Next, Part
from fedtune.decisions.known_points import Point
from fedtune.decisions.optuna_samplers import ASK_WHAT_RUNS, EI, ask, make_sampler, seen_by_sampler
from fedtune.decisions.sampling import generator
from fedtune.decisions.seen import Seen
from fedtune.record.experiment import BLIND_SAMPLERS
from search_spaces import run_folder
from search_spaces.metrics import is_unreached

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from fedtune.decisions.early_stopping import Curve
    from fedtune.record.experiment import Experiment


def next_trial(history: History, place: int, proposed: FrozenTrial, attributes: Mapping[str, Any]) -> Next:
    """The trial with the condition that it is run under, and with what is recorded of it."""
    from optuna.trial import TrialState, create_trial

    part, number = history.parts[place], len(history.trials[place])
    cell = part.points.of(number) if part.experiment.sampler == "grid" and part.crossed.several else None
    condition = part.crossed.condition(number) if cell is None else part.space.condition_of(cell.values)
    varied = {key: part.space.vary[key].distribution() for key in condition}
    attributes = dict(attributes)
    if part.experiment.order == run_folder.ARRIVAL and run_folder.BESIDE not in attributes:
        attributes |= {run_folder.BESIDE: beside} if (beside := history.unseen(place, number)) else {}
    trial = create_trial(
        state=TrialState.RUNNING,
        params=proposed.params | condition,
        distributions=proposed.distributions | varied,
        system_attrs={key: value for key, value in proposed.system_attrs.items() if key != "fixed_params"},
        user_attrs=attributes,
    )
    return Next(place, trial)


def proposed_configuration(
    history: History, place: int, seen: Seen, point: Point | None
) -> tuple[FrozenTrial, Mapping[str, Any]]:
    """As `configuration`, in a run that shares its budget with no other. There the sampler may be `ei`, which is told
    what was kept of trials and may propose ahead."""
    part = history.parts[place]
    if point is not None or part.experiment.sampler != EI:
        return configuration(part, history.of(place), seen.trials(), point)
    if _is_ahead(part):
        return _ahead(history, place, seen)
    return _by_kept(history, place, seen, 1)[0], {}


def _ahead(history: History, place: int, seen: Seen) -> tuple[FrozenTrial, Mapping[str, Any]]:
    """The configuration of the next trial of a run by the sampler `ei`, and what is recorded of it. Where many trials
    run it was proposed together with others (`expected_improvement`), of which the rest waits in the history."""
    part, number = history.parts[place], len(history.trials[place])
    found = history.ahead[place].of(number) if place in history.ahead else None
    if found is None:
        running = seen.rest(number)
        measured = under_way(running, part.experiment, history.reported.get(place, {}))
        rounds = dict.fromkeys([one.number for one in running], 0)
        rounds |= {one.number: max(one.intermediate_values) for one in measured}
        together = _by_kept(history, place, seen, part.experiment.trials - number, measured)
        history.ahead[place] = Ahead(number, rounds, together)
        found = together[0], rounds
    trial, beside = found
    recorded = {run_folder.BESIDE: [*beside], run_folder.BESIDE_ROUNDS: [*beside.values()]}
    return trial, recorded if beside else {}


def under_way(
    running: Sequence[FrozenTrial], experiment: Experiment, reported: Mapping[int, Curve]
) -> list[FrozenTrial]:
    """Of the trials that run what `ei` is told: those with as many rounds as a trial of an initial design has, as if
    they had been stopped after the last one. One that has yet to reach its target, or diverges, says nothing before its
    end. reported: by number the values by round."""
    from optuna.trial import TrialState, create_trial

    found, least = [], max(1, initial_design.last_round(experiment.grace))
    for trial in running:
        curve = {round_: values[0] for round_, values in reported.get(trial.number, {}).items()}
        last = max(curve, default=0)
        if last >= least and math.isfinite(curve[last]) and not is_unreached(curve[last]):
            one = create_trial(
                state=TrialState.PRUNED,
                params=trial.params,
                distributions=trial.distributions,
                intermediate_values=curve,
                user_attrs=trial.user_attrs,
            )
            one.number = trial.number
            found.append(one)
    return found


def _is_ahead(part: Part) -> bool:
    """Whether a run's trials are proposed ahead where many run, and by the rounds that those have: where they go by
    arrival, and neither a race nor several conditions nor another method decide about the next one."""
    e = part.experiment
    return e.sampler == EI and e.order == run_folder.ARRIVAL and not e.races and not part.crossed.several


def _by_kept(
    history: History, place: int, seen: Seen, most: int, measured: Sequence[FrozenTrial] = ()
) -> list[FrozenTrial]:
    """What `ei` proposes next, `most` trials at most, after those that a decision sees; each is counted once.
    measured: `under_way`."""
    part, begun = history.parts[place], history.first(place, len(history.trials[place]))
    sign, conditions = part.experiment.signs[0], part.space.vary.keys()
    had = history.kept.tally(place, begun, Tried, conditions)
    told = None if part.crossed.several else history.kept.tally(place, seen, Told, sign, conditions)
    if told is None or part.experiment.initial and told.complete < 2:
        told = _told(part, [*seen.trials(), *measured])
    elif measured:
        told = told.and_of(measured)
    beside = [without(trial, conditions) for trial in seen.rest(begun.end)]
    return expected_improvement.proposed(part.space, told, had, part.experiment.seed, begun.end, beside, most)


def _told(part: Part, known: Sequence[FrozenTrial]) -> Told:
    """What `ei` is told of the trials that it may look at."""
    seen = _configurations(part, known)
    if part.experiment.initial:
        seen = [*initial_design.compared(seen)]
    return Told.of(seen, part.experiment.signs[0])


def configuration(
    part: Part, begun: Sequence[FrozenTrial], known: Sequence[FrozenTrial], point: Point | None
) -> tuple[FrozenTrial, Mapping[str, Any]]:
    """What the next trial of a run is to be, after those that have `begun` of which it may look at the `known` ones,
    and what is recorded of it: where its values come from, if not from the sampler. point: its values, where they are
    known."""
    e, number = part.experiment, len(begun)
    if point is not None:
        # What a sampler proposes is thrown away, so a cheap one is asked, and shown nothing. Only NSGA-II is to note to
        # which generation the trial belongs.
        name, seen = (e.sampler, shown(part, known)) if e.sampler == "nsga2" else ("random", [])
        found = ask(make_sampler(name, e.seed, number), e.metric, seen, part.space, point.values)
        return found, {"from": point.origin} if point.origin else {}
    if part.sampler is not None:
        rng = generator(e.seed, number, "own sampler")
        seen, running = _configurations(part, known), unknown(part, begun, known)
        return own_sampler.proposed(part.sampler, e.sampler, part.space, seen, running, e.signs, rng), {}
    sampler = make_sampler(e.sampler, e.seed, number)
    # Of thousands of trials a copy takes longer than all else; one that does not look at them is shown none.
    seen = [] if e.sampler in BLIND_SAMPLERS else shown(part, known)
    running = unknown(part, begun, known) if e.sampler in ASK_WHAT_RUNS else []
    return ask(sampler, e.metric, seen, part.space, None, running), {}


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


def unknown(part: Part, begun: Sequence[FrozenTrial], known: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Of the configurations that have `begun` those of which the `known` trials tell a sampler nothing yet, each once
    and without its conditions. A further seed is of one that is known, or of one that is here already."""
    new = [trial for trial in others(begun, known) if not race.is_further(trial)]
    firsts = dict.fromkeys(part.crossed.first(trial.number) for trial in new)
    return [without(begun[first], part.space.vary.keys()) for first in firsts]


def others(begun: Sequence[FrozenTrial], known: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """The trials of a run that have begun and are not among the known ones."""
    numbers = {trial.number for trial in known}
    return [trial for trial in begun if trial.number not in numbers]
