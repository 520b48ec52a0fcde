"""The pretend device catches what CUDA refuses, counts what a GPU is waited for, and computes what a CPU computes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

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


def test_work_that_needs_no_answer_is_not_waited_for(x: Tensor, seen: Seen) -> None:
    places = (x[0] > 0).long()
    made = x.t() @ x + x[:, places].sum() + torch.zeros(3, 3, device=DEVICE).index_add_(0, places, x.t() @ x)
    assert not seen.noted and str(made.argmax(dim=1).clone().device) == DEVICE


def test_the_place_is_the_function_at_work(x: Tensor, seen: Seen) -> None:
    from trainables.params import equal

    assert equal({"a": x, "b": x}, {"a": x, "b": x + 0})
    assert dict(seen.waits) == {"params.equal": 1}


def test_work_out_of_sight_is_refused() -> None:
    with pretending():
        x = torch.zeros(2, device=DEVICE)
    with pytest.raises(MixedDevices, match="outside of `pretending`"):
        _ = x + 1


def test_memory_is_shared_as_on_any_device(x: Tensor) -> None:
    """Views, changes in place through them and their gradients, copies that are copies."""
    x[1, 1:].mul_(10)
    kept = copy.deepcopy(x)
    x.t()[0].zero_()
    assert x.tolist() == [[0, 1, 2], [0, 40, 50]] and kept.tolist() == [[0, 1, 2], [3, 40, 50]]
    leaf = torch.ones(2, 3, device=DEVICE, requires_grad=True)
    doubled = leaf * 2
    doubled[1, 1:].mul_(3.0)
    doubled.square().sum().backward()  # d/dw (2w)² = 8w, and 36 times that where it was tripled, squared
    assert leaf.grad is not None and leaf.grad.tolist() == [[8, 8, 8], [8, 72, 72]]
    with torch.inference_mode():
        assert (x.view(3, 2)[1:] + 1).tolist() == [[3, 1], [41, 51]]


def network() -> nn.Module:
    """Small, of every kind of layer."""
    made = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.ConvTranspose2d(4, 2, 3), nn.Flatten()
    ).append(nn.Linear(50, 3))
    with torch.no_grad():
        for p in made.parameters():
            p.copy_(torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())) / 4)
    return made.to(memory_format=torch.channels_last)


@pytest.mark.numeric
@pytest.mark.parametrize("optimiser", [torch.optim.SGD, torch.optim.Adam])
def test_training_is_a_cpus_to_the_bit(optimiser: Any, seen: Seen) -> None:
    images = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 0, 1])
    trained = []
    for device in ("cpu", DEVICE):
        module, x, y = network().to(device), images.to(device), labels.to(device)
        step = optimiser(module.parameters(), lr=0.1, fused=True)
        for _ in range(3):
            step.zero_grad()
            F.cross_entropy(module(x), y, label_smoothing=0.1).backward()
            step.step()
        trained.append({name: tensor.cpu() for name, tensor in module.state_dict().items()})
    assert all(torch.equal(tensor, trained[1][name]) for name, tensor in trained[0].items())
    assert {what for _, what in seen.noted} == {TO_CPU, TO_DEVICE}


@pytest.mark.numeric
def test_stacked_gradients_are_a_cpus_to_the_bit(seen: Seen) -> None:
    images = torch.randn(2, 5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[0, 1, 2, 0, 1]] * 2)
    found = []
    for device in ("cpu", DEVICE):
        module = network().to(device).eval()
        weights = {name: torch.stack([p.detach(), 2 * p.detach()]) for name, p in module.named_parameters()}

        def loss(w: dict[str, Tensor], x: Tensor, y: Tensor, module: nn.Module = module) -> Tensor:
            return F.cross_entropy(functional_call(module, w, (x,)), y)

        gradients, losses = vmap(grad_and_value(loss))(weights, images.to(device), labels.to(device))
        found.append({name: g.cpu() for name, g in gradients.items()} | {"loss": losses.cpu()})
    assert all(torch.equal(tensor, found[1][name]) for name, tensor in found[0].items())
