"""The queue of a race without Ray: one sequence of federations, whatever ran side by side, within its budget."""

from __future__ import annotations

import dataclasses
import hashlib
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import FrozenTrial

from analysis.estimate import configuration
from fedtune.decisions import next_trial, proposals
from fedtune.decisions.early_stopping import Never
from fedtune.decisions.known_points import KnownPoints
from fedtune.decisions.race import is_further, is_over, spent
from fedtune.execution.queue import Proposal, Queue
from fedtune.record.experiment import Experiment, search_seeds
from fedtune.record.journal import StudyFile
from search_spaces import run_folder
from tests.fedtune.conftest import space, start
from tests.fedtune.queues import begun, drive, ending_of, opened, take
from tests.trials import frozen_trial
from trainables.worker import rounds_jsonl
from trainables.worker.job import Ending

ROUNDS = 9


def value(proposal: Proposal, round_: int, noise: float) -> float:
    """A peak at (0.3, 0.7), with a noise of its own for every configuration and seed."""
    a, b = float(proposal.values["alpha"]), float(proposal.values["lambda"])
    digest = hashlib.sha256(f"{a} {b} {proposal.seeds}".encode()).digest()
    return (1 - (a - 0.3) ** 2 / 4 - (b - 0.7) ** 2) * round_ / ROUNDS + noise * (digest[0] / 255 - 0.5)


def run(queue: Queue, proposal: Proposal, noise: float) -> None:
    queue.finish(proposal.number, ending_of(proposal, ROUNDS, lambda round_: (value(proposal, round_, noise),)))


def taken(folder: Path, made: Experiment, *values: float) -> None:
    """Results that were taken from an earlier run, for the first trials."""
    for number, value_ in enumerate(values):
        (place := folder / run_folder.trial_folder(number)).mkdir(parents=True)
        rows = [
            {"round": round_, "seed": seed, "val_global_accuracy": value_}
            for round_ in range(1, ROUNDS + 1)
            for seed in made.first_seeds
        ]
        rounds_jsonl.append(place / run_folder.ROUNDS, rows)


def run_all(queue: Queue, noise: float) -> None:
    """Runs what is left of a race, one federation after the other."""
    drive(lambda: queue, lambda queue, proposal: run(queue, proposal, noise))


def raced(
    folder: Path, width: int = 1, place: int = 0, every: int = 0, noise: float = 0.6, **changes: Any
) -> tuple[Experiment, list[FrozenTrial]]:
    """A race, which is driven as `drive` says."""
    given: dict[str, Any] = {"budget": 16 * ROUNDS, "seeds": search_seeds(2, 6), "rounds": ROUNDS}
    made = start(folder, **given | changes)
    drive(lambda: opened(folder, made), lambda queue, proposal: run(queue, proposal, noise), width, place, every)
    return made, StudyFile(folder).study.trials


def content(trials: list[FrozenTrial]) -> list[tuple[Any, ...]]:
    """All but Optuna's own attributes."""
    return [(t.number, t.state, t.params, t.values, t.intermediate_values, t.user_attrs) for t in trials]


@pytest.mark.parametrize(
    "changes",
    [
        {"sampler": "tpe"},
        {"sampler": "random", "scheduler": "none"},
        {"sampler": "gp", "budget": 12 * ROUNDS},
        {"sampler": "grid", "scheduler": "none"},
    ],
)
def test_order_width_and_restarts_change_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    _, one = raced(tmp_path / "one", **changes)
    assert any(is_further(trial) for trial in one)
    assert content(raced(tmp_path / "four", 4, -1, **changes)[1]) == content(one)
    assert content(raced(tmp_path / "killed", 3, every=4, **changes)[1]) == content(one)


def test_a_longer_race_begins_like_a_shorter_one(tmp_path: Path) -> None:
    short = content(raced(tmp_path / "short", 2, budget=10 * ROUNDS)[1])
    assert content(raced(tmp_path / "long", 2)[1])[: len(short)] == short


def test_the_budget_is_spent_and_not_exceeded(tmp_path: Path) -> None:
    made, trials = raced(tmp_path / "run", 4)
    rounds = sum(trial.user_attrs["rounds"] for trial in trials)
    assert made.budget - ROUNDS < rounds == spent(trials, made) <= made.budget
    assert len(trials) > made.budget / ROUNDS  # what early stopping saved was spent as well
    assert is_over(trials, made) and not is_over(trials[:-2], made)
    # Of a trial that still runs all rounds count, and results of earlier runs cost nothing.
    running = [*trials[:-1], still_running(trials[-1])]
    assert spent(running, made) == rounds - trials[-1].user_attrs["rounds"] + ROUNDS
    assert not is_over(running, made)
    assert spent(trials, dataclasses.replace(made, taken=2)) == rounds - sum(t.user_attrs["rounds"] for t in trials[:2])


def still_running(trial: FrozenTrial) -> FrozenTrial:
    """The same trial, still running."""
    return frozen_trial(trial.number, trial.params, kinds=trial.distributions)


