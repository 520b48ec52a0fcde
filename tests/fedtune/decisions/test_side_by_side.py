"""What samplers of Optuna are told of the trials that run beside a proposal."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.trial import FrozenTrial

from fedtune.decisions import expected_improvement, next_trial
from fedtune.decisions.expected_improvement import Told, Tried
from fedtune.decisions.history import Part
from fedtune.decisions.optuna_samplers import ASK_WHAT_RUNS, SAMPLERS, ask, make_sampler
from fedtune.decisions.shared_budget import Allocation
from fedtune.execution.queue import Proposal, Queue
from fedtune.record.run_directory import create
from search_spaces.dimension import Dimension
from search_spaces.parameter import Parameter
from search_spaces.space import Space
from tests.fedtune.conftest import experiment, space, start, varied
from tests.fedtune.queues import begun, opened, take
from tests.trials import frozen_trial
from trainables.worker.job import Ending

KINDS: dict[str, BaseDistribution] = dict.fromkeys(("alpha", "lambda"), FloatDistribution(0, 2))


def of_alpha(number: int, alpha: float, *, value: float | None = None, of: int | None = None) -> FrozenTrial:
    """A trial that runs, or has ended with this value."""
    return frozen_trial(number, {"alpha": alpha, "lambda": 0.5}, value, of=of)


def asked_with(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[float], list[float]]]:
    """α of the trials that each proposal's sampler is shown from now on: of those that have ended, and that run."""
    told: list[tuple[list[float], list[float]]] = []

    def noted(sampler: Any, metric: Any, seen: Any, space: Any, values: Any, running: Sequence[Any] = ()) -> Any:
        told.append(([t.params["alpha"] for t in seen], [t.params["alpha"] for t in running]))
        return ask(sampler, metric, seen, space, values, running)

    monkeypatch.setattr(next_trial, "ask", noted)
    return told


def finish(queue: Queue, proposal: Proposal) -> None:
    value = 1 - (float(proposal.values["alpha"]) - 0.3) ** 2
    queue.finish(proposal.number, Ending("completed", 9, None, {9: (value,)}))


@pytest.mark.parametrize("sampler", ["ei", *ASK_WHAT_RUNS])
def test_trials_side_by_side_do_not_lie_in_one_heap(sampler: str) -> None:
    """Eight proposals, of `ei` sixteen, without a result in between, after twelve results that have one best place: the
    median distance to the nearest other one in the unit cube."""
    one = {f"x{i}": Parameter(f"x{i}", "real", 0.5, "", low=0, high=1) for i in range(3)}
    where = Space("box", "fedavg", {name: Dimension(parameter, 0.0, 1.0) for name, parameter in one.items()})
    metric, known = ["val_global_accuracy"], list[FrozenTrial]()
    for number in range(12):
        trial = ask(make_sampler("random", 1, number), metric, [], where, None)
        value = 80 - 60 * sum((x - 0.6) ** 2 for x in trial.params.values())
        known.append(frozen_trial(number, trial.params, value, kinds=trial.distributions))

    def row(*, told: bool) -> float:
        made: list[FrozenTrial] = []
        for number in range(12, 28 if sampler == "ei" else 20):
            running = made if told else ()
            if sampler == "ei":
                had = Tried.of([*known, *made])
                made.append(expected_improvement.proposed(where, Told.of(known, 1.0), had, 1, number, running)[0])
            else:
                made.append(ask(make_sampler(sampler, 1, number), metric, known, where, None, running))
        points = np.array([[trial.params[name] for name in one] for trial in made])
        apart = np.linalg.norm(points[:, None] - points, axis=-1) + 9 * np.eye(len(points))
        return float(np.median(apart.min(axis=1)))

    assert row(told=True) > 2 * row(told=False)


@pytest.mark.parametrize("order", ["fixed", "arrival"])
@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name not in ("ei", "grid")])
def test_what_runs_is_shown_to_a_sampler_that_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: str, order: str
) -> None:
    """In the fixed order on four slots trial 10 sees trials 0 to 2, and the others count as running whatever has become
    of them; by arrival it sees those that have ended."""
    queue = begun(tmp_path / "run", sampler=sampler, order=order, scheduler="none", lag=8, early=0, trials=12)
    live = [take(queue) for _ in range(8)]
    for number in (0, 1, 2, 5):
        finish(queue, live[number])
    _ = take(queue), take(queue)
    told = asked_with(monkeypatch)
    take(queue)
    alpha = [trial.params["alpha"] for trial in queue.trials()]
    seen = [0, 1, 2] if order == "fixed" else [0, 1, 2, 5]
    running = [alpha[number] for number in range(10) if number not in seen]
    expected = [] if sampler == "random" else [alpha[number] for number in seen]
    assert told == [(expected, running if sampler in ASK_WHAT_RUNS else [])]


