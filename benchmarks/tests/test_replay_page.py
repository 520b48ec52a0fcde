"""The page of searches: the one number, whose peer it is, and what is told, from figures that are known."""

from __future__ import annotations

import math
from typing import Any

import pytest

from benchmarks.replay import page
from benchmarks.replay.__main__ import KEPT
from tests import packed

#: Half the width of every interval.
HALF = 0.01


def one(regrets: list[float], *, n: int = 100, claim: float | None = None) -> dict[str, Any]:
    """A searcher with these medians at 5, 12 and 40 federations."""

    def around(value: float | None) -> dict[str, Any]:
        return {"value": value, "low": None if value is None else value - HALF, "high": value and value + HALF, "n": n}

    budgets = [
        {"budget": 0, "regret": around(regret), "searching": around(regret / 2)}
        | {"curse": around(0.02), "covered": around(0.9), "claim": around(claim)}
        | {"error": around(0.03), "width": around(0.2), "holding": [0.12, 0.144]}
        for regret in regrets
    ]
    return {"n": n, "budgets": budgets}


def results(tables: dict[str, dict[str, Any]], blind: dict[str, float] | None = None) -> dict[str, Any]:
    """Results with these searchers, by table."""
    made = {"machine": {"revision": "abc1234", "date": "D"}}
    text = "A model. It errs by 4.0 points of all."
    return {
        "budgets": [5, 12, 40],
        "tables": {
            name: {"text": text, "rounds": 4, "blind": (blind or {}).get(name, 0.5), "occasion": made, "searchers": of}
            for name, of in tables.items()
        },
    }


def two(ours: list[float], **peers: list[float]) -> dict[str, Any]:
    """Both tables that decide nothing, with the same regrets on each."""
    of = {"fedtune-1": one(ours)} | {name.replace("_", "-"): one(regrets) for name, regrets in peers.items()}
    return results({name: dict(of) for name in page.REPORTING})


def test_regret_is_a_part_of_a_blind_choices_and_a_mean_over_tables() -> None:
    """0.2 of 0.4 and 0.06 of 0.6 are 50 and 10 per cent; halves of 0.01 are 2.5 and 1.67 per cent."""
    first, second = page.REPORTING
    found = results(
        {first: {"a": one([0.2, 0.1, 0.1])}, second: {"a": one([0.06, 0.06, 0.06])}}, {first: 0.4, second: 0.6}
    )
    mean, half = page.regret(found, "a", 0, page.REPORTING) or (0, 0)
    assert (mean, half) == pytest.approx((30.0, math.hypot(2.5, 1 / 0.6) / 2))
    assert page.overall(found, "a", page.REPORTING) == pytest.approx((30 + 17.5 + 17.5) / 3)
    assert page.regret(found, "a", 1, [first]) == pytest.approx((25.0, 2.5))
    del found["tables"][second]["searchers"]["a"]
    assert page.regret(found, "a", 0, page.REPORTING) is None


def test_one_peer_stands_for_all_tables_and_was_repeated_as_often() -> None:
    """`optuna-a` is the best on one table each time, `smac-b` over both; `syne-tune-c` has too few repetitions."""
    first, second = page.REPORTING
    found = results(
        {
            first: {"fedtune-1": one([0.2] * 3), "optuna-a": one([0.1] * 3), "smac-b": one([0.15] * 3)},
            second: {"fedtune-1": one([0.2] * 3), "optuna-a": one([0.3] * 3), "smac-b": one([0.15] * 3)},
        }
    )
    for table in found["tables"].values():
        table["searchers"] |= {"syne-tune-c": one([0.01] * 3, n=99), "oracle-fedtune": one([0.0] * 3)}
    assert page.peer(found, page.REPORTING) == "smac-b"
    text = page.markdown(found)
    assert "has 40.0, 40.0 and 40.0 per cent" in text and "`smac-b`, has 30.0, 30.0 and 30.0" in text
    assert "| `syne-tune-c` | 2.0 ± 1.4 | 2.0 ± 1.4 | 2.0 ± 1.4 | 2.0 | 99 | abc1234 |" in text
    assert "A lower mean than `fedtune-1` have `smac-b` and `syne-tune-c`." in text


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ([0.21, 0.2, 0.19], "The two are not told apart at any of these budgets."),
        ([0.3, 0.2, 0.1], "Ours is told to be better after 5 and told to be worse after 40."),
        ([0.1, 0.1, 0.2], "Ours is told to be worse after 5 and 12."),
    ],
)
def test_a_search_is_told_from_another_where_intervals_do_not_meet(theirs: list[float], said: str) -> None:
    assert said in page.markdown(two([0.2, 0.2, 0.2], optuna_a=theirs))