def test_every_configuration_has_its_seeds_in_order_and_each_once(tmp_path: Path) -> None:
    made, trials = raced(tmp_path / "run", 2)
    seen: dict[Any, list[FrozenTrial]] = {}
    for trial in trials:
        seen.setdefault(configuration(trial), []).append(trial)
    for several in seen.values():
        assert [t.user_attrs["seed"] for t in several] == [made.seeds[0] + k for k in range(len(several))]
        assert "of" not in several[0].user_attrs
        assert all(t.user_attrs["of"] == several[0].number for t in several[1:])
    counts = Counter(map(len, seen.values()))
    assert 1 < max(counts) <= len(made.seeds)
    # A further seed runs to its end, and goes to a configuration that did.
    assert all(t.state.name == "COMPLETE" for several in seen.values() if len(several) > 1 for t in several)


def test_further_seeds_are_never_stopped_and_stop_nobody(tmp_path: Path) -> None:
    made = start(tmp_path / "run", budget=100 * ROUNDS, seeds=search_seeds(2, 6), rounds=ROUNDS)
    queue, known = opened(tmp_path / "run", made), []
    while not known or not is_further(queue.trials()[-1]):
        proposal = take(queue)
        if not is_further(queue.trials()[-1]):
            run(queue, proposal, 0.3)
        known.append(proposal)
    assert isinstance(known[-1].rule, Never)
    first = queue.trials()[int(queue.trials()[-1].user_attrs["of"])]
    assert known[-1].values == space().values(first.params)
    # However bad the further seed is, the sampler sees one trial of that configuration, with the mean.
    queue.finish(known[-1].number, Ending("completed", ROUNDS, None, dict.fromkeys(range(1, ROUNDS + 1), (-50.0,))))
    shown = next_trial.shown(queue.parts[0], queue.trials())
    same = [trial for trial in shown if trial.params == first.params]
    assert len(shown) == len(known) - 1 and [t.values for t in same] == [[(first.values[0] - 50.0) / 2]]
    best = max(t.intermediate_values[3] for t in queue.trials() if 3 in t.intermediate_values)
    queue.propose()
    following = proposals.stop_rule(queue.history, 0, len(queue.trials()) - 1)
    assert not following.stops(3, dict.fromkeys((1, 2, 3), (best,)))


def test_a_configuration_that_is_proposed_again_is_a_further_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = begun(tmp_path / "run", budget=5 * ROUNDS, seeds=search_seeds(0, 6), rounds=ROUNDS, sampler="random")
    make = next_trial.make_sampler
    monkeypatch.setattr(next_trial, "make_sampler", lambda name, seed, number, *taken: make(name, seed, min(number, 1)))
    seeds = []
    for _ in range(4):
        proposal = take(queue)
        run(queue, proposal, 0.0)
        seeds.append(proposal.seeds)
    assert seeds == [(0,), (0,), (1,), (2,)]
    assert [trial.user_attrs.get("of") for trial in queue.trials()] == [None, None, 1, 1]


def test_a_grid_of_which_every_cell_failed_ends(tmp_path: Path) -> None:
    made = start(
        tmp_path / "run", budget=60 * ROUNDS, seeds=search_seeds(0, 6), rounds=ROUNDS, sampler="grid", scheduler="none"
    )
    queue = opened(tmp_path / "run", made)
    drive(lambda: queue, lambda queue, proposal: queue.finish(proposal.number, Ending("error", 1, "impossible")))
    assert len(queue.trials()) >= 6
    assert len({configuration(trial) for trial in queue.trials()}) == 6


def test_a_grid_goes_on_with_further_seeds_until_the_budget_is_spent(tmp_path: Path) -> None:
    made, trials = raced(tmp_path / "run", sampler="grid", scheduler="none")
    assert sum(trial.user_attrs["rounds"] for trial in trials) == made.budget
    cells = [(trial.params["alpha"], trial.params["lambda"]) for trial in trials if not is_further(trial)]
    assert cells == [(a, b) for a in (0.0, 1.0, 2.0) for b in (0.0, 0.5)]


def test_slots_that_a_grid_leaves_free_go_to_further_seeds_at_once(tmp_path: Path) -> None:
    """Six cells, sixteen slots and a budget of as many federations: none waits for a result."""
    given: dict[str, Any] = {"budget": 16 * ROUNDS, "seeds": search_seeds(2, 6), "rounds": ROUNDS, "order": "arrival"}
    made = start(tmp_path / "run", sampler="grid", scheduler="none", **given)
    queue = opened(tmp_path / "run", made)
    assert made.width == 16 and all(queue.propose() for _ in range(16)) and queue.propose() is None
    seeds: dict[Any, list[int]] = defaultdict(list)
    for trial in queue.trials():
        seeds[configuration(trial)].append(trial.user_attrs["seed"])
    assert sorted(map(len, seeds.values())) == [2, 2, 3, 3, 3, 3]
    assert all(found == [*made.seeds[: len(found)]] for found in seeds.values())


