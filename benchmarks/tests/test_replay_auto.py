"""`fedtune auto` replayed on made-up tables: it is the product's own search, keeps its budget, is rightly compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from analysis.curve_table import CurveTable
from benchmarks.replay import bench
from benchmarks.replay.auto import measure, rivals
from benchmarks.replay.auto.command import AutoSearch, Led, auto, led, planned, setting_of
from benchmarks.replay.auto.measure import by_paper, left_for, singles
from benchmarks.replay.auto.world import METHOD, World
from benchmarks.replay.measures import over
from benchmarks.replay.simulator import Simulation
from benchmarks.replay.table import Recorded
from search_spaces.dimension import Dimension
from search_spaces.errors import UserError
from search_spaces.parameter import Parameter, Value
from search_spaces.space import Space

ROUNDS, CELLS, SEEDS = 6, 8, 6
#: By method, its best cell's mean.
TOPS = {"fedavg": 0.7, "fedprox": 0.72, "scaffold": 0.5}


def table(method: str, means: np.ndarray, seeds: int = SEEDS, sigma: float = 0.02, name: str = "") -> CurveTable:
    """Cells 0, 1, 2 … of one parameter, whose paper's value is 0. Curves rise to their last value; the test metric is a
    little lower and has noise of its own. Every federation takes another time."""
    rng = np.random.default_rng([len(method), seeds])
    high = len(means) - 0.5
    x = Parameter("x", "real", 0.0, "", low=-0.5, high=high)
    space = Space("line", method, {"x": Dimension(x, -0.5, high)})
    last = means[:, None] + rng.normal(0, sigma, (len(means), seeds))
    test = last - 0.01 + rng.normal(0, sigma, last.shape)
    steps = np.sqrt(np.arange(1, ROUNDS + 1) / ROUNDS)
    card = {"name": name or method, "method": method, "space": space.to_json(), "settings": {}, "dataset": "none"}
    card |= {"metric": {"validation": "val_a", "test": "a"}, "direction": "maximize", "how": "", "made": []}
    points = tuple({"x": float(n)} for n in range(len(means)))
    seconds = rng.uniform(1, 3, last.shape).astype(np.float32)
    return CurveTable(card, points, tuple(range(seeds)), last[:, :, None] * steps, test[:, :, None] * steps, seconds)


def world(tops: Mapping[str, float] = TOPS, sigma: float = 0.02, seeds: int = SEEDS) -> World:
    """Of every method the cell 5 is the best, and its paper's value is not."""
    far = np.abs(np.arange(CELLS) - 5)
    made = {method: table(method, top - 0.03 * far, seeds, sigma) for method, top in tops.items()}
    return World("made up", {method: Recorded(one) for method, one in made.items()})


def searched(given: World, federations: int, slots: int, repetition: int = 0, **changes: Any) -> AutoSearch:
    """The search of the command, after it has ended."""
    episode = given.episode(repetition)
    record = planned(given, episode, federations, seed=repetition, **changes)
    lead = setting_of(given, episode, next(iter(given.tables)), seed=repetition, slots=slots)
    search = AutoSearch(lead, {method: one.space for method, one in given.tables.items()}, record)
    simulation = Simulation(episode, search, slots=slots, budgets=[10**6])  # the queue alone keeps the budget
    simulation.run()
    assert {part.experiment.early for part in search.queue.parts} == {0}, "as the command's"
    assert simulation.spent == sum(t.user_attrs["rounds"] for t in search.queue.trials()) <= record.search_budget
    return search


def sequence(search: AutoSearch) -> list[tuple[Any, ...]]:
    """All that a search decided, in the order of its trials."""
    queue = search.queue
    return [
        (queue.at(n)[0].experiment.method, t.params, t.state.name, t.user_attrs["rounds"], t.values)
        for n, t in enumerate(queue.trials())
    ]


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("equal", [False, True])
def test_neither_slots_nor_the_order_of_ending_change_the_search(equal: bool) -> None:
    alone = searched(world(), 32, 1, equal=equal)
    trials = sequence(alone)
    assert {trial[0] for trial in trials} == {*TOPS} and any(trial[2] == "PRUNED" for trial in trials)
    for slots in (2, 4):
        beside = searched(world(), 32, slots, equal=equal)
        assert sequence(beside) == trials and beside.winners() == alone.winners()


@pytest.mark.parametrize(("federations", "equal"), [(10, False), (16, True), (31, False)])
def test_the_budget_pays_for_all_steps_and_is_used(federations: int, equal: bool) -> None:
    given = world()
    record = planned(given, given.episode(0), federations, equal=equal)
    assert (record.fresh, record.final) == (2, 3 if federations >= 24 else 2 if federations >= 16 else 1)
    for repetition in range(2):
        done = auto(given, repetition, federations, slots=2, equal=equal)
        fresh = done.spent - done.searched - ROUNDS * record.final
        assert ROUNDS * record.fresh * len(done.winners) <= fresh <= record.fresh_budget
        assert done.spent <= ROUNDS * federations
        # What is left of the search's part would not pay for one more trial.
        assert done.searched > record.search_budget - ROUNDS and len(done.winners) == 3


