"""The race that is replayed is the one that `fedtune search --race` runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from analysis import curve_table
from benchmarks.replay.__main__ import KEPT
from benchmarks.replay.goals import worse
from benchmarks.replay.searcher import Result
from benchmarks.replay.searchers.racing import Racing
from benchmarks.tables.lines import RECORDED
from benchmarks.tests.test_replay import Known, setting
from fedtune.trials.racing import FIRST
from tests import packed

ROOT = Path(__file__).resolve().parents[2]


def raced(slots: int, jobs: int, sigma: float = 0.02, **changes: Any) -> list[tuple[int, int, dict[str, Any], int]]:
    """What a race asked for: trial, seed, values and the round asked for, of a peak at x = 6 under noise."""
    episode = Known(1, means=lambda x: 0.5 - 0.01 * (x - 6) ** 2, sigma=sigma)
    searcher = Racing(setting(episode, slots=slots), **changes)
    asked, waiting = [], []
    while len(asked) < jobs:
        job = searcher.ask()
        if job is not None:
            waiting.append(job)
            asked.append((job.trial, job.seeds[0], dict(job.values), job.until))
        if job is None or len(waiting) == slots:
            job = waiting.pop(0)
            curves = np.stack([episode.curve(job.values, seed)[: job.until] for seed in job.seeds])
            searcher.tell(Result(job, curves))
    return asked


def test_further_seeds_go_to_rivals_one_after_the_other() -> None:
    asked = raced(1, 400, sigma=0.1)
    first = {trial: (seed, values) for trial, seed, values, until in reversed(asked) if until == 1}
    fresh = [trial for trial, (seed, _) in first.items() if seed == 0]
    again = [(trial, *entry) for trial, entry in sorted(first.items()) if entry[0] > 0]
    assert len(fresh) > FIRST and again
    assert min(trial for trial, *_ in again) >= FIRST
    for _, seed, values in again:
        seeds = sorted(s for s, v in first.values() if v == values)
        assert seeds == list(range(len(seeds))) and seed < 10
    # They go to where the peak is, not to where configurations were tried.
    tried = np.mean([abs(values["x"] - 6) for seed, values in first.values() if seed == 0])
    assert np.mean([abs(values["x"] - 6) for _, _, values in again]) < tried


def test_a_race_of_three_seeds_gives_no_more() -> None:
    asked = raced(1, 400, sigma=0.1, most=3)
    assert {seed for _, seed, _, _ in asked} == {0, 1, 2}


def test_a_race_is_the_same_whatever_runs_side_by_side() -> None:
    """Trial n is decided by trials 0 … n - lag alone, so slots change only the order in which rounds are asked for."""
    begun = [
        sorted((trial, seed, values["x"]) for trial, seed, values, until in raced(slots, 160, sigma=0.1) if until == 1)
        for slots in (1, 2, 4)
    ]
    n = min(map(len, begun)) - 5
    assert n > 25
    assert begun[0][:n] == begun[1][:n] == begun[2][:n]


SEARCHERS = ("fedtune-race", "fedtune-race-3", "fedtune-3", "fedtune-1")


def rows(text: str, cells: int) -> dict[str, tuple[str, ...]]:
    """The lines of the page's table of so many cells, by name."""
    found = re.findall(r"^\| `(\w+)` " + r"\| ([^|]+) " * cells + r"\|$", text, re.M)
    return {name: others for name, *others in found}  # type: ignore[misc]


def test_the_page_has_the_figures_of_the_benchmark() -> None:
    """Regret, winner's curse and coverage after the largest budget, of races, three seeds and one; and no budget at
    which three seeds are told to be better than a race of three."""
    found = packed.read(KEPT)["tables"]
    text = (ROOT / "docs" / "racing.md").read_text(encoding="utf-8")
    regret, honest = rows(text, 4), rows(text, 8)
    assert {*regret} == {*honest} == {name for name in found if "shuffled" not in name}
    for name in regret:
        last = [found[name]["searchers"][searcher]["budgets"][-1] for searcher in SEARCHERS]
        assert [*regret[name]] == [f"{100 * one['regret']['value']:.1f}" for one in last], name
        assert [*honest[name]] == [
            *(f"{100 * one['curse']['value']:.1f}" for one in last),
            *(f"{100 * one['covered']['value']:.0f} %" for one in last),
        ], name
        race, three = (found[name]["searchers"][searcher]["budgets"] for searcher in SEARCHERS[1:3])
        assert all(r["regret"]["low"] <= t["regret"]["high"] for r, t in zip(race, three, strict=True))


