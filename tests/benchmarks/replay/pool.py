"""Replays in processes side by side; what is found does not depend on how many there are."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Any

from tests.benchmarks.measure import say
from tests.benchmarks.replay.searcher import Impossible

#: Seconds between two lines of progress.
PACE = 10.0


@dataclass(frozen=True)
class Task:
    """One repetition of one searcher on one table."""

    table: str
    searcher: str
    repetition: int
    slots: int
    budgets: tuple[int, ...]


@dataclass
class Replayed:
    """`found`: by table, searcher and slots, the repetitions, each judged at every budget. `impossible`: by table and
    searcher, why it could not be replayed."""

    found: dict[tuple[str, str, int], list[Any]] = field(default_factory=lambda: defaultdict(list))
    impossible: dict[tuple[str, str], str] = field(default_factory=dict)
    seconds: float = 0.0


def replayed(
    given: Mapping[str, Any], tasks: Sequence[Task], processes: int, replay: Callable[[Any, Task], Any]
) -> Replayed:
    """All tasks on the given tables, by `replay`, a function that other processes can import."""
    result = Replayed()
    started = told = time.monotonic()
    with ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=_prepare, initargs=(dict(given), replay)
    ) as pool:
        for done, (task, judged) in enumerate(zip(tasks, pool.map(_work, tasks), strict=True), start=1):
            if isinstance(judged, str):
                result.impossible[task.table, task.searcher] = judged
            else:
                result.found[task.table, task.searcher, task.slots].append(judged)
            if time.monotonic() - told > PACE:
                told = time.monotonic()
                say(f"  {done} of {len(tasks)} replays, {told - started:.0f} s: {task.searcher} on {task.table}")
    result.seconds = time.monotonic() - started
    return result


_TABLES: dict[str, Any] = {}
_REPLAY: list[Callable[[Any, Task], Any]] = []


def prepare() -> None:
    """A process that replays has one thread, and ends with the process that started it."""
    import threadpoolctl

    threadpoolctl.threadpool_limits(1)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _prepare(given: dict[str, Any], replay: Callable[[Any, Task], Any]) -> None:
    prepare()
    _TABLES.update(given)
    _REPLAY.append(replay)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _work(task: Task) -> Any:
    try:
        return _REPLAY[0](_TABLES[task.table], task)
    except Impossible as reason:
        return str(reason)
