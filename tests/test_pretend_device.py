"""The pretend device catches what CUDA refuses, counts what a GPU is waited for, and computes what a CPU computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.pretend_device import AVAILABLE, DEVICE, TO_CPU, TO_DEVICE, MixedDevices, Seen, pretending

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="this PyTorch takes no device written in Python")


@pytest.fixture
def seen() -> Iterator[Seen]:
    with pretending() as found:
        yield found


@pytest.fixture
def x(seen: Seen) -> Tensor:
    """`(2, 3)` of 0 … 5 on the device; how it came there is not counted."""
    made = torch.arange(6.0).view(2, 3).to(DEVICE)
    seen.noted.clear()
    return made


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (lambda x: x + torch.ones(3), r"aten.add.Tensor: a tensor \(3,\) of cpu beside tensors of pretend"),
        (lambda x: torch.ones(2, 2) @ x, "of cpu beside"),
        (lambda x: torch.cat([x, torch.ones(1, 3)]), "of cpu beside"),
        (lambda x: F.cross_entropy(x, torch.tensor([0, 1])), "of cpu beside"),
        (lambda x: F.linear(x, x, bias=torch.ones(2)), "of cpu beside"),
        (lambda x: x[torch.tensor([0])], "of cpu beside"),
        (lambda x: x.index_select(0, torch.tensor(1)), "of cpu beside"),  # a number, where CUDA wants its own
        (lambda x: x[torch.tensor([True, False])], "of cpu beside"),
        (lambda x: torch.zeros(4).index_copy_(0, x[0].long(), torch.ones(3)), "of cpu beside"),
        (lambda x: torch.zeros(()).add_(x.sum()), "writes to a tensor of cpu what is computed on pretend"),
        (lambda x: x.normal_(generator=torch.Generator()), "draws on pretend with a generator of cpu"),
        (lambda x: torch.multinomial(x + 1, 1, generator=torch.Generator()), "draws on pretend with a generator"),
        (lambda x: torch.randn(3, device=DEVICE), "draws on pretend, whose numbers are its own"),
        (lambda x: F.dropout(x), "draws on pretend"),
        (lambda x: nn.Linear(3, 2)(x), "of cpu beside"),  # a module that was not moved
    ],
)
def test_what_cuda_refuses_is_refused(work: Callable[[Tensor], Any], says: str, x: Tensor) -> None:
    with pytest.raises(MixedDevices, match=says):
        work(x)


def test_a_forgotten_device_after_loading_is_caught(x: Tensor, tmp_path: Path) -> None:
    torch.save({"weight": x, "row": x[1]}, tmp_path / "saved")
    there, here = (torch.load(tmp_path / "saved", map_location=d, weights_only=True) for d in (DEVICE, "cpu"))
    assert str(there["weight"].device) == DEVICE and torch.equal((there["row"] + x[1]).cpu(), 2 * here["row"])
    with pytest.raises(MixedDevices):
        _ = here["row"] + x[1]


def test_numbers_of_the_processor_are_taken_as_cuda_takes_them(x: Tensor, seen: Seen) -> None:
    half = torch.tensor(0.5)
    made = torch.where(x > 1, x * half, half).masked_fill(x > 4, torch.tensor(9.0))
    assert made.tolist() == [[0.5, 0.5, 1.0], [1.5, 2.0, 9.0]]


@pytest.mark.parametrize(
    ("work", "what", "times"),
    [
        (lambda x: x.sum().item(), "_local_scalar_dense", 1),
        (lambda x: float(x[0, 0]) + int(x[0, 1]), "_local_scalar_dense", 2),
        (lambda x: bool((x > 0).any()), "_local_scalar_dense", 1),
        (lambda x: torch.equal(x, x + 1), "equal", 1),
        (lambda x: x.nonzero(), "nonzero", 1),
        (lambda x: x[x > 2], "index", 1),
        (lambda x: x.masked_select(x > 2), "masked_select", 1),
        (lambda x: x.index_put_((x > 2,), x.new_zeros(())), "_index_put_impl_", 1),
        (lambda x: x.unique(), "_unique2", 1),
        (lambda x: x.cpu(), TO_CPU, 1),
        (lambda x: x.tolist(), TO_CPU, 1),
        (lambda x: torch.zeros(2, 3).copy_(x), TO_CPU, 1),
        (lambda x: torch.tensor([1.0, 2.0], device=DEVICE), TO_DEVICE, 1),
        (lambda x: x.copy_(torch.zeros(2, 3)), TO_DEVICE, 1),
    ],
)
def test_what_is_waited_for_is_counted(
    work: Callable[[Tensor], Any], what: str, times: int, x: Tensor, seen: Seen
) -> None:
    work(x)
    assert dict(seen.noted) == {("elsewhere", what): times}
    assert (seen.waits.total(), seen.moved.total()) == ((0, times) if what == TO_DEVICE else (times, 0))


def test_work_out_of_sight_is_refused() -> None:
    with pretending():
        x = torch.zeros(2, device=DEVICE)
    with pytest.raises(MixedDevices, match="outside of `pretending`"):
        _ = x + 1
