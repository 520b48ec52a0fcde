"""What a search's winner is worth by wall-clock, on one slot and on many: `make bench-search SLOTS="1 8 32"`.

The clock is the simulator's: a round takes the seconds that the table recorded, and proposing takes none. Time is
counted in what one slot needs for `FEDERATIONS` whole federations, of configurations at random. A regret is given as a
part of that of a blind choice, so 1 has learnt nothing and 0 has the best configuration there is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.measure import OUT
from benchmarks.replay.measures import Interval, judge, over
from benchmarks.replay.pool import Task, every, replayed
from benchmarks.replay.searcher import Job, Searcher, Setting
from benchmarks.replay.searchers import SEARCHERS
from benchmarks.replay.searchers.plain import at_random
from benchmarks.replay.simulator import Simulation
from benchmarks.replay.table import Episode, Table
from search_spaces import files

#: One slot's time, and the parts of it after which a winner is judged: 12 ÷ 20 is more than half a federation, so
#: before that few have ended.
FEDERATIONS = 12
PARTS = (20, 10, 5, 2, 1)
#: No search is longer than the time of so many federations on all its slots: what more would tell is what one slot
#: tells, and a thousand trials take minutes to propose.
MOST = 40
#: Of which the mean length of a federation is taken.
_DRAWN = 50


class ByClock(Simulation):
    """One search, with snapshots at the given seconds, ascending; the last one ends it."""

    def __init__(self, episode: Episode, searcher: Searcher, *, slots: int, seconds: Sequence[float]) -> None:
        super().__init__(episode, searcher, slots=slots, budgets=[sys.maxsize] * len(seconds))
        self._seconds = list(seconds)

    def _start(self, job: Job) -> bool:
        return self.now < self._seconds[-1] and super()._start(job)

    def _finish(self) -> None:
        ends = self._running[0][0]
        while len(self.snapshots) < len(self._seconds) and ends > self._seconds[len(self.snapshots)]:
            self._snapshot()
        if len(self.snapshots) < len(self._seconds):
            super()._finish()
        else:
            self.now = self._seconds[-1]
            self._running.clear()


@dataclass(frozen=True)
class Column:
    """A searcher on so many slots: by part of the time the median regret, in order of `PARTS`."""

    slots: int
    searcher: str
    #: Up to the longest part that is replayed on so many slots.
    regret: tuple[Interval, ...]


def parts(slots: int) -> tuple[int, ...]:
    """The parts of the time that are replayed on so many slots."""
    return tuple(part for part in PARTS if FEDERATIONS * slots <= MOST * part)


def of_a_federation(episode: Episode, table: Table, repetition: int) -> float:
    """Seconds of a whole federation, mean over configurations at random."""
    drawn = [at_random(table.space, repetition, number) for number in range(_DRAWN)]
    return table.rounds * float(np.mean([episode.seconds(values, 0) for values in drawn]))


def replay(table: Table, task: Task) -> list[float]:
    """The regrets of one repetition, as parts of that of a blind choice."""
    episode = table.episode(task.repetition)
    setting = Setting(
        table.space, table.rounds, episode.seeds, task.repetition, task.slots, episode.truth_curve, episode.fresh
    )
    whole = FEDERATIONS * of_a_federation(episode, table, task.repetition)
    seconds = [whole / part for part in task.budgets]
    found = ByClock(episode, SEARCHERS[task.searcher](setting), slots=task.slots, seconds=seconds).run()
    return [judge(episode, one).regret / (episode.best - episode.blind) for one in found]


def measure(
    given: Mapping[str, Table], searchers: Sequence[str], slots: Sequence[int], *, repetitions: int, processes: int
) -> dict[str, list[Column]]:
    """By table, every searcher on every number of slots."""
    found: dict[str, list[Column]] = {name: [] for name in given}
    for width in slots:
        tasks = every(given, searchers, repetitions, width, parts(width))
        result = replayed(given, tasks, processes, replay)
        for (table, searcher, _), regrets in result.found.items():
            medians = tuple(over(list(column), np.median) for column in zip(*regrets, strict=True))
            found[table].append(Column(width, searcher, medians))
    return found


def told(found: Mapping[str, Sequence[Column]]) -> str:
    """The tables in Markdown."""
    heads = ["slots", "searcher", *(f"1/{part} of the time" if part > 1 else "the time" for part in PARTS)]
    lines = []
    for table, columns in found.items():
        lines += ["", f"{table}: median regret after a part of {FEDERATIONS} federations' time on one slot", ""]
        lines += [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
        for one in columns:
            cells = [f"{i.value:.3f} ({i.low:.3f} to {i.high:.3f})" for i in one.regret]
            cells += ["-"] * (len(PARTS) - len(cells))
            lines.append(f"| {one.slots} | {one.searcher} | {' | '.join(cells)} |")
    return "\n".join(lines).strip()


def run(
    given: Mapping[str, Table], searchers: Sequence[str], slots: Sequence[int], *, repetitions: int, processes: int
) -> int:
    """Replays, prints the tables and keeps them in bench/by-clock.json."""
    found = measure(given, searchers, slots, repetitions=repetitions, processes=processes)
    print(told(found))
    OUT.mkdir(parents=True, exist_ok=True)
    kept: dict[str, Any] = {"repetitions": repetitions, "federations": FEDERATIONS, "parts": PARTS}
    kept["tables"] = {name: [asdict(one) for one in columns] for name, columns in found.items()}
    files.replace(OUT / "by-clock.json", json.dumps(kept, indent=1) + "\n")
    return 0
