"""What sentences read of curves and partitions, computed by hand; and what becomes of such sentences."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from analysis.reproduce.claims import decide
from analysis.reproduce.measures import early, first_round, fluctuation, overall, unevenness
from analysis.reproduce.tables import comparisons, verdicts
from tests.analysis.reproduce import folders
from tests.analysis.reproduce.test_pictures import recorded

CURVE = [(1, 0.1), (2, 0.4), (3, 0.5), (4, 0.7), (5, 0.6), (6, 0.7)]


def test_of_a_curve() -> None:
    assert overall(CURVE) == pytest.approx(3.0 / 6) and early(CURVE) == pytest.approx(0.25)
    assert fluctuation(CURVE) == pytest.approx(0.1), "rounds 4 to 6: 0.1 down, 0.1 up"
    assert early(CURVE[:1]) == 0.1 and math.isnan(fluctuation(CURVE[:1])) and math.isnan(overall([]))


def test_the_first_round_at_a_target_or_better() -> None:
    assert first_round(CURVE, 0.5, falling=False) == 3
    assert first_round(CURVE, 0.9, falling=False) == 7, "never: one round more than there are"
    assert first_round(CURVE, 0.1, falling=True) == 1
    assert math.isnan(first_round([], 0.5, falling=False))


def test_how_far_clients_are_from_all_data() -> None:
    assert unevenness(np.array([[5, 5], [20, 20], [0, 0]])) == 0
    assert unevenness(np.array([[10, 0], [0, 10]])) == pytest.approx(0.5)
    assert unevenness(np.eye(10) * 7) == pytest.approx(0.9)
    # All data: 3/4 and 1/4. The first client is off by 1/4, the second by 1/4.
    assert unevenness(np.array([[20, 0], [10, 10]])) == pytest.approx(0.25)


def test_who_reaches_first_and_who_fluctuates(tmp_path: Path) -> None:
    made = folders.curves(tmp_path)
    first, smooth = decide(made)
    curves = {row.name: recorded(made.runs[row.name, ()].path, "amp") for row in made.reproduction.rows}
    gained, calmer = [], []
    for seed in (1000, 1001, 1002):
        rounds, late = {}, {}
        for name, values in curves.items():
            target = curves["FedAvg"][6, seed]
            rounds[name] = next((r for r in range(1, 7) if values[r, seed] >= target), 7)
            late[name] = np.mean([abs(values[r, seed] - values[r - 1, seed]) for r in (5, 6)])
        gained.append(rounds["FedAvg"] - rounds["FedAvg (OCA)"])
        calmer.append(late["FedAvg"] - late["FedAvg (OCA)"])
    assert first.lines[0].difference == pytest.approx(np.mean(gained))
    assert smooth.lines[0].difference == pytest.approx(np.mean(calmer))
    (told,) = comparisons(made, first).rows
    assert told["metric"] == "AMP, rounds to the reference's last value"
    assert told["difference"] == f"{np.mean(gained):+.2f}"
    assert [row["unit"] for row in verdicts(made, [first, smooth]).rows] == ["rounds", "fraction"]


def test_a_lead_that_grows(tmp_path: Path) -> None:
    """Made-up runs whose second row gains more the more clients take part: against what the paper says."""
    made = folders.shares(tmp_path)
    gap = decide(made)[2]
    (line,) = gap.lines
    few, many = (
        sum(
            sign * np.mean([recorded(made.runs[row, place].path, "amp")[5, seed] for seed in (1000, 1001, 1002)])
            for row, sign in (("FedAvg (OCA)", 1), ("FedAvg", -1))
        )
        for place in ((1,), (16,))
    )
    assert line.difference == pytest.approx(few - many) and line.condition == "S = 1 against S = 16"
    assert line.ahead == line.behind == "FedAvg (OCA) − FedAvg" and line.pairs == 3
    assert gap.verdict == "disagrees"


def test_an_uneven_partition(tmp_path: Path) -> None:
    made = folders.partitions(tmp_path)
    found = decide(made)
    (line,) = found[0].lines
    values = {
        omega: [np.mean([_of(row, 1 + seed % 10, round(10 / omega)) for row in range(10)]) for seed in (0, 1, 2)]
        for omega in (1, 0.1)
    }
    assert line.difference == pytest.approx(np.mean(values[0.1]) - np.mean(values[1]))
    assert [one.lines[0].difference > 0 for one in found] == [True, True] and found[0].verdict == "agrees"
    assert comparisons(made, found[0]).rows[0]["metric"] == "Unevenness of the partition"


def _of(client: int, level: int, more: int) -> float:
    """The distance of one client of `folders.partitions`, all of whose data are even."""
    total = 10 * level + more
    shares = [(level + more * (k == client)) / total for k in range(10)]
    return 0.5 * sum(abs(share - 0.1) for share in shares)


def test_a_sentence_that_nothing_decides_says_why(tmp_path: Path) -> None:
    made = folders.painted(tmp_path)
    (first, *_) = decide(made)
    assert first.verdict == first.told == "cannot be told" and first.why.startswith("The paper shows them for people")
    assert first.lines == [] and first.claim.kind == "untested"
