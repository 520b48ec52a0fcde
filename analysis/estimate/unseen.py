"""What the search's own model believes of configurations that were stopped early: would they have won?

A stopped trial informs the model like any other, at the uncertainty of what it would have gained
(`analysis.estimate.winner`). So the model has a belief about its end, too, and a probability that it is better than the
winner. That is a belief and no measurement.
"""

from __future__ import annotations

from dataclasses import dataclass

from analysis.estimate.winner import Standing


@dataclass(frozen=True)
class Unseen:
    """Stopped configurations that the model has read: those with the best values (`winner.MOST`)."""

    #: How many; no federation of theirs ran to its end.
    configurations: int
    #: The mean of how many of them are better than the winner.
    better: float
    #: The first trial of the one that most probably is, and with which probability.
    likeliest: int
    probability: float


def unseen(found: Standing) -> Unseen | None:
    """What is believed of stopped configurations; None where the model has read none."""
    stopped = [place for place, seeds in enumerate(found.seeds) if not seeds]
    if not stopped:
        return None
    best = found.ranking[0]
    chances = {place: found.belief.better(place, best) for place in stopped}
    likeliest = max(stopped, key=lambda place: (chances[place], -place))
    return Unseen(len(stopped), sum(chances.values()), found.numbers[likeliest], chances[likeliest])


def unseen_sentence(found: Unseen) -> str:
    """The belief in one sentence that does not pass for a measurement."""
    n = found.configurations
    percent = f"{100 * found.probability:.0f} %" if found.probability >= 0.005 else "less than 1 %"
    if n == 1:
        return f"By the search's own model trial {found.likeliest} would have won with a probability of {percent}."
    return (
        f"By the search's own model about {found.better:.1f} of {n} stopped configurations would have ended above the "
        f"winner; the likeliest is trial {found.likeliest} ({percent})."
    )
