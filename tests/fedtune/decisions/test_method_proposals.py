"""The queue over several methods without Ray: one sequence of trials, whatever ran side by side, within its budget."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fedtune.decisions.early_stopping import Halving, Until
from fedtune.decisions.history import Part
from fedtune.decisions.shared_budget import Allocation, ByClock
from fedtune.execution.queue import Proposal, Queue
from fedtune.record.journal import StudyFile
from fedtune.record.run_directory import create
from tests.fedtune.conftest import experiment, space
from tests.fedtune.queues import drive, ending_of, take
from trainables.worker.job import Ending

ROUNDS = 9
#: By method: what a round costs and how good its peak is.
METHODS = {"fedavg": (1.0, 0.7), "fedprox": (1.5, 0.9), "scaffold": (4.0, 0.5)}
BUDGET = 18 * ROUNDS


def begun(folder: Path, name: str, **changes: Any) -> Part:
    target = folder / name
    first = ({"values": {"alpha": 0.5, "lambda": 0.5}, "from": "the paper's values"},)
    made = experiment(target, **{"rounds": ROUNDS, "trials": 1000, "grace": 3, "first": first, "part": True, **changes})
    made = dataclasses.replace(made, method=name, seeds=(0,))
    where = dataclasses.replace(space(), method=name)
    if not target.exists():
        create(target, made, where, {})
    return Part(target, made, where)


def opened(folder: Path, budget: float, **changes: Any) -> Queue:
    costs = tuple(cost for cost, _ in METHODS.values())
    given = {"rounds": ROUNDS, "least": 2, "equal": False, "sign": 1.0} | changes
    allocation = Allocation(costs=costs, prices=costs, budget=budget, **given)  # type: ignore[arg-type]
    return Queue([begun(folder, name) for name in METHODS], allocation)


def run(queue: Queue, proposal: Proposal) -> None:
    a, b = float(proposal.values["alpha"]), float(proposal.values["lambda"])
    peak = METHODS[proposal.part.experiment.method][1]

    def values(round_: int) -> tuple[float, ...]:
        return ((peak - (a - 0.3) ** 2 / 4 - (b - 0.7) ** 2) * round_ / ROUNDS,)

    queue.finish(proposal.number, ending_of(proposal, ROUNDS, values))


def searched(
    folder: Path, width: int = 1, place: int = 0, every: int = 0, budget: float = BUDGET, **changes: Any
) -> list[tuple[Any, ...]]:
    """Everything that is recorded, in the order of the trials' places."""
    drive(lambda: opened(folder, budget, **changes), run, width, place, every)
    found = [
        (t.user_attrs["place"], name, t.number, t.state.name, t.params, t.values, t.intermediate_values, t.user_attrs)
        for name in METHODS
        for t in StudyFile(folder / name).study.trials
    ]
    return sorted(found, key=lambda row: row[0])


@pytest.mark.parametrize("changes", [{}, {"equal": True}, {"least": 3}])
def test_neither_width_nor_order_nor_kills_change_the_record(tmp_path: Path, changes: dict[str, Any]) -> None:
    alone = searched(tmp_path / "alone", **changes)
    assert [row[0] for row in alone] == list(range(len(alone)))
    assert len({row[1] for row in alone}) == 3 and any(row[3] == "PRUNED" for row in alone)
    assert searched(tmp_path / "wide", 4, -1, **changes) == alone
    assert searched(tmp_path / "killed", 3, every=3, **changes) == alone
    assert searched(tmp_path / "killed newest", 4, -1, 3, **changes) == alone


def test_the_budget_is_kept_and_used(tmp_path: Path) -> None:
    rows = searched(tmp_path)
    spent = sum(METHODS[row[1]][0] * row[7]["rounds"] for row in rows)
    # What is left would not pay for a whole trial of the cheapest method.
    assert BUDGET - min(cost for cost, _ in METHODS.values()) * ROUNDS < spent <= BUDGET


