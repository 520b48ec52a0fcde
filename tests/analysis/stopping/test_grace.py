"""The grace in words."""

from __future__ import annotations

import pytest

from analysis.stopping import Correlation, Grace, grace_sentences

NOTHING = Correlation(1, None, None, None)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            Grace(None, 0, ()),
            "Grace: not chosen yet, as too few trials have ended. Until then every trial runs to its end.",
        ),
        (
            Grace(3, 6, (NOTHING, Correlation(3, 0.943, 0.554, 0.994))),
            "Grace: 3 rounds, chosen from 6 trials that ran to their end: its rank correlation with their ends is 0.94 "
            "(0.55 to 0.99).",
        ),
        (
            Grace(1, 8, (Correlation(1, 1.0, 0.93, 1.0),)),
            "Grace: 1 round, chosen from 8 trials that ran to their end: its rank correlation with their ends is 1.00 "
            "(0.93 to 1.00).",
        ),
        (
            Grace(None, 7, (Correlation(1, 0.2, -0.5, 0.7), Correlation(2, 0.6, -0.1, 0.9))),
            "Grace: after 7 trials no round ranks trials surely enough as their ends do (the best so far is round 2 "
            "with 0.60 (-0.10 to 0.90)). Until one does, every trial runs to its end.",
        ),
        (
            Grace(None, 6, (NOTHING,)),
            "Grace: after 6 trials no round ranks trials surely enough as their ends do (their values are all the "
            "same). Until one does, every trial runs to its end.",
        ),
    ],
)
def test_in_words(found: Grace, said: str) -> None:
    assert grace_sentences(found) == [said]
