"""The queue over several methods without Ray: one sequence of trials, whatever ran side by side, within its budget."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fedtune.decisions.history import Part
from fedtune.decisions.method_allocation import Allocation
from fedtune.execution.queue import Proposal, Queue
from fedtune.record.journal import StudyFile
from fedtune.record.run_directory import create
from tests.fedtune.conftest import experiment, space
from trainables.tune import Ending

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
    curve: dict[int, tuple[float, ...]] = {}
    for round_ in range(1, ROUNDS + 1):
        curve[round_] = ((peak - (a - 0.3) ** 2 / 4 - (b - 0.7) ** 2) * round_ / ROUNDS,)
        if round_ < ROUNDS and proposal.rule.stops(round_, curve):
            queue.finish(proposal.number, Ending("scheduler", round_, None, curve))
            return
    queue.finish(proposal.number, Ending("completed", ROUNDS, None, curve))


def searched(
    folder: Path, width: int = 1, newest: bool = False, sessions: int = 1, budget: float = BUDGET, **changes: Any
) -> list[tuple[Any, ...]]:
    """Everything that is recorded, in the order of the trials' places."""
    queue, live, steps = opened(folder, budget, **changes), [], 0
    while not queue.finished:
        while len(live) < width and (proposal := queue.propose()) is not None:
            live.append(proposal)
        assert live, "nothing runs and nothing is proposed"
        run(queue, live.pop(-1 if newest else 0))
        steps += 1
        if sessions > 1 and steps % 3 == 0:
            queue, live = opened(folder, budget, **changes), []
    assert queue.propose() is None
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
    assert searched(tmp_path / "wide", width=4, newest=True, **changes) == alone
    assert searched(tmp_path / "killed", width=3, sessions=2, **changes) == alone
    assert searched(tmp_path / "killed newest", width=4, newest=True, sessions=2, **changes) == alone


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
    rows = searched(tmp_path, equal=True, budget=40 * ROUNDS)
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
    proposal = queue.propose()
    assert proposal is not None and proposal.number == 3 and proposal.resumed
    run(queue, proposal)
    assert queue.finished
    assert searched(tmp_path) == before