@pytest.mark.parametrize(("claim", "word"), [(0.1, "reached"), (0.11, "missed")])
def test_claims_where_there_is_nothing_to_gain_are_judged(claim: float, word: str) -> None:
    found = two([0.2] * 3, optuna_a=[0.2] * 3)
    ours = {"fedtune-1": one([0.2] * 3, claim=0.04), "fedtune-1-confirmed-36": one([0.2] * 3, claim=0.05)}
    found["tables"] |= results({page.NULL[0]: ours})["tables"]
    found["tables"] |= results({page.NULL[1]: {"fedtune-race": one([0.2] * 3, claim=claim)}})["tables"]
    text = page.markdown(found)
    assert f"| `{page.NULL[0]}` | `fedtune search` | 100 | – | – | 5 (4 to 6) % |" in text, "after its confirmation"
    assert f"4 to {100 * claim:.0f} % of our searches claim a gain; the goal, at most 10 %, is {word}." in text
    assert f"| `{page.NULL[0]}` | `fedtune search --no-confirm` | 100 | {' | '.join(['4 (3 to 5) %'] * 3)} |" in text
    assert f"`{page.NULL[0]}`, " not in text, "null tables stand in no other table"


def test_worlds_stand_side_by_side_and_are_no_tables_of_their_own() -> None:
    found = two([0.2] * 3, optuna_a=[0.1] * 3)
    name = page.REPORTING[0]
    for world, regret in (("trees", 0.3), ("nearest", 0.4)):
        of = {"fedtune-1": one([regret] * 3, n=24)}
        found["tables"] |= results({f"{name}, {world}": of})["tables"]
    text = page.markdown(found)
    assert f"| `{name}` errs by |  | 4.0 |  | 4.0 |  | 4.0 |  |" in text
    row = f"| `{name}`, `fedtune-1` | 24 to 100 | 40.0 ± 2.0 | 40.0 ± 2.0 | 60.0 ± 2.0 | 60.0 ± 2.0 | 80.0 ± 2.0 |"
    assert row in text and f"`{name}`, `optuna-a`" not in text, "only what was replayed in all worlds"
    assert f"| `{name}` | 50.0 |" not in text, "it stands in no table of others"
    other = two([0.2] * 3, optuna_a=[0.1] * 3)
    other["tables"] |= results({"mine": {"fedtune-1": one([0.3] * 3), "optuna-a": one([0.1] * 3)}})["tables"]
    assert page.markdown(other).count("| `mine` | 50.0 |") == 2, "ours and the best peer"


def test_nothing_is_claimed_before_there_are_figures() -> None:
    assert "No search was replayed beside those of other packages yet" in page.markdown({"budgets": [], "tables": {}})


def test_the_page_of_a_release_begins_with_the_number_and_is_short() -> None:
    text = page.markdown(packed.read(KEPT))
    assert len(text.splitlines()) <= 150
    assert text.splitlines()[2].startswith(
        "After 5, 12 and 40 federations the winner of `fedtune search --no-confirm` has "
    )


def test_of_each_package_the_best_two_are_shown_and_all_are_ranked_on_a_screen() -> None:
    found = two([0.2] * 3, optuna_a=[0.3] * 3, optuna_b=[0.25] * 3, optuna_c=[0.1] * 3, smac_a=[0.4] * 3)
    shown = [line.split("`")[1] for line in page.markdown(found).splitlines() if "| abc1234 |" in line]
    assert shown == ["optuna-c", "fedtune-1", "optuna-b", "smac-a"]
    lines = page.terminal(found).splitlines()
    assert lines[0].startswith("After 5, 12 and 40 federations the winner of `fedtune search --no-confirm` has 40.0, ")
    assert sum(line.startswith("| optuna-") for line in lines) == 3


def test_what_is_confirmed_by_default_stands_beside_the_number() -> None:
    found = two([0.2] * 3, optuna_a=[0.3] * 3, fedtune_1_confirmed_40=[0.4, 0.3, 0.15])
    said = "`fedtune search`, which confirms with the last fifth of 40 federations, has 30.0 ± 1.4 (100 repetitions)."
    assert said in page.markdown(found)


def test_what_a_search_says_of_its_winner_is_shown_in_points() -> None:
    """Also where an older record lacks some of it."""
    whole, older = one([0.3, 0.2, 0.1]), one([0.3, 0.2, 0.1])
    del older["budgets"][-1]["holding"]
    found = results({page.REPORTING[0]: {"fedtune-1": whole}, page.REPORTING[1]: {"fedtune-1": older}})
    rows = [line.split(" | ") for line in page.markdown(found).splitlines() if "--no-confirm` | 100" in line]
    assert [row[4:9] for row in rows] == [
        ["2.0 (1.0 to 3.0)", "3.0", "90 (89 to 91) %", "20.0", "12 to 14"],
        ["2.0 (1.0 to 3.0)", "3.0", "90 (89 to 91) %", "20.0", "–"],
    ]
