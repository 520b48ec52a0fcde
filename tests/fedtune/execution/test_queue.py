"""The queue without Ray: what is proposed depends on the past it may look at, and on nothing else."""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from fedtune.decisions import expected_improvement, next_trial
from fedtune.decisions.early_stopping import Halving, Later, rungs
from fedtune.decisions.expected_improvement import Told, Tried, _key
from fedtune.decisions.history import History, Part
from fedtune.decisions.optuna_samplers import SAMPLERS, STARTUP, make_sampler
from fedtune.decisions.proposals import stop_rule
from fedtune.execution.queue import Proposal, Queue
from fedtune.machine.resources import Share, early, lag
from fedtune.record.journal import StudyFile
from search_spaces import run_folder
from search_spaces.dimension import Dimension
from search_spaces.metrics import UNREACHED
from search_spaces.parameter import Parameter
from search_spaces.space import Space
from tests.fedtune.conftest import experiment, space, start, varied
from tests.fedtune.queues import begun, drive, ending_of, opened, recorded, take
from tests.study_file import journal
from tests.trials import frozen_trial
from trainables.worker import rounds_jsonl
from trainables.worker.job import Ending


def score(values: dict[str, Any], round_: int) -> float:
    return (1 - (values["alpha"] - 0.3) ** 2 / 4 - (values["lambda"] - 0.7) ** 2) * (1 - math.exp(-round_ / 3))


def end(proposal: Proposal, rounds: int, several: bool = False) -> Ending:
    """Runs a proposal as a trial would."""

    def values(round_: int) -> tuple[float, ...]:
        value = score(dict(proposal.values), round_)
        return (value, -value * proposal.values["alpha"]) if several else (value,)  # type: ignore[operator]

    return ending_of(proposal, rounds, values)


def finish(queue: Queue, proposal: Proposal) -> None:
    """Ends a trial after what it would run."""
    made = proposal.part.experiment
    queue.finish(proposal.number, end(proposal, made.rounds, len(made.metric) > 1))


def conduct(
    folder: Path, width: int = 1, place: int = 0, every: int = 0, where: Space | None = None, **changes: Any
) -> list[tuple[Any, ...]]:
    """The record of a search, which is driven as `drive` says."""
    made = start(folder, **changes)
    drive(lambda: opened(folder, made, where), finish, width, place, every)
    return recorded(folder)


CASES = [
    (sampler, scheduler, ("val_global_accuracy",))
    for sampler in SAMPLERS
    if sampler != "grid"
    for scheduler in ("asha", "none")
]
CASES += [("tpe", "median", ("val_global_accuracy",))]
CASES += [("nsga2", "asha", ("val_global_accuracy", "bytes_up")), ("tpe", "asha", ("val_global_accuracy", "bytes_up"))]


@pytest.mark.parametrize(("sampler", "scheduler", "metrics"), CASES)
def test_order_width_and_restarts_change_nothing(
    tmp_path: Path, sampler: str, scheduler: str, metrics: tuple[str, ...]
) -> None:
    changes = {"sampler": sampler, "scheduler": scheduler, "metric": metrics, "trials": 18}
    one = conduct(tmp_path / "one", 1, **changes)
    assert len(one) == 18
    assert conduct(tmp_path / "four", 4, -1, **changes) == one
    assert conduct(tmp_path / "killed", 3, every=4, **changes) == one


