"""Oracles: a searcher that is told, in place of what its federations measured, what is true of their configurations.

It has neither seed noise nor anything to lose by choosing; what regret is left is that of the proposals. No searcher
that is told noisy values can be expected to do better with the same proposals.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from benchmarks.replay.searcher import Front, Job, Result, Searcher, Setting, Verdict


class Told:
    """`inner`, told the mean test curve over the held-out seeds."""

    def __init__(self, inner: Searcher, setting: Setting) -> None:
        self._inner, self._truth = inner, setting.truth

    def ask(self) -> Job | None:
        return self._inner.ask()

    def tell(self, result: Result) -> None:
        true = self._truth(result.job.values)[: result.job.until]
        self._inner.tell(dataclasses.replace(result, curves=np.stack([true] * len(result.job.seeds))))

    def winner(self) -> Verdict | Front | None:
        return self._inner.winner()
