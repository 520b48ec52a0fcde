"""The leaderboard over methods, from runs made on the fake simulation without Ray, and the expected best of k trials,
against the mean over every draw."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import ttest_rel

from analysis.auto import LeaderboardRow, expected_best, figures
from analysis.auto.leaderboard import leaderboard_rows
from analysis.runs import Run
from tests.analysis.varied import asked
from tests.fedtune.conftest import space
from tests.fedtune.played import begin, play, searched


def final(folder: Path, alpha: float, seeds: tuple[int, ...], **changes: Any) -> Run:
    """A final run of the fake at `alpha`: its accuracy falls with the distance from 0.3."""
    begin(
        folder,
        where=dataclasses.replace(space(), search={}),
        kind="run",
        sampler="random",
        scheduler="none",
        trials=len(seeds),
        seeds=seeds,
        values={"alpha": alpha, "lambda": 0.7},
        **changes,
    )
    return play(folder)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Run], dict[str, Run]]:
    top = tmp_path_factory.mktemp("auto")
    seeds = (10**9, 10**9 + 1, 10**9 + 2)
    searches = {name: searched(top / "search" / name, seed=i, trials=5 + i) for i, name in enumerate("ab")}
    fresh = {name: final(top / "fresh" / name, alpha, seeds) for name, alpha in (("a", 1.4), ("b", 0.4))}
    return searches, fresh


def board(found: tuple[dict[str, Run], dict[str, Run]], *require: str, fresh: bool = True) -> list[LeaderboardRow]:
    searches = {name: asked(run, method=name, require=list(require)) for name, run in found[0].items()}
    return leaderboard_rows(searches, found[1] if fresh else {}, "val_global_accuracy", 3)


def test_fresh_seeds_decide_who_leads(found: tuple[dict[str, Run], dict[str, Run]]) -> None:
    leader, other = board(found)
    assert (leader.method, other.method) == ("b", "a") and leader.mean > other.mean
    assert set(leader.fresh) == {10**9, 10**9 + 1, 10**9 + 2}
    assert math.isnan(leader.p) and math.isnan(leader.difference)
    assert other.difference == pytest.approx(other.mean - leader.mean)
    assert leader.trials == 6 and other.trials == 5
    # Two seeds, nine rounds each.
    assert leader.seed_rounds == 6 * 2 * 9 and leader.done == 6


def test_the_test_is_paired(found: tuple[dict[str, Run], dict[str, Run]]) -> None:
    searches, fresh = found
    noisy = {name: _noisy(run, name) for name, run in fresh.items()}
    leader, other = board((searches, noisy))
    ends = [[row.fresh[seed] for seed in sorted(row.fresh)] for row in (other, leader)]
    assert other.p == pytest.approx(float(ttest_rel(*ends).pvalue))


def _noisy(run: Run, name: str) -> Run:
    """The same run with what a seed does to one method alone."""
    copy = dataclasses.replace(run)
    metric, sign = "val_global_accuracy", 1 if name == "a" else -1

    def moved(seed: int, line: Mapping[str, float]) -> Mapping[str, float]:
        return {**line, metric: line[metric] + sign * 0.01 * (seed % 1000) ** 2}

    copy.__dict__["lines"] = {
        number: {(round_, seed): moved(seed, line) for (round_, seed), line in mine.items()}
        for number, mine in run.lines.items()
    }
    return copy


def test_without_fresh_seeds_the_search_decides(found: tuple[dict[str, Run], dict[str, Run]]) -> None:
    listed = board(found, fresh=False)
    assert [row.method for row in listed] == sorted("ab", key=lambda name: -{r.method: r.search for r in listed}[name])
    assert all(math.isnan(row.mean) and math.isnan(row.p) for row in listed)


def test_who_keeps_the_requirements_leads(found: tuple[dict[str, Run], dict[str, Run]]) -> None:
    free = {row.method: row for row in board(found)}
    # The fake's worst local performance is half of its accuracy: a bound between the two methods.
    bound = (free["a"].mean + free["b"].mean) / 4
    leader, other = board(found, f"val_wlp<={bound!r}")
    assert leader.method == "a" and leader.missed == 0 and other.missed > 0


VALUES = [0.2, 0.9, 0.5, 0.5]


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_it_is_the_mean_over_all_draws_with_replacement(k: int) -> None:
    draws = list(itertools.product(VALUES, repeat=k))
    assert expected_best(VALUES, k) == pytest.approx(statistics.fmean(map(max, draws)))
    assert expected_best(VALUES, k, sign=-1.0) == pytest.approx(statistics.fmean(map(min, draws)))


def test_nothing_has_no_best() -> None:
    assert math.isnan(expected_best([], 3))


def test_the_axis_of_a_share_is_no_wider_than_shares_are() -> None:
    """With two seeds an interval may reach from far below 0 to far above 100 %, and would hide every difference."""

    def row(low: float, high: float) -> Any:
        return types.SimpleNamespace(fresh={1: 0.6, 2: 0.7}, mean=0.65, low=low, high=high, method="a")

    wide = figures.FIGURES["leaderboard"].draw([row(-0.4, 1.9)], "val_global_accuracy")
    assert tuple(wide.layout.xaxis.range) == pytest.approx((-3, 103))
    assert wide.data[1].error_x.array == pytest.approx((125.0,)), "the interval itself stays what it is"
    assert figures.FIGURES["leaderboard"].draw([row(0.6, 0.7)], "val_global_accuracy").layout.xaxis.range is None
    assert figures.FIGURES["leaderboard"].draw([row(-0.4, 1.9)], "global_loss").layout.xaxis.range is None
