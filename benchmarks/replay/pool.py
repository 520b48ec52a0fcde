"""Replays in processes side by side; what is found does not depend on how many there are."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Any, TypeVar

from benchmarks.measure import say
from benchmarks.replay.searcher import Impossible

T = TypeVar("T")

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


def every(
    tables: Iterable[str], searchers: Sequence[str], repetitions: int, slots: int, budgets: tuple[int, ...]
) -> list[Task]:
    """Every repetition of every searcher on every table."""
    return [
        Task(table, searcher, repetition, slots, budgets)
        for table in tables
        for searcher in searchers
        for repetition in range(repetitions)
    ]


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
    started = time.monotonic()
    work = partial(_one, replay)
    for task, judged in side_by_side(
        given, tasks, processes, work, lambda task: f"{task.searcher} on {task.table}", "replays"
    ):
        if isinstance(judged, str):
            result.impossible[task.table, task.searcher] = judged
        else:
            result.found[task.table, task.searcher, task.slots].append(judged)
    result.seconds = time.monotonic() - started
    return result


def _one(replay: Callable[[Any, Task], Any], given: Mapping[str, Any], task: Task) -> Any:
    try:
        return replay(given[task.table], task)
    except Impossible as reason:
        return str(reason)


def side_by_side(
    given: Mapping[str, Any],
    tasks: Sequence[T],
    processes: int,
    work: Callable[[Mapping[str, Any], T], Any],
    named: Callable[[T], str],
    what: str,
) -> Iterator[tuple[T, Any]]:
    """Every task with what `work` makes of it, in their order. `work`, which other processes can import, gets `given`,
    which every process has once. `named`, `what`: how a line of progress calls a task, and all of them."""
    started = told = time.monotonic()
    with ProcessPoolExecutor(
        processes, mp_context=get_context("spawn"), initializer=_prepare, initargs=(dict(given), work)
    ) as pool:
        for done, (task, result) in enumerate(zip(tasks, pool.map(_work, tasks), strict=True), start=1):
            yield task, result
            if time.monotonic() - told > PACE:
                told = time.monotonic()
                say(f"  {done} of {len(tasks)} {what}, {told - started:.0f} s: {named(task)}")


_GIVEN: dict[str, Any] = {}
_HOW: list[Callable[[Mapping[str, Any], Any], Any]] = []


def _prepare(given: dict[str, Any], work: Callable[[Mapping[str, Any], Any], Any]) -> None:
    """A process that replays has one thread, and ends with the process that started it."""
    import threadpoolctl

    threadpoolctl.threadpool_limits(1)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    _GIVEN.update(given)
    _HOW.append(work)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _work(task: Any) -> Any:
    return _HOW[0](_GIVEN, task)