def test_samplers_are_told_what_a_search_of_federations_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few random trials first, dependent parameters together, stopped trials counted, and values with noise."""
    names = ["TPESampler", "GPSampler", "NSGAIISampler", "RandomSampler"]
    for name in names:
        monkeypatch.setattr(optuna.samplers, name, lambda name=name, **given: (name, given))
    made = [make_sampler(name, 3, 7) for name in ("tpe", "gp", "nsga2", "random", "grid")]
    seeds = {given.pop("seed") for _, given in made}
    assert len(seeds) == 1 and make_sampler("random", 3, 8)[1]["seed"] not in seeds
    assert made == [
        ("TPESampler", {"n_startup_trials": 6, "group": True, "multivariate": True, "constant_liar": True}),
        ("GPSampler", {"n_startup_trials": 6, "deterministic_objective": False}),
        ("NSGAIISampler", {"population_size": 12}),
        ("RandomSampler", {}),
        ("RandomSampler", {}),
    ]


def test_another_seed_is_another_search(tmp_path: Path) -> None:
    assert conduct(tmp_path / "a", 1, seed=0, trials=4) != conduct(tmp_path / "b", 1, seed=1, trials=4)


def test_a_longer_search_begins_like_a_shorter_one(tmp_path: Path) -> None:
    assert conduct(tmp_path / "long", 2, trials=16)[:8] == conduct(tmp_path / "short", 2, trials=8)


def test_asha_prunes_and_tpe_learns(tmp_path: Path) -> None:
    found = conduct(tmp_path / "run", 2, trials=40)
    states = [state for _, state, *_ in found]
    assert states.count(optuna.trial.TrialState.PRUNED) > 5
    early = [score(params, 9) for _, _, params, *_ in found[:6]]
    late = [score(params, 9) for _, _, params, *_ in found[-10:]]
    assert sum(late) / len(late) > sum(early) / len(early) + 0.1


def test_with_several_metrics_a_stopped_trial_has_no_values(tmp_path: Path) -> None:
    found = conduct(tmp_path / "run", 2, trials=30, sampler="nsga2", metric=("val_global_accuracy", "bytes_up"))
    pruned = [values for _, state, _, values, *_ in found if state == optuna.trial.TrialState.PRUNED]
    assert pruned and all(values is None for values in pruned)


@pytest.mark.parametrize(
    ("metric", "sign"), [(("val_global_accuracy",), [1]), (("bytes_up",), [-1]), (("val_wlp", "bytes_up"), [1, -1])]
)
def test_a_rule_compares_with_what_was_measured_and_larger_is_better(
    metric: tuple[str, ...], sign: list[int], tmp_path: Path
) -> None:
    queue = begun(tmp_path / "run", metric=metric, sampler="random")
    curve = {r: tuple(10.0 * i + r / 4 for i in range(len(metric))) for r in range(1, 10)}
    others: dict[int, list[tuple[float, ...]]] = {}
    while not any(others.values()):
        proposal = take(queue)
        assert isinstance(proposal.rule, Halving)
        others = {r: list(values) for r, (_, values) in proposal.rule.rungs.items()}
        queue.finish(proposal.number, Ending("completed", 9, None, curve))
    assert others == {r: [tuple(s * v for s, v in zip(sign, curve[r], strict=True))] for r in rungs(9, 1, 3)}


def test_every_known_point_is_of_nsga2s_first_generation_and_says_where_it_comes_from(tmp_path: Path) -> None:
    points = (("the paper's values", 0.5), ("--try", 1.5))
    first = tuple({"from": origin, "values": {"alpha": alpha, "lambda": 0.25}} for origin, alpha in points)
    conduct(tmp_path / "run", 1, trials=3, sampler="nsga2", scheduler="none", first=first)
    trials = StudyFile(tmp_path / "run").study.trials
    assert [trial.system_attrs["NSGAIISampler:generation"] for trial in trials] == [0, 0, 0]
    assert [trial.user_attrs.get("from") for trial in trials] == ["the paper's values", "--try", None]
    assert "from" not in trials[2].user_attrs


def test_a_final_run_notes_the_seed_of_every_trial(tmp_path: Path) -> None:
    conduct(tmp_path / "run", 1, kind="run", trials=2, seeds=(5, 9), sampler="random", scheduler="none")
    assert [trial.user_attrs["seed"] for trial in StudyFile(tmp_path / "run").study.trials] == [5, 9]


class Asked(optuna.samplers.RandomSampler):
    """Notes which trials it is shown."""

    shown: list[list[float | None]]

    def infer_relative_search_space(self, study: Any, trial: Any) -> dict[str, Any]:
        self.shown.append([t.value for t in study.get_trials(deepcopy=False) if t.state.is_finished()])
        return {}


def test_whom_a_queue_asks_and_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cheap sampler where values are known; else the search's own, seeded by seed and number, with the trials it can
    read: a failed one only once there is a worst of those that did not fail."""
    made: list[tuple[str, int, int]] = []
    monkeypatch.setattr(Asked, "shown", [], raising=False)

    def make(name: str, seed: int, number: int, taken: Any = ()) -> Asked:
        made.append((name, seed, number))
        return Asked(seed=0)

    monkeypatch.setattr("fedtune.decisions.next_trial.make_sampler", make)
    first = ({"from": "--try", "values": {"alpha": 0.5, "lambda": 0.25}},)
    started = start(tmp_path / "run", trials=4, sampler="gp", scheduler="none", seed=7, first=first, lag=1)
    queue = opened(tmp_path / "run", started)
    endings = [Ending("error", 1, "impossible"), *[Ending("completed", 9, None, {9: (v,)}) for v in (0.5, 0.25, 1.0)]]
    for ending in endings:
        proposal = take(queue)
        assert proposal.resumed is False
        queue.finish(proposal.number, ending)
    assert made == [("random", 7, 0), ("gp", 7, 1), ("gp", 7, 2), ("gp", 7, 3)]
    assert Asked.shown == [[], [0.5, 0.5], [0.25, 0.5, 0.25]]  # a failed one as the worst of those that ended