def test_a_sampler_is_asked_for_a_trial_and_known_points_for_a_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials are counted with further seeds and with the trials of earlier runs, configurations without the former."""
    made = start(
        tmp_path / "run", budget=16 * ROUNDS, seeds=search_seeds(2, 6), rounds=ROUNDS, sampler="random", taken=2
    )
    taken(tmp_path / "run", made, 0.1, 0.4)
    places, numbers = list[int](), list[int]()
    known, sampler = KnownPoints.of, next_trial.make_sampler
    monkeypatch.setattr(KnownPoints, "of", lambda points, place: (places.append(place), known(points, place))[1])
    monkeypatch.setattr(
        next_trial, "make_sampler", lambda name, seed, n, *more: (numbers.append(n), sampler(name, seed, n, *more))[1]
    )
    queue = opened(tmp_path / "run", made)
    run_all(queue, 0.3)
    new = [trial.number for trial in queue.trials() if not is_further(trial)]
    assert (places, numbers) == (list(range(len(new))), new) and new[-1] > len(new) - 1


def test_results_of_earlier_runs_are_rivals_from_the_first_trial_on(tmp_path: Path) -> None:
    """With two that are far above the others, the race begins with a further seed of one of them."""
    reached = (0.30, 0.80, 0.31, 0.79, 0.30, 0.32, 0.29, 0.33)
    made = start(
        tmp_path / "run",
        budget=8 * ROUNDS,
        seeds=search_seeds(2, 6),
        rounds=ROUNDS,
        sampler="random",
        taken=len(reached),
    )
    taken(tmp_path / "run", made, *reached)
    queue = opened(tmp_path / "run", made)
    assert not any(is_further(trial) for trial in queue.trials())
    take(queue)
    assert queue.trials()[-1].user_attrs["of"] in (1, 3)


def test_a_trial_that_still_runs_may_leave_room_for_another(tmp_path: Path) -> None:
    """All its rounds count until it has ended, so nothing is proposed; but the race is not over."""
    queue = begun(tmp_path / "run", budget=3 * ROUNDS, seeds=search_seeds(2, 6), rounds=ROUNDS, lag=2)
    queue.finish(take(queue).number, Ending("completed", ROUNDS, None, {ROUNDS: (0.5,)}))
    second, third = take(queue), take(queue)
    queue.finish(second.number, Ending("completed", ROUNDS, None, {ROUNDS: (0.5,)}))
    assert queue.propose() is None and not queue.exhausted
    queue.finish(third.number, Ending("scheduler", 1, None, {1: (0.1,)}))
    assert queue.exhausted and queue.finished


def test_the_rule_is_told_what_has_ended_and_what_may_still_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the trials before, the last lag - 1 count as running, whatever they really do."""
    told = []

    def decide(known: Any, running: Any, **more: Any) -> None:
        told.append(([t.number for t in known], [t.number for t in running]))

    monkeypatch.setattr("fedtune.decisions.race.repeated", decide)
    queue = begun(tmp_path / "run", budget=5 * ROUNDS, seeds=search_seeds(2, 6), rounds=ROUNDS, lag=3, sampler="random")
    run_all(queue, 0.0)
    assert told[:5] == [([], []), ([], [0]), ([], [0, 1]), ([0], [1, 2]), ([0, 1], [2, 3])]


def test_where_the_values_of_a_trial_come_from_is_noted(tmp_path: Path) -> None:
    first = ({"from": "the paper's values", "values": {"alpha": 0.5, "lambda": 0.25}},)
    made = start(tmp_path / "run", budget=3 * ROUNDS, seeds=search_seeds(2, 6), rounds=ROUNDS, first=first)
    queue = opened(tmp_path / "run", made)
    for _ in range(2):
        run(queue, take(queue), 0.0)
    notes = [{key: trial.user_attrs.get(key) for key in ("seed", "from")} for trial in queue.trials()]
    assert notes == [{"seed": made.seeds[0], "from": "the paper's values"}, {"seed": made.seeds[0], "from": None}]
    assert "from" not in queue.trials()[1].user_attrs


def test_a_configuration_keeps_what_a_sampler_noted_and_further_seeds_hide_nobody(tmp_path: Path) -> None:
    queue = begun(tmp_path / "run", budget=90, seeds=search_seeds(0, 6))

    def ended(number: int, alpha: float, reached: float, of: int | None = None) -> FrozenTrial:
        return frozen_trial(
            number, {"alpha": alpha, "lambda": 0.5}, reached, system={"sampler:generation": number}, of=of
        )

    shown = next_trial.shown(queue.parts[0], [ended(0, 1.0, 0.5), ended(1, 1.0, 0.9, of=0), ended(2, 2.0, 0.1)])
    assert [(t.params["alpha"], t.values, t.system_attrs) for t in shown] == [
        (1.0, [pytest.approx(0.7)], {"sampler:generation": 0}),
        (2.0, [0.1], {"sampler:generation": 2}),
    ]