def test_what_the_page_says_of_how_true_estimates_are_is_so() -> None:
    """After the largest budget, on the tables that the page names."""
    found = packed.read(KEPT)["tables"]
    tables = {name: table["searchers"] for name, table in found.items() if "shuffled" not in name}

    def last(searcher: str, what: str) -> dict[str, float]:
        return {name: 100 * one[searcher]["budgets"][-1][what]["value"] for name, one in tables.items()}

    curse, held, guessed = last("fedtune-race", "curse"), last("fedtune-race", "covered"), last("fedtune-1", "covered")
    grid = guessed.pop("dfrd_alpha_lambda")
    text = " ".join((ROOT / "docs" / "racing.md").read_text(encoding="utf-8").split())
    assert f"it holds in {grid:.0f} % of the repetitions on `dfrd_alpha_lambda`" in text
    assert f"and in {min(guessed.values()):.0f} to {max(guessed.values()):.0f} % on the others" in text
    assert f"race of ten seeds lies within {max(map(abs, curse.values())):.1f} points" in text
    assert f"its 90 % interval holds in {min(held.values()):.0f} to {max(held.values()):.0f} %" in text
    three = last("fedtune-race-3", "covered")["dfrd_alpha_lambda"]
    assert f"holds in {three:.0f} % of the repetitions, and in {held['dfrd_alpha_lambda']:.0f} % with ten" in text


def test_what_the_page_says_of_random_search_is_so() -> None:
    """At which budgets a race is told to be worse, and how often its intervals hold where nothing can be learnt."""
    found = packed.read(KEPT)
    budgets, shuffled = found["budgets"], found["tables"]["dfrd_alpha_lambda, shuffled"]["searchers"]

    def after(race: str, other: str, of: Mapping[str, Any] = shuffled) -> list[int]:
        return worse(budgets, of[race], of[other])

    assert after("fedtune-race-3", "random-1") == budgets[-1:] and after("fedtune-race", "random-1") == []
    for other in ("random-3", "random-5"):
        three, ten = after("fedtune-race-3", other), after("fedtune-race", other)
        assert min(three) >= 8 and 2 * len(three) > sum(b >= 8 for b in budgets)
        assert ten and max(ten) <= 18
    for name, table in found["tables"].items():
        for race in ("fedtune-race", "fedtune-race-3"):
            if name != "dfrd_alpha_lambda, shuffled":
                assert after(race, "random-1", table["searchers"]) == ([3] if name == "mixed" else []), name
    held = {
        race: 100 * shuffled[race]["budgets"][-1]["covered"]["value"] for race in ("fedtune-race", "fedtune-race-3")
    }
    text = " ".join((ROOT / "docs" / "racing.md").read_text(encoding="utf-8").split())
    assert f"interval holds in {held['fedtune-race']:.0f} % there, that of a race of three in" in text
    assert f"three in {held['fedtune-race-3']:.0f} %" in text
    grid = found["tables"]["dfrd_alpha_lambda"]["searchers"]["fedtune-race"]["budgets"]
    covered = [100 * one["covered"]["value"] for one in grid]
    assert f"the interval of a race holds in {min(covered):.0f} to {max(covered):.0f} %" in text


def test_what_the_page_says_of_the_seeds_is_so() -> None:
    """The means over all configurations, last round, of the seeds of `dfrd_alpha_lambda`."""
    table = curve_table.load(RECORDED / "dfrd_alpha_lambda.npz")
    means = sorted(100 * table.validation[:, :, -1].mean(axis=0))
    text = " ".join((ROOT / "docs" / "racing.md").read_text(encoding="utf-8").split())
    assert f"twelve seeds of that table have means of {means[0]:.0f} to {means[-1]:.0f}" in text and len(means) == 12
    assert f"one lies {means[1] - means[0]:.0f} points below all others" in text
