"""What decisions see, and what is kept of it: that it changes no answer, and how many trials a decision reads."""

from __future__ import annotations

import copy
import dataclasses
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial, TrialState, create_trial

from fedtune.decisions import expected_improvement
from fedtune.decisions.expected_improvement import Told
from fedtune.decisions.history import History, Next, Part
from fedtune.decisions.proposals import propose, stop_rule
from fedtune.decisions.race import FurtherSeeds
from fedtune.decisions.seen import Kept, Seen
from fedtune.execution.queue import Proposal, Queue
from fedtune.record.experiment import search_seeds
from search_spaces import run_folder
from tests.fedtune.conftest import experiment, space, start
from tests.fedtune.queues import opened
from trainables.worker.job import Ending

#: A search of one seed whose first six trials are short.
SEARCH: dict[str, Any] = {"sampler": "ei", "seeds": search_seeds(2, 1), "grace": 3, "initial": 6}
ORDERS = pytest.mark.parametrize("order", ["arrival", "fixed"])


class Counted:
    """The trials that were counted."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def add(self, trial: Any) -> None:
        self.found.append(trial)


def places(end: int, *without: int) -> Seen:
    """Trials that are known by their places."""
    return Seen(lambda place: place, end, frozenset(without))  # type: ignore[arg-type, return-value]


def test_what_is_seen() -> None:
    seen = places(6, 1, 4)
    assert [*seen] == seen.trials() == [0, 2, 3, 5] and len(seen) == 4
    assert [place in seen for place in (0, 1, 4, 5, 6)] == [True, False, False, True, False]
    assert seen.rest(9) == [1, 4, 6, 7, 8]
    assert seen.beyond(places(4, 1, 2)) == [2, 5]
    assert seen.beyond(places(6, 1, 4)) == []
    assert seen.beyond(places(5, 1)) is None, "it saw trial 4"
    assert places(5).beyond(places(6)) is None, "it saw trial 5"


def test_each_trial_is_counted_once_until_a_decision_sees_less() -> None:
    kept = Kept()
    found = [kept.tally(0, seen, Counted) for seen in (places(3, 1), places(3, 1), places(5, 3))]
    assert found[0] is found[1] is found[2] and found[2].found == [0, 2, 1, 4]
    assert kept.tally(1, places(2), Counted).found == [0, 1], "another run has its own"
    again = kept.tally(0, places(4), Counted)
    assert again is not found[0] and again.found == [0, 1, 2, 3]


def test_a_trial_is_asked_for_its_end_until_it_has_ended() -> None:
    """To ask all of 10,000 each time takes longer than the proposal."""
    asked: list[int] = []
    states = [TrialState.COMPLETE, TrialState.RUNNING, TrialState.FAIL, TrialState.RUNNING]

    class Noted:
        def __init__(self, place: int) -> None:
            self._place = place

        @property
        def state(self) -> TrialState:
            asked.append(self._place)
            return states[self._place]

    kept = Kept()
    assert kept.running(0, Noted, 3) == [1]  # type: ignore[arg-type]
    assert kept.running(0, Noted, 4) == [1, 3]  # type: ignore[arg-type]
    states[1] = TrialState.PRUNED
    assert kept.running(0, Noted, 4) == [3]  # type: ignore[arg-type]
    assert asked == [0, 1, 2, 1, 3, 1, 3]


def made_up(number: int, state: TrialState, of: int | None = None) -> FrozenTrial:
    """A trial of a search, which was stopped after round 3 where it was pruned."""
    draw = random.Random(number)
    # Not all of them differ: some values and some configurations are there more than once.
    params = {"alpha": draw.randrange(40) / 20, "lambda": draw.randrange(4) / 4}
    last = {TrialState.PRUNED: 3, TrialState.COMPLETE: 9}.get(state, 0)
    curve = {r: draw.randrange(30) / 30 for r in range(1, last + 1)}
    found = create_trial(
        state=state,
        value=curve[9] if state == TrialState.COMPLETE else None,
        params=params,
        distributions=space().distributions(),
        intermediate_values=curve,
        user_attrs={"rounds": last, "seed": search_seeds(2, 1)[0]} | ({} if of is None else {run_folder.OF: of}),
    )
    found.number = number
    return found


@pytest.mark.parametrize("sign", [1, -1])
def test_the_model_is_told_the_same_in_whatever_order_trials_end(sign: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where configurations turn out to be bad and the worst value changes, with more trials than it reads and with
    fewer. What it is to be told is written down here as the documents have it."""
    monkeypatch.setattr(expected_improvement, "MOST", 8)
    draw = random.Random(1)
    states = [TrialState.COMPLETE, TrialState.PRUNED, TrialState.PRUNED, TrialState.FAIL]
    for _ in range(60):
        first = draw.randrange(1000)
        trials = [made_up(first + n, draw.choice(states)) for n in range(draw.randrange(1, 24))]
        expected = written_out(trials, sign)
        for _ in range(3):
            kept = Kept()
            ended: set[int] = set()
            for number in draw.sample(range(len(trials)), len(trials)):
                ended.add(number)
                without = frozenset(range(len(trials))) - ended
                found = kept.tally(0, Seen(trials.__getitem__, len(trials), without), Told, sign)
            assert [(t.number, t.state, t.values) for t in found.trials()] == expected
            assert found.count == len(trials) and found.complete == sum(t.state == states[0] for t in trials)


