"""Replaying searches with several objectives: the hypervolume, who is on a named front, and the page made of them."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.curve_table import CurveTable, save
from analysis.runs import pareto
from benchmarks.replay import bench as single_bench
from benchmarks.replay.cells import points
from benchmarks.replay.objectives import bench
from benchmarks.replay.objectives.bench import ObjectivesSimulation, mean_volume
from benchmarks.replay.objectives.searchers import OURS, PEERS, Fedtune, Random
from benchmarks.replay.objectives.table import Objectives
from benchmarks.replay.page import markdown
from benchmarks.replay.peer import NOT_INSTALLED
from benchmarks.replay.pool import Task
from benchmarks.replay.searcher import Floats, Impossible, Setting
from benchmarks.replay.searchers import plain
from benchmarks.replay.searchers.oracle import Told
from benchmarks.tests.test_replay import ROUNDS, recorded
from search_spaces.errors import UserError

#: Metrics of which the second is minimised.
METRICS = ("val_global_accuracy", "val_fm", "val_wlp")
SIGNS = (1.0, -1.0, 1.0)
LARGEST = np.array([0.0, 1.0, 0.0])
#: One of each kind that needs no other environment.
KINDS = ("random-1", "fedtune-1", "optuna-tpe", "optuna-nsga2", "oracle-random")


def several(values: Floats, name: str = "line", test: Floats | None = None, rounds: int = ROUNDS) -> CurveTable:
    """A table over `line` whose curves go evenly to `values` (configurations, seeds, objectives), larger is better;
    `test`: the same on test data, where it differs."""

    def curves(turned: Floats, place: int) -> Floats:
        found: Floats = SIGNS[place] * turned[:, :, place, None] * np.arange(1, rounds + 1) / rounds
        return found

    base = recorded(values[:, :, 0], name, metric={"validation": METRICS[0], "test": "global_accuracy"})
    test = values if test is None else test
    also = {}
    for place, metric in enumerate(METRICS[1 : values.shape[2]], start=1):
        also |= {metric: curves(values, place), metric.removeprefix("val_"): curves(test, place)}
    return dataclasses.replace(base, validation=curves(values, 0), test=curves(test, 0), also=also)


def noisy(objectives: int = 3, sigma: float = 0.05, seeds: int = 8) -> CurveTable:
    """Ten configurations: the first objective rises along the line, the second falls, the third has its top inside.
    What is minimised is recorded as numbers from 0 to 1."""
    x = np.arange(10) / 9
    means = np.stack([x, 1 - x**2, 1 - (x - 0.4) ** 2], axis=1)[:, None, :objectives]
    noise = np.random.default_rng(0).normal(0, sigma, (10, seeds, objectives))
    return several(np.clip(means + noise, 0, 1) - LARGEST[:objectives])


def setting(table: Objectives, episode: Any, repetition: int = 0, slots: int = 2) -> Setting:
    seeds, truth = episode.seeds, episode.truth_curve
    return Setting(table.space, table.rounds, seeds, repetition, slots, truth, metrics=table.metrics)


def run(table: Objectives, searcher: str, repetition: int = 0, budgets: tuple[int, ...] = (3, 12, 20)) -> Any:
    return bench.replay(table, Task(table.name, searcher, repetition, 2, budgets))


class Grid(plain.Grid):
    """The whole grid, each cell to its end."""

    winner = Random.winner


# -- the hypervolume ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objectives", [2, 3])
def test_what_configurations_are_worth_is_the_share_of_points_that_they_dominate(objectives: int) -> None:
    """Counted on a lattice between all values that occur: every cell is dominated or not, and its volume is known."""
    table = Objectives(noisy(objectives))
    episode = table.episode(1)
    truth = np.array([episode.truth_curve({"x": float(x)})[-1] for x in range(10)])
    edges = [np.unique(truth[:, k]) for k in range(objectives)]
    cells = [*itertools.product(*(range(len(e) - 1) for e in edges))]
    upper = np.array([[edges[k][c + 1] for k, c in enumerate(cell)] for cell in cells])
    size = np.prod([[edges[k][c + 1] - edges[k][c] for k, c in enumerate(cell)] for cell in cells], axis=1)

    def counted(rows: list[int]) -> float:
        return float(size[(truth[rows][:, None] >= upper).all(axis=2).any(axis=0)].sum())

    for rows in ([4], [0, 9], [1, 3, 7], [2, 5, 6, 8]):
        found = episode.volume([{"x": float(row)} for row in rows])
        assert found == pytest.approx(counted(rows) / counted([*range(10)]), abs=1e-12)
    assert 0 < episode.volume([{"x": 3.0}]) < episode.volume([{"x": 3.0}, {"x": 7.0}]) < 1
    assert episode.volume([]) == 0 and episode.volume([{"x": float(x)} for x in range(10)]) == 1
    assert episode.blind == pytest.approx(np.mean([episode.volume([{"x": float(x)}]) for x in range(10)]))


def test_a_validation_metric_without_its_twin_is_an_error() -> None:
    table = noisy()
    with pytest.raises(UserError, match="has val_wlp without wlp"):
        Objectives(dataclasses.replace(table, also={n: c for n, c in table.also.items() if n != "wlp"}))


# -- searches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objectives", [2, 3])
def test_an_oracle_that_tries_everything_has_the_true_front(objectives: int) -> None:
    table = Objectives(noisy(objectives, sigma=0.2))
    untold = []
    for repetition in range(8):
        episode = table.episode(repetition)
        given = setting(table, episode, repetition)
        budgets = [ROUNDS * n for n in (1, 5, 10)]
        oracle = Told(Grid(given, each=1), given)
        told = ObjectivesSimulation(episode, oracle, slots=1, budgets=budgets).judged()
        assert told[-1].volume == told[-1].tried == 1 and told[-1].budget == 10 * ROUNDS
        assert told[0].volume == told[0].tried == episode.volume([next(iter(Grid(given, each=1)._proposals()))])
        assert mean_volume(told) == pytest.approx(sum(judged.volume for judged in told) / 3)
        truth = np.array([episode.truth_curve(values)[-1] for values in table.configurations])
        assert told[-1].named == len(pareto.front(truth))
        noise = ObjectivesSimulation(episode, Grid(given, each=1), slots=1, budgets=budgets).judged()[-1]
        assert noise.tried == 1 and noise.volume <= 1
        untold.append(noise.volume)
    assert min(untold) < 1, "without the truth the choice errs"


@pytest.mark.parametrize("name", KINDS)
def test_a_searcher_repeats_itself_and_names_what_it_tried(name: str) -> None:
    table = Objectives(noisy())
    found = run(table, name, 3)
    assert str(found) == str(run(table, name, 3)) and len(found) == 3
    assert str(found) != str(run(table, name, 4))
    assert str(found) == str(run(table, name, 3)), "whatever ran in between"
    # Before there is a front the choice is a blind one, which may be worth more than the first configuration tried.
    assert all(judged.volume <= judged.tried + 1e-12 for judged in found if judged.named)
    assert all(0 <= judged.tried <= 1 for judged in found)
    assert found[-1].named > 0 and found[-1].volume > table.episode(3).blind, "it has learnt something by then"


def test_the_values_of_a_minimised_metric_reach_our_search_as_they_are_recorded() -> None:
    table = Objectives(noisy())
    episode = table.episode(0)
    searcher = Fedtune(setting(table, episode), each=1)
    ObjectivesSimulation(episode, searcher, slots=2, budgets=[ROUNDS * 6]).run()
    done = [trial for trial in searcher.queue.trials() if trial.state.name == "COMPLETE"]
    assert searcher.experiment.directions == ("maximize", "minimize", "maximize") and done
    for trial in done:
        turned = episode.curve(searcher.queue.parts[0].space.values(trial.params), 0)[-1]
        assert trial.values == [sign * value for sign, value in zip(SIGNS, turned, strict=True)]
    assert min(trial.values[1] for trial in done) >= 0 and max(trial.values[1] for trial in done) > 0


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_searches_where_it_is_installed(name: str) -> None:
    table = Objectives(noisy())
    try:
        found = run(table, name, 3)
    except Impossible as reason:
        if str(reason) != NOT_INSTALLED:
            raise
        pytest.skip(NOT_INSTALLED)
    assert str(found) == str(run(table, name, 3)) and found[-1].named > 0


# -- the bench and the page --------------------------------------------------------------------------------------------


def test_a_summary_has_medians_the_area_and_the_lead_on_the_same_seeds() -> None:
    table = Objectives(noisy())
    ours, other = ([run(table, name, r) for r in range(5)] for name in (OURS, "random-1"))
    found = bench.summary(other, ours)
    means = [[mean_volume(one) for one in several] for several in (ours, other)]
    assert [b["budget"] for b in found["budgets"]] == [3 * ROUNDS, 12 * ROUNDS, 20 * ROUNDS]
    middle = np.median([one[1].volume for one in other])
    assert found["budgets"][1]["volume"]["value"] == pytest.approx(middle, abs=1e-6)
    assert found["mean"]["value"] == pytest.approx(np.median(means[1]), abs=1e-6)
    assert found["lead"]["value"] == pytest.approx(np.mean(np.subtract(*means)), abs=1e-6)
    assert found["lead"]["low"] < found["lead"]["value"] < found["lead"]["high"]
    assert bench.summary(other, [])["lead"]["value"] is None and found["n"] == 5
    searchers = {OURS: bench.summary(ours, ours), "random-1": found, "syne-tune-moasha": {"impossible": "not here"}}
    entry = {"text": "A toy.", "rounds": ROUNDS, "blind": 0.25, "searchers": searchers}
    text = markdown({"budgets": [3, 12, 20], "tables": {}, "objectives": {"tables": {"toy": entry}}})
    shown = [points(one) for one in (searchers[OURS]["mean"], found["mean"], found["lead"])]
    assert f"| `toy` | {shown[0]} | `random-1` | {shown[1]} | {shown[2]} |" in text


def test_only_tables_with_several_validation_metrics_are_replayed(tmp_path: Path) -> None:
    save(noisy(1), tmp_path / "one.npz")
    save(dataclasses.replace(noisy(2), card=dict(noisy(2).card) | {"name": "two"}), tmp_path / "two.npz")
    assert [*bench.tables(tmp_path)] == ["two"] and bench.tables(tmp_path)["two"].metrics == METRICS[:2]
    assert bench.tables(tmp_path, ["line"]) == {}
    assert [*single_bench.tables(tmp_path)] == ["line", "line, shuffled", "two", "two, shuffled"]