def test_the_grid_is_walked_row_by_row(tmp_path: Path) -> None:
    found = conduct(tmp_path / "run", 3, sampler="grid", scheduler="none", trials=6)
    assert [params for _, _, params, *_ in found] == [
        {"alpha": a, "lambda": b} for a in (0.0, 1.0, 2.0) for b in (0.0, 0.5)
    ]
    study = optuna.load_study(study_name=None, storage=journal(tmp_path / "run"))
    assert study.best_value == max(v[0] for _, _, _, v, *_ in found)
    assert not any("from" in trial.user_attrs for trial in study.trials), "the grid is the sampler's own"


def crossed(folder: Path, **changes: Any) -> list[tuple[Any, ...]]:
    """The values of every trial that a search under three conditions proposes."""
    found = conduct(folder, where=varied(10.0, 1.0, 0.1), scheduler="none", **changes)
    return [tuple(params[key] for key in ("alpha", "lambda", "omega")) for _, _, params, *_ in found]


def test_a_grid_holds_its_conditions(tmp_path: Path) -> None:
    cells = itertools.product((0.0, 1.0, 2.0), (0.0, 0.5), (10.0, 1.0, 0.1))
    assert crossed(tmp_path / "run", sampler="grid", trials=18) == list(cells)


def test_every_known_point_is_run_under_every_condition(tmp_path: Path) -> None:
    points = ({"alpha": 1.5, "lambda": 0.25}, {"alpha": 0.25, "lambda": 0.75})
    found = crossed(
        tmp_path / "run", sampler="random", trials=9, first=tuple({"values": p, "from": "a list"} for p in points)
    )
    assert found[:6] == [(p["alpha"], p["lambda"], omega) for p in points for omega in (10.0, 1.0, 0.1)]
    assert [omega for *_, omega in found[6:]] == [10.0, 1.0, 0.1] and len({trial[:2] for trial in found[6:]}) == 1


def compared(
    folder: Path, monkeypatch: pytest.MonkeyPatch, where: Space, **changes: Any
) -> tuple[list[dict[str, Any]], dict[int, Any]]:
    """A search by `ei`, one trial at a time: the values of all trials, and by trial the trials that the model is told,
    the configurations that are not to come again, and the sign."""
    queue = opened(folder, start(folder, lag=1, sampler="ei", **changes), where)
    found: dict[int, Any] = {}
    proposed = expected_improvement.proposed

    def noted(space: Space, told: Told, had: Tried, seed: int, number: int, running: Any, most: int) -> Any:
        assert number == len(queue.trials()) and seed == 0 and not running
        found[number] = told.trials(), {*had._keys}, told.sign
        return proposed(space, told, had, seed, number, running, most)

    monkeypatch.setattr(expected_improvement, "proposed", noted)
    drive(lambda: queue, finish)
    return [trial.params for trial in queue.trials()], found