@pytest.mark.parametrize("order", ["fixed", "arrival"])
@pytest.mark.parametrize("sampler", ASK_WHAT_RUNS)
def test_a_search_that_was_interrupted_proposes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampler: str, order: str
) -> None:
    """From trial 14 on, on four slots, after at least six have ended; without what runs these would be others."""
    made = start(tmp_path / "run", sampler=sampler, order=order, scheduler="none", lag=8, early=0, trials=20)
    queue = opened(tmp_path / "run", made)
    live = [take(queue) for _ in range(8)]
    for _ in range(6):
        finish(queue, live.pop(0))
        live.append(take(queue))
    for place in (0, 1, 2, 3, 6):
        finish(queue, live[place])
    copies = [shutil.copytree(tmp_path / "run", tmp_path / name) for name in ("again", "blind")]
    again, blind = (opened(copy, made) for copy in copies)
    assert [take(again).number for _ in range(3)] == [10, 11, 13]
    expected = [take(queue) for _ in range(4)]
    assert [one.number for one in expected] == [14, 15, 16, 17]
    assert [take(again).values for _ in range(4)] == [one.values for one in expected]
    monkeypatch.setattr(next_trial, "unknown", lambda *_: [])
    others = [take(blind) for _ in range(7)][3:]
    assert [one.values for one in others] != [one.values for one in expected]


def test_a_further_seed_that_runs_hides_no_configuration(tmp_path: Path) -> None:
    """Of a race: its configuration is known, or runs itself. Trial 2 has begun as a further seed of trial 0, which has
    ended, trial 4 as one of trial 3, which runs."""
    part = Part(tmp_path, experiment(tmp_path, budget=90, seeds=(0, 1, 2)), space())
    trials = [
        of_alpha(0, 1.0, value=0.5),
        of_alpha(1, 0.2),
        of_alpha(2, 1.0, of=0),
        of_alpha(3, 0.4),
        of_alpha(4, 0.4, of=3),
    ]
    assert [trial.number for trial in next_trial.unknown(part, trials, trials[:1])] == [1, 3]


def test_of_several_conditions_a_configuration_runs_until_all_have_ended(tmp_path: Path) -> None:
    """Once, and without its condition. Trials 0 and 1 are the first configuration, 2 and 3 the second, 4 the third."""
    part = Part(tmp_path, experiment(tmp_path), varied(10.0, 0.1))
    trials = []
    for number, alpha in enumerate([0.1, 0.1, 0.2, 0.2, 0.3]):
        trials.append(of_alpha(number, alpha, value=0.5 if number in (0, 1, 3) else None))
        trials[-1].params["omega"] = (10.0, 0.1)[number % 2]
        trials[-1].distributions["omega"] = part.space.vary["omega"].distribution()
    known = [trials[0], trials[1], trials[3]]
    found = next_trial.unknown(part, trials, known)
    assert [trial.params for trial in found] == [{"alpha": 0.2, "lambda": 0.5}, {"alpha": 0.3, "lambda": 0.5}]
    assert [trial.params["alpha"] for trial in next_trial.shown(part, known)] == [0.1]


@pytest.mark.parametrize("order", ["fixed", "arrival"])
def test_within_auto_a_method_is_told_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str) -> None:
    """Two trials of each of two methods begin, the first of each with the paper's values, α = 0.5; none has ended."""
    parts = []
    for seed, name in enumerate(("fedavg", "fedprox")):
        first = ({"values": {"alpha": 0.5, "lambda": 0.5}, "from": "the paper's values"},)
        made = experiment(
            tmp_path / name, method=name, first=first, order=order, seed=seed, lag=16, early=0, part=True, seeds=(0,)
        )
        where = dataclasses.replace(space(), method=name)
        create(tmp_path / name, made, where, {})
        parts.append(Part(tmp_path / name, made, where))
    costs = {"costs": (1.0, 1.0), "prices": (1.0, 1.0), "budget": 900.0}
    queue = Queue(parts, Allocation(**costs, rounds=9, least=3, equal=False, sign=1.0))  # type: ignore[arg-type]
    told = asked_with(monkeypatch)
    alphas = [float(take(queue).values["alpha"]) for _ in range(6)]
    assert told[:4] == [([], []), ([], []), ([], [0.5]), ([], [0.5])]
    assert told[4:] == [([], [0.5, alphas[2]]), ([], [0.5, alphas[3]])] and alphas[2] != alphas[3]
