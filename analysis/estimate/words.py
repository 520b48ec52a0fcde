"""An estimate in words, for the terminal and the report."""

from __future__ import annotations

from collections.abc import Callable

from analysis.estimate.winner import Estimate

#: So many trials are named one by one.
NAMED = 8
#: More seeds than this are not worth naming exactly.
MANY = 1000


def verdict(found: Estimate, shown: Callable[[float], str]) -> str | None:
    """Whether the search gained anything over the paper's values, in one line; None where it had nothing to compare."""
    if found.gain is None or found.gain_low is None or found.gain_high is None or found.configurations < 2:
        return None
    if found.paper == found.trial:
        return "No better than the paper's values: the winner has them"
    where = " on one seed" if found.all_seeds == 1 else ""
    gained = f"{apart(shown, found.gain)}{where}, {100 * found.gain_level:.3g} % interval " + between(
        shown, found.gain_low, found.gain_high
    )
    if found.better:
        return f"Better than the paper's values by {gained}"
    return f"No better than the paper's values, as far as can be told: {gained}"


def apart(shown: Callable[[float], str], difference: float) -> str:
    """A difference of two values: `4.10 points` of what is shown in per cent."""
    return shown(difference).replace(" %", " points")


def between(shown: Callable[[float], str], low: float, high: float) -> str:
    """An interval of differences: `1.90 to 6.20`, with the unit where it is no per cent."""
    return " to ".join(shown(bound).removesuffix(" %") for bound in (low, high))


def sentences(found: Estimate, shown: Callable[[float], str]) -> list[str]:
    """What a reader must know of a winner; `shown` writes a value of the metric.

    The estimate with its interval, which trials are unstable, whether it is better than the paper's values, how many
    configurations cannot be told from the winner, and a warning where the noise of one seed is larger than the
    differences found."""
    seeds = f"{found.seeds} seed{'s' * (found.seeds != 1)}"
    said = [
        f"Estimate of its mean over all seeds: {shown(found.mean)}, {100 * found.level:.0f} % interval "
        f"{shown(found.low)} to {shown(found.high)}, from {seeds}."
    ]
    if found.all_seeds == 1:
        said.append(
            "All trials ran the same seed. How far it favours all of them alike cannot be known from it, and the "
            "interval allows for that by a guess; on another seed they may rank otherwise. More --seeds, or --race, "
            "measure both."
        )
    said += _unstable(found)
    said += _against_the_paper(found, shown)
    others = len(found.tied) - 1
    if found.configurations > 1 and others:
        said.append(
            f"{len(found.tied)} of {found.configurations} configurations, itself included, cannot be told from it."
        )
    elif found.configurations > 1:
        rest = found.configurations - 1
        which = f"all {rest} others that ran to their end" if rest > 1 else "the only other one that ran to its end"
        told = f"told from {which}."
        said.append(f"On that seed it is {told}" if found.all_seeds == 1 else f"It is {told}")
    if found.configurations > 1 and others and found.paired_noise > found.spread:
        said.append(
            f"The noise of one seed (standard deviation {shown(found.paired_noise)}) is larger than the differences "
            f"found between configurations ({shown(found.spread)}){_settled(found)}."
        )
    return said


def ahead_sentence(
    number: int, rounds: tuple[int, int], value: float, found: Estimate | None, shown: Callable[[float], str]
) -> str:
    """That a trial leads which has not ended. rounds: those that it has, and of how many; value: its last one; found:
    what it is estimated to end with, once that can be said."""
    at = f"{shown(value)} in round {rounds[0]} of {rounds[1]}"
    if found is None:
        return f"Trial {number}, which has not ended, is ahead: {at}."
    interval = f"{100 * found.level:.0f} % interval {shown(found.low)} to {shown(found.high)}"
    end = f"estimated mean over all seeds at its end {shown(found.mean)}, {interval}"
    return f"Trial {number}, which has not ended, is ahead: {at}; {end}."


def _unstable(found: Estimate) -> list[str]:
    """Which trials lost what they had learnt, where any did."""
    if not found.unstable:
        return []
    *rest, last = map(str, found.unstable)
    named = f"Trials {', '.join(rest)} and {last} are" if rest else f"Trial {last} is"
    which = named if len(found.unstable) <= NAMED else f"{len(found.unstable)} trials are"
    return [
        f"{which} unstable, far below an earlier round of the same trial: what such a trial ended with says nothing of "
        "configurations near it."
    ]


def _against_the_paper(found: Estimate, shown: Callable[[float], str]) -> list[str]:
    """Whether the search gained anything over the paper's values, where it had them among others."""
    if found.paper is None or found.configurations < 2:
        return []
    if found.gain is None or found.gain_low is None or found.gain_high is None:
        return [
            f"What it gains over the paper's values is not known: trial {found.paper}, which has them, ended early."
        ]
    if found.paper == found.trial:
        return ["The winner has the paper's values: no other configuration is estimated to be better."]
    how = (
        f"by an estimated {apart(shown, found.gain)}, {100 * found.gain_level:.3g} % interval "
        f"{between(shown, found.gain_low, found.gain_high)}."
    )
    if found.better:
        better = f"is better than the paper's values (trial {found.paper}) {how}"
        return [f"On that seed the winner {better}" if found.all_seeds == 1 else f"The winner {better}"]
    return [f"That the winner is better than the paper's values (trial {found.paper}) cannot be told: {how}"]


def _settled(found: Estimate) -> str:
    if found.settled_by is None:
        return ""
    seeds = f"about {found.settled_by}" if found.settled_by <= MANY else f"more than {MANY}"
    return f"; {seeds} seeds of each would tell the first two apart"
