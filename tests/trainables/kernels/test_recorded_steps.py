"""A step that is recorded leaves what the step itself leaves, whatever a recorder does while it records."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from trainables.kernels import recorded_steps
from trainables.kernels.optimisers import Adam
from trainables.kernels.recorded_steps import (
    FEWEST,
    WARM_UP,
    CudaGraphs,
    RecordedStep,
    Recorder,
    cuda_graph,
    memory,
    recorded,
)


def losses(record: Recorder | None) -> tuple[list[Tensor], int]:
    """Five steps of Adam on `(w · x)²`: w and all that Adam keeps, and how often the step was called."""
    weight = torch.tensor([1.0, -2.0], requires_grad=True)
    adam = Adam([weight], lr=0.1, fused=True, capturable=record is not None)
    called = 0

    def step(x: Tensor) -> None:
        nonlocal called
        called += 1
        adam.zero_grad(set_to_none=True)
        (weight @ x).square().backward()
        adam.step()

    taken = step if record is None else RecordedStep(step, lambda: [weight.detach(), *memory(adam)], record)
    for number in range(5):
        taken(torch.tensor([1.0, float(number)]))
    return [weight.detach(), *memory(adam)], called


def busy(step: Callable[[], None]) -> Callable[[], None]:
    """Runs the step as often as CUDA's recorder does."""
    for _ in range(WARM_UP + 1):
        step()
    return step


def test_what_a_recorder_does_is_undone_and_the_first_step_is_not_recorded() -> None:
    plain, called = losses(None)
    assert called == 5
    found, called = losses(busy)
    assert called == 1 + (WARM_UP + 1) + 4
    assert len(plain) == 4 and all(map(torch.equal, found, plain))  # weight, step, exp_avg, exp_avg_sq


def test_a_replay_reads_the_step_s_own_copies_of_what_it_is_given() -> None:
    """The caller's tensors may go, or change, between calls; they may not have another shape."""
    total, places = torch.zeros(2), set()

    def step(x: Tensor) -> None:
        places.add(x.data_ptr())
        total.add_(x)

    taken = RecordedStep(step, lambda: [total], lambda step: step)
    given = [torch.full((2,), 10.0**k) for k in range(4)]
    for x in given:
        taken(x)
    assert total.tolist() == [1111.0, 1111.0]
    assert len(places) == 2 and given[1].data_ptr() not in places  # the first step's, and its own
    with pytest.raises(AssertionError):
        taken(torch.ones(1))


def test_steps_are_recorded_where_recording_is_at_most_half_of_them() -> None:
    """CUDA's recorder runs a step and does not compute while it follows it; the first step is not recorded."""
    total, called = torch.zeros(()), 0

    def step(x: Tensor) -> None:
        nonlocal called
        called += 1
        total.add_(x)

    def record(step: Callable[[], None]) -> Callable[[], None]:
        replay = busy(step)
        return lambda: uncounted(replay)

    def uncounted(replay: Callable[[], None]) -> None:
        nonlocal called
        replay()
        called -= 1

    for times in (1, FEWEST - 1, FEWEST, 3 * FEWEST):
        total.zero_()
        called = 0
        taken = recorded(step, lambda: [total], record, times)
        for _ in range(times):
            taken(torch.ones(()))
        assert total == times
        assert called == (times if times < FEWEST else FEWEST // 2)
    assert recorded(step, lambda: [total], None, 3 * FEWEST) is step


class Graph:
    """Stands for a CUDA graph."""

    def __init__(self, step: Callable[[], None]) -> None:
        self.replay, self.held = step, True

    def reset(self) -> None:
        self.held = False


def test_graphs_of_a_server_are_let_go_of_and_those_of_clients_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards GPU memory: a phase and its steps refer to each other, so that Python alone would let go of them late."""
    made: list[Graph] = []

    def captured(step: Callable[[], None]) -> Graph:
        made.append(Graph(step))
        return made[-1]

    monkeypatch.setattr(recorded_steps, "_captured", captured)
    graphs, seen = CudaGraphs(), []
    for number in range(2):
        graphs(lambda number=number: seen.append(number))()  # type: ignore[misc]
    cuda_graph(lambda: seen.append(2))()
    assert seen == [0, 1, 2] and all(graph.held for graph in made)
    graphs.release()
    assert [graph.held for graph in made] == [False, False, True]
    graphs(lambda: None)
    assert made[-1].held
