"""Which federations are unstable: they had learnt, and lost it again.

A learning rate or a momentum that is a little too large lets some federations diverge late, between neighbours that do
well: a cliff. The last value of such a one says nothing of its neighbours, and neighbours say nothing of it. A
federation with the best value c_b, the least value c_a before it and the last value c_r is unstable where

    c_b - c_r > max((c_b - c_a) / 2,  4 τ,  s)

It lost more than half of what it had gained; more than rounds scatter (τ, their standard deviation about a line in the
second halves of curves, `analysis.estimate.ends`); and more than the standard deviation s of the last values of all
that ran to their end, as a smaller fall cannot mislead the model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analysis.estimate.ends import LEAST, Measured, Tails, known_rounds

#: Standard deviations of a round's scatter that a fall exceeds. The best of ten level rounds is 1.5 above their mean.
SCATTER = 4.0


def unstable(found: Sequence[Measured], tails: Tails) -> list[Measured]:
    """Those that are, in their order; none where fewer than `LEAST` curves ran to their end (`tails_of`)."""
    if len(tails.rounds) < LEAST:
        return []
    spread = float(np.std([m.value for m in found if m.complete]))
    least = max(SCATTER * tails.noise**0.5, spread)
    return [m for m in found if _falls(m, least)]


def _falls(m: Measured, least: float) -> bool:
    curve = np.array(known_rounds(m))
    if not curve.size:
        return False
    best = int(curve.argmax())
    gained, lost = curve[best] - curve[: best + 1].min(), curve[best] - curve[-1]
    return bool(lost > max(gained / 2, least))