def written_out(trials: Iterable[FrozenTrial], sign: int) -> list[tuple[int, TrialState, list[float] | None]]:
    """Numbers, states and values of what the model is told, if it reads eight trials."""
    bad = [t.params for t in trials if t.state == TrialState.FAIL]
    good = {t.number: t.values[0] if t.values else t.intermediate_values[3] for t in trials if t.params not in bad}
    worst = sign * min((sign * value for value in good.values()), default=0.0)
    rows = []
    for trial in trials:
        value, stopped = good.get(trial.number, worst), trial.state == TrialState.PRUNED and trial.number in good
        told = (trial.number, TrialState.PRUNED, None) if stopped else (trial.number, TrialState.COMPLETE, [value])
        rows.append(((stopped, -sign * value, trial.number), told))
    if len(rows) > 8:
        rows.sort(key=lambda row: row[0])
        rest = rows[4:]
        rows = rows[:4] + [rest[i * len(rest) // 4] for i in range(4)]
    return [told for _, told in rows]


# -- keeping it changes no answer ----------------------------------------------------------------------------------


def bare(history: History) -> History:
    """The same trials, of which nothing is kept but what was proposed ahead, which belongs to the record."""
    return dataclasses.replace(history, kept=Kept(), curves={}, ahead=copy.copy(history.ahead))


def same(found: Any, other: Any) -> bool:
    if not isinstance(found, Next) or not isinstance(other, Next):
        return found is other
    return (found.part, found.trial.params, found.trial.user_attrs) == (
        other.part,
        other.trial.params,
        other.trial.user_attrs,
    )


def ended(queue: Queue, proposal: Proposal) -> None:
    """Ends it: by its rule, as a failure, or after all rounds; the same for the same number."""
    draw = random.Random(proposal.number)
    fails, level = draw.random() < 0.15, 1 - (float(proposal.values["alpha"]) - 0.3) ** 2
    curve: dict[int, tuple[float, ...]] = {}
    for round_ in range(1, 10):
        curve[round_] = (level * round_ / 9 + draw.gauss(0, 0.1),)
        if fails and round_ == 2:
            queue.finish(proposal.number, Ending("diverged", round_, "it diverged", curve))
            return
        if round_ < 9 and proposal.rule.stops(round_, curve):
            queue.finish(proposal.number, Ending("scheduler", round_, None, curve))
            return
    queue.finish(proposal.number, Ending("completed", 9, None, curve))


@pytest.mark.parametrize(
    "changes",
    [{}, {"confirm": 8}, {"scheduler": "median", "initial": 0}, {"order": "fixed", "confirm": 8}],
    ids=["arrival", "confirmed", "median", "fixed order"],
)
def test_what_is_kept_changes_no_proposal_and_no_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    """Of a search with failures on five slots, whose model reads twelve trials, proposed two at once by arrival; with
    the rules of earlier trials asked for in between, as of trials that go on, and interrupted once."""
    monkeypatch.setattr(expected_improvement, "MOST", 12)
    monkeypatch.setattr(expected_improvement, "CANDIDATES", 20)
    monkeypatch.setattr(expected_improvement, "JOINT", 30)
    monkeypatch.setattr(expected_improvement, "BESIDE", 2)
    folder = tmp_path / "run"
    made = start(folder, **{**SEARCH, "trials": 32, "order": "arrival", "lag": 10, "early": 0, **changes})
    queue, live, draw, pairs = opened(folder, made), list[Proposal](), random.Random(7), 0
    while not queue.finished:
        while len(live) < 5:
            history = bare(queue.history)
            if queue.goes_on is None:
                assert same(queue._proposed(), propose(history))
            if (proposal := queue.propose()) is None:
                break
            live.append(proposal)
            for number in {proposal.own, draw.randrange(len(queue.trials()))}:
                rule = stop_rule(queue.history, 0, number)
                assert rule == stop_rule(bare(queue.history), 0, number), number
                pairs += 1
        ended(queue, live.pop(draw.randrange(len(live))))
        if len(queue.trials()) == 20 and pairs < 1000:
            queue, live, pairs = opened(folder, made), [], 1000
    assert len(queue.trials()) == 32 and {"COMPLETE", "PRUNED", "FAIL"} == {t.state.name for t in queue.trials()}


# -- how many trials a decision reads ------------------------------------------------------------------------------


class Watched(FrozenTrial):
    """A trial that notes that something was read of it."""

    read: set[int]

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, "__dict__")
        if name not in ("__class__", "__dict__"):
            Watched.read.add(found["_number"])
        return super().__getattribute__(name)


def begin(history: History, trials: dict[int, FrozenTrial]) -> None:
    """Proposes a trial, which runs from then on, and makes its rule."""
    found, number = propose(history), len(trials)
    assert isinstance(found, Next)
    found.trial.number = number
    found.trial.__class__ = Watched
    trials[number] = found.trial
    history.order.append((0, number))
    stop_rule(history, 0, number)


@ORDERS
@pytest.mark.parametrize("confirm", [0, 20])
@pytest.mark.parametrize("count", [50, 500])
def test_a_proposal_reads_as_many_trials_of_a_long_search_as_of_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, confirm: int, order: str
) -> None:
    """Those that the model is told of, those that it does not see, the design, and what is new; with the rule of the
    trial that was proposed. When it read all of them, each trial that had ended made every later proposal longer."""
    monkeypatch.setattr(expected_improvement, "MOST", 20)
    made = experiment(tmp_path, **{**SEARCH, "trials": 900, "order": order, "confirm": confirm, "lag": 8, "early": 0})
    states = [TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL, TrialState.PRUNED]
    trials = {n: made_up(n, TrialState.PRUNED if n < 6 else states[n % 4]) for n in range(count)}
    trials[6] = made_up(6, TrialState.COMPLETE, of=max(range(6), key=lambda n: trials[n].intermediate_values[3]))
    for number in range(count - 7, count, 2):
        trials[number] = made_up(number, TrialState.RUNNING)
    for one in trials.values():
        one.__class__ = Watched
    order_of_all = [(0, number) for number in trials]
    history = History([Part(tmp_path, made, space())], [trials], order_of_all)
    Watched.read = set()
    begin(history, trials)
    assert len(Watched.read) >= count - 8
    trials[count - 7] = made_up(count - 7, TrialState.PRUNED)
    trials[count - 7].__class__ = Watched
    Watched.read = set()
    begin(history, trials)
    new, unseen, design = 2, 8, 6
    assert 20 <= len(Watched.read) <= 20 + new + unseen + design


@pytest.mark.parametrize("since", [0, 1, 4])
def test_further_seeds_are_those_from_a_number_on(since: int) -> None:
    trials = {n: made_up(n, TrialState.RUNNING, of=0 if n in (1, 3, 4, 8) else None) for n in range(10)}
    for number in (3, 8):
        trials[number].user_attrs |= {"seed": 77, run_folder.CONFIRMS: True}
    found = FurtherSeeds(trials, since)
    for trial in trials.values():
        found.add(trial)
    numbers = [number for number in (1, 3, 4, 8) if number >= since]
    assert (found.count, found.confirming) == (len(numbers), len({3, 8} & {*numbers}))
    assert found.repeated == [0] * len({1, 4} & {*numbers}), "on the same seed"
