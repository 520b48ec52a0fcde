"""The end of a search: which trials are further seeds, of which configurations, whatever ran side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from optuna.trial import FrozenTrial

from analysis.estimate import configuration, standing
from fedtune.console.progress import ProgressDisplay
from fedtune.decisions import confirmation
from fedtune.decisions.confirmation import confirms, federations
from fedtune.decisions.race import is_further, is_over, spent
from fedtune.execution.interrupts import Interrupts
from fedtune.execution.ray_hooks import SessionEnd
from fedtune.execution.ray_session import TuneSession
from fedtune.machine import cluster
from fedtune.machine.server_watch import ServerLoss
from fedtune.record.experiment import search_seeds
from fedtune.record.journal import StudyFile
from search_spaces import run_folder
from tests.fedtune.conftest import start
from tests.fedtune.decisions.test_race_proposals import ROUNDS, content, raced, run, run_all
from tests.fedtune.queues import begun, opened, take
from trainables.worker.job import Ending

#: Of a search of 16 trials three confirm.
SEARCH: dict[str, Any] = {"budget": 0, "seeds": search_seeds(2, 1), "trials": 16, "confirm": 3}


@pytest.mark.parametrize(("whole", "confirm"), [(1, 0), (9, 0), (10, 2), (14, 2), (15, 3), (24, 4), (40, 8)])
def test_a_fifth_of_a_search_confirms(whole: int, confirm: int) -> None:
    assert federations(whole) == confirm


def next_confirmed(begun: list[Any]) -> int:
    """Whose turn it is after these trials."""
    before = confirmation.before(begun)
    turns = confirmation.rivals(before, 1.0)
    return turns[(len(begun) - len(before)) % len(turns)]


@pytest.mark.parametrize(
    ("better", "turns"),
    [
        ({}, [7, 7, 7]),  # told from all others
        ({1: 0.06, 2: 0.05, 3: 0.3}, [7, 5, 9, 7, 5, 9]),  # 5 % is told
        (dict.fromkeys(range(1, 6), 0.4), [7, 5, 8, 9, 7]),  # at most four
    ],
)
def test_those_that_cannot_be_told_take_turns(
    better: dict[int, float], turns: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The places of `ranking` are those of trials 7, 5, 8, 9, 4 and 6; `better` has their chances against the first."""
    belief = SimpleNamespace(better=lambda i, best: better.get(i, 0.01) if best == 0 else pytest.fail("of the best"))
    found = SimpleNamespace(ranking=[0, 1, 2, 3, 4, 5], numbers=(7, 5, 8, 9, 4, 6), belief=belief)
    monkeypatch.setattr(confirmation, "standing", lambda known, sign: found if len(known) == 10 else None)
    begun: list[Any] = [SimpleNamespace(user_attrs={}) for _ in range(10)]
    for expected in turns:
        assert next_confirmed(begun) == expected
        begun.append(SimpleNamespace(user_attrs={run_folder.CONFIRMS: True}))