def test_those_that_cannot_be_told_apart_get_further_fresh_seeds() -> None:
    """Two of three methods that are alike have the third seed of the table, and are paid for it; with a budget for six
    of them the first two are all there are."""
    given = world({"fedavg": 0.9, "fedprox": 0.9, "scaffold": 0.5})
    episode = given.episode(0)
    winners = {method: {"method": method, "x": 5.0} for method in given.tables}
    record = planned(given, episode, 60)
    leader, spent = led(episode, winners, record)
    means = {m: np.mean([episode.curve(winners[m], k)[-1] for k in (1, 2, 3)]) for m in ("fedavg", "fedprox")}
    assert (leader, spent) == (winners[max(means, key=lambda m: means[m])], 2 + 3 + 3)
    _, spent = led(episode, winners, dataclasses.replace(record, fresh_budget=6.0 * ROUNDS))
    assert spent == 6


def test_a_table_of_few_seeds_has_few_fresh_ones() -> None:
    few = world(seeds=4)
    assert planned(few, few.episode(0), 60).fresh == 1 and planned(world(), world().episode(0), 60).most_fresh == 3
    with pytest.raises(UserError, match=r"made up have 3 seeds, and `auto` needs four"):
        world(seeds=3)
    with pytest.raises(UserError, match=r"not have the same seeds \(fedavg 6, fedprox 4\)"):
        World("mixed", {"fedavg": world().tables["fedavg"], "fedprox": few.tables["fedprox"]})


def test_a_budget_that_the_command_refuses_is_not_replayed() -> None:
    given = world()
    why = measure.refused(given, 9)
    assert why is not None and "at least 60 seed-rounds" in why and measure.refused(given, 10) is None
    assert [*measure.repetition(given, 0, (9, 10))] == [10]


def test_a_method_that_diverges_leads_nothing() -> None:
    made = {method: table(method, np.full(CELLS, top)) for method, top in TOPS.items()}
    made["fedprox"].validation[:, :, 2:] = made["fedprox"].test[:, :, 2:] = np.nan
    given = World("made up", {method: Recorded(one) for method, one in made.items()})
    done = auto(given, 0, 24, slots=2)
    assert [*done.winners] == ["fedavg", "scaffold"] and done.leader == done.winners["fedavg"]
    for one in made.values():
        one.validation[:, :, 2:] = np.nan
    done = auto(World("made up", {method: Recorded(one) for method, one in made.items()}), 0, 24, slots=2)
    assert done.leader is None and done.winners == {} and done.spent == done.searched


# -- what it is compared with ------------------------------------------------------------------------------------------


def test_a_single_search_is_the_one_that_is_replayed_by_itself() -> None:
    given = world(sigma=0.05)
    found = singles(given, 2, (24, 3, 3, 0, -5, 8), slots=2)
    for method, by_budget in found.items():
        one = given.tables[method]
        alone = bench.replay(one, bench.Task(one.name, "fedtune-1-tpe", 2, 2, (3, 8, 24)))
        assert [*by_budget] == [3, 8, 24]
        for values, judged in zip(by_budget.values(), alone, strict=True):
            episode = one.episode(2)
            truth = episode.blind if values is None else float(episode.truth_curve({"x": values["x"]})[-1])
            assert episode.best - truth == pytest.approx(judged.regret)


def test_the_paper_recommends_the_method_that_is_best_at_its_values() -> None:
    """fedprox has the best cell, fedavg the best paper's value: cell 0."""
    means = {"fedavg": np.full(CELLS, 0.5), "fedprox": np.full(CELLS, 0.4), "scaffold": np.full(CELLS, 0.3)}
    means["fedprox"][5] = 0.9
    given = World("made up", {method: Recorded(table(method, one)) for method, one in means.items()})
    assert by_paper(given, 0) == ("fedavg", {METHOD: "fedavg", "x": 0.0})
    assert left_for(given, 24) == 22, "a federation of each of the two others"
    one = measure.repetition(given, 0, (24,))[24]
    winner = singles(given, 0, (22,), slots=measure.SLOTS)["fedavg"][22]
    assert winner is not None and one.truths["paper"] == given.episode(0).truth(winner)
    assert one.truths["hindsight"] > one.truths["paper"] + 0.3


def test_halving_shares_each_rung_evenly_among_those_that_are_left() -> None:
    """Of 300 seed-rounds: eight methods have 12 each, four 25 more, two 50 more. The better ones by their own searches
    stay, so the best method wins where all are told apart."""
    assert rivals.rungs(8, 300) == [(8, 12), (4, 37), (2, 87)]
    assert rivals.rungs(3, 120) == [(3, 20), (2, 50)] and rivals.rungs(1, 120) == [(1, 120)]
    given = world({"fedavg": 0.4, "fedprox": 0.9, "scaffold": 0.3, "qffl": 0.2})
    episode = given.episode(0)
    record = planned(given, episode, 40)
    found = rivals.halving(given, episode, record, seed=0, slots=1)
    assert found is not None and found[METHOD] == "fedprox" and episode.truth(found) > 0.8


