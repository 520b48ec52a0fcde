"""Replaying searches: measures whose values are known in closed form, slots and budgets, searchers, and models."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.stats import norm
from sklearn.utils.stats import _weighted_percentile

from analysis.curve_table import CurveTable, save
from benchmarks.replay import bench
from benchmarks.replay.arms.percentile import weighted_percentile
from benchmarks.replay.gridded import Gridded, Shuffled
from benchmarks.replay.measures import holding, judge, over, rms, share
from benchmarks.replay.peer import NOT_INSTALLED, Peer
from benchmarks.replay.searcher import LEVEL, Floats, Front, Impossible, Job, Result, Setting, Verdict
from benchmarks.replay.searchers import PEERS, SEARCHERS, plain
from benchmarks.replay.searchers.oracle import Told
from benchmarks.replay.simulator import Simulation, Snapshot
from benchmarks.replay.surrogate import Forest, Surrogate, cut_off, means_of, measure_noise, shrunk
from benchmarks.replay.table import Recorded, differences, held_out
from benchmarks.tables.specs import SPECS
from search_spaces.dimension import Dimension
from search_spaces.errors import UserError
from search_spaces.parameter import Parameter, Value
from search_spaces.space import Space

ROUNDS = 4
#: Standard errors by which a mean over repetitions may lie from its expectation.
ERRORS = 4.0


def line(cells: int = 10) -> Space:
    """One parameter with a grid of `cells` values 0, 1, 2 …; every cell has an equal part of the interval."""
    low, high = -0.5, cells - 0.5
    x = Parameter("x", "real", 0.0, "", low=low, high=high)
    return Space("line", "toy", {"x": Dimension(x, low, high, grid=tuple(float(n) for n in range(cells)))})


def recorded(values: Floats, name: str = "line", **card: Any) -> CurveTable:
    """A table over `line` whose curves rise evenly to `values` (configurations, seeds)."""
    space = line(len(values))
    curves = values[:, :, None] * np.arange(1, ROUNDS + 1) / ROUNDS
    details = {"name": name, "method": "toy", "space": space.to_json(), "settings": {}, "dataset": "none"}
    details |= {"metric": {"validation": "val_a", "test": "a"}, "direction": "maximize", "how": "", "made": []} | card
    seconds = np.ones(values.shape, dtype=np.float32)
    points = tuple({"x": float(n)} for n in range(len(values)))
    return CurveTable(details, points, tuple(range(values.shape[1])), curves, curves.copy(), seconds)


class Known:
    """An episode with endless seeds: a configuration's mean is `means(x)`, one seed's noise is normal."""

    seeds = 1000

    def __init__(self, repetition: int, means: Any = lambda x: 0.5, sigma: float = 0.1) -> None:
        self.repetition, self.means, self.sigma = repetition, means, sigma
        self.best, self.blind = 0.5, 0.5

    def curve(self, values: Mapping[str, Value], seed: int) -> Floats:
        rng = np.random.default_rng([self.repetition, seed, int(1e9 * (float(values["x"]) + 1))])
        found: Floats = self.truth_curve(values) + self.sigma * rng.standard_normal() * np.arange(1, 5) / 4
        return found

    def seconds(self, values: Mapping[str, Value], seed: int) -> float:
        return 1.0

    def truth_curve(self, values: Mapping[str, Value]) -> Floats:
        return np.full(ROUNDS, float(self.means(values["x"])))

    def expected(self, values: Mapping[str, Value]) -> float:
        return float(self.means(values["x"]))


def setting(episode: Any, repetition: int = 0, slots: int = 1, space: Space | None = None) -> Setting:
    return Setting(space or line(), ROUNDS, episode.seeds, repetition, slots, episode.truth_curve)


def last(episode: Any, searcher: Any, federations: int, slots: int = 1) -> Any:
    """What the verdict after so many federations' rounds is worth."""
    budgets = [ROUNDS * federations]
    return judge(episode, Simulation(episode, searcher, slots=slots, budgets=budgets).run()[0])


def near(found: list[float], expected: float) -> None:
    """Whether a mean lies where it must, by its own standard error; and the error says something."""
    error = float(np.std(found, ddof=1)) / math.sqrt(len(found))
    assert abs(float(np.mean(found)) - expected) <= ERRORS * error
    assert 0 < error < 0.05 * (1 + abs(expected))


# -- regret, curse and coverage in closed form -------------------------------------------------------------------------


def test_regret_of_random_search_without_noise() -> None:
    """Ten cells with means 0, 0.1 … 0.9: P(best of n draws ≤ k) = ((k + 1)/10)^n, and the best is always chosen."""
    table = Recorded(recorded(np.repeat(np.arange(10)[:, None] / 10, 4, axis=1)))
    found, federations = [], 3
    for repetition in range(1500):
        episode = table.episode(repetition)
        found.append(last(episode, plain.Random(setting(episode, repetition), each=1), federations))
        assert found[-1].curse == 0 and found[-1].regret == found[-1].searching
    at_most = [((k + 1) / 10) ** federations for k in range(10)]
    expected = 0.9 - sum(k / 10 * (p - q) for k, (p, q) in enumerate(zip(at_most, [0.0, *at_most], strict=False)))
    near([judged.regret for judged in found], expected)


