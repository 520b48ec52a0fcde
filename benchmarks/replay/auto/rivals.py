"""What `fedtune auto` is compared with: a search of every method by itself, and one of the method that its paper's
values recommend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from benchmarks.replay.auto.command import SEARCHED, setting_of
from benchmarks.replay.auto.world import METHOD, AllMethods, World
from benchmarks.replay.searchers.present import Present
from benchmarks.replay.simulator import Simulation
from fedtune.planning.auto_plan import SAMPLER
from fedtune.planning.plan import middle_values
from search_spaces.parameter import Value
from search_spaces.space import Space

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
    return {method: {METHOD: method, **first_of(table.space)} for method, table in world.tables.items()}


def first_of(space: Space) -> Mapping[str, Value]:
    declared = space.declared_point()
    return middle_values(space.search.values()) if declared is None else declared


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
