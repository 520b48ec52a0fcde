"""A step that is recorded leaves what the step itself leaves, whatever a recorder does while it records."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from trainables.kernels.optimisers import Adam
from trainables.kernels.recorded_steps import WARM_UP, RecordedStep, Recorder, memory


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
    recorded, called = losses(busy)
    assert called == 1 + (WARM_UP + 1) + 4
    assert len(plain) == 4 and all(map(torch.equal, recorded, plain))  # weight, step, exp_avg, exp_avg_sq


def test_a_replay_reads_the_step_s_own_copies_of_what_it_is_given() -> None:
    """The caller's tensors may go, or change, between calls; they may not have another shape."""
    total, places = torch.zeros(2), set()

    def step(x: Tensor) -> None:
        places.add(x.data_ptr())
        total.add_(x)

    recorded = RecordedStep(step, lambda: [total], lambda step: step)
    given = [torch.full((2,), 10.0**k) for k in range(4)]
    for x in given:
        recorded(x)
    assert total.tolist() == [1111.0, 1111.0]
    assert len(places) == 2 and given[1].data_ptr() not in places  # the first step's, and its own
    with pytest.raises(AssertionError):
        recorded(torch.ones(1))