@pytest.mark.parametrize(("federations", "each"), [(3, 1), (6, 3)])
def test_the_winners_curse_among_equals(federations: int, each: int) -> None:
    """The mean of the largest of two and of three standard normal values: 1/√π, 3/(2√π). k seeds make it 1/√k of
    that."""
    largest = {2: 1 / math.sqrt(math.pi), 3: 1.5 / math.sqrt(math.pi)}[federations // each]
    found = []
    for repetition in range(1500):
        episode = Known(repetition, sigma=0.1)
        found.append(last(episode, plain.Random(setting(episode, repetition), each=each), federations))
        assert found[-1].regret == 0, "they are equal"
    near([judged.curse for judged in found], 0.1 * largest / math.sqrt(each))


def test_how_wide_an_interval_must_be_is_read_from_the_errors() -> None:
    """Twenty errors of 1 to 20: ±17 and ±19 hold 17 and 19 of them. Their mean square is 21 · 41 / 6."""
    errors = [(-1) ** n * n for n in range(1, 21)]
    assert holding([*errors, math.nan], (0.85, 0.95)) == [34.0, 38.0]
    assert holding([math.nan], (0.85,)) is None
    assert over(errors, rms).value == pytest.approx(math.sqrt(21 * 41 / 6))


@pytest.mark.parametrize("of", [1, 4])
def test_coverage_of_a_t_interval(of: int) -> None:
    """One configuration: the interval holds in 90 % of repetitions. The best of several: less often."""
    found = []
    for repetition in range(1500):
        episode = Known(repetition)
        found.append(last(episode, plain.Random(setting(episode, repetition), each=3), 3 * of).covered)
    held = share(found)
    error = math.sqrt(LEVEL * (1 - LEVEL) / len(found))
    assert abs(held.value - LEVEL) <= ERRORS * error if of == 1 else held.value < LEVEL - ERRORS * error
    assert held.low < held.value < held.high


def test_an_interval_for_fresh_seeds_holds_their_mean() -> None:
    """One configuration of a table, three seeds to search and two held out, whose own mean has noise."""
    found = []
    for repetition in range(1500):
        values = np.random.default_rng(repetition).standard_normal((1, 5))
        episode = Recorded(recorded(values)).episode(repetition)
        assert episode.fresh == 2
        given = dataclasses.replace(setting(episode, repetition, space=line(1)), fresh=episode.fresh)
        found.append(last(episode, plain.Random(given, each=3), 3).covered)
    assert abs(share(found).value - LEVEL) <= ERRORS * math.sqrt(LEVEL * (1 - LEVEL) / len(found))


def test_how_far_configurations_differ_is_told() -> None:
    """Against least squares: the F test of a model with configurations and seeds against one with seeds alone."""
    rng = np.random.default_rng(3)
    last = 0.5 + 0.02 * rng.standard_normal((6, 1)) + 0.1 * rng.standard_normal(5) + 0.01 * rng.standard_normal((6, 5))
    seeds, both = np.tile(np.eye(5), (6, 1)), np.hstack([np.tile(np.eye(5), (6, 1)), np.repeat(np.eye(6), 5, axis=0)])
    less, more = (float(np.sum((last.ravel() - x @ np.linalg.lstsq(x, last.ravel())[0]) ** 2)) for x in (seeds, both))
    noise = more / 20
    true = math.sqrt(((less - more) / 5 - noise) / 5)
    assert f"estimated at {100 * true:.1f} points" in differences(last)
    assert f"same seeds at {100 * math.sqrt(noise):.1f}; that all are equal has p < 0.001" in differences(last)
    same = 0.5 + 0.1 * rng.standard_normal(5) + 0.01 * rng.standard_normal((6, 5))
    less, more = (float(np.sum((same.ravel() - x @ np.linalg.lstsq(x, same.ravel())[0]) ** 2)) for x in (seeds, both))
    assert f"p = {stats.f.sf((less - more) / 5 / (more / 20), 5, 20):.3f}" in differences(same)
    assert differences(np.repeat([[0.1], [0.2]], 4, axis=1)) == "All seeds order the configurations alike."


def test_the_floor_is_the_choice_by_all_that_may_be_seen() -> None:
    """Two configurations over eight seeds; the first is better on one seed by far, the second on all others."""
    values = np.tile([[0.0], [0.1]], 8)
    values[0, 0] = 10.0
    for repetition in range(20):
        episode = Recorded(recorded(values)).episode(repetition)
        lucky = any(episode.curve({"x": 0.0}, seed)[-1] > 5 for seed in range(episode.seeds))
        best = 10 / 3 if not lucky else 0.1
        chosen = 0.0 if lucky else 0.1
        assert episode.floor == pytest.approx(best - chosen)
    table = bench.measure({"line": Recorded(recorded(values))}, [], repetitions=5, processes=1)
    assert table["tables"]["line"]["floor"] == np.median(
        [Recorded(recorded(values)).episode(r).floor for r in range(5)]
    )


def test_regret_of_choosing_between_two_under_noise() -> None:
    """Means 0.5 and 0.5 - d; the wrong one is chosen with Φ(-d/(σ√2)), d lost each time. The truth told: never."""
    d, sigma, found, told = 0.1, 0.1, [], []
    means = {0.0: 0.5, 1.0: 0.5 - d}
    for repetition in range(1500):
        episode = Known(repetition, lambda x: means[float(x)], sigma)
        two = line(2)
        found.append(last(episode, plain.Grid(setting(episode, repetition, space=two), each=1), 2))
        inner = plain.Grid(setting(episode, repetition, space=two), each=1)
        told.append(last(episode, Told(inner, setting(episode)), 2))
    near([judged.regret for judged in found], d * norm.cdf(-d / (sigma * math.sqrt(2))))
    assert {(judged.regret, judged.curse) for judged in told} == {(0.0, 0.0)}


def test_a_search_without_a_winner_has_the_regret_of_a_blind_choice() -> None:
    table = Recorded(recorded(np.repeat(np.arange(10)[:, None] / 10, 4, axis=1)))
    judged = judge(table.episode(0), Snapshot(3, None, 0.0, None))
    assert judged.regret == judged.searching == pytest.approx(0.45) and judged.covered is None
    assert math.isnan(judged.curse)


def test_a_search_claims_a_gain_where_its_report_would() -> None:
    """The paper's value is 0. Where the mean rises by a tenth per cell, a gain is claimed as soon as there is an
    estimate, and not before; where it falls, never; a random search says nothing of it."""
    for slope, sigma, expected in ((0.1, 0.01, [False, True]), (-0.1, 0.01, [False, False])):
        episode = Known(0, lambda x, slope=slope: slope * round(float(x)), sigma)
        searcher = SEARCHERS["fedtune-1"](setting(episode))
        snapshots = Simulation(episode, searcher, slots=1, budgets=[ROUNDS, 20 * ROUNDS]).run()
        assert [judge(episode, snapshot).claim for snapshot in snapshots] == expected
    assert last(Known(0), plain.Random(setting(Known(0)), each=1), 5).claim is None


def test_seeds_that_are_held_out_are_never_seen() -> None:
    """Every seed has a value of its own; what was seen and what is true share none, and together they are all."""
    values = np.tile(2.0 ** np.arange(8), (10, 1))
    table = Recorded(recorded(values))
    dealt = set()
    for repetition in range(30):
        episode = table.episode(repetition)
        seen = sum(float(episode.curve({"x": 0.0}, seed)[-1]) for seed in range(episode.seeds))
        hidden = held_out(8) * episode.expected({"x": 0.0})
        assert episode.seeds == 5 and seen + hidden == 255
        dealt.add(hidden)
    assert len(dealt) > 10, "they are dealt anew"
    assert [held_out(n) for n in (3, 4, 5, 8, 12)] == [2, 2, 2, 3, 4]
    with pytest.raises(ValueError, match="a search needs one"):
        held_out(2)


def test_a_shuffled_table_tells_nothing() -> None:
    """The best cell is far ahead; shuffled, what is seen of it is what is seen of any, in every round."""
    values = np.zeros((10, 8))
    values[7] = 1.0
    shuffled = Shuffled(recorded(values))
    seen = np.array([shuffled.episode(r).curve({"x": 7.0}, 0) for r in range(2000)])
    assert shuffled.episode(0).best == 1.0 and shuffled.episode(0).blind == pytest.approx(0.1)
    steps = np.arange(1, ROUNDS + 1) / ROUNDS
    assert np.abs(seen.mean(axis=0) / steps - 0.1).max() <= ERRORS * math.sqrt(0.09 / 2000)
    assert np.abs(np.corrcoef(seen.T) - np.eye(ROUNDS)).max() <= ERRORS / math.sqrt(2000)


def test_what_lies_between_cells_has_noise_of_its_own() -> None:
    """Six cells over eight seeds: means, what a seed does to all, and the rest, each as NumPy has it. A proposal shares
    its cell's mean and the seed's part with its neighbours, and nothing else."""
    rng = np.random.default_rng(1)
    values = 5 + rng.normal(0, 1, (6, 1)) + rng.normal(0, 0.5, 8) + rng.normal(0, 0.3, (6, 8))
    episode = Gridded(recorded(values)).episode(4)
    seen = np.array([[float(episode.curve({"x": float(c)}, s)[-1]) for s in range(5)] for c in range(6)])
    assert set(seen.ravel()) <= set(values.ravel()), "a cell has its recorded curves"
    means, parts = seen.mean(axis=1), seen.mean(axis=0) - seen.mean()
    own = np.sum((seen - means[:, None] - parts) ** 2) / ((6 - 1) * (5 - 1))
    beside = [{"x": 2 + x} for x in np.linspace(-0.4, 0.4, 2000) if x != 0]
    for seed in (0, 3):
        found = np.array([float(episode.curve(x, seed)[-1]) for x in beside])
        near(found.tolist(), means[2] + parts[seed])
        assert found.var() == pytest.approx(own, rel=0.15)
        assert np.abs(np.corrcoef(found[1:], found[:-1])[0, 1]) < ERRORS / math.sqrt(2000)
    curve = episode.curve(beside[0], 0)
    assert curve.tolist() == episode.curve(dict(beside[0]), 0).tolist()
    assert curve == pytest.approx(curve[-1] * np.arange(1, ROUNDS + 1) / ROUNDS), "all rounds of one federation"
    assert episode.expected(beside[0]) == episode.expected({"x": 2.0})
    assert episode.truth_curve(beside[0]).tolist() == episode.truth_curve({"x": 2.0}).tolist()


def test_what_lies_between_cells_shows_nothing_of_held_out_seeds() -> None:
    values = np.random.default_rng(2).random((6, 8))
    episode = Gridded(recorded(values)).episode(0)
    hidden = [s for s in range(8) if not any(episode.curve({"x": 1.0}, k)[-1] == values[1, s] for k in range(5))]
    assert len(hidden) == 3
    other = values.copy()
    other[:, hidden] += 7.0
    again = Gridded(recorded(other)).episode(0)
    for x, seed in itertools.product((0.2, 1.0, 3.3), range(5)):
        assert episode.curve({"x": x}, seed).tolist() == again.curve({"x": x}, seed).tolist()


def test_a_minimised_metric_is_turned_and_a_diverged_federation_is_the_worst() -> None:
    values = np.repeat(np.arange(10)[:, None] / 10, 4, axis=1)
    table = recorded(values, direction="minimize")
    table.validation[0, :, 2:] = table.test[0, :, 2:] = np.nan
    episode = Recorded(table).episode(0)
    assert episode.best == -0.1 and float(episode.truth_curve({"x": 0.0})[-1]) == -0.9
    assert np.isnan(episode.curve({"x": 0.0}, 0)[-1]), "the search is told that it diverged"
    searcher = plain.Grid(setting(episode, space=table.space), each=1)
    assert last(episode, searcher, 10).regret == 0


# -- slots and budgets -------------------------------------------------------------------------------------------------


class Scripted:
    """Asks for what it was given, in that order, and remembers what it was told."""

    def __init__(self, *jobs: Job | None) -> None:
        self.jobs, self.told = list(jobs), []

    def ask(self) -> Job | None:
        return self.jobs.pop(0) if self.jobs else None

    def tell(self, result: Result) -> None:
        self.told.append((result.job.trial, result.curves.shape))

    def winner(self) -> Verdict | None:
        return Verdict({"x": 0.0}, float(len(self.told))) if self.told else None


def job(trial: int, until: int, seeds: tuple[int, ...] = (0,)) -> Job:
    return Job(trial, {"x": float(trial)}, seeds, until)


def test_slots_run_side_by_side_and_a_trial_goes_on_for_the_rest() -> None:
    searcher = Scripted(job(0, 4), job(1, 1), job(1, 2), job(1, 3, (0, 1)))
    simulation = Simulation(Known(0), searcher, slots=2, budgets=[100])
    snapshot = simulation.run()[0]
    # Trial 1: a round, a round, then one of seed 0 and three of seed 1; trial 0 four rounds beside it.
    assert searcher.told == [(1, (1, 1)), (1, (1, 2)), (0, (1, 4)), (1, (2, 3))]
    assert simulation.spent == 4 + 1 + 1 + 1 + 3 and simulation.now == snapshot.seconds == 6.0


def test_a_snapshot_knows_only_what_its_budget_paid_for() -> None:
    searcher = plain.Random(setting(Known(0)), each=1)
    simulation = Simulation(Known(0), searcher, slots=1, budgets=[3, 4, 7, 8, 11])
    found = [snapshot.seconds for snapshot in simulation.run()]
    assert found == [0.0, 4.0, 4.0, 8.0, 8.0] and simulation.spent == 8, "11 do not suffice for a third federation"
    assert simulation.snapshots[0].verdict is None and simulation.snapshots[1].verdict is not None


# -- searchers ---------------------------------------------------------------------------------------------------------

#: One of each kind that needs no other environment; the others differ from these in a number.
KINDS = ("random-3", "grid-1", "fedtune-1", "fedtune-race", "optuna-tpe-median", "ray-tune-optuna", "oracle-fedtune")


@pytest.mark.parametrize("name", KINDS)
def test_a_searcher_repeats_itself_and_its_winner_is_one_it_tried(name: str) -> None:
    rng = np.random.default_rng(0)
    table = Recorded(recorded(np.clip(np.arange(10)[:, None] / 10 + rng.normal(0, 0.2, (10, 8)), 0, 1)))
    task = bench.Task(table.name, name, 3, 2, (3, 12, 20))
    found = bench.replay(table, task)
    assert str(found) == str(bench.replay(table, task)) and len(found) == 3
    assert all(judged.searching >= 0 for judged in found)
    # Before there is a winner the choice is a blind one, which may be better than the first configuration tried.
    assert all(judged.regret >= judged.searching - 1e-12 for judged in found if math.isfinite(judged.curse))
    assert str(found) != str(bench.replay(table, bench.Task(table.name, name, 4, 2, (3, 12, 20))))
    assert math.isfinite(found[-1].curse), "it has a winner by then"


def test_what_a_table_does_not_allow_is_said() -> None:
    table = Recorded(recorded(np.zeros((10, 4))))
    with pytest.raises(Impossible, match="3 seeds each, and the table has 2"):
        bench.replay(table, bench.Task(table.name, "random-3", 0, 1, (3,)))
    many = {f"x{n}": Dimension(Parameter(f"x{n}", "real", 0.0, "", low=0.0, high=1.0), 0.0, 1.0) for n in range(8)}
    with pytest.raises(Impossible, match="256 cells"):
        plain.Grid(setting(Known(0), space=Space("wide", "toy", many)), each=1)


ARM = """
import math, sys
import numpy as np
from benchmarks.replay.arms.serve import serve
from benchmarks.replay.searcher import Front, Job, Verdict

class Arm:
    # Tries the middle of every dimension, once per seed, and says what it has been told.
    def __init__(self, start):
        if start["searcher"] == "choosy":
            raise ValueError(f"{start['seeds']} seeds are not enough for it")
        self.start, self.asked, self.told = start, 0, []
        print("noise that is no answer")

    def ask(self):
        if self.start["searcher"] == "dies":
            sys.exit("its last words")
        if self.asked == self.start["seeds"]:
            return None
        self.asked += 1
        flat = {d["name"]: np.float64((d["low"] + d["high"]) / 2) if d["low"] is not None else d["options"][-1]
                for d in self.start["dimensions"]}
        return Job(7, flat, (self.asked - 1,), self.start["rounds"])

    def tell(self, result):
        assert all(d["when"] is None or d["when"][1] in d["name"] for d in self.start["dimensions"])
        self.told.append((result.job.values, result.curves))

    def winner(self):
        if self.start["searcher"] == "several":
            return Front(tuple(values for values, _ in self.told)) if self.told else None
        last = [float(curves[0, -1]) for _, curves in self.told if math.isfinite(curves[0, -1])]
        return Verdict(self.told[0][0], max(last), 0.25, None) if last else None

serve(Arm)
"""


def peer(name: str, table: Any, seeds: int = 3) -> Peer:
    given = dataclasses.replace(setting(Known(0), space=table), seeds=seeds)
    return Peer(given, command=(sys.executable, "-c", ARM), name=name)


def test_a_searcher_in_another_process_is_asked_and_told() -> None:
    space = SPECS["mixed"].space
    for _ in range(2):  # one process serves one search after the other
        searcher = peer("patient", space)
        assert searcher.winner() is None
        for seed in range(3):
            asked = searcher.ask()
            assert asked is not None and (asked.trial, asked.seeds, asked.until) == (7, (seed,), ROUNDS)
            assert asked.values["method"] == "fedavg" and space.contains(
                dict(asked.values) | {"local_steps": 40, "batch_size": 64}
            ), "what belongs to methods that were not chosen is left out"
            searcher.tell(Result(asked, np.array([[0.1, 0.2, 0.3, [0.4, math.nan, 0.6][seed]]])))
        assert searcher.ask() is None
        assert searcher.winner() == Verdict(asked.values, 0.6, 0.25, None), "and NaN was told as NaN"


def test_a_searcher_in_another_process_names_a_front() -> None:
    searcher = peer("several", line())
    assert searcher.winner() is None
    asked = searcher.ask()
    assert asked is not None
    searcher.tell(Result(asked, np.ones((1, ROUNDS, 3))))
    assert searcher.winner() == Front((asked.values,))


def test_what_stands_in_for_scikit_learn_is_its_function_bit_for_bit() -> None:
    """In Syne Tune's quantile regression, at the quantiles that it asks for and on and beside the steps of the
    distribution."""
    for count in [*range(1, 41), 100, 199]:
        rng = np.random.default_rng(count)
        for values in (rng.normal(size=count), rng.integers(0, 3, count).astype(float)):
            for rank in (0.0, 1e-9, 17.0, 33.0, 50.0, 67.0, 83.0, 20.0, 40.0, 60.0, 80.0, 25.0, 75.0, 100.0):
                expected = _weighted_percentile(values, np.ones(count), rank)
                assert weighted_percentile(values, np.ones(count), rank) == expected, (count, rank)
    with pytest.raises(ValueError, match="weight 1"):
        weighted_percentile(np.arange(3.0), np.array([1.0, 2.0, 1.0]))
    with pytest.raises(ValueError, match="finite"):
        weighted_percentile(np.array([1.0, np.nan]), np.ones(2))


def test_a_peer_that_is_not_there_or_not_able_or_ends_is_told_apart() -> None:
    with pytest.raises(Impossible, match="make bench-search-peers"):
        Peer(setting(Known(0)), command=("/nowhere/python",), name="any")
    with pytest.raises(Impossible, match="3 seeds are not enough"):
        peer("choosy", line())
    with pytest.raises(RuntimeError, match="its last words"):
        peer("dies", line()).ask()


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_searches_where_it_is_installed(name: str) -> None:
    rng = np.random.default_rng(0)
    table = Recorded(recorded(np.clip(np.arange(10)[:, None] / 10 + rng.normal(0, 0.1, (10, 8)), 0, 1)))
    task = bench.Task(table.name, name, 3, 2, (3, 12))
    try:
        found = bench.replay(table, task)
    except Impossible as reason:
        if str(reason) != NOT_INSTALLED:
            raise
        pytest.skip(NOT_INSTALLED)
    assert str(found) == str(bench.replay(table, task)) and math.isfinite(found[-1].curse)


# -- the model of a continuous space -----------------------------------------------------------------------------------


def smooth(configurations: int = 40, seeds: int = 8, sigma: float = 0.05) -> tuple[CurveTable, Floats]:
    """A table whose means are a parabola with its top of 0.8 at x = 0.3, and whose noise is half shared."""
    rng = np.random.default_rng(1)
    x = Parameter("x", "real", 0.0, "", low=0.0, high=1.0)
    space = Space("smooth", "toy", {"x": Dimension(x, 0.0, 1.0)})
    places = (np.arange(configurations) + 0.5) / configurations
    means = 0.8 - (places - 0.3) ** 2
    noise = rng.normal(0, sigma / math.sqrt(2), (1, seeds, 1)) + rng.normal(
        0, sigma / math.sqrt(2), (configurations, seeds, 1)
    )
    curves = (means[:, None, None] + noise) * np.array([0.25, 0.5, 0.75, 1.0])
    card = dict(recorded(np.zeros((2, 3))).card) | {"space": space.to_json(), "name": "smooth"}
    points = tuple({"x": float(p)} for p in places)
    seconds = np.ones((configurations, seeds), dtype=np.float32)
    return CurveTable(card, points, tuple(range(seeds)), curves, curves.copy(), seconds), means


def test_the_model_finds_means_and_noise_of_a_known_space() -> None:
    table, _ = smooth()
    model = Surrogate(table)
    # A mean over 8 seeds has an error of σ/√8 = 0.018, half of its variance shared by all configurations: a shift that
    # the fit cannot see and that the comparison with the known means does.
    assert model.best == pytest.approx(0.8, abs=ERRORS * 0.05 / math.sqrt(8))
    # The mean of (x - 0.3)² over [0, 1]; what seeds share moves both alike, so the rest of their noise is left.
    assert model.best - model.blind == pytest.approx(0.37 / 3, abs=ERRORS * 0.05 / math.sqrt(2 * 8))
    assert model.fit.rank > 0.9 and model.fit.explained > 0.8
    # With so few seeds the variance of what they share is known to a factor of two or so.
    assert 0.02 < model.fit.noise < 0.1 and 0.15 < model.fit.paired < 0.85 and model.fit.correlation > 0.99


def test_the_models_noise_is_that_which_was_measured() -> None:
    table, _ = smooth()
    model = Surrogate(table)
    values = [{"x": 0.2}, {"x": 0.6}]
    drawn = np.array(
        [[model.episode(r).curve(v, 0)[-1] - model.at(v).true[ROUNDS - 1] for v in values] for r in range(3000)]
    )
    shared, own = model.noise.shared, model.noise.own
    sigma = [model.at(v).sigma for v in values]
    at = ROUNDS - 1
    for k in range(2):
        variance = sigma[k] ** 2 * (shared + own)[at, at]
        assert np.var(drawn[:, k]) == pytest.approx(variance, rel=ERRORS * math.sqrt(2 / 3000))
        assert abs(drawn[:, k].mean()) <= ERRORS * math.sqrt(variance / 3000)
    paired = shared[at, at] / (shared + own)[at, at]
    assert abs(np.corrcoef(drawn.T)[0, 1] - paired) <= ERRORS / math.sqrt(3000)
    one, other = model.episode(5), model.episode(5)
    assert np.array_equal(one.curve(values[0], 3), other.curve(values[0], 3)), "the same question, the same answer"
    assert not np.array_equal(one.curve(values[0], 3), one.curve(values[0], 4))


def test_no_accuracy_of_the_model_is_above_one_and_its_means_are_those_of_what_it_gives() -> None:
    table, _ = smooth()
    high = dataclasses.replace(
        table, validation=np.minimum(table.validation + 0.18, 1), test=np.minimum(table.test + 0.18, 1)
    )
    model, best = Surrogate(high), {"x": 0.3}
    assert model.bounded and not Surrogate(dataclasses.replace(table, validation=table.validation + 1)).bounded
    drawn = np.array([model.episode(r).curve(best, 0)[-1] for r in range(4000)])
    place = model.at(best)
    assert drawn.max() == 1.0 and drawn.min() >= 0
    assert abs(drawn.mean() - place.true[ROUNDS - 1]) <= ERRORS * drawn.std() / math.sqrt(len(drawn))
    assert place.true[ROUNDS - 1] < place.mean[ROUNDS - 1] and model.episode(0).truth_curve(best)[-1] == place.true[-1]
    assert model.best <= 1 and model.best >= place.true[-1] - 1e-9
    # A value that lies far from both ends is not changed; one at the end loses half of a normal's mean deviation.
    assert cut_off(np.array([0.5, 1.0]), np.array([0.05, 0.05])) == pytest.approx(
        [0.5, 1 - 0.05 / math.sqrt(2 * math.pi)]
    )


def two_parts(rng: np.random.Generator, lacks: float = 0.0) -> Floats:
    """30 configurations over 400 seeds whose noise has a variance of 0.25, of which 36 % are shared; a part `lacks` of
    the federations is not there."""
    shared, own = rng.normal(0, 0.3, (1, 400, 2)), rng.normal(0, 0.4, (30, 400, 2))
    found: Floats = rng.normal(0, 5, (30, 1, 2)) + shared + own
    found[rng.random((30, 400)) < lacks] = np.nan
    return found


def test_noise_is_divided_into_what_is_shared_and_what_is_not() -> None:
    noise = measure_noise(two_parts(np.random.default_rng(2)))
    assert np.median(noise.sigma) == pytest.approx(0.5, rel=0.1)
    assert np.diag(noise.shared) == pytest.approx(np.full(2, 0.36), rel=ERRORS * math.sqrt(2 / 400))
    assert np.diag(noise.own) == pytest.approx(np.full(2, 0.64), rel=ERRORS * math.sqrt(2 / 400))


def test_means_and_noise_of_a_table_that_lacks_federations() -> None:
    """Means are exact where values are sums of a configuration's part and a seed's; variances come back where a third
    of the federations is not there, as where a second stage gave the best ones further seeds."""
    rng = np.random.default_rng(2)
    place, seed = rng.normal(0, 5, (30, 1, 2)), rng.normal(0, 1, (1, 6, 2))
    sums = place + seed
    lacking = rng.random((30, 6)) < 0.4
    lacking[:, :2] = False
    sums[lacking] = np.nan
    assert means_of(sums) == pytest.approx((place + seed.mean(axis=1, keepdims=True))[:, 0])
    noise = measure_noise(two_parts(rng, lacks=0.3))
    assert np.median(noise.sigma) == pytest.approx(0.5, rel=0.1)
    assert np.diag(noise.shared) == pytest.approx(np.full(2, 0.36), rel=ERRORS * math.sqrt(2 / 400))
    assert np.diag(noise.own) == pytest.approx(np.full(2, 0.64), rel=ERRORS * math.sqrt(2 / 400))


def test_recorded_means_are_drawn_to_their_mean_by_what_is_noise() -> None:
    """Means 0, 1 and 2 have a variance of 1; of noise 0.25, of true differences 0.75. All noise: all are alike."""
    means = np.array([[0.0], [1.0], [2.0]])
    assert shrunk(means, np.full((3, 1), 0.25)) == pytest.approx(np.array([[0.25], [1.0], [1.75]]))
    assert shrunk(means, np.full((3, 1), 2.0)) == pytest.approx(np.full((3, 1), 1.0))
    # A mean of fewer seeds is drawn further: 0.75 / (0.75 + 0.5) and 0.75 / (0.75 + 0.125).
    found = shrunk(means, np.array([[0.5], [0.125], [0.125]]))
    assert found == pytest.approx(np.array([[1 - 0.75 / 1.25], [1.0], [1 + 0.75 / 0.875]]))


def test_the_nearest_recorded_and_trees_are_worlds_of_their_own() -> None:
    """Beside a recorded configuration the nearest has its mean, drawn to that of all; trees come near both it and a
    step that no smooth model has."""
    table, _ = smooth()
    nearest = Surrogate(table, "nearest")
    drawn = shrunk(means_of(nearest.curves), (nearest.noise.sigma**2 / 8)[:, None] * np.diag(nearest.noise.own))
    place = nearest.at({"x": 7.51 / 40})
    assert nearest.name == "smooth, nearest" and place.mean == pytest.approx(drawn[7])
    assert place.mean[ROUNDS - 1] != pytest.approx(nearest.curves[7].mean(axis=0)[ROUNDS - 1])
    assert nearest.best == pytest.approx(0.8, abs=ERRORS * 0.05 / math.sqrt(8))
    step = dataclasses.replace(table, validation=table.validation.copy(), test=table.test.copy())
    step.validation[:20], step.test[:20] = step.validation[:20] / 2, step.test[:20] / 2
    trees = Surrogate(step, "trees")
    before, after = (trees.at({"x": x}).mean[ROUNDS - 1] for x in (0.4, 0.6))
    assert after - before == pytest.approx(0.8 - 0.3**2 - (0.8 - 0.1**2) / 2, abs=0.1)
    assert trees.fit.explained > 0.5


def test_a_forest_does_not_hang_on_the_last_digits_of_its_values() -> None:
    """Both coordinates tell the same, so each split is as good by one as by the other."""
    first = np.random.default_rng(0).random(60)
    points, values = np.stack([first, 1 - first], axis=1), np.stack([np.sin(9 * first), first**2], axis=1)
    elsewhere = np.random.default_rng(1).random((200, 2))
    forests = [Forest(points * factor, values * factor) for factor in (1.0, 1 + 1e-14, 1 - 1e-14)]
    assert len({forest(elsewhere).tobytes() for forest in forests}) == 1


def test_a_federation_that_diverges_is_one_but_in_the_gaussian_world() -> None:
    """The better half of the configurations diverges on half of its seeds, from the third round on."""
    table, _ = smooth()
    broken = dataclasses.replace(table, validation=table.validation.copy(), test=table.test.copy())
    broken.validation[20:, :4, 2:] = broken.test[20:, :4, 2:] = np.nan
    world, values = Surrogate(broken, "nearest"), {"x": 0.8}
    seen = np.array([world.episode(r).curve(values, 0) for r in range(2000)])
    gone = np.isnan(seen[:, -1])
    assert abs(gone.mean() - 0.5) <= ERRORS * math.sqrt(0.25 / 2000)
    assert not np.isnan(seen[:, :2]).any() and np.isnan(seen[gone, 2:]).all()
    place, worst = world.at(values), float(np.nanmin(broken.test))
    assert place.diverges == 0.5 and place.true[-1] == pytest.approx((place.mean[-1] + worst) / 2, abs=0.005)
    assert Surrogate(broken, "trees").at(values).diverges == pytest.approx(0.5, abs=0.05)
    assert world.at({"x": 0.2}).diverges == 0
    gaussian = Surrogate(broken)
    assert not any(np.isnan(gaussian.episode(r).curve(values, 0)).any() for r in range(50))


def test_a_grid_is_replayed_as_recorded_and_other_tables_in_three_worlds(tmp_path: Path) -> None:
    """A grid that lacks federations, or seeds to hold out, is no whole grid."""
    cells = recorded(np.tile(np.arange(10)[:, None] / 10, (1, 4)), "cells")
    save(cells, tmp_path / "cells.npz")
    save(smooth(12, 4)[0], tmp_path / "smooth.npz")
    found = bench.tables(tmp_path)
    assert {name: type(table) for name, table in found.items()} == {
        "cells": Gridded,
        "cells, shuffled": Shuffled,
        "smooth": Surrogate,
        "smooth, trees": Surrogate,
        "smooth, nearest": Surrogate,
    }
    assert [*bench.tables(tmp_path, ["smooth, trees"])] == ["smooth, trees"]
    stopped = np.full((10, 4), ROUNDS, dtype=np.uint16)
    stopped[0, 1] = 0
    save(dataclasses.replace(cells, measured=stopped), tmp_path / "cells.npz")
    assert [*bench.tables(tmp_path / "cells.npz")] == ["cells", "cells, trees", "cells, nearest"]


def test_what_was_stopped_is_no_part_of_a_world() -> None:
    """A federation that was stopped says nothing of the end, and one that diverged in a round that others do not know
    is no stopped one."""
    table, _ = smooth()
    rounds = np.full((40, 8), ROUNDS, dtype=np.uint16)
    rounds[3:, 5:] = 1
    short = dataclasses.replace(table, validation=table.validation.copy(), test=table.test.copy(), measured=rounds)
    short.validation[3:, 5:, 1:] = short.test[3:, 5:, 1:] = np.nan
    nearest = Surrogate(short, "nearest")
    assert nearest._diverges is None and np.isnan(nearest.curves).any(axis=2).sum() == 37 * 3
    with pytest.raises(UserError, match="from one seed it cannot be told how much a seed moves a value"):
        Surrogate(dataclasses.replace(short, measured=np.minimum(rounds, np.where(np.arange(8) > 0, 0, ROUNDS))))


# -- statistics -------------------------------------------------------------------------------------------


def test_statistics_over_repetitions() -> None:
    found = over([1.0, 2.0, 3.0, 4.0, 100.0, math.nan], np.median)
    assert (found.value, found.n) == (3.0, 5) and found.low < 3.0 < found.high
    held = [over(np.random.default_rng(r).normal(0, 1, 60).tolist(), np.mean) for r in range(400)]
    rate = np.mean([h.low <= 0 <= h.high for h in held])
    assert abs(rate - LEVEL) <= ERRORS * math.sqrt(LEVEL * (1 - LEVEL) / 400)
    assert over([math.nan], np.median).n == 0 and share([None]).n == 0
    assert share([True, False, None, True]).value == pytest.approx(2 / 3)