def test_every_method_begins_with_its_papers_values_and_has_its_minimum(tmp_path: Path) -> None:
    rows = searched(tmp_path, least=2)
    assert [row[1] for row in rows[:6]] == [*METHODS, *METHODS]
    for row in rows[:3]:
        assert row[3] == "COMPLETE" and row[4] == {"alpha": 0.5, "lambda": 0.5}
        assert row[7]["from"] == "the paper's values"
    counts = Counter(row[1] for row in rows)
    assert min(counts.values()) >= 2
    assert max(counts, key=lambda name: counts[name]) == "fedprox"  # the best one, and not dear


def test_equal_parts_are_equal(tmp_path: Path) -> None:
    spent: Counter[str] = Counter()
    for row in searched(tmp_path, equal=True, budget=40 * ROUNDS):
        spent[row[1]] += METHODS[row[1]][0] * row[7]["rounds"]
    # They differ by no more than a whole trial of the dearest and what may run at the same time.
    assert max(spent.values()) - min(spent.values()) <= 2 * 4.0 * ROUNDS


def test_a_trial_sees_its_own_methods_trials(tmp_path: Path) -> None:
    """Methods' spaces differ, so a study of one method holds its parameters alone."""
    rows = searched(tmp_path)
    assert all(set(row[4]) == {"alpha", "lambda"} for row in rows)


def test_a_method_is_taught_by_what_its_trial_may_look_at(tmp_path: Path) -> None:
    """All parameters are shared here, so a taught trial is a copy of the best one of another method that it sees."""
    rows = searched(tmp_path, equal=True, budget=80 * ROUNDS)
    made = opened(tmp_path, BUDGET)
    first = made.parts[0].experiment
    taught = [row for row in rows if str(row[7].get("from", "")).startswith("the best configuration of")]
    assert taught
    for place, name, *_, params, _, _, user in taught:
        seen = [row for row in rows[: first.seen(place)] if row[3] == "COMPLETE"]
        best = max((row for row in seen if row[1] != name), key=lambda row: row[5][0])
        assert params == best[4] and user["from"] == f"the best configuration of {best[1]}"
        assert max(row[5][0] for row in seen if row[1] == name) < best[5][0]


def test_a_trial_that_ended_is_computed_again_in_its_place(tmp_path: Path) -> None:
    before = searched(tmp_path)
    queue = opened(tmp_path, BUDGET)
    queue.again(3, None)
    assert not queue.finished
    proposal = take(queue)
    assert proposal.number == 3 and proposal.resumed
    run(queue, proposal)
    assert queue.finished
    assert searched(tmp_path) == before


class Hands:
    """A clock that is moved by hand."""

    def __init__(self, shown: float) -> None:
        self.shown = shown

    def reading(self) -> float:
        return self.shown


def by_the_clock(folder: Path, whole: float) -> tuple[Queue, Hands, ByClock]:
    """A search on two slots whose clock shows 5 seconds. Two thirds of the budget are kept for what comes after it."""
    costs = tuple(cost for cost, _ in METHODS.values())
    clock = ByClock(begun=5.0, whole=whole, kept=2 * whole / 3, seeds=2, slots=2)
    allocation = Allocation(costs, costs, whole / 3, ROUNDS, 1, False, 1.0, clock)
    hands = Hands(5.0)
    parts = [begun(folder, name) for name in METHODS]
    return Queue(parts, allocation, clock=hands), hands, clock  # type: ignore[arg-type]


def timed(folder: Path, whole: float, busy_from: float, stop_after: float = 1e9) -> tuple[Queue, float]:
    """Such a search, in which a round takes what its method costs, three times that from a moment on: the queue, and
    when its last trial ended."""
    queue, hands, _ = by_the_clock(folder, whole)
    hands.shown = max([5.0, *(trial.user_attrs.get("ended", 0.0) for trial in queue.trials())])
    live: list[tuple[float, Proposal]] = []
    while not queue.finished and hands.shown < stop_after:
        while len(live) < 2 and (proposal := queue.propose()) is not None:
            each = METHODS[proposal.part.experiment.method][0] * (3 if hands.shown > busy_from else 1)
            live.append((hands.shown + each * ROUNDS + 1.0, proposal))
        hands.shown, proposal = min(live, key=lambda item: item[0])
        live.remove((hands.shown, proposal))
        cost = METHODS[proposal.part.experiment.method][0] * (3 if hands.shown > busy_from else 1)
        value = METHODS[proposal.part.experiment.method][1]
        curve = {round_: (value * round_ / ROUNDS,) for round_ in range(1, ROUNDS + 1)}
        queue.finish(proposal.number, Ending("completed", ROUNDS, None, curve, seconds=cost * ROUNDS))
    return queue, hands.shown


