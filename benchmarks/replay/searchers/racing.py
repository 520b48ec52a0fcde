"""`fedtune search --race`, driven without Ray: the product's own race."""

from __future__ import annotations

from typing import Any

from benchmarks.replay.searcher import Setting
from benchmarks.replay.searchers.present import Present, replayed
from fedtune.decisions.race import MOST
from fedtune.record.experiment import search_seeds

#: More than any replay spends: its own budget ends it.
ENDLESS = 10**9


class Racing(Present):
    """The race of up to `most` seeds, with the defaults of `fedtune search` otherwise."""

    def __init__(self, setting: Setting, *, most: int = MOST, **changes: Any) -> None:
        seeds = search_seeds(0, min(most, setting.seeds))
        super().__init__(setting, each=1, seeds=seeds, budget=ENDLESS, **changes)
        self.queue = replayed((self.experiment, setting.space))

    def seeds_of(self, number: int) -> tuple[int, ...]:
        return (int(self.queue.trial(number).user_attrs["seed"]),)
