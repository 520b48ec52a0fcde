"""The grace that was chosen and the audit of early stopping in words, for the terminal and the report."""

from __future__ import annotations

from collections.abc import Callable

from analysis.stopping.audit import Audit
from analysis.stopping.grace import Correlation, Grace

#: So many trials are named one by one.
NAMED = 3


def audit_sentences(found: Audit, shown: Callable[[float], str]) -> list[str]:
    """What the audit measured; `shown` writes a difference of the metric. Where no trial was audited nothing is
    claimed."""
    n, above = len(found.trials), found.above
    if found.winner is None or not n:
        return ["Audit of early stopping: no audited trial has ended yet, so what stopping costs is not known."]
    ran = f"{_trials(n)} of the {found.stopped + n} that the rule would have stopped ran to {_their(n)} end"
    said = [f"Audit of early stopping: {ran}; {_ended(found, shown)}."]
    if found.low is not None and found.high is not None:
        said.append(
            f"Of all trials that the rule stops, {100 * found.low:.0f} to {100 * found.high:.0f} % would have ended "
            f"above the winner ({100 * found.level:.0f} % interval)."
        )
    else:
        said.append(f"{'That is' if n == 1 else 'These are'} too few for an interval.")
    if above and found.regret is not None:
        said.append(f"On average over the audited trials, stopping cost {shown(found.regret)} for each.")
    return said


def _ended(found: Audit, shown: Callable[[float], str]) -> str:
    """How many of them ended above the winner, and by how much."""
    n, above = len(found.trials), sorted(found.above.items(), key=lambda item: -item[1])
    winner = f"the winner without {'it' if n == 1 else 'them'}, trial {found.winner}"
    if not above:
        return f"{'it did not end' if n == 1 else 'none of them ended'} above {winner}"
    many = "it" if n == 1 else f"{len(above)} of them"
    listed = ", ".join(f"trial {number} by {shown(by)}" for number, by in above[:NAMED])
    more = f" and {len(above) - NAMED} more by less" if len(above) > NAMED else ""
    return f"{many} ended above {winner}: {listed}{more}"


def grace_sentences(found: Grace) -> list[str]:
    """Which grace was chosen, and by which rank correlation."""
    if not found.trials:
        return ["Grace: not chosen yet, as too few trials have ended. Until then every trial runs to its end."]
    if found.round is None:
        best = max((c for c in found.correlations if c.low is not None), key=lambda c: c.low or 0.0, default=None)
        why = "their values are all the same"
        if best is not None:
            why = f"the best so far is round {best.round} with {rank(best)}"
        return [
            f"Grace: after {_trials(found.trials)} no round ranks trials surely enough as their ends do ({why}). Until "
            f"one does, every trial runs to its end."
        ]
    by = next((c for c in found.correlations if c.round == found.round), None)
    how = "" if by is None else f": its rank correlation with their ends is {rank(by)}"
    return [f"Grace: {_rounds(found.round)}, chosen from {_trials(found.trials)} that ran to their end{how}."]


def rank(found: Correlation) -> str:
    """`0.94 (0.61 to 0.99)`."""
    if found.rho is None or found.low is None or found.high is None:
        return "–"
    return f"{found.rho:.2f} ({found.low:.2f} to {found.high:.2f})"


def _trials(n: int) -> str:
    return f"{n} trial{'s' * (n != 1)}"


def _rounds(n: int) -> str:
    return f"{n} round{'s' * (n != 1)}"


def _their(n: int) -> str:
    return "its" if n == 1 else "their"