@pytest.mark.parametrize("busy_from", [1e9, 100.0])
def test_by_the_clock_no_trial_is_begun_that_would_not_end_in_time(tmp_path: Path, busy_from: float) -> None:
    """Also where everything takes three times as long from a moment on: one trial of each slot may then be late. What
    its price leaves of the time is less than another trial takes."""
    queue, ended = timed(tmp_path, 900.0, busy_from)
    dearest = 3 * 4.0 * ROUNDS + 1 if busy_from < 900 else 0.0
    assert ended <= 300 + dearest
    cheapest = ROUNDS * (3.0 if busy_from < 900 else 1.0) + 1
    assert ended > 300 - 2 * cheapest
    for trial in queue.trials():
        assert trial.user_attrs["began"] < 300 and trial.user_attrs["ended"] <= ended


def test_a_search_by_the_clock_goes_on_from_the_costs_that_are_recorded(tmp_path: Path) -> None:
    """One that was killed has used up what its record says, and one that is over stays over."""
    _, cut = timed(tmp_path, 900.0, 1e9, stop_after=150.0)
    assert 150 <= cut < 200
    queue, ended = timed(tmp_path, 900.0, 1e9)
    assert 250 < ended <= 300
    before = [trial.user_attrs for trial in queue.trials()]
    again, still = timed(tmp_path, 900.0, 1e9)
    assert again.finished and still == ended and [trial.user_attrs for trial in again.trials()] == before


def test_a_trial_ends_where_its_next_round_would_be_late_and_before_that_by_its_own_rule() -> None:
    """Four rounds in 100 seconds: the fifth takes 25 more, and 50 where it is still to come after the fourth."""
    halving, now = Halving.of(3, {4: [(0.9,), (0.8,)]}), time.time()
    until = {left: Until(now + left, halving, now - 100) for left in (-1.0, 20.0, 30.0, 3600.0)}
    assert [until[left].stops(4, {}) for left in until] == [True, True, False, False]
    assert until[3600.0].stops(4, {1: (0.5,)})
    assert [until[left].may_stop(5) for left in until] == [True, True, True, False]
    assert [until[3600.0].may_stop(round_) for round_ in (3, 4)] == [False, True]


def test_a_trial_is_told_when_the_search_is_over_but_for_the_first(tmp_path: Path) -> None:
    """Of 900 seconds 600 are kept, and 45 may be overrun; the clock shows 5."""
    queue, *_ = by_the_clock(tmp_path, 900.0)
    first, second = take(queue), take(queue)
    assert not isinstance(first.rule, Until) and isinstance(second.rule, Until)
    assert second.rule.moment - second.rule.began == pytest.approx(900 - 600 + 45 - 5)
    assert 0 <= time.time() - second.rule.began < 60


def test_what_comes_after_the_search_is_kept_by_the_price_of_the_best_ones() -> None:
    """Two seeds of bests of 10, 20 and 30 seconds on two slots take 60, the final run of the dearest 30, and both wait
    4 seconds for their processes."""
    clock = ByClock(begun=5.0, whole=300.0, kept=80.0, seeds=2, slots=2)
    assert clock.end_of_search([10.0, 20.0, 30.0], 4.0) == 300 - 98
    assert clock.end_of_search([5.0, 5.0], 4.0) == 300 - 88, "no less than was planned"
    assert clock.end_of_search([100.0, 100.0], 4.0) == 300 - 150, "and no more than half"
    assert clock.last_moment == 300 - 80 + 15
