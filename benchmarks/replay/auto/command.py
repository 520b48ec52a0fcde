"""`fedtune auto --budget …rounds`, driven without Ray: the product's own division of the budget, its queue and its
allocation; then every method's best configuration on fresh seeds, further ones for those that cannot be told apart, and
the best of these leads.

The budget is the command's: it pays for the search, for the fresh seeds of all methods and for the leader's final run,
as the command divides it. (The final run chooses nothing, so it is paid for and not replayed.)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analysis.auto.record import AutoRecord, Candidate
from analysis.stats import summarise
from benchmarks.replay.auto.world import METHOD, AllMethods, World
from benchmarks.replay.searcher import Setting, Verdict
from benchmarks.replay.searchers.present import Present, best_of, experiment, recorded, replayed
from benchmarks.replay.simulator import Simulation
from fedtune.api.auto import allocation_of
from fedtune.decisions import fresh_seeds
from fedtune.machine.resources import lag
from fedtune.options import FIXED_UP_TO, AutoRequest
from fedtune.planning.auto_budget import budgeted
from fedtune.planning.auto_plan import SAMPLER, options
from search_spaces.errors import UserError
from search_spaces.parameter import Value
from search_spaces.space import Space

#: The place of the seed that searches see; fresh seeds follow.
SEARCHED = 0


@dataclass(frozen=True)
class Led:
    """How the command ended. `winners`: every method's best configuration, with the method; `leader`: one of them, None
    where no trial ran to its end. `searched`, `spent`: seed-rounds of the search, and of all three steps."""

    winners: Mapping[str, Mapping[str, Value]]
    leader: Mapping[str, Value] | None
    searched: int
    spent: int


class AutoSearch(Present):
    """The search over all methods."""

    def __init__(self, setting: Setting, spaces: Mapping[str, Space], record: AutoRecord) -> None:
        """setting: of the first method."""
        super().__init__(setting, each=1)
        self._spaces = dict(spaces)
        parts = [dataclasses.replace(setting, space=space) for space in spaces.values()]
        # As on two slots, whatever the replay's; the first trials wait as all others do.
        fixed = {"lag": lag(FIXED_UP_TO), "early": 0}
        asked = [(experiment(part, 1, part=True, sampler=SAMPLER, **fixed), part.space) for part in parts]
        self.queue = replayed(*asked, allocation=allocation_of(record))

    def propose(self) -> tuple[int, Mapping[str, Value]] | None:
        found = super().propose()
        if found is None:
            return None
        number, values = found
        return number, {METHOD: self.queue.at(number)[0].experiment.method, **values}

    def winners(self) -> dict[str, Verdict]:
        """Of every method that has one, its best configuration."""
        found = {
            method: best_of(recorded(self.queue.history, place), space, self.rounds)
            for place, (method, space) in enumerate(self._spaces.items())
        }
        return {
            method: dataclasses.replace(verdict, values={METHOD: method, **verdict.values})
            for method, verdict in found.items()
            if verdict is not None
        }

    def winner(self) -> Verdict | None:
        """The best by what the search says, which leads until there are fresh seeds."""
        return max(self.winners().values(), key=lambda verdict: verdict.estimate, default=None)


def planned(world: World, episode: AllMethods, federations: int, *, seed: int = 0, equal: bool = False) -> AutoRecord:
    """The record of the command with a budget of so many federations, with its defaults, but for no more fresh seeds
    than there are. Raises `UserError` where it refuses the budget."""
    most = episode.seeds - SEARCHED - 1
    request = AutoRequest(
        methods=tuple(world.tables),
        budget=f"{federations * world.rounds}rounds",
        equal=equal,
        rounds=world.rounds,
        seed=seed,
    )
    problems: list[str] = []
    asked = options(request, problems)
    if problems:
        raise UserError(*problems)
    costs = [Candidate(method, method, {"seed-rounds": 1.0}) for method in world.tables]
    record = budgeted(request, asked, world.name, costs, (), world.rounds, 1)
    if record.fresh <= most:
        return dataclasses.replace(record, most_fresh=min(most, record.most_fresh))
    return budgeted(dataclasses.replace(request, fresh_seeds=most), asked, world.name, costs, (), world.rounds, 1)


def setting_of(world: World, episode: AllMethods, method: str, *, seed: int, slots: int) -> Setting:
    """What a search of one method is given."""
    part = episode.parts[method]
    return Setting(world.tables[method].space, world.rounds, episode.seeds, seed, slots, part.truth_curve)


def auto(world: World, repetition: int, federations: int, *, slots: int, equal: bool = False) -> Led:
    """The command, with the seed of that repetition. Raises `UserError` where it refuses the budget."""
    episode = world.episode(repetition)
    record = planned(world, episode, federations, seed=repetition, equal=equal)
    lead = setting_of(world, episode, next(iter(world.tables)), seed=repetition, slots=slots)
    search = AutoSearch(lead, {method: table.space for method, table in world.tables.items()}, record)
    simulation = Simulation(episode, search, slots=slots, budgets=[int(record.search_budget)])
    simulation.run()
    winners = {method: verdict.values for method, verdict in search.winners().items()}
    leader, fresh = led(episode, winners, record)
    rounds = world.rounds * (fresh + (record.final if winners else 0))
    return Led(winners, leader, simulation.spent, simulation.spent + rounds)


def led(
    episode: AllMethods, winners: Mapping[str, Mapping[str, Value]], record: AutoRecord
) -> tuple[Mapping[str, Value] | None, int]:
    """Of the methods' best configurations the leader, as the leaderboard has it, and how many fresh seeds all of them
    had: of those that cannot be told apart and so had the most, the one with the highest mean over the seeds that ran
    to their end, the earlier one of a draw."""
    names, count, spent = list(winners), record.fresh, record.fresh * len(winners)
    while names:
        last = {name: {k: float(episode.curve(winners[name], k)[-1]) for k in range(1, 1 + count)} for name in names}
        names = [name for name in names if name in fresh_seeds.rivals(last, 1.0)] or names
        goes_on = range(fresh_seeds.next_count(count, record.most_fresh), count, -1) if len(names) > 1 else ()
        pays = [more for more in goes_on if _paid(record, spent + (more - count) * len(names))]
        if not pays:
            break
        spent, count = spent + (pays[0] - count) * len(names), pays[0]
    means = {name: fresh_mean(episode, winners[name], range(1, 1 + count)) for name in names}
    return (winners[max(means, key=lambda name: means[name])] if means else None), spent


def _paid(record: AutoRecord, federations: int) -> bool:
    return federations * record.rounds <= record.fresh_budget * (1 + 1e-9)


def fresh_mean(episode: AllMethods, values: Mapping[str, Value], seeds: Sequence[int]) -> float:
    """The mean validation metric of the last round over those of `seeds` that did not diverge; the worst where all
    did."""
    last = [float(episode.curve(values, seed)[-1]) for seed in seeds]
    mean = summarise([value for value in last if math.isfinite(value)]).mean
    return mean if math.isfinite(mean) else -math.inf
