"""The measured regret of early stopping: what became of stopped trials that a search let run to their end.

With `--audit SHARE` a search draws, for every trial, whether the stopping rule is to be overruled
(`fedtune.trials.audit`). A trial that was drawn, and that the rule wanted to stop, is an audited one: its study records
the round after which it would have been stopped, as the user attribute `audited`. The draw knows nothing of the trial,
so audited trials are a random sample of those that the rule stops, and what became of them says what became, unseen, of
the others.

They are compared with the winner that the search has without them: every audited trial counts as stopped while that
winner is chosen (`as_stopped`). The values compared are those of the last round, means over the same seeds. A trial
that diverged did not end above the winner; one that failed for another reason says nothing and is left out.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.estimate import missed_target, standing

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

#: The user attribute of a trial that the rule wanted to stop and that went on: the round after which it would have
#: ended.
AUDITED = "audited"
#: An interval is stated from so many audited trials on: the fewest of which it can say that most stopped trials would
#: have ended below the winner (none of five above it: 0 to 45 %).
ENOUGH = 5
#: Its probability.
LEVEL = 0.9
#: So many trials are named one by one.
NAMED = 3


@dataclass(frozen=True)
class Audit:
    """What the audited trials of a search say of its early stopping."""

    #: Trials that the rule stopped and that were not audited.
    stopped: int
    #: The audited trials that have ended, by number.
    trials: tuple[int, ...]
    #: The winner without them; None where there is none yet.
    winner: int | None
    #: The audited trials that ended above the winner, and by how much, in the metric's unit; more is worse, also where
    #: the metric is minimised.
    above: Mapping[int, float]
    #: The mean over all audited trials of how much they ended above the winner, 0 for those that did not; None without
    #: audited trials.
    regret: float | None
    #: The interval of the share of stopped trials that would have ended above the winner, with its probability; None
    #: below `ENOUGH` audited trials.
    low: float | None
    high: float | None
    level: float = LEVEL


def audit(
    trials: Sequence[FrozenTrial], sign: float, by_seed: Mapping[int, Mapping[int, float]] | None = None
) -> Audit:
    """The audit of a search for one metric after these trials; arguments as those of `analysis.estimate.standing`."""
    seen = [as_stopped(trial) for trial in trials]
    winner = _winner(seen, sign, by_seed)
    stopped = sum(t.state.name == "PRUNED" and AUDITED not in t.user_attrs for t in trials)
    ended = [t for t in trials if AUDITED in t.user_attrs and _says_something(t)]
    if winner is None or not ended or missed_target(winner):
        return Audit(stopped, (), None if winner is None else winner.number, {}, None, None, None)
    excess = {t.number: sign * (t.values[0] - winner.values[0]) for t in ended if t.values}
    above = {number: by for number, by in excess.items() if by > 0}
    low, high = _interval(len(above), len(ended)) if len(ended) >= ENOUGH else (None, None)
    regret = sum(above.values()) / len(ended)
    return Audit(stopped, tuple(t.number for t in ended), winner.number, above, regret, low, high)


def as_stopped(trial: FrozenTrial) -> FrozenTrial:
    """An audited trial as it would be had it been stopped; any other trial as it is."""
    from optuna.trial import TrialState

    round_ = trial.user_attrs.get(AUDITED)
    if not isinstance(round_, int) or not trial.state.is_finished():
        return trial
    found = copy.copy(trial)
    found.values = None
    found.state = TrialState.PRUNED
    found.intermediate_values = {r: value for r, value in trial.intermediate_values.items() if r <= round_}
    found.user_attrs = {**trial.user_attrs, "stop_reason": "scheduler", "rounds": round_}
    return found


def _says_something(trial: FrozenTrial) -> bool:
    return trial.state.name == "COMPLETE" or trial.user_attrs.get("stop_reason") == "diverged"


def _winner(
    trials: Sequence[FrozenTrial], sign: float, by_seed: Mapping[int, Mapping[int, float]] | None
) -> FrozenTrial | None:
    """The trial with the best estimate; before there is one, with the best value."""
    found = standing(trials, sign, by_seed)
    if found is not None:
        return next(trial for trial in trials if trial.number == found.ranked[0])
    done = [trial for trial in trials if trial.state.name == "COMPLETE"]
    return max(done, key=lambda trial: (sign * trial.values[0], -trial.number), default=None)


def _interval(above: int, of: int) -> tuple[float, float]:
    """Clopper and Pearson's interval of a share."""
    from scipy.stats import binomtest

    found = binomtest(above, of).proportion_ci(LEVEL, method="exact")
    return float(found.low), float(found.high)


def audit_sentences(found: Audit, shown: Callable[[float], str]) -> list[str]:
    """What the audit measured; `shown` writes a difference of the metric. Where no trial was audited nothing is
    claimed."""
    n, above = len(found.trials), found.above
    if found.winner is None or not n:
        return ["Audit of early stopping: no audited trial has ended yet, so what stopping costs is not known."]
    count, whose = ("1 trial", "its") if n == 1 else (f"{n} trials", "their")
    ran = f"{count} of the {found.stopped + n} that the rule would have stopped ran to {whose} end"
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
