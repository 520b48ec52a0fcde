"""What the page on proposals says of samplers is what the benchmark found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest
from threadpoolctl import threadpool_limits

from benchmarks import results
from benchmarks.replay.__main__ import KEPT
from benchmarks.replay.bench import tables
from benchmarks.replay.goals import worse
from benchmarks.replay.gridded import Gridded
from benchmarks.replay.searcher import Setting, Verdict
from benchmarks.replay.searchers.present import Present
from benchmarks.replay.simulator import Simulation
from benchmarks.tables.lines import RECORDED
from benchmarks.tests.test_racing import rows
from tests import packed

ROOT = Path(__file__).resolve().parents[2]
#: Places of 12 and of 40 federations among the budgets.
BUDGETS = (3, -1)
#: Searchers of other packages begin with these.
OTHERS = ("optuna", "ray-tune", "syne-tune", "smac")


def test_the_page_has_the_figures_of_the_benchmark() -> None:
    found = packed.read(KEPT)["tables"]
    written = rows((ROOT / "docs" / "proposals.md").read_text(encoding="utf-8"), 6)
    assert {*written} == {name for name in found if "shuffled" not in name}
    for name, cells in written.items():
        searchers = {key: one["budgets"] for key, one in found[name]["searchers"].items() if "budgets" in one}
        expected = []
        for place in BUDGETS:
            others = [one[place]["regret"]["value"] for key, one in searchers.items() if key.startswith(OTHERS)]
            own = [searchers[key][place]["regret"]["value"] for key in ("fedtune-1", "fedtune-1-tpe")]
            assert searchers["fedtune-1"][place]["budget"] == (12 if place == 3 else 40) * found[name]["rounds"]
            expected += [f"{100 * value:.1f}" for value in (*own, min(others))]
        assert [*cells] == expected, name


def test_what_the_page_says_of_others_is_so() -> None:
    """The part "Against others": where they are told to be lower than `fedtune-1`, and where it is."""
    found = packed.read(KEPT)
    budgets = found["budgets"]
    tables = {
        name: {key: one for key, one in table["searchers"].items() if "budgets" in one}
        for name, table in found["tables"].items()
        if "shuffled" not in name
    }
    others = [(name, key) for name, table in tables.items() for key in table if key.startswith(OTHERS)]
    last = {pair: tables[pair[0]][pair[1]]["budgets"][-1]["regret"]["value"] for pair in others}
    lower = {(name, key): worse(budgets, tables[name]["fedtune-1"], tables[name][key]) for name, key in others}
    higher = {(name, key): worse(budgets, tables[name][key], tables[name]["fedtune-1"]) for name, key in others}
    for name in ("fedavg", "fedkf"):
        own = tables[name]["fedtune-1"]["budgets"][-1]["regret"]["value"]
        assert own < min(value for (table, _), value in last.items() if table == name)
    for (name, key), after in higher.items():
        if name == "fedavg":
            expected = [40] if key == "syne-tune-cqr" else [12, 18, 27, 40]
            assert [budget for budget in after if budget >= 12] == expected, key
    own = tables["dfrd_full"]["fedtune-1"]["budgets"][-1]["regret"]["value"]
    for pruner, after in (("halving", [18]), ("hyperband", [12, 18]), ("median", [8, 12])):
        pair = "dfrd_full", f"optuna-gp-{pruner}"
        assert last[pair] < own and higher[pair] == after
    assert lower["mixed", "optuna-tpe-halving"] == budgets[:-1] and lower["mixed", "syne-tune-cqr"] == [5, 8, 18]
    assert {key for (name, key), after in lower.items() if after and name != "mixed"} == {
        *("ray-tune-optuna", "syne-tune-random", "syne-tune-kde", "syne-tune-bore"),
        *("optuna-tpe-halving", "optuna-gp-halving", "smac-hyperband"),
    }
    for name in ("mixed", "dfrd_full", "fedavg", "fedkf"):
        assert lower[name, "smac-hyperband"] == [3]
    assert {pair for pair, after in lower.items() if 40 in after} == {("dfrd_alpha_lambda", "ray-tune-optuna")}


def test_the_page_says_how_long_a_proposal_takes() -> None:
    cases = packed.read(results.RECORDED)["cases"]
    [timed] = [table for table in cases["scaling"]["tables"] if table["title"].startswith("Trials that compute")]
    took = {(sampler, trials): f"{ms:.0f}" for sampler, trials, _, ms in timed["rows"]}
    text = " ".join((ROOT / "docs" / "proposals.md").read_text(encoding="utf-8").split())
    ei, tpe = ([took[sampler, trials] for trials in (100, 1000)] for sampler in ("ei", "tpe"))
    assert f"{ei[0]} ms between the 30th and the 100th trial of a search and {ei[1]} ms between the 300th" in text
    assert f"by `tpe` it takes {tpe[0]} and {tpe[1]} ms, and at random {took['random', 100]}." in text


@pytest.mark.slow
def test_in_noise_winners_lie_in_corners_more_often_than_by_chance() -> None:
    """100 repetitions after 12 federations, as the page has them."""
    name = "dfrd_alpha_lambda, shuffled"
    world = tables(RECORDED, [name])[name]
    assert isinstance(world, Gridded)
    ends = {key: {min(grid), max(grid)} for key, d in world.space.search.items() if (grid := d.grid)}
    corners = {
        place
        for place, values in enumerate(world.table.configurations)
        if all(values[key] in two for key, two in ends.items())
    }
    means = np.nanmean(world.table.test[:, :, -1], axis=1)
    assert len(ends) == 2 and len(corners) == 4 and len(means) == 30
    assert corners & {*np.argsort(means)[:2].tolist()}, "a corner is one of the two poorest cells"
    found = 0
    for repetition in range(100):
        episode = world.episode(repetition)
        setting = Setting(world.space, world.rounds, episode.seeds, repetition, 1, episode.truth_curve, episode.fresh)
        search = Present(setting, each=1)
        with threadpool_limits(1):  # as replays do
            [snapshot] = Simulation(episode, search, slots=1, budgets=[12 * world.rounds]).run()
        assert isinstance(snapshot.verdict, Verdict)
        found += world.place(snapshot.verdict.values) in corners
    assert 20 <= found <= 40, "about three in ten"
    assert binomtest(found, 100, len(corners) / len(means), alternative="greater").pvalue < 0.01
