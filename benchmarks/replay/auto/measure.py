"""Repetitions of `fedtune auto` and of its rivals on every data set, and what came of them as plain data.

All of a repetition see the same seeds, and are judged on the same seeds, which none of them saw:

    auto        the command's leader
    equal       that of the command with --equal
    paper       the method whose paper's values are best on one seed, tuned with what that leaves of the budget
    alike       of the winners of all single searches, the one with the highest mean on auto's fresh seeds: what a user
                has who pays for a search of every method and chooses among the winners as auto does
    halving     that of successive halving over methods, and
    one space   of one search over the space of all methods (`rivals`)
    hindsight   of these winners the one that the held-out seeds say is best: nobody can choose so, and as chance
                decides among equals, it looks better than any of them is

The truth of an answer is the mean test metric over the held-out seeds. Regret is what it lacks of the best recorded
configuration of all methods; a difference is what auto lacks of a rival, in the same repetition.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.replay import bench
from benchmarks.replay.auto.command import SEARCHED, Led, auto, led, planned, setting_of
from benchmarks.replay.auto.rivals import halving, one_space, papers_values
from benchmarks.replay.auto.world import METHOD, AllMethods, World
from benchmarks.replay.measures import over, share
from benchmarks.replay.pool import side_by_side
from benchmarks.replay.searchers.present import Present
from benchmarks.replay.simulator import Simulation
from fedtune.planning.auto_plan import SAMPLER
from search_spaces.errors import UserError
from search_spaces.parameter import Value

#: By method, the winners of its search after each of several budgets; None while there is none.
Winners = dict[str, dict[int, Mapping[str, Value] | None]]


def singles(world: World, repetition: int, budgets: Sequence[int], *, slots: int) -> Winners:
    """`fedtune search --seeds 1` of every method by the sampler of `fedtune auto`, with each of these budgets, in
    federations."""
    episode = world.episode(repetition)
    found: Winners = {}
    for method, part in episode.parts.items():
        searcher = Present(setting_of(world, episode, method, seed=repetition, slots=slots), each=1, sampler=SAMPLER)
        ordered = sorted({budget for budget in budgets if budget > 0})
        simulation = Simulation(part, searcher, slots=slots, budgets=[world.rounds * budget for budget in ordered])
        found[method] = {
            budget: None if taken.verdict is None else {METHOD: method, **taken.verdict.values}
            for budget, taken in zip(ordered, simulation.run(), strict=True)
        }
    return found


def papers(world: World, episode: AllMethods) -> dict[str, Mapping[str, Value]]:
    """Every method's first configuration: its paper's values, or, where these lie outside its space, the middle."""
    return {method: {METHOD: method, **papers_values(table.space)} for method, table in world.tables.items()}


def by_paper(world: World, repetition: int) -> tuple[str, Mapping[str, Value]]:
    """The method whose paper's values are the best on the seed of the search, and these values."""
    episode = world.episode(repetition)
    found = papers(world, episode)

    def last(method: str) -> float:
        value = float(episode.curve(found[method], SEARCHED)[-1])
        return value if math.isfinite(value) else -math.inf

    method = max(found, key=last)
    return method, found[method]


def left_for(world: World, federations: int) -> int:
    """What is left for the search of one method where one federation of every method was run to choose it; that of the
    method itself is the search's first one."""
    return federations - (len(world.tables) - 1)


#: Budgets of the command, in whole federations of one seed. Of eight methods it refuses less than 25: every method has
#: a trial of its paper's values and two fresh seeds, and the leader a final one.
BUDGETS = (32, 48, 64, 96)
SLOTS = bench.SLOTS
#: By how much auto may lie below the best of single searches: a point.
GOAL = 0.01
#: By how much a difference of recorded values may miss the goal and still be the goal.
ROUNDING = 1e-9
ARMS = ("auto", "equal", "paper", "alike", "halving", "one space", "hindsight")
#: Those that auto is compared with.
RIVALS = ARMS[1:]


@dataclass(frozen=True)
class Compared:
    """One repetition at one budget: the truth of every arm's answer, the method of auto's and of the best single
    search's in hindsight, and what the command spent, in seed-rounds."""

    best: float
    truths: Mapping[str, float]
    methods: tuple[str, str]
    spent: int


