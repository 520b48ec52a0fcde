"""What the documents say of searches and speed is what was recorded, figure by figure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis import curve_table
from benchmarks import explained, results
from benchmarks import page as performance
from benchmarks.replay import page
from benchmarks.replay.__main__ import DOCS, KEPT
from benchmarks.tables.lines import RECORDED
from tests import packed

ROOT = Path(__file__).resolve().parents[2]
#: Races of ten seeds and of three, three seeds each, and one.
SEARCHERS = ("fedtune-race", "fedtune-race-3", "fedtune-3", "fedtune-1")

#: Places of 12 and of 40 federations among the budgets.
BUDGETS = (3, -1)
#: Searchers of other packages begin with these.
OTHERS = ("optuna", "ray-tune", "syne-tune", "smac", "neps")


def section(heading: str) -> str:
    """That section of docs/defaults.md."""
    text = (ROOT / "docs" / "defaults.md").read_text(encoding="utf-8")
    [found] = re.findall(rf"^## {heading}.*?(?=^## |\Z)", text, re.M | re.S)
    return str(found)


def rows(text: str, cells: int) -> dict[str, tuple[str, ...]]:
    """The lines of the page's table of so many cells, by name."""
    found = re.findall(r"^\| `(\w+)` " + r"\| ([^|]+) " * cells + r"\|$", text, re.M)
    return {name: others for name, *others in found}  # type: ignore[misc]


def compared() -> dict[str, Any]:
    """What was measured of all searchers, ours at one revision, of 2026-11-26: by that races and proposals are
    compared. Figures of ours that later ones replaced are kept."""
    found = packed.read(KEPT)
    for name, searchers in found["replaced"].items():
        found["tables"][name]["searchers"] |= searchers
    tables = {name: found["tables"][name] for name in found["replaced"]}
    return {"budgets": found["budgets"], "tables": tables}


def worse(budgets: Sequence[int], one: Mapping[str, Any], other: Mapping[str, Any]) -> list[int]:
    """The budgets at which the interval of `one` lies above that of `other`."""
    return [
        budget
        for budget, a, b in zip(budgets, one["budgets"], other["budgets"], strict=True)
        if a["regret"]["low"] > b["regret"]["high"]
    ]


# -- the pages that are made of figures --------------------------------------------------------------------------------


def test_the_made_pages_are_what_their_figures_give() -> None:
    found = packed.read(KEPT)
    assert DOCS.read_text(encoding="utf-8") == page.markdown(found)
    assert performance.check() == 0


def test_the_pictures_that_explain_are_what_the_tables_give(tmp_path: Path) -> None:
    explained.write(tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in explained.FOLDER.iterdir()}
    assert all(len(picture) < 100_000 for picture in made.values())


# -- docs/defaults.md --------------------------------------------------------------------------------------------------


def test_racing_has_the_figures_of_the_benchmark() -> None:
    """Regret, winner's curse and coverage after the largest budget, of races, three seeds and one; and no budget at
    which three seeds are told to be better than a race of three."""
    found = compared()["tables"]
    text = section("Races")
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


def test_what_racing_says_of_how_true_estimates_are_is_so() -> None:
    """After the largest budget, on the tables that the page names."""
    found = compared()["tables"]
    tables = {name: table["searchers"] for name, table in found.items() if "shuffled" not in name}

    def last(searcher: str, what: str) -> dict[str, float]:
        return {name: 100 * one[searcher]["budgets"][-1][what]["value"] for name, one in tables.items()}

    curse, held, guessed = last("fedtune-race", "curse"), last("fedtune-race", "covered"), last("fedtune-1", "covered")
    grid = guessed.pop("dfrd_alpha_lambda")
    text = " ".join(section("Races").split())
    assert f"it holds in {grid:.0f} % of the repetitions on `dfrd_alpha_lambda`" in text
    assert f"and in {min(guessed.values()):.0f} to {max(guessed.values()):.0f} % on the others" in text
    assert f"race of ten seeds lies within {max(map(abs, curse.values())):.1f} points" in text
    assert f"its 90 % interval holds in {min(held.values()):.0f} to {max(held.values()):.0f} %" in text
    three = last("fedtune-race-3", "covered")["dfrd_alpha_lambda"]
    assert f"holds in {three:.0f} % of the repetitions, and in {held['dfrd_alpha_lambda']:.0f} % with ten" in text


def test_what_racing_says_of_random_search_is_so() -> None:
    """At which budgets a race is told to be worse, and how often its intervals hold where nothing can be learnt."""
    found = compared()
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
    text = " ".join(section("Races").split())
    assert f"interval holds in {held['fedtune-race']:.0f} % there, that of a race of three in" in text
    assert f"three in {held['fedtune-race-3']:.0f} %" in text
    grid = found["tables"]["dfrd_alpha_lambda"]["searchers"]["fedtune-race"]["budgets"]
    covered = [100 * one["covered"]["value"] for one in grid]
    assert f"the interval of a race holds in {min(covered):.0f} to {max(covered):.0f} %" in text


def test_what_racing_says_of_the_seeds_is_so() -> None:
    """The means over all configurations, last round, of the seeds of `dfrd_alpha_lambda`."""
    table = curve_table.load(RECORDED / "dfrd_alpha_lambda.npz")
    means = sorted(100 * table.validation[:, :, -1].mean(axis=0))
    text = " ".join(section("Races").split())
    assert f"twelve seeds of that table have means of {means[0]:.0f} to {means[-1]:.0f}" in text and len(means) == 12
    assert f"one lies {means[1] - means[0]:.0f} points below all others" in text


def test_proposals_has_the_figures_of_the_benchmark() -> None:
    found = compared()["tables"]
    written = rows(section("Proposals"), 6)
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


def test_proposals_says_how_long_one_takes() -> None:
    cases = packed.read(results.RECORDED)["cases"]
    [timed] = [table for table in cases["scaling"]["tables"] if table["title"].startswith("Trials that compute")]
    took = {(sampler, trials): f"{ms:.0f}" for sampler, trials, _, ms in timed["rows"]}
    text = " ".join(section("What a proposal takes").split())
    ei, tpe = ([took[sampler, trials] for trials in (100, 1000)] for sampler in ("ei", "tpe"))
    assert f"{ei[0]} ms between the 30th and the 100th trial of a search and {ei[1]} ms between the 300th" in text
    assert f"by `tpe` it takes {tpe[0]} and {tpe[1]} ms, and at random {took['random', 100]}." in text
