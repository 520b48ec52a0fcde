"""`--audit SHARE`: a random share of the trials that the stopping rule wants to stop runs to its end all the same.

A trial that is drawn has no stop rule. When it has ended, the rule that it would have had is asked, round by round,
whether and when it would have stopped it; if so, that round is recorded with the trial (`analysis.stopping.audit`,
which says what is made of it). So the draw concerns only trials that the rule wants to stop: one that would have run to
its end anyway is not audited.

Whether trial n is drawn depends on the search's seed and n alone, and a larger share draws every trial that a smaller
one draws.

What others see of an audited trial is what they would see had it been stopped: the sampler its values up to that round
and that it was stopped, the stopping rule its values at the rungs up to there (`analysis.stopping.as_stopped`), also
where the trial went on to win, or to fail. So a search with --audit proposes and stops the same trials as one without
it, round by round; only the audited trials run longer. That costs the sampler a few values that it could have learnt
from, and it is what makes the audit a measurement: the trials that were stopped are those that would have been stopped
without it. The winner is another matter: an audited trial has run to its end, and if it is the best, it wins.
"""

from __future__ import annotations

from fedtune.trials.drawn import generator
from fedtune.trials.early_stopping import Curve, Rule


def drawn(share: float, seed: int, number: int) -> bool:
    """Whether trial `number` runs to its end even where it is to be stopped, which has probability `share`."""
    return generator(seed, number, "audit").random() < share


def stopped_after(rule: Rule, curve: Curve, last: int) -> int | None:
    """The round, of 1 to `last`, after which `rule` would have stopped a trial that measured `curve`; None where it
    would have let it run on."""
    for round_ in range(1, last + 1):
        if rule.stops(round_, {r: values for r, values in curve.items() if r <= round_}):
            return round_
    return None