def test_the_model_is_told_of_all_that_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the known points: whole curves, those of stopped trials too."""
    _, found = compared(tmp_path / "run", monkeypatch, space(), grace=3, trials=STARTUP + 14)
    assert list(found) == [*range(STARTUP + 14)]
    for number, (known, had, sign) in found.items():
        assert [trial.number for trial in known] == [*range(number)] and sign == 1.0
        assert had == {*map(_key, (trial.params for trial in known))} and len(had) == number
        assert all(len(trial.intermediate_values) == trial.user_attrs["rounds"] for trial in known)
    known, *_ = found[STARTUP + 13]
    assert any(trial.state.name == "PRUNED" and trial.user_attrs["rounds"] > 1 for trial in known)
    points = [{"alpha": i / 8, "lambda": 0.5} for i in range(STARTUP + 2)]
    first = tuple({"values": point, "from": "a list"} for point in points)
    least: dict[str, Any] = {"metric": ("val_global_loss",), "trials": STARTUP + 4}
    monkeypatch.undo()
    values, found = compared(tmp_path / "known", monkeypatch, space(), first=first, **least)
    assert values[: len(points)] == points and list(found) == [STARTUP + 2, STARTUP + 3]
    assert {sign for *_, sign in found.values()} == {-1.0}


def test_trials_under_way_are_not_to_come_again_and_tell_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = begun(tmp_path / "run", lag=3, sampler="ei")
    found: list[tuple[int, int, list[int]]] = []
    proposed = expected_improvement.proposed

    def noted(space: Space, told: Told, had: Tried, seed: int, number: int, running: Any, most: int) -> Any:
        found.append((told.count, len(had._keys), [trial.number for trial in running]))
        return proposed(space, told, had, seed, number, running, most)

    monkeypatch.setattr(expected_improvement, "proposed", noted)
    live = [take(queue) for _ in range(3)]
    for _ in range(3):
        finish(queue, live.pop(0))
        live.append(take(queue))
    runs = [[], [0], [0, 1], [1, 2], [2, 3], [3, 4]]
    assert found == [(n, m, beside) for n, m, beside in zip([0, 0, 0, 1, 2, 3], range(6), runs, strict=True)]


def test_one_condition_is_no_part_of_what_the_model_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a search under it proposes what one without any condition does."""
    partition = Parameter("partition", "choice", "iid", "", options=("iid", "dir_class"))
    one = dataclasses.replace(space(), vary={"partition": Dimension(partition, options=("dir_class",))})
    values, found = compared(tmp_path / "one", monkeypatch, one, trials=12)
    assert not any("partition" in trial.params for known, *_ in found.values() for trial in known)
    assert not any("partition" in params for _, had, _ in found.values() for params in had)
    monkeypatch.undo()
    plain, _ = compared(tmp_path / "plain", monkeypatch, space(), trials=12)
    assert [{key: v for key, v in row.items() if key != "partition"} for row in values] == plain


def test_under_several_conditions_the_model_is_told_of_configurations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    three = varied(10.0, 1.0, 0.1)
    values, found = compared(tmp_path / "run", monkeypatch, three, scheduler="none", trials=3 * (STARTUP + 2))
    assert list(found) == [3 * n for n in range(STARTUP + 2)]
    for number, (known, had, _) in found.items():
        tried = [{key: v for key, v in one.items() if key != "omega"} for one in values[:number]]
        assert had == {*map(_key, tried)} and [trial.params for trial in known] == tried[::3]


