"""Two other ways to spend a budget on several methods: half of the methods are dropped again and again, or all of them
are one space.

    halving     successive halving over methods (Karnin, Koren and Somekh 2013): the search's part of the budget is
                shared out evenly among as many rungs as halving leaves one method after, and a rung's part evenly among
                the methods that are left. After a rung the better half of them stays, by what their searches say of
                their best. Fresh seeds are auto's: every method's best configuration has them.
    one space   one search of the space in which the method is a choice and every parameter belongs to its method
                (Thornton et al. 2013, Auto-WEKA). It begins with every method's paper's values. Its winner is its
                answer, so what auto pays for fresh seeds goes to the search as well.

Both have the sampler and the early stopping of auto's searches.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from analysis.auto.record import AutoRecord
from benchmarks.replay.auto.command import led, setting_of
from benchmarks.replay.auto.world import METHOD, AllMethods, World
from benchmarks.replay.searcher import Front, Verdict
from benchmarks.replay.searchers.present import Present
from benchmarks.replay.simulator import Simulation
from fedtune.planning.auto_plan import SAMPLER
from fedtune.planning.plan import middle_values
from search_spaces.dimension import Dimension
from search_spaces.parameter import Parameter, Value
from search_spaces.run_folder import PAPER
from search_spaces.space import Space


def rungs(methods: int, rounds: int) -> list[tuple[int, int]]:
    """Of a search of so many seed-rounds: how many methods are left in each rung, and what each of them has had by its
    end, in seed-rounds."""
    count = max(1, math.ceil(math.log2(methods)))
    found, had, left = [], 0, methods
    for _ in range(count):
        had += rounds // count // left
        found.append((left, had))
        left = math.ceil(left / 2)
    return found


def halving(
    world: World, episode: AllMethods, record: AutoRecord, *, seed: int, slots: int
) -> Mapping[str, Value] | None:
    """The answer of successive halving over methods."""
    steps = rungs(len(world.tables), int(record.search_budget))
    told = {method: _told(world, episode, method, steps, seed, slots) for method in world.tables}
    order, winners = list(world.tables), dict[str, Verdict]()
    for rung, (left, _) in enumerate(steps):
        order = order[:left]
        winners |= {method: found for method in order if (found := told[method][rung]) is not None}
        order.sort(key=lambda method: -winners[method].estimate if method in winners else math.inf)
    leader, _ = led(episode, {m: {METHOD: m, **found.values} for m, found in winners.items()}, record)
    return leader


def _told(
    world: World, episode: AllMethods, method: str, steps: list[tuple[int, int]], seed: int, slots: int
) -> list[Verdict | None]:
    """What the search of a method says at the end of each rung, if it comes so far."""
    searcher = Present(setting_of(world, episode, method, seed=seed, slots=slots), each=1, sampler=SAMPLER)
    budgets = [had for _, had in steps]
    taken = Simulation(episode.parts[method], searcher, slots=slots, budgets=budgets).run()
    return [_one(snapshot.verdict) for snapshot in taken]


def _one(verdict: Verdict | Front | None) -> Verdict | None:
    assert not isinstance(verdict, Front)
    return verdict


def one_space(world: World, episode: AllMethods, rounds: int, *, seed: int, slots: int) -> Mapping[str, Value] | None:
    """The answer of a search of the space of all methods, with so many seed-rounds."""
    space = joined({method: table.space for method, table in world.tables.items()})
    first = [
        {"from": PAPER, "values": {METHOD: method, **papers_values(table.space)}}
        for method, table in world.tables.items()
    ]
    setting = dataclasses.replace(
        setting_of(world, episode, next(iter(world.tables)), seed=seed, slots=slots),
        space=space,
        truth=episode.truth_curve,
    )
    searcher = Present(setting, each=1, sampler=SAMPLER, first=tuple(first))
    (taken,) = Simulation(episode, searcher, slots=slots, budgets=[rounds]).run()
    found = _one(taken.verdict)
    return None if found is None else found.values


def joined(spaces: Mapping[str, Space]) -> Space:
    """The space in which the method is a choice and every parameter belongs to its method."""
    options = tuple(spaces)
    children = {method: tuple(space.search.values()) for method, space in spaces.items()}
    declared = Parameter(METHOD, "choice", options[0], "The method.", options=options)
    return Space("joined", options[0], {METHOD: Dimension(declared, options=options, children=children)})


def papers_values(space: Space) -> Mapping[str, Value]:
    """A method's first configuration: its paper's values, or, where these lie outside its space, the middle."""
    declared = space.declared_point()
    return middle_values(space.search.values()) if declared is None else declared
