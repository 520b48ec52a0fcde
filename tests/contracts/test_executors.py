"""Stacked clients and recorded steps give the loop's numbers, for every method whose clients are training jobs; the
others are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from search_spaces.errors import UserError
from tests.contracts.test_methods import CPU, METHODS, light, put_state, state_of, untimed, values_for
from tests.exact import MARGIN, assert_as_exact
from tests.float64 import in_float64, to_float32, to_float64
from trainables import registry
from trainables.simulation.cuda_graphs import Graphs
from trainables.simulation.rounds import Row, Simulation
from trainables.wire import ClientResult

pytestmark = pytest.mark.numeric

#: What makes a method stackable that is not by default.
NEEDED: dict[str, dict[str, Any]] = {"dense": {"beta_bn": 0}}
STACKED = [name for name in METHODS if registry.method(name).job is not None]


def cases() -> list[tuple[str, dict[str, Any]]]:
    """Every stackable method with momentum and decay, and where it has them with clients of several widths and with
    stragglers, on convolutions; and models with all kinds of layers."""
    found: list[tuple[str, dict[str, Any]]] = []
    for name in STACKED:
        base = NEEDED.get(name, {})
        found.append((name, base | light(name) | {"momentum": 0.5, "weight_decay": 0.01}))
        if registry.method(name).widths == "any":
            found.append(
                (
                    name,
                    base
                    | {"rho": 5, "masked_ce": True, "stragglers": 0.5, "straggler_work": 0.5}
                    | ({"base": "fedrolex"} if "base" in registry.declared(name) else {}),
                )
            )
    return [
        *found,
        ("fedgkd", {"buffer": 1, "teacher": "vote"}),
        ("dhf", {"proto_norm": "l2", "nu": 0.25}),
        ("lgfedavg", {"nu": 0.5, "model": "cnn2", "deep_model": "cnn3"}),
        ("fedavg", {"model": "lenet5", "batch_size": 64, "local_steps": 1}),
        ("fedavg", {"local_epochs": 1, "model": "cnn_small"}),
        ("fedavg", {"batch_norm": "running", "model": "lenet_code", "momentum": 0.5}),
        ("fedgkd", {"batch_norm": "running", "buffer": 1}),
        ("fedrolex", {"batch_norm": "running", "rho": 5, "model": "cnn_small"}),
        ("qffl", {"batch_norm": "running"}),
    ]


def exact_round(s: Simulation) -> tuple[dict[int, ClientResult], dict[int, bool]]:
    """What the clients of the next round of a float64 simulation yield, and whether each one's work was decided
    (`tests.exact`)."""
    decided: list[bool] = []
    train = s._client
    with in_float64() as mode, pytest.MonkeyPatch.context() as patch:

        def client(*work: Any) -> ClientResult:
            mode.margin = 1.0
            result = train(*work)
            decided.append(mode.margin > MARGIN)
            return result

        patch.setattr(s, "_client", client)
        _, results = s.exchange()
    return results, dict(zip(results, decided, strict=True))


def wide(name: str, values: dict[str, Any], seed: int = 3, device: torch.device = CPU) -> Simulation:
    """The simulation in float64; its clients are trained one after the other."""
    with in_float64():
        return Simulation(name, values | {"executor": "loop"}, seed, device)


def start_alike(exact: Simulation, *others: Simulation) -> None:
    """The others, in float32, begin where the float64 simulation stands, rounded to float32, and so does it."""
    start = to_float32(state_of(exact))
    put_state(exact, to_float64(start))
    for other in others:
        put_state(other, start)


def assert_clients_as_exact(
    fast: dict[int, ClientResult], plain: dict[int, ClientResult], exact: Simulation
) -> list[bool]:
    """Every client's upload, state, model, loss and metrics against the next round of `exact`; which of them were
    decided."""
    results, decided = exact_round(exact)
    assert fast.keys() == plain.keys() == results.keys()
    for client, result in results.items():
        assert_as_exact(fast[client], plain[client], result, decided=decided[client])
    return list(decided.values())


def counts(row: Row) -> Row:
    """What a row holds besides measured numbers: its keys, and under them the whole numbers, and for lists their
    lengths."""
    return {
        key: len(value) if isinstance(value, list) else None if isinstance(value, float) else value
        for key, value in row.items()
    }


@pytest.mark.parametrize(
    ("name", "more"), cases(), ids=[f"{name}-{'-'.join(map(str, more))}" for name, more in cases()]
)
def test_stacked_clients_give_the_records_of_the_loop(name: str, more: dict[str, Any], toy: Path) -> None:
    """Each round starts anew from float64: a rounding that tips a ReLU in one round would be magnified by the next."""
    loop, stacked = (Simulation(name, values_for(name, toy, executor=e, **more), 3, CPU) for e in ("loop", "vmap"))
    assert (loop.executor, stacked.executor) == ("loop", "vmap")
    exact = wide(name, values_for(name, toy, **more))
    decided: list[bool] = []
    for round_ in range(8):
        if round_ >= 2 and any(decided):  # two rounds, and more where rounding could turn a decision of every client
            break
        start_alike(exact, loop, stacked)
        (row, ours), (expected, theirs) = stacked.exchange(), loop.exchange()
        decided += assert_clients_as_exact(ours, theirs, exact)
        assert counts(stacked._measured(row, ours)) == counts(loop._measured(expected, theirs))
    assert any(decided)  # or none was looked at closely


@pytest.mark.parametrize(
    ("name", "more"), cases(), ids=[f"{name}-{'-'.join(map(str, more))}" for name, more in cases()]
)
def test_recorded_steps_give_the_records_of_the_loop(name: str, more: dict[str, Any], toy: Path) -> None:
    """Bit for bit, as they are the same operations: replaying is calling here; that runs before the first leave no
    trace is part of it."""

    def record(step: Callable[[], None]) -> Callable[[], None]:
        step()
        step()
        return step

    loop, recorded = (Simulation(name, values_for(name, toy, executor="loop", **more), 3, CPU) for _ in range(2))
    recorded.graphs = Graphs(recorded.config, record)
    for _ in range(2):
        assert untimed(recorded.run_round()) == untimed(loop.run_round())


@pytest.mark.parametrize("executor", ["vmap", "graph"])
@pytest.mark.parametrize("name", [name for name in METHODS if name not in STACKED])
def test_methods_with_a_course_of_their_own_are_run_by_the_loop(name: str, executor: str, toy: Path) -> None:
    """But where the server has steps that can be recorded, these are, and clients are run by the loop."""
    if executor == "graph" and registry.method(name).recordable_server:
        assert registry.resolve(name, values_for(name, toy, executor=executor))["executor"] == "graph"
        return
    with pytest.raises(
        UserError,
        match=f"executor must be loop or auto for {name}, whose clients do more than train one model by SGD, got "
        f"'{executor}'",
    ):
        registry.resolve(name, values_for(name, toy, executor=executor))
    assert Simulation(name, values_for(name, toy, executor="auto"), 3, torch.device("cpu")).executor == "loop"
