"""Recorded steps: what is recorded when, that everything stays in its place, and that nothing in a step waits for the
device.

Recorders here replay by calling the step again, so that all but CUDA's own recording runs on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.contracts.test_executors import assert_clients_as_exact, counts, start_alike, wide
from tests.contracts.test_methods import CPU, untimed, values_for
from trainables.kernels import normalisation, recorded_steps
from trainables.simulation import cuda_graphs
from trainables.simulation.cuda_graphs import Graphs, _Program
from trainables.simulation.rounds import Simulation

Step = Callable[[], None]

pytestmark = pytest.mark.numeric


class NoAnswers(TorchDispatchMode):
    """Refuses what needs a value of a tensor, or a shape that depends on one, on the host: CUDA cannot record it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().partition("::")[2].partition(".")[0]
        assert name not in ("_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique2", "bincount"), name
        return func(*args, **(kwargs or {}))


class Tape:
    """A recorder that counts, checks that the step's tensors stay where they were, and warms up as CUDA's does."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def __call__(self, step: Step) -> Step:
        self.recorded += 1
        for _ in range(recorded_steps.WARM_UP):
            step()
        with NoAnswers(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(normalisation, "_after_pooling", lambda *_: False)  # a short cut of a processor's
            step()
        program: _Program = step.__self__  # type: ignore[attr-defined]
        before = places(program)

        def replay() -> None:
            self.replayed += 1
            assert places(program) == before
            step()

        return replay


def places(p: _Program) -> list[int]:
    """Addresses of all that a step reads and keeps."""
    momentum = [t for state in p._optimiser.state.values() for t in state.values() if isinstance(t, torch.Tensor)]
    return [
        t.data_ptr()
        for t in (*p._module.state_dict().values(), p._x, p._y, *cuda_graphs._tensors(p._given), p._total, *momentum)
    ]


def recorded(name: str, toy: Path, tape: Tape, **more: Any) -> Simulation:
    s = Simulation(name, values_for(name, toy, **more), 3, CPU)
    s.graphs = Graphs(s.config, tape)
    return s


@pytest.mark.parametrize(
    ("name", "more", "programs"),
    [
        ("fedavg", {"partition": "iid"}, 1),
        ("fedprox", {"partition": "iid", "momentum": 0.9}, 1),  # its objective is bound anew for every client
        ("fedgkd", {"partition": "iid", "buffer": 1}, 2),  # there is no teacher in the first round
        ("heterofl", {"partition": "iid", "rho": 5}, 4),  # a module for each of the widths 1, 1/2, 1/4 and 1/8
    ],
)
def test_a_step_is_recorded_once_for_all_clients_and_rounds(
    name: str, more: dict[str, Any], programs: int, toy: Path
) -> None:
    tape = Tape()
    s = recorded(name, toy, tape, **more)
    steps = 0
    for _ in range(3):
        s.run_round()
        steps += sum(len(cuda_graphs.draw_batches(s.config, n, 1.0, s.fed.rng)) for n in s.fed.sizes)
    assert (tape.recorded, tape.replayed) == (programs, steps)


def test_batches_of_another_size_are_another_program_and_the_oldest_makes_room(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape = Tape()
    s = recorded("fedavg", toy, tape, batch_size=200)
    sizes = len(set(s.fed.sizes))
    assert sizes > 2
    s.run_round()
    assert tape.recorded == sizes
    monkeypatch.setattr(cuda_graphs, "KEPT", 1)
    t = recorded("fedavg", toy, Tape(), batch_size=200)
    assert untimed(t.run_round()) == untimed(recorded("fedavg", toy, Tape(), batch_size=200).run_round())
    assert t.graphs is not None and len(t.graphs._programs) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU here")
@pytest.mark.parametrize("executor", ["graph", "vmap"])
def test_on_a_gpu_the_records_are_those_of_the_loop(executor: str, toy: Path) -> None:
    cuda = torch.device("cuda")
    values = values_for("fedprox", toy, momentum=0.9)
    loop, other = (Simulation("fedprox", values | {"executor": e}, 3, cuda) for e in ("loop", executor))
    exact = wide("fedprox", values, device=cuda)
    with torch.backends.cudnn.flags(benchmark=False, deterministic=True, allow_tf32=False):  # as trials compute
        for _ in range(2):
            start_alike(exact, loop, other)
            (row, ours), (expected, theirs) = other.exchange(), loop.exchange()
            assert any(assert_clients_as_exact(ours, theirs, exact))
            assert counts(other._measured(row, ours)) == counts(loop._measured(expected, theirs))


def test_a_tensor_that_is_given_twice_may_be_two_tensors_for_the_next_client() -> None:
    """A recorded step reads tensors of its own, each at a place of its own."""
    one = torch.arange(3.0)
    first, nest = cuda_graphs._own((one, {"again": [one]}))
    first.zero_()
    assert nest["again"][0].tolist() == one.tolist() == [0.0, 1.0, 2.0]
