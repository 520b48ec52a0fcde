"""A search in simulated time: slots run jobs side by side, every round costs what the table says, and the budget is
counted in seed-rounds (rounds of single federations, over all trials)."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.replay.searcher import Front, Job, Result, Searcher, Verdict
from benchmarks.replay.table import Episode
from search_spaces.parameter import Value


@dataclass(frozen=True)
class Snapshot:
    """Where a search stood: the verdict by what had been told for at most `budget` seed-rounds, after how many seconds,
    and the best configuration that it had started by then (its `truth`, for an oracle's eye; with several objectives
    there is none)."""

    budget: int
    verdict: Verdict | Front | None
    seconds: float
    best_tried: float | None


class Simulation:
    """One search on one episode."""

    def __init__(self, episode: Episode, searcher: Searcher, *, slots: int, budgets: Sequence[int]) -> None:
        """`budgets`: in seed-rounds, ascending; a snapshot is taken at each, and the last ends the search."""
        self.episode, self.searcher, self.slots = episode, searcher, slots
        self.budgets = list(budgets)
        self.now, self.spent, self.committed = 0.0, 0, 0
        self._done: dict[tuple[int, int], int] = {}
        self._running: list[tuple[float, int, int, Job]] = []
        self._asked = 0
        self._best_tried: float | None = None
        self.snapshots: list[Snapshot] = []

    def run(self) -> list[Snapshot]:
        """One snapshot per budget. A search that ends early keeps its verdict."""
        exhausted = False
        while not exhausted or self._running:
            while not exhausted and len(self._running) < self.slots:
                job = self.searcher.ask()
                if job is None:
                    break
                exhausted = not self._start(job)
            if not self._running:
                break
            self._finish()
        while len(self.snapshots) < len(self.budgets):
            self._snapshot()
        return self.snapshots

    def _start(self, job: Job) -> bool:
        """Begins a job; False where the budget does not suffice for it."""
        rounds = {seed: job.until - self._done.get((job.trial, seed), 0) for seed in job.seeds}
        if not job.seeds or min(rounds.values()) < 0 or max(rounds.values()) == 0:
            raise ValueError(f"trial {job.trial} asked for rounds up to {job.until} of seeds {job.seeds}: nothing new")
        cost = sum(rounds.values())
        if self.committed + cost > self.budgets[-1]:
            return False
        self.committed += cost
        for seed in job.seeds:
            self._done[job.trial, seed] = job.until
        # The seeds of a trial share its slot, one after the other.
        seconds = sum(n * self.episode.seconds(job.values, seed) for seed, n in rounds.items())
        self._asked += 1
        heapq.heappush(self._running, (self.now + seconds, self._asked, cost, job))
        return True

    def _finish(self) -> None:
        """The next job that ends, told."""
        ends, _, cost, job = heapq.heappop(self._running)
        while len(self.snapshots) < len(self.budgets) and self.spent + cost > self.budgets[len(self.snapshots)]:
            self._snapshot()
        self.now, self.spent = ends, self.spent + cost
        self._tried(job.values)
        curves = np.stack([self.episode.curve(job.values, seed)[: job.until] for seed in job.seeds])
        self.searcher.tell(Result(job, curves))

    def _tried(self, values: Mapping[str, Value]) -> None:
        """Notes a configuration of which something has been told."""
        tried = float(self.episode.truth_curve(values)[-1])
        self._best_tried = tried if self._best_tried is None else max(tried, self._best_tried)

    def _snapshot(self) -> None:
        budget = self.budgets[len(self.snapshots)]
        self.snapshots.append(Snapshot(budget, self.searcher.winner(), self.now, self._best_tried))