def test_a_trial_that_goes_on_asks_its_rule_after_the_rounds_that_it_had(tmp_path: Path) -> None:
    queue = begun(tmp_path / "run", scheduler="asha")
    for _ in range(2):
        finish(queue, take(queue))
    first, known = queue.trials()[0], queue.trials()[1:]
    history = History(queue.parts, [{0: known[0], 1: first}], [(0, 0), (0, 1)])
    plain = stop_rule(history, 0, 1)
    assert isinstance(plain, Halving)
    first.set_user_attr(run_folder.WENT_ON, 4)
    assert stop_rule(history, 0, 1) == Later(4, plain)


def test_a_trial_waits_for_those_it_looks_at(tmp_path: Path) -> None:
    queue = begun(tmp_path / "run", lag=2)
    first, second = take(queue), take(queue)
    assert queue.propose() is None and not queue.exhausted
    finish(queue, second)
    assert queue.propose() is None, "trial 2 looks at trial 0, which still runs"
    finish(queue, first)
    take(queue)


@pytest.mark.parametrize(("slots", "said"), [(2, 0.89), (8, 0.51), (32, 0.35)])
def test_how_long_slots_are_busy_in_the_fixed_order(
    tmp_path: Path, pytestconfig: pytest.Config, slots: int, said: float
) -> None:
    """What docs/proposals.md says: lengths that differ tenfold, two thirds of the trials stopped after 1/9 or 1/3. Over
    40 draws of 60 trials, or of eight for each slot, until the last one begins."""
    made, trials = experiment(tmp_path, lag=lag(slots), early=early(slots)), max(60, 8 * slots)
    assert f"{said:.0%}".replace("%", " %") in (pytestconfig.rootpath / "docs/proposals.md").read_text(encoding="utf-8")
    shares = []
    for draw in range(40):
        rng = np.random.default_rng(draw)
        lengths, stopped = 10 ** rng.uniform(0, 1, trials), rng.random(trials) < 2 / 3
        lengths = np.where(stopped, lengths * rng.choice([1 / 9, 1 / 3], trials), lengths)
        ended, live, now, busy = set[int](), list[tuple[float, int]](), 0.0, 0.0
        for number in range(trials):
            while len(live) == slots or not ended.issuperset(range(made.seen(number))):
                end_, other = heapq.heappop(live)
                busy, now = busy + (len(live) + 1) * (end_ - now), end_
                ended.add(other)
            heapq.heappush(live, (now + lengths[number], number))
        shares.append(busy / (slots * now))
    assert np.mean(shares) == pytest.approx(said, abs=0.005)


def test_by_arrival_a_trial_sees_what_has_ended(tmp_path: Path) -> None:
    """Nothing waits, what ran beside a trial is recorded, and a driver that was killed goes on from exactly that."""
    made = start(tmp_path / "run", order="arrival", lag=1, trials=6)
    queue = opened(tmp_path / "run", made)
    live = [take(queue) for _ in range(3)]
    assert [queue.trial(n).user_attrs.get("beside") for n in range(3)] == [None, [0], [0, 1]]
    finish(queue, live[1])
    fourth = take(queue)
    assert queue.trial(3).user_attrs["beside"] == [0, 2]
    assert [*(queue.history.seen(0, 3) or [])] == [1]
    finish(queue, live[0])
    assert [*(queue.history.seen(0, 3) or [])] == [1], "what it saw stays"
    again = opened(shutil.copytree(tmp_path / "run", tmp_path / "again"), made)
    back = [take(again) for _ in range(2)]
    assert [(one.number, one.resumed) for one in back] == [(2, True), (3, True)]
    assert [one.rule for one in back] == [live[2].rule, fourth.rule]
    assert take(again).values == take(queue).values
    assert again.trial(4).user_attrs["beside"] == [2, 3]