def repetition(world: World, number: int, budgets: Sequence[int]) -> dict[int, Compared]:
    """By budget in federations, without those that the command refuses."""
    episode = world.episode(number)
    kept = [budget for budget in budgets if refused(world, budget) is None]
    method, first = by_paper(world, number)
    alone = singles(world, number, [*kept, *(left_for(world, budget) for budget in kept)], slots=SLOTS)
    found = {}
    for budget in kept:
        left = left_for(world, budget)
        paper = alone[method][left] if left > 0 else None
        made = [auto(world, number, budget, slots=SLOTS, equal=equal) for equal in (False, True)]
        record = planned(world, episode, budget, seed=number)
        halved = halving(world, episode, record, seed=number, slots=SLOTS)
        whole = world.rounds * (budget - record.final)
        joined = one_space(world, episode, whole, seed=number, slots=SLOTS)
        found[budget] = compared(
            world, episode, budget, made, alone, first if paper is None else paper, (halved, joined)
        )
    return found


def compared(
    world: World,
    episode: AllMethods,
    budget: int,
    made: Sequence[Led],
    alone: Winners,
    paper: Mapping[str, Value],
    others: tuple[Mapping[str, Value] | None, Mapping[str, Value] | None],
) -> Compared:
    """What the answers at a budget are worth. `made`: by the command, and with --equal; `others`: by halving, and in
    one space."""
    winners = {name: values for name, of_method in alone.items() if (values := of_method[budget]) is not None}
    alike, _ = led(episode, winners, planned(world, episode, budget))
    hindsight = max(winners.values(), key=episode.truth, default=None)
    answers = dict(zip(ARMS, (made[0].leader, made[1].leader, paper, alike, *others, hindsight), strict=True))
    truths = {arm: episode.truth(values) for arm, values in answers.items()}
    names = [str(values["method"]) if values else "none" for values in (made[0].leader, hindsight)]
    return Compared(episode.best, truths, (names[0], names[1]), made[0].spent)


def refused(world: World, budget: int) -> str | None:
    """Why the command refuses a budget in federations; None where it takes it."""
    try:
        planned(world, world.episode(0), budget)
    except UserError as error:
        return " ".join(error.problems)
    return None


def summary(found: Sequence[Compared]) -> dict[str, Any]:
    """What the repetitions at a budget say."""
    differences = {rival: [one.truths[rival] - one.truths["auto"] for one in found] for rival in RIVALS}
    return {
        "n": len(found),
        "regret": {arm: _median([one.best - one.truths[arm] for one in found]) for arm in ARMS},
        "difference": {rival: _median(values) for rival, values in differences.items()},
        "within": {
            rival: bench.as_data(share([value <= GOAL + ROUNDING for value in values]))
            for rival, values in differences.items()
        },
        "same_method": bench.as_data(share([one.methods[0] == one.methods[1] for one in found])),
        "spent": float(np.median([one.spent for one in found])),
    }


def _median(values: Sequence[float]) -> dict[str, Any]:
    return bench.as_data(over(values, np.median))


# -- all of it ---------------------------------------------------------------------------------------------------------

Task = tuple[str, int, tuple[int, ...]]


def _work(given: Mapping[str, World], task: Task) -> dict[int, Compared]:
    name, number, budgets = task
    return repetition(given[name], number, budgets)


def measure(
    given: dict[str, World], *, repetitions: int, processes: int, budgets: Sequence[int] = BUDGETS
) -> dict[str, Any]:
    """Every data set, `repetitions` times."""
    tasks: list[Task] = [(name, number, tuple(budgets)) for name in given for number in range(repetitions)]
    found: dict[str, list[dict[int, Compared]]] = {name: [] for name in given}
    started = time.monotonic()
    for (name, *_), result in side_by_side(given, tasks, processes, _work, lambda task: task[0], "repetitions of auto"):
        found[name].append(result)
    return {
        "repetitions": repetitions,
        "slots": SLOTS,
        "goal": GOAL,
        "processes": processes,
        "seconds": round(time.monotonic() - started),
        "datasets": {
            name: {
                "text": world.describe(),
                "methods": len(world.tables),
                "rounds": world.rounds,
                "blind": _median([e.best - e.blind for e in (world.episode(n) for n in range(repetitions))]),
                "budgets": [_at(world, budget, found[name]) for budget in budgets],
            }
            for name, world in given.items()
        },
    }


def _at(world: World, budget: int, found: Sequence[Mapping[int, Compared]]) -> dict[str, Any]:
    """A data set at a budget."""
    why = refused(world, budget)
    entry: dict[str, Any] = {"federations": budget, "seed_rounds": budget * world.rounds}
    return entry | ({"refused": why} if why is not None else summary([one[budget] for one in found]))
