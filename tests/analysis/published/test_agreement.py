"""What is said of our number beside a published one: each of the three words, and the limits between them."""

from __future__ import annotations

import math

import pytest
from scipy.stats import t

from analysis.published.agreement import AGREES, DISAGREES, UNKNOWN, judge
from analysis.stats import summarise

NAN = math.nan
#: Of mean 0 and standard deviation 1.
FIVE = (-1.2649, -0.6325, 0.0, 0.6325, 1.2649)


@pytest.mark.parametrize(
    ("ours", "paper", "verdict"),
    [
        ([82.1], (84.3, 0.3, 5), DISAGREES),  # one seed, seven spreads away
        ([84.1], (84.3, 0.3, 5), AGREES),  # one seed, among the paper's
        ([84.1, 84.5], (84.3, 0.3, 5), AGREES),
        ([82.0, 82.2], (84.3, 0.3, 5), DISAGREES),
        ([80.0, 84.2], (84.3, 0.3, 5), UNKNOWN),  # Welch's test sees nothing, as ours spread
        ([78.0, 88.0, 83.0, 80.0, 85.0], (84.3, 4.0, 5), AGREES),
        ([81.2], (84.3, 3.0, 5), UNKNOWN),  # among the paper's, which spread, and 3.1 points away
        ([82.1], (84.3, 0.3, 1), UNKNOWN),  # the paper's spread is of nothing
        ([82.1, 82.2], (84.3, NAN, 5), UNKNOWN),
        ([3.0, 3.0], (3.0, 0.0, 3), AGREES),  # rounds, the same in every run
        ([3.0, 3.0], (4.0, 0.0, 3), DISAGREES),
        ([3.0], (3.0, 0.0, 3), AGREES),
        ([3.0], (4.0, 0.0, 3), DISAGREES),
        ([3.1, 2.9], (3.0, 0.0, 3), AGREES),
    ],
)
def test_the_three_words(ours: list[float], paper: tuple[float, float, int], verdict: str) -> None:
    found = judge(summarise(ours), *paper, points=True)
    assert found.verdict == verdict and found.reason
    assert found.difference == pytest.approx(sum(ours) / len(ours) - paper[0])


@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_one_seed_disagrees_from_the_prediction_interval_on(seeds: int) -> None:
    """Of a further run beside `seeds` others: t √(1 + 1/n) spreads."""
    edge = 0.3 * float(t.ppf(0.975, seeds - 1)) * math.sqrt(1 + 1 / seeds)
    words = [judge(summarise([84.3 + x * edge]), 84.3, 0.3, seeds, points=True).verdict for x in (-1.01, 0.6, 1.01)]
    assert words == [DISAGREES, AGREES, DISAGREES]


def test_several_seeds_disagree_from_welchs_interval_on() -> None:
    """With equal spreads and numbers of seeds, t of 2n - 2 degrees of freedom times √(2/n) spreads."""
    edge = float(t.ppf(0.975, 8)) * math.sqrt(2 / 5)
    words = [
        judge(summarise([x * edge + value for value in FIVE]), 0.0, 1.0, 5, points=True).verdict for x in (0.99, 1.01)
    ]
    assert words == [AGREES, DISAGREES]


def test_a_difference_is_measured_by_both_spreads() -> None:
    found = judge(summarise([80.0, 82.0]), 84.0, 2.0, 5, points=True)
    assert (found.paper_spreads, found.our_spreads) == (pytest.approx(1.5), pytest.approx(3 / math.sqrt(2)))
    alone = judge(summarise([80.0]), 84.0, 2.0, 5, points=True)
    assert alone.paper_spreads == pytest.approx(2.0) and math.isnan(alone.our_spreads)


@pytest.mark.parametrize(
    ("ours", "std", "points", "large"),
    [
        ([80.9], 0.9, True, True),  # 3.1 points
        ([80.9], 1.0, False, True),  # 3.1 spreads, of which a point is none
        ([81.1], 1.0, True, False),  # 2.9 points, and 2.9 spreads
        ([83.9, 83.7, 83.8, 83.8, 83.8], 0.05, True, False),  # 0.2 points: 4 spreads of the paper, 2.8 of ours
        ([83.8, 83.7, 83.75], 0.05, True, True),  # 0.25 points: 5 spreads of either
    ],
)
def test_what_is_to_be_explained(ours: list[float], std: float, points: bool, large: bool) -> None:
    found = judge(summarise(ours), 84.0, std, 50, points=points)
    assert found.verdict == DISAGREES and found.large is large
    assert not judge(summarise([80.9]), 84.0, 10.0, 50, points=True).large, "no disagreement at all"
