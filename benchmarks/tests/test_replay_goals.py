"""The page of searches says of each goal whether it was reached."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from benchmarks.replay import goals, optima


def one(regrets: Sequence[float], *, curse: float = 0.0, covered: float | None = 0.9, searching: float = 0.0) -> Any:
    """A searcher with these medians at the budgets; intervals are a tenth of a point wide to both sides."""

    def around(value: float | None) -> dict[str, Any]:
        if value is None:
            return {"value": None, "low": None, "high": None, "n": 0}
        return {"value": value, "low": value - 0.001, "high": value + 0.001, "n": 100}

    return {
        "rounds_to_goal": None,
        "budgets": [
            {
                "budget": 10 * place,
                "regret": around(regret),
                "searching": around(searching),
                "curse": around(curse),
                "covered": around(covered),
            }
            for place, regret in enumerate(regrets)
        ],
    }


def results(**searchers: Any) -> dict[str, Any]:
    named = {name.replace("_", "-"): entry for name, entry in searchers.items()}
    return {"budgets": [3, 8, 40], "tables": {"first": {"searchers": named}}}


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table under a heading."""
    lines = text.partition(heading)[2].splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("|"))
    table = [*takewhile(lambda line: line.startswith("|"), lines[start:])]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def test_when_a_search_is_as_good_as_others() -> None:
    """From when on its median stays there: a median that rises again does not count."""
    found = results(
        fedtune_1=one([0.030, 0.045, 0.020]),
        random_1=one([0.09, 0.08, 0.031]),
        optuna_a=one([0.05, 0.04, 0.020]),
        smac_b=one([0.05, 0.04, 0.015]),
        oracle_fedtune=one([0.01, 0.01, 0.01]),
    )
    text = goals.section(found)
    assert "No searcher that sees noise gets there" in text
    assert rows(text, "### One point of regret") == [["`first`", "`smac-b`, 1.5", "not", "40", "–"]]
    found["tables"]["first"]["searchers"]["smac-b"]["rounds_to_goal"] = 80
    assert "It is reached by `smac-b` on `first`." in goals.section(found)


def test_why_a_goal_is_out_of_reach() -> None:
    found = results(fedtune_1=one([0.05, 0.04, 0.03], searching=0.012), oracle_fedtune=one([0.01, 0.01, 0.008]))
    found["optima"] = {"first": {"model": 0.95, "mean": 0.80, "error": 0.01}}
    row = rows(goals.section(found), "Why one point is out of reach")[0]
    assert row == ["`first`", "3.0 (2.9 to 3.1)", "1.2 (1.1 to 1.3)", "0.8 (0.7 to 0.9)", "15.0 ± 2.0"]


def test_curse_and_coverage_are_judged_as_they_are_shown() -> None:
    """After the last budget, with the extremes of all behind."""
    found = results(
        fedtune_1=one([0.05] * 3, curse=-0.0104, covered=0.846),
        fedtune_race=one([0.05] * 3, curse=0.0106, covered=0.9),
        fedtune_race_3=one([0.05] * 3, curse=0.0, covered=0.84),
    )
    budgets = found["tables"]["first"]["searchers"]["fedtune-1"]["budgets"]
    budgets[0]["curse"] |= {"value": -0.05}
    budgets[1]["covered"] |= {"value": 0.5}
    judged = {row[1]: row[2:] for row in rows(goals.section(found), "### How honest")}
    assert judged["`fedtune search`"] == ["-1.0 (-1.1 to -0.9)", "-5.0 to -1.0", "85 (84 to 85) %", "50 to 85 %", "yes"]
    assert judged["`--race`"][-1] == "no" and judged["`--seeds 3`"][-1] == "no"


def test_worse_than_random_is_said_where_intervals_do_not_meet() -> None:
    """Intervals that touch do meet."""
    found = results(
        fedtune_1=one([0.052, 0.0525, 0.04]), random_1=one([0.050, 0.050, 0.05]), random_3=one([0.06, 0.06, 0.01])
    )
    told = rows(goals.section(found), "### Never worse")
    assert told == [
        ["`first`", "`fedtune search`", "`random-1`", "8"],
        ["`first`", "`fedtune search`", "`random-3`", "40"],
    ]
    better = results(fedtune_1=one([0.05] * 3), random_1=one([0.05] * 3))
    assert "Reached: no search of ours" in goals.section(better)


def test_the_best_of_a_model_stands_beside_what_was_measured() -> None:
    when = {"date": "2026-01-01", "revision": "abc"}
    found = {"model": 0.975, "mean": 0.7, "error": 0.02, "seeds": 5, "recorded": 0.797, "values": {}, "machine": when}
    assert rows(optima.section({"first": found}), "## The best configuration") == [
        ["`first`", "97.5", "70.0 ± 2.0 (5 seeds)", "79.7", "2026-01-01, revision abc"]
    ]
