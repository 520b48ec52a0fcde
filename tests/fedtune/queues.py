"""Queues driven without Ray: opened, asked for trials, and run to their end, with a driver that is killed or not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedtune.decisions.history import Part
from fedtune.execution.queue import Proposal, Queue
from fedtune.record.experiment import Experiment
from fedtune.record.journal import StudyFile
from search_spaces.space import Space
from tests.fedtune.conftest import space, start
from trainables.worker.job import Ending


def opened(folder: Path, made: Experiment, where: Space | None = None) -> Queue:
    """The queue of a run that is there, as a driver has it that begins or goes on."""
    return Queue([Part(folder, made, space() if where is None else where)])


def begun(folder: Path, **changes: Any) -> Queue:
    """The queue of a new run."""
    return opened(folder, start(folder, **changes))


def take(queue: Queue) -> Proposal:
    """The next trial of a queue that has one."""
    proposal = queue.propose()
    assert proposal is not None
    return proposal


def drive(
    reopened: Callable[[], Queue],
    end: Callable[[Queue, Proposal], None],
    width: int = 1,
    place: int = 0,
    every: int = 0,
    most: int | None = None,
) -> None:
    """Runs what is left, or `most` trials of it: `width` trials at once, of which the one at `place` ends first (0: the
    oldest, -1: the newest). After `every` trials the driver is as if killed, and the queue is opened anew (0: never).
    """
    queue, live, steps = reopened(), list[Proposal](), 0
    while not queue.finished and steps != most:
        while len(live) < width and (proposal := queue.propose()) is not None:
            live.append(proposal)
        assert live, "nothing runs and nothing is proposed"
        end(queue, live.pop(place))
        steps += 1
        if every and steps % every == 0:
            queue, live = reopened(), []
    assert steps == most or queue.propose() is None


def ending_of(proposal: Proposal, rounds: int, values: Callable[[int], tuple[float, ...]]) -> Ending:
    """How a trial ends whose rounds have these values: by its rule, or after all of them."""
    curve: dict[int, tuple[float, ...]] = {}
    for round_ in range(1, rounds + 1):
        curve[round_] = values(round_)
        if round_ < rounds and proposal.rule.stops(round_, curve):
            return Ending("scheduler", round_, None, curve)
    return Ending("completed", rounds, None, curve)


def recorded(folder: Path) -> list[tuple[Any, ...]]:
    """All that the study of a run holds."""
    return [
        (t.number, t.state, t.params, t.values, t.intermediate_values, t.user_attrs, t.system_attrs)
        for t in StudyFile(folder).trials()
    ]