def test_by_arrival_ei_is_told_the_rounds_of_trials_that_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two trials that run have the same rounds but for their values: which of them is the better one decides where the
    next trial is. Fewer rounds than a trial of an initial design has say nothing, nor do any in the fixed order. What
    was looked at is recorded, and a driver that goes on looks at the same."""
    monkeypatch.setattr(expected_improvement, "CANDIDATES", 20)

    def proposed(name: str, values: tuple[float, float], rounds: int, order: str = "arrival") -> tuple[Any, Any]:
        made = start(tmp_path / name, order=order, lag=3, early=0, trials=12, sampler="ei", grace=3)
        queue = opened(tmp_path / name, made)
        for _ in range(6):
            ended = take(queue)
            curve = dict.fromkeys(range(1, 10), (0.5 + 0.01 * ended.number,))
            queue.finish(ended.number, Ending("completed", 9, None, curve))
        for value in values:
            live = take(queue)
            for round_ in range(1, rounds + 1):
                queue.report(live.number, round_, (value,))
        again = opened(shutil.copytree(tmp_path / name, tmp_path / f"{name} again"), made)
        assert all(take(again).resumed for _ in range(2))
        new = take(again)
        assert new.values == take(queue).values
        assert again.trial(8).user_attrs == queue.trial(8).user_attrs
        return new.values, queue.trial(8).user_attrs.get("beside_rounds")

    low, high = proposed("low first", (0.1, 0.9), 2), proposed("high first", (0.9, 0.1), 2)
    assert low[0] != high[0] and low[1] == high[1] == [2, 2]
    early = proposed("low, early", (0.1, 0.9), 1), proposed("high, early", (0.9, 0.1), 1)
    assert early[0] == early[1] and early[0][1] == [0, 0]
    broken = proposed("diverges", (0.5, math.nan), 2), proposed("has not reached its target", (0.5, UNREACHED), 2)
    assert broken[0] == broken[1] and broken[0][1] == [2, 0]
    fixed = proposed("low, fixed", (0.1, 0.9), 2, "fixed"), proposed("high, fixed", (0.9, 0.1), 2, "fixed")
    assert fixed[0] == fixed[1] and fixed[0][1] is None


def test_what_was_proposed_at_once_saw_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that are proposed together the second sees no result that came in between, and its record says so; a
    driver that goes on proposes anew, and what has begun stays as it was."""
    monkeypatch.setattr(expected_improvement, "BESIDE", 2)
    made = start(tmp_path / "run", order="arrival", lag=1, trials=14, sampler="ei")
    queue = opened(tmp_path / "run", made)
    live = [take(queue) for _ in range(8)]
    for done in live[:4]:
        finish(queue, done)
    for round_ in (1, 2, 3):
        queue.report(5, round_, (0.5,))
    first = take(queue)
    assert queue.trial(8).user_attrs["beside"] == [4, 5, 6, 7]
    queue.report(6, 1, (0.5,))
    finish(queue, live[4])
    finish(queue, live[5])
    second = take(queue)
    assert queue.trial(9).user_attrs["beside"] == [4, 5, 6, 7, 8]
    assert queue.trial(9).user_attrs["beside_rounds"] == [0, 3, 0, 0, 0], "those of when the two were proposed"
    assert [*(queue.history.seen(0, 9) or [])] == [0, 1, 2, 3]
    third = take(queue)
    assert queue.trial(10).user_attrs["beside"] == [6, 7, 8, 9]
    again = opened(tmp_path / "run", made)
    back = [take(again) for _ in range(5)]
    assert [(one.number, one.values, one.rule) for one in back][2:] == [
        (one.number, one.values, one.rule) for one in (first, second, third)
    ]
    queue.propose()
    take(again)
    assert again.trial(11).user_attrs["beside"] == [6, 7, 8, 9, 10]


def test_early_trials_wait_for_all_but_those_beside_them(tmp_path: Path) -> None:
    made = start(tmp_path / "run", lag=4, early=8, trials=20)
    assert [made.seen(n) for n in range(16)] == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 9, 10, 11, 12]
    assert [dataclasses.replace(made, lag=8, early=16).seen(n) for n in (3, 4, 18, 19, 20, 24)] == [
        0,
        1,
        15,
        16,
        16,
        17,
    ]
    assert [dataclasses.replace(made, early=0).seen(n) for n in range(6)] == [0, 0, 0, 0, 1, 2]
    assert [dataclasses.replace(made, lag=1).seen(n) for n in range(12)] == [*range(12)], "a shorter lag stays"
    assert [dataclasses.replace(made, taken=12).seen(n) for n in (11, 12, 15, 16)] == [11, 12, 12, 13]
    queue = opened(tmp_path / "run", made)
    live: list[Proposal] = []
    most = []
    while not queue.exhausted:
        while (proposal := queue.propose()) is not None:
            live.append(proposal)
        most.append(len(live))
        finish(queue, live.pop(0))
    assert most[:8] == [2] * 8 and max(most) == 4


