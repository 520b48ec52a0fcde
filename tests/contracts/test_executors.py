"""Stacked clients and recorded steps give the loop's numbers, for every method whose clients are training jobs; the others are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from search_spaces.errors import UserError
from tests.contracts.test_methods import CPU, METHODS, untimed, values_for
from trainables import registry
from trainables.simulation.cuda_graphs import Graphs
from trainables.simulation.rounds import Row, Simulation

#: What makes a method stackable that is not by default.
NEEDED: dict[str, dict[str, Any]] = {"dense": {"beta_bn": 0}}
STACKED = [name for name in METHODS if registry.method(name).job is not None]


def cases() -> list[tuple[str, dict[str, Any]]]:
    """Every stackable method with momentum and decay, with stragglers, and where it has them with clients of several widths."""
    found: list[tuple[str, dict[str, Any]]] = []
    for name in STACKED:
        base = NEEDED.get(name, {})
        found.append((name, base | {"momentum": 0.5, "weight_decay": 0.01}))
        if registry.method(name).widths == "any":
            found.append((name, base | {"rho": 5, "masked_ce": True, "stragglers": 0.5, "straggler_work": 0.5} |
                          ({"base": "fedrolex"} if "base" in registry.declared(name) else {})))
    return [*found, ("fedgkd", {"buffer": 1, "teacher": "vote"}),
            ("dhf", {"proto_norm": "l2", "nu": 0.25}), ("fedavg", {"model": "lenet5", "batch_size": 64}), ("fedavg", {"local_epochs": 1})]


def close(a: Any, b: Any) -> bool:
    """Equality within 1e-5, entry by entry."""
    if isinstance(a, list):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b, strict=True))
    return a == b or (None not in (a, b) and a == pytest.approx(b, rel=1e-5, abs=1e-12))


def assert_same_rows(ours: Row, theirs: Row) -> None:
    assert ours.keys() == theirs.keys()
    apart = {key: (ours[key], theirs[key]) for key in ours if not close(ours[key], theirs[key])}
    assert not apart


@pytest.mark.parametrize(("name", "more"), cases(), ids=[f"{name}-{'-'.join(map(str, more))}" for name, more in cases()])
def test_stacked_clients_give_the_records_of_the_loop(name: str, more: dict[str, Any], toy: Path) -> None:
    """Each round starts from the loop's state: a rounding that tips a ReLU in one round would be magnified by the next."""
    loop, stacked = (Simulation(name, values_for(name, toy, executor=e, **more), 3, CPU) for e in ("loop", "vmap"))
    assert (loop.executor, stacked.executor) == ("loop", "vmap")
    for _ in range(2):
        stacked.load(loop.save())
        assert_same_rows(untimed(stacked.run_round()), untimed(loop.run_round()))


@pytest.mark.parametrize(("name", "more"), cases(), ids=[f"{name}-{'-'.join(map(str, more))}" for name, more in cases()])
def test_recorded_steps_give_the_records_of_the_loop(name: str, more: dict[str, Any], toy: Path) -> None:
    """Bit for bit. Replaying is calling here; that runs before the first leave no trace is part of it."""
    def record(step: Callable[[], None]) -> Callable[[], None]:
        step()
        step()
        return step

    loop, recorded = (Simulation(name, values_for(name, toy, executor="loop", **more), 3, CPU) for _ in range(2))
    recorded.graphs = Graphs(recorded.config, record)
    for _ in range(3):
        assert untimed(recorded.run_round()) == untimed(loop.run_round())


@pytest.mark.parametrize("executor", ["vmap", "graph"])
@pytest.mark.parametrize("name", [name for name in METHODS if name not in STACKED])
def test_methods_with_a_course_of_their_own_are_run_by_the_loop(name: str, executor: str, toy: Path) -> None:
    with pytest.raises(UserError, match=f"executor must be loop or auto for {name}, whose clients do more than train one model by SGD, got '{executor}'"):
        registry.resolve(name, values_for(name, toy, executor=executor))
    assert Simulation(name, values_for(name, toy, executor="auto"), 3, torch.device("cpu")).executor == "loop"
