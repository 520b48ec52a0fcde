"""`fedtune search --race`, and the search that confirms, driven without Ray: the product's own."""

from __future__ import annotations

from typing import Any

from benchmarks.replay.searcher import Setting
from benchmarks.replay.searchers.present import Present, replayed
from fedtune.decisions.confirmation import federations
from fedtune.decisions.race import MOST
from fedtune.record.experiment import search_seeds

#: More than any replay spends: its own budget ends it.
ENDLESS = 10**9


class Racing(Present):
    """The race of up to `most` seeds, with the defaults of `fedtune search` otherwise. `whole`: the budget in whole
    federations, of which the last fifth confirms; None: there is no end, and so no confirmation. With `most` 1 it is
    the search of one seed, counted in rounds, up to its confirmation."""

    def __init__(self, setting: Setting, *, most: int = MOST, whole: int | None = None, **changes: Any) -> None:
        seeds = search_seeds(0, min(most, setting.seeds))
        budget = ENDLESS if whole is None else whole * setting.rounds
        confirm = 0 if whole is None else federations(whole)
        setting.check_seeds(1 + confirm)
        super().__init__(setting, each=1, seeds=seeds, budget=budget, confirm=confirm, **changes)
        self.queue = replayed((self.experiment, setting.space))

    def seeds_of(self, number: int) -> tuple[int, ...]:
        return (int(self.queue.trial(number).user_attrs["seed"]),)