def test_nothing_waits_where_nothing_looks_back(tmp_path: Path) -> None:
    queue = begun(tmp_path / "run", lag=1, sampler="random", scheduler="none")
    assert [take(queue).number for _ in range(12)] == list(range(12))


def test_endings_and_states(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    queue = begun(folder, sampler="random", scheduler="none", trials=5)
    proposals = [take(queue) for _ in range(5)]
    endings = [
        Ending("completed", 9, None, {8: (0.1,), 9: (0.5,)}, 3.0),
        Ending("scheduler", 1, None, {1: (0.2,)}),
        Ending("diverged", 2, "train_loss stopped being a finite number in round 2.", {1: (0.1,)}),
        Ending("error", 0, "impossible."),
        Ending("completed", 9, None, {}),
    ]
    for proposal, ending in zip(proposals, endings, strict=True):
        queue.finish(proposal.number, ending)
        queue.finish(proposal.number, dataclasses.replace(ending, stop_reason="error"))  # told twice: the first stands
    trials = StudyFile(folder).study.trials
    assert [t.state.name for t in trials] == ["COMPLETE", "PRUNED", "FAIL", "FAIL", "FAIL"]
    assert [t.user_attrs["stop_reason"] for t in trials] == ["completed", "scheduler", "diverged", "error", "error"]
    assert trials[0].value == 0.5 and trials[0].intermediate_values == {8: 0.1, 9: 0.5}
    assert "never measured" in trials[4].user_attrs["error"]


@pytest.mark.parametrize("sampler", ["tpe", "gp", "nsga2"])
def test_failures_teach_the_sampler_and_break_nothing(tmp_path: Path, sampler: str) -> None:
    """Every configuration with alpha above 1 fails; later proposals avoid it."""
    queue = begun(tmp_path / "run", sampler=sampler, scheduler="none", trials=26, lag=1)
    drawn = []
    while (proposal := queue.propose()) is not None:
        bad = proposal.values["alpha"] > 1  # type: ignore[operator]
        drawn.append(bad)
        queue.finish(proposal.number, Ending("diverged", 1, "x", {}) if bad else end(proposal, 9))
    assert len(drawn) == 26 and any(drawn)
    if sampler in ("tpe", "gp"):
        assert sum(drawn[-10:]) <= 3


def test_of_trials_put_back_the_oldest_comes_first_each_with_its_share(tmp_path: Path) -> None:
    made = start(tmp_path / "run", trials=3)
    queue = opened(tmp_path / "run", made)
    first, second, _ = take(queue), take(queue), take(queue)
    assert queue.next_share() is None
    queue.again(second.number, Share(4.0, 1.0, "H100"))
    queue.again(first.number, Share(2.0, 0.5))
    assert not queue.exhausted and queue.next_share() == Share(2.0, 0.5)
    assert take(queue).number == first.number and queue.next_share() == Share(4.0, 1.0, "H100")
    queue = opened(tmp_path / "run", made)  # a killed driver's successor knows it too
    again = take(queue)
    assert again == dataclasses.replace(first, resumed=True, share=Share(2.0, 0.5), rule=again.rule)
    assert StudyFile(tmp_path / "run").study.trials[0].state.name == "RUNNING"
    assert [take(queue).share for _ in range(2)] == [Share(4.0, 1.0, "H100"), None]


def test_a_trial_belongs_to_its_run_under_its_number(tmp_path: Path) -> None:
    made, where = start(tmp_path / "run", trials=3), space()
    queue = opened(tmp_path / "run", made, where)
    take(queue)
    assert queue.at(0) == (Part(tmp_path / "run", made, where), 0)


@pytest.mark.parametrize(("metric", "worst"), [("val_global_accuracy", 0.3), ("bytes_up", 0.7)])
@pytest.mark.parametrize(("sampler", "completes_only"), [("tpe", False), ("gp", True), ("nsga2", True)])
def test_which_samplers_are_shown_complete_trials_only(
    tmp_path: Path, sampler: str, completes_only: bool, metric: str, worst: float
) -> None:
    """What these are shown of each ending is told by test_seen_by_sampler."""
    queue = begun(tmp_path / "run", sampler=sampler, metric=(metric,))
    trials = [frozen_trial(0, {}, 0.3), frozen_trial(1, {}, 0.7), frozen_trial(2, {}, state=TrialState.FAIL)]
    *_, failed = next_trial.shown(queue.parts[0], trials)
    assert (failed.state.name, failed.values) == (("COMPLETE", [worst]) if completes_only else ("PRUNED", None))


def test_a_round_keeps_the_first_value_it_was_reported_with(tmp_path: Path) -> None:
    queue = begun(tmp_path / "run", trials=1)
    take(queue)
    for reached in (0.25, 0.75):
        queue.report(0, 1, (reached,))
    queue.report(0, 2, None)
    assert StudyFile(tmp_path / "run").study.trials[0].intermediate_values == {1: 0.25}


def test_what_interrupts_a_trial_is_no_error_of_it(tmp_path: Path) -> None:
    queue = begun(tmp_path / "run", trials=2)
    first, second = take(queue), take(queue)
    queue.finish(first.number, Ending("interrupted", 1, "its worker died", {1: (0.5,)}))
    queue.finish(second.number, Ending("completed", 9, None, {9: (0.5,)}))
    assert all("error" not in trial.user_attrs for trial in queue.trials())
    assert [trial.user_attrs["stop_reason"] for trial in queue.trials()] == ["interrupted", "completed"]


def test_a_driver_that_ends_notes_which_trials_stand_still(tmp_path: Path) -> None:
    queue = begun(tmp_path / "run", trials=3)
    _, second, _ = take(queue), take(queue), take(queue)
    queue.finish(second.number, Ending("completed", 9, None, {9: (0.5,)}))
    queue.interrupt()
    kept = StudyFile(tmp_path / "run").study.trials
    assert [t.user_attrs["stop_reason"] for t in kept] == ["interrupted", "completed", "interrupted"]
    assert [t.state.name for t in kept] == ["RUNNING", "COMPLETE", "RUNNING"]


def test_a_trial_whose_result_is_taken_does_not_wait_any_longer(tmp_path: Path) -> None:
    """The first driver was killed when two trials had begun; the second takes the result of one of them."""
    made = start(tmp_path / "run", trials=3, taken=2, sampler="random", scheduler="none")
    queue = opened(tmp_path / "run", dataclasses.replace(made, taken=0))
    _ = take(queue), take(queue)
    rows = [{"round": 9, "seed": seed, "val_global_accuracy": 0.5} for seed in made.seeds]
    (folder := tmp_path / "run" / run_folder.trial_folder(0)).mkdir(exist_ok=True)
    every = [row | {"round": round_} for round_ in range(1, 10) for row in rows]
    rounds_jsonl.append(folder / run_folder.ROUNDS, every)
    queue = opened(tmp_path / "run", dataclasses.replace(made, taken=1))
    for number, resumed in ((1, True), (2, False)):
        proposal = take(queue)
        assert (proposal.number, proposal.resumed) == (number, resumed)


def test_seconds_are_kept_to_the_millisecond(tmp_path: Path) -> None:
    queue = begun(tmp_path / "run", trials=1)
    queue.finish(take(queue).number, Ending("completed", 1, None, {1: (0.5,)}, seconds=1.23456))
    kept = queue.trials()[0].user_attrs
    assert kept["seconds"] == 1.235 and "curve" not in kept  # Optuna keeps the curve of one metric itself