def test_one_space_for_all_begins_with_every_papers_values_and_holds_each_methods_own() -> None:
    given = world({"fedavg": 0.5, "fedprox": 0.9})
    space = rivals.joined({method: one.space for method, one in given.tables.items()})
    assert set(space.distributions()) == {"method", "fedavg.x", "fedprox.x"}
    assert space.params({"method": "fedprox", "x": 3.0}) == {"method": "fedprox", "fedprox.x": 3.0}
    few = rivals.one_space(given, given.episode(0), 2 * ROUNDS, seed=0, slots=1)
    assert few == {METHOD: "fedprox", "x": 0.0}, "the better one of both papers' values"
    many = rivals.one_space(given, given.episode(0), 40 * ROUNDS, seed=0, slots=1)
    assert many is not None and many[METHOD] == "fedprox" and given.episode(0).truth(many) > 0.8


def test_what_an_answer_is_worth_is_computed_from_the_held_out_seeds() -> None:
    """Every number of a repetition, again from the tables' arrays."""
    given = world(sigma=0.08)
    for repetition in range(2):
        one = measure.repetition(given, repetition, (24,))[24]
        dealt = np.random.default_rng([repetition, 1]).permutation(SEEDS)
        fresh, held = dealt[1:3], dealt[4:]  # a quarter of 24 federations pays for two fresh seeds of each method

        def over_seeds(values: Mapping[str, Value], which: str, seeds: Any) -> float:
            recorded = given.tables[str(values[METHOD])]
            cell = int(np.argmin([abs(float(values["x"]) - float(p["x"])) for p in recorded.table.configurations]))
            return float(getattr(recorded.table, which)[cell, seeds, -1].mean())

        winners = [by[24] for by in singles(given, repetition, (24,), slots=2).values()]
        alike = max(winners, key=lambda values: over_seeds(values, "validation", fresh))
        made = [auto(given, repetition, 24, slots=2, equal=equal).leader for equal in (False, True)]
        assert one.truths["auto"] == pytest.approx(over_seeds(made[0], "test", held))
        assert one.truths["equal"] == pytest.approx(over_seeds(made[1], "test", held))
        assert one.truths["alike"] == pytest.approx(over_seeds(alike, "test", held))
        assert one.truths["hindsight"] == pytest.approx(max(over_seeds(values, "test", held) for values in winners))
        every = [recorded.table.test[:, held, -1].mean(axis=1).max() for recorded in given.tables.values()]
        assert one.best == pytest.approx(max(every))


def test_differences_are_taken_within_repetitions() -> None:
    """Medians of differences, not differences of medians; a point more than the goal is not within it."""
    truths = [(0.70, 0.705), (0.50, 0.53), (0.60, 0.58), (0.90, 0.91), (0.40, 0.395)]
    made = [
        measure.Compared(1.0, dict.fromkeys(measure.ARMS, 0.0) | {"auto": a, "alike": b}, ("x", "xy"[n % 2]), 100 + n)
        for n, (a, b) in enumerate(truths)
    ]
    found = measure.summary(made)
    differences = sorted(b - a for a, b in truths)
    assert found["difference"]["alike"]["value"] == pytest.approx(differences[2]) == pytest.approx(0.005)
    assert np.median([b for _, b in truths]) - np.median([a for a, _ in truths]) == pytest.approx(-0.02)
    expected = over([b - a for a, b in truths], np.median)
    assert found["difference"]["alike"]["low"] == pytest.approx(expected.low)
    assert found["regret"]["auto"]["value"] == pytest.approx(0.4) and found["regret"]["paper"]["value"] == 1.0
    assert found["within"]["alike"]["value"] == pytest.approx(4 / 5), "0.03 is not; 0.01 is"
    assert found["same_method"]["value"] == pytest.approx(3 / 5)
    assert (found["n"], found["spent"]) == (5, 102)


def test_an_answer_that_is_missing_is_worth_a_blind_choice() -> None:
    given = world()
    episode = given.episode(0)
    nothing = Led({}, None, 5, 5)
    alone: dict[str, dict[int, Mapping[str, Value] | None]] = {method: {24: None} for method in TOPS}
    found = measure.compared(given, episode, 24, (nothing, nothing), alone, {METHOD: "fedavg", "x": 0.0}, (None, None))
    blind = np.mean([episode.parts[method].blind for method in TOPS])
    assert found.truths["auto"] == found.truths["alike"] == found.truths["hindsight"] == pytest.approx(blind)
    assert found.truths["paper"] != found.truths["auto"] and found.methods == ("none", "none")