@pytest.mark.parametrize(
    ("paper", "chances", "turns"),
    [
        (6, [0.2, 0.01, 0.01, 0.01, 0.0051], [7, 5, 6, 7]),  # told, but not by far
        (6, [0.2, 0.01, 0.01, 0.01, 0.005], [7, 5, 7, 5]),  # told by far
        (6, [0.4, 0.4, 0.4, 0.4, 0.3], [7, 5, 8, 6]),  # of four places the last is theirs
        (8, [0.4, 0.4, 0.4, 0.4, 0.3], [7, 5, 8, 9]),  # they are among the four anyway
        (7, [0.4, 0.4, 0.4, 0.4, 0.3], [7, 5, 8, 9]),  # they are the best
    ],
)
def test_the_papers_values_are_confirmed_until_they_are_told_by_far(
    paper: int, chances: list[float], turns: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trial 7 is the best; `chances` are those of 5, 8, 9, 4 and 6 to be better."""
    belief = SimpleNamespace(better=lambda i, best: chances[i - 1])
    found = SimpleNamespace(
        ranking=[0, 1, 2, 3, 4, 5],
        numbers=(7, 5, 8, 9, 4, 6),
        belief=belief,
        place={n: i for i, n in enumerate((7, 5, 8, 9, 4, 6))},
    )
    monkeypatch.setattr(confirmation, "standing", lambda known, sign: found)
    begun = [SimpleNamespace(number=n, user_attrs={}) for n in range(10)]
    begun[paper].user_attrs["from"] = run_folder.PAPER
    last = SimpleNamespace(user_attrs={run_folder.CONFIRMS: True})
    assert [next_confirmed([*begun, *[last] * done]) for done in range(4)] == turns


@pytest.mark.parametrize("changes", [SEARCH, {"confirm": 3}], ids=["search", "race"])
def test_order_width_and_restarts_change_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    made, one = raced(tmp_path / "one", **changes)
    kept = [trial.number for trial in one if confirms(trial)]
    assert kept == list(range(len(one) - len(kept), len(one))) and len(kept) >= 3
    assert is_over(one, made) and not is_over(one[:-1], made)
    assert content(raced(tmp_path / "four", 4, -1, **changes)[1]) == content(one)
    assert content(raced(tmp_path / "killed", 3, every=4, **changes)[1]) == content(one)


def test_the_confirmed_are_those_of_all_that_came_before(tmp_path: Path) -> None:
    """In a search that looks at nothing else: each gets its next seed, is never stopped and is not counted as tried."""
    _, trials = raced(tmp_path / "run", 3, **SEARCH, sampler="random", scheduler="asha")
    before, last = trials[:13], trials[13:]
    assert not any(map(confirms, before)) and not any(map(is_further, before)) and all(map(confirms, last))
    assert all(trial.user_attrs["seed"] == search_seeds(2, 1)[0] for trial in before)
    found = standing(before, 1.0)
    assert found is not None
    best, *others = found.ranking
    rivals = [best, *(place for place in others if found.belief.better(place, best) > 0.05)][:4]
    turns = [found.numbers[rivals[turn % len(rivals)]] for turn in range(3)]
    assert [trial.user_attrs["of"] for trial in last] == [trials[n].user_attrs.get("of", n) for n in turns]
    seeds: dict[Any, int] = {}
    for trial in last:
        seeds[configuration(trial)] = seeds.get(configuration(trial), 0) + 1
        assert trial.user_attrs["seed"] == search_seeds(2, 1)[0] + seeds[configuration(trial)]
        assert trial.state.name == "COMPLETE" and trial.params == trials[trial.user_attrs["of"]].params


def test_a_race_keeps_its_last_rounds(tmp_path: Path) -> None:
    made, trials = raced(tmp_path / "race", 2, confirm=3)
    _, without = raced(tmp_path / "without", 2)
    before = [trial for trial in trials if not confirms(trial)]
    assert content(without)[: len(before)] == content(before), "until then it is the race that it was"
    kept = made.budget - 3 * ROUNDS
    assert kept - ROUNDS < spent(before, made) <= kept
    assert made.budget - ROUNDS < spent(trials, made) <= made.budget


def test_a_confirmation_waits_for_all_before_it(tmp_path: Path) -> None:
    queue = begun(tmp_path / "run", rounds=ROUNDS, scheduler="none", sampler="random", **SEARCH)
    live = [take(queue) for _ in range(13)]
    assert queue.propose() is None and not queue.exhausted
    for proposal in live[:-1]:
        run(queue, proposal, 0.6)
    assert queue.propose() is None and not queue.exhausted, "one of them still runs"
    run(queue, live[-1], 0.6)
    assert sum(queue.propose() is not None for _ in range(4)) == 3, "all of them side by side"
    assert queue.exhausted and not queue.finished


def test_a_search_that_is_extended_confirms_again(tmp_path: Path) -> None:
    made, first = raced(tmp_path / "run", 2, **SEARCH, sampler="random")
    longer = dataclasses.replace(made, trials=26, confirm=federations(26))
    run_all(opened(tmp_path / "run", longer), 0.6)
    trials = StudyFile(tmp_path / "run").study.trials
    assert content(trials[:16]) == content(first)
    assert [trial.number for trial in trials if confirms(trial)] == [13, 14, 15, 24, 25]
    assert is_over(trials, longer)
    # Extended before its confirmation has begun it is the longer search.
    queue = begun(tmp_path / "early", **SEARCH | {"sampler": "random", "rounds": ROUNDS})
    for _ in range(5):
        run(queue, take(queue), 0.6)
    run_all(opened(tmp_path / "early", longer), 0.6)
    whole = raced(tmp_path / "whole", 2, **SEARCH | {"sampler": "random", "trials": 26, "confirm": federations(26)})
    assert content(StudyFile(tmp_path / "early").study.trials) == content(whole[1])


def test_where_the_time_is_short_it_begins_before_the_last_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 80 of 100 seconds nothing new is tried; a search that goes on later tries the rest first."""
    made = start(tmp_path / "run", rounds=ROUNDS, scheduler="none", sampler="random", time=100.0, **SEARCH)
    queue, clock = opened(tmp_path / "run", made), [0.0]
    watch, lost = ProgressDisplay(made, "quiet"), ServerLoss("fedtune resume")
    slots = [cluster.Slots("declared", "127.0.0.1", 2, 0, "", 2)]
    monkeypatch.setattr(cluster, "slot_map", lambda *_: slots)
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    place = made.placement._replace(concurrency=2)
    end = SessionEnd(tmp_path / "run", 100.0, Interrupts(), lost)
    session = TuneSession(queue, watch, place, end, mock.Mock(), mock.Mock())
    for seconds, count in ((0.0, 1), (1.0, 2)):
        clock[0] = seconds
        assert isinstance(session.suggest(str(count)), dict) and len(queue.trials()) == count
    for number in (0, 1):
        finish(session, number)
    clock[0] = 79.9
    assert isinstance(session.suggest("3"), dict)
    clock[0] = 80.0
    assert session.suggest("4") is None, "the third trial still runs"
    finish(session, 2)
    for name in ("5", "6"):
        assert isinstance(session.suggest(name), dict)
    assert [confirms(trial) for trial in queue.trials()] == [False] * 3 + [True] * 2
    assert all("of" in trial.user_attrs for trial in queue.trials()[3:])
    for number in (3, 4):
        finish(session, number)
    later = opened(tmp_path / "run", made)
    assert [confirms(later.trial(take(later).number)) for _ in range(10)] == [False] * 10
    assert later.propose() is None, "what follows depends on these"


def finish(session: TuneSession, number: int) -> None:
    """Ends a trial as if it had run all its rounds, with a value of its own."""
    session.queue.finish(number, Ending("completed", ROUNDS, None, {ROUNDS: (0.1 * (number % 4),)}))
    session._live.clear()


def test_a_search_of_which_nothing_can_be_told_goes_on_looking(tmp_path: Path) -> None:
    """All trials but one fail, so that no two values can be compared."""
    queue = begun(tmp_path / "run", rounds=ROUNDS, sampler="random", **SEARCH)
    for number in range(16):
        proposal = take(queue)
        if number == 4:
            run(queue, proposal, 0.6)
        else:
            queue.finish(proposal.number, Ending("error", 1, "no reason", {}))
    trials: Sequence[FrozenTrial] = StudyFile(tmp_path / "run").study.trials
    assert queue.finished and len({configuration(trial) for trial in trials}) == 16
    assert not any(map(confirms, trials))
