"""What the page on proposals says of samplers is what the benchmark found."""

from __future__ import annotations

import json
from pathlib import Path

from fedtune.trials.improvement import CANDIDATES
from fedtune.trials.samplers import SAMPLERS
from tests.packaging.test_racing import rows

ROOT = Path(__file__).resolve().parents[2]
#: Places of 12 and of 40 federations among the budgets.
BUDGETS = (3, -1)
#: Searchers of other packages begin with these.
OTHERS = ("optuna", "ray-tune", "syne-tune", "smac")


def test_the_page_has_the_figures_of_the_benchmark() -> None:
    found = json.loads((ROOT / "docs" / "search-quality.json").read_text(encoding="utf-8"))["tables"]
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


def test_the_page_names_every_sampler() -> None:
    text = (ROOT / "docs" / "proposals.md").read_text(encoding="utf-8")
    named = {line.split("`")[1] for line in text.splitlines() if line.startswith("| `")}
    assert named >= {*SAMPLERS}
    assert CANDIDATES == 200 and "Two hundred configurations are drawn" in text


def test_the_page_says_how_long_a_proposal_takes() -> None:
    cases = json.loads((ROOT / "docs" / "performance.json").read_text(encoding="utf-8"))["cases"]
    [timed] = [table for table in cases["scaling"]["tables"] if table["title"].startswith("Trials that compute")]
    took = {(sampler, trials): f"{ms:.0f}" for sampler, trials, _, ms in timed["rows"]}
    text = " ".join((ROOT / "docs" / "proposals.md").read_text(encoding="utf-8").split())
    ei, tpe = ([took[sampler, trials] for trials in (100, 1000)] for sampler in ("ei", "tpe"))
    assert f"{ei[0]} ms between the 30th and the 100th trial of a search and {ei[1]} ms between the 300th" in text
    assert f"by `tpe` it takes {tpe[0]} and {tpe[1]} ms, and at random {took['random', 100]}." in text
