"""Federations of several configurations whose clients are trained as one program: each trial gets what it gets by
itself, for every method whose clients are training jobs."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from search_spaces.errors import UserError
from search_spaces.parameter import Parameter
from tests.contracts.test_executors import NEEDED, STACKED, assert_clients_as_exact, counts, start_alike, wide
from tests.contracts.test_methods import CPU, light, same, untimed, values_for
from trainables import registry
from trainables.simulation import executors
from trainables.simulation.replicates import Replicates, step_together
from trainables.simulation.rounds import Simulation, trained_together

pytestmark = pytest.mark.numeric

#: What every trial of a bundle has of the clients' optimiser: the last one has neither momentum nor decay.
OPTIMISERS = (
    {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.01},
    {"lr": 0.02, "momentum": 0.9, "weight_decay": 0.02},
    {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0},
)


def numbers(name: str, place: int) -> dict[str, float]:
    """For trial `place` of a bundle another value of every number that the method's clients could read: inside of what
    is searched, but for the last trial, in which it is the lower bound, where methods leave terms out."""
    found: dict[str, float] = {}
    own: dict[str, Parameter] = registry.declared(name)
    for key, parameter in own.items():
        fixed = OPTIMISERS[0].keys() | NEEDED.get(name, {}).keys()
        if parameter.kind != "real" or parameter.condition or key in fixed or not parameter.tune:
            continue
        low, high = parameter.tune if isinstance(parameter.tune, tuple) else (parameter.low, parameter.high)
        assert parameter.low is not None and isinstance(low, (int, float)) and isinstance(high, (int, float))
        found[key] = float((low + (high - low) / (4.0 + place)) if place < 2 else parameter.low)
    return found


def valid(name: str, toy: Path, place: int, **more: Any) -> dict[str, Any]:
    """The values of trial `place`; a number that the method does not take beside the others is left at its default."""
    fixed = NEEDED.get(name, {}) | OPTIMISERS[place] | more
    values = values_for(name, toy, **fixed)
    for key, value in numbers(name, place).items():
        with contextlib.suppress(UserError):
            registry.resolve(name, values | {key: value})
            values[key] = value
    return values


@pytest.mark.parametrize("name", STACKED)
def test_trials_of_a_bundle_give_what_each_gives_alone(name: str, toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards what may differ as vectors: learning rates, momenta, decays, weights of losses; and that a trial in which
    a term is left out is not made one with those that have it. Float64 is the judge, each round anew."""
    programs: list[int] = []
    train_group = executors._train_group

    def counted(tasks: Any, drawn: Any) -> Any:
        found = train_group(tasks, drawn)
        programs.append(len(tasks))
        return found

    monkeypatch.setattr(executors, "_train_group", counted)
    of_one = {"partition": "iid", "nu": 0.0}  # clients have one architecture
    trials = [valid(name, toy, place, **of_one, **light(name)) for place in range(3)]
    stacked = [Simulation(name, values | {"executor": "vmap"}, 3, CPU) for values in trials]
    loops = [Simulation(name, values | {"executor": "loop"}, 3, CPU) for values in trials]
    exact = [wide(name, values) for values in trials]
    decided: list[bool] = []
    for _ in range(2):
        for e, s, t in zip(exact, stacked, loops, strict=True):
            start_alike(e, s, t)
        programs.clear()
        trained = trained_together(stacked)
        assert sum(programs) == 12 and max(programs) >= 8  # at least the first two are one program
        for e, t, s in zip(exact, loops, stacked, strict=True):
            (row, results), (expected, clients) = s.exchange(trained[s]), t.exchange()
            decided += assert_clients_as_exact(results, clients, e)
            assert counts(s._measured(row, results)) == counts(t._measured(expected, clients))
    assert any(decided)  # or none was looked at closely


def bundle(name: str, toy: Path, device: str = "cpu", **more: Any) -> list[Replicates]:
    """Three trials, of which two differ in numbers alone, over two seeds."""
    values = [valid(name, toy, place, executor="vmap", partition="iid", nu=0.0, **more) for place in range(3)]
    return [Replicates(name, own, (3, 4), device=device) for own in values]


def test_a_trial_leaves_a_bundle_and_goes_on_by_itself(toy: Path, tmp_path: Path) -> None:
    """Its checkpoint is that of any trial; and those that stay give what they give without it."""
    trials = bundle("fedprox", toy)
    step_together(trials)
    trials[1].save(tmp_path / "checkpoint")
    alone = bundle("fedprox", toy)[1]
    alone.load(tmp_path / "checkpoint")
    for mine, its in zip(alone.simulations, trials[1].simulations, strict=True):
        assert mine.progress.round == 1 and same(mine.progress.state.model, its.progress.state.model)
    for place in (0, 2):
        trials[place].save(tmp_path / f"{place}")
    (first, last), (row, *_) = step_together([trials[0], trials[2]]), alone.step()
    assert row["round"] == 2 and not isinstance(first, Exception) and not isinstance(last, Exception)
    apart = bundle("fedprox", toy)
    for place, rows in ((0, first), (2, last)):
        apart[place].load(tmp_path / f"{place}")
        for mine, its in zip(rows, apart[place].step(), strict=True):
            assert mine["train_loss"] == pytest.approx(its["train_loss"], rel=1e-4) and counts(mine) == counts(its)


@pytest.mark.parametrize(
    ("part", "error"), [("job", RuntimeError), ("job", SystemExit), ("server", RuntimeError), ("server", SystemExit)]
)
def test_a_trial_that_fails_fails_alone(part: str, error: type[BaseException], toy: Path) -> None:
    """What the others get is what they get without it."""
    expected = bundle("fedavg", toy)
    del expected[1]
    trials = bundle("fedavg", toy)

    def fails(*given: Any) -> Any:
        raise error("this one")

    for s in trials[1].simulations:
        s.method = dataclasses.replace(s.method, **{part: fails})
    first, failed, last = step_together(trials)
    assert isinstance(failed, error) and str(failed) == "this one"
    if part == "job":  # the same programs
        for rows, own in zip((first, last), step_together(expected), strict=True):
            assert not isinstance(rows, BaseException) and not isinstance(own, BaseException)
            assert [untimed(row) for row in rows] == [untimed(row) for row in own]
    with pytest.raises(error, match="this one"):
        trials[1].step()
    assert [trial.round for trial in trials] == [1, 0, 1]


def test_a_program_that_fails_is_tried_trial_by_trial(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is known whose fault it is; but where memory does not suffice for all of them, that is said of each."""
    train_group = executors._train_group
    for error, failing in ((RuntimeError("no such thing"), [1]), (MemoryError(), [0, 1, 2])):

        def group(tasks: Any, drawn: Any, error: Exception = error) -> Any:
            if any(task.config.lr == OPTIMISERS[1]["lr"] for task in tasks):
                raise error
            return train_group(tasks, drawn)

        monkeypatch.setattr(executors, "_train_group", group)
        found = step_together(bundle("fedavg", toy))
        assert [place for place, rows in enumerate(found) if isinstance(rows, Exception)] == failing
