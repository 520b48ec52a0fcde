"""What a session holds of the trials that have ended, beside their study: what decisions count of them, and nothing
else. Ray is played here."""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from optuna.trial import FrozenTrial

from fedtune.console import progress
from fedtune.console.progress import ProgressDisplay
from fedtune.execution.interrupts import Interrupts
from fedtune.execution.ray_hooks import SessionEnd
from fedtune.execution.ray_session import TuneSession
from fedtune.machine import cluster
from fedtune.machine.server_watch import ServerLoss
from fedtune.record.experiment import search_seeds
from fedtune.record.journal import StudyFile
from tests.fedtune.conftest import start, varied
from tests.fedtune.execution.test_queue import score
from tests.fedtune.queues import opened
from trainables.worker.job import Ending, Job

#: So many trials have ended when it is looked first, and so many when it is looked again.
FIRST, THEN = 10, 30
#: The trials, in the order in which they were begun.
TRIALS = {"Queue._trials", "Queue._order"}
#: The values that a rule compares, configurations that are not to be proposed again, and what the model is told.
COMPARED, HAD, TOLD = {"Earlier._values"}, {"Tried._keys"}, {"Told._bad", "Told._ranked"}
#: Studies and what is in them, and what holds nothing of a session.
NOT_ENTERED = (StudyFile, FrozenTrial, mock.Mock, type, types.ModuleType, types.FunctionType)


def searched(
    folder: Path, monkeypatch: pytest.MonkeyPatch, omegas: tuple[float, ...], **changes: Any
) -> Iterator[TuneSession]:
    """A search whose trials run in turns, two at once: its session after each trial that has ended."""
    made = start(folder, trials=THEN + 4, **changes)
    monkeypatch.setattr(cluster, "slot_map", lambda *_: [cluster.Slots("here", "127.0.0.1", 2, 0, "", 2)])
    end, servers = SessionEnd(folder, None, Interrupts(), ServerLoss("resume")), mock.Mock()
    queue, watch = opened(folder, made, varied(*omegas) if omegas else None), ProgressDisplay(made, "quiet")
    session = TuneSession(queue, watch, made.placement, end, servers, None)
    running: dict[str, tuple[Job, dict[int, tuple[float, ...]]]] = {}
    begun = 0
    while True:
        while len(running) < 2 and isinstance(found := session.suggest(str(begun)), dict):
            running[str(begun)] = found["job"], {}
            begun += 1
        assert running and end.failure is None
        for name, (job, curve) in [*running.items()]:
            round_ = len(curve) + 1
            curve[round_] = (score(dict(job.values), round_),)
            told: dict[str, Any] = {"round": round_, "values": curve[round_]}
            stops = job.rule.stops(round_, curve)
            if not stops and round_ < made.rounds:
                session.on_trial_result(name, told)
                continue
            del running[name]
            ending = Ending("scheduler" if stops else "completed", round_, None, curve)
            session.on_trial_complete(name, told | {"ending": ending})
            yield session


def held(root: object) -> Iterator[tuple[str, Any]]:
    """All lists, dictionaries, sets and queues that an object holds, but for what is in a study, each with the class
    and the attribute in which it is found first."""
    seen: set[int] = set()
    waiting: deque[tuple[str, Any]] = deque([("", root)])
    while waiting:
        where, one = waiting.popleft()
        if id(one) in seen or isinstance(one, NOT_ENTERED):
            continue
        seen.add(id(one))
        if isinstance(one, list | dict | set | deque):
            yield where, one
        if isinstance(one, list | dict | set | deque | tuple | frozenset):
            waiting += [(where, other) for other in (one.values() if isinstance(one, dict) else one)]
        waiting += [(f"{type(one).__name__}.{name}", other) for name, other in getattr(one, "__dict__", {}).items()]


@pytest.mark.parametrize(
    ("changes", "omegas", "places"),
    [
        ({"sampler": "random"}, (), TRIALS | COMPARED),
        ({"sampler": "random", "confirm": 2, "seeds": search_seeds(2, 1)}, (), TRIALS | COMPARED | {"Seeds._of"}),
        ({"sampler": "ei", "seeds": (0,)}, (), TRIALS | COMPARED | HAD | TOLD),
        ({"sampler": "ei", "seeds": (0,)}, (10.0, 1.0, 0.1), TRIALS),  # of three conditions a third is kept of each
    ],
)
def test_of_an_ended_trial_a_session_holds_what_decisions_count(
    changes: dict[str, Any],
    omegas: tuple[float, ...],
    places: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "WINDOW", 0.0)  # rounds of the last minute are counted, here of the last moment
    search = searched(tmp_path / "run", monkeypatch, omegas, order="arrival", **changes)
    session, *_ = [next(search) for _ in range(FIRST)]
    before = [(where, one, len(one)) for where, one in held(session)]
    for _ in range(THEN - FIRST):
        next(search)
    assert {where for where, one, had in before if len(one) > had + (THEN - FIRST) / 2} == places
