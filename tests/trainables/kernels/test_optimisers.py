"""Optimisers that spare PyTorch's compiler: the bits of PyTorch's own, and rounds of real methods that never load
it."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from trainables.kernels import optimisers


def trained(kind: type[torch.optim.Optimizer], **options: object) -> dict[str, torch.Tensor]:
    """A layer after five steps."""
    torch.manual_seed(0)
    net = torch.nn.Linear(5, 3)
    optimiser = kind(net.parameters(), **options)  # type: ignore[arg-type]
    x = torch.randn(7, 5)

    def loss() -> torch.Tensor:
        optimiser.zero_grad(set_to_none=True)
        found = net(x).square().mean()
        found.backward()
        return found

    for _ in range(5):
        loss()
        optimiser.step(loss) if kind.__name__ == "LBFGS" else optimiser.step()  # type: ignore[arg-type]
    assert torch.is_grad_enabled()
    return {name: tensor.clone() for name, tensor in net.state_dict().items()}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "fused": True}),
        ("SGD", {"lr": 0.1}),
        ("Adam", {"lr": 0.1, "weight_decay": 0.01, "betas": (0.5, 0.999), "fused": True}),
        ("LBFGS", {"lr": 0.1}),
    ],
)
def test_the_bits_are_those_of_the_reference(name: str, options: dict[str, object]) -> None:
    ours, reference = trained(getattr(optimisers, name), **options), trained(getattr(torch.optim, name), **options)
    assert all(torch.equal(ours[key], tensor) for key, tensor in reference.items())
    start = torch.nn.Linear(5, 3)
    assert all(tensor.shape == start.state_dict()[key].shape for key, tensor in ours.items())


_ROUNDS = """
import sys, torch
import trainables.tune
from trainables.simulation.rounds import Simulation
torch.set_num_threads(1)
short = {"rounds": 2, "clients": 2, "local_steps": 1, "batch_size": 8}
for name, more in {
    "fedavg": {"attack_images": 1, "attack_steps": 1},
    "dfrd": {"server_iters": 1, "gen_steps": 1, "distill_steps": 1, "server_batch_size": 4},
    "fedcg": {"server_steps": 1}, "fedgen": {"gen_steps": 1}, "fedkf": {"kd_from_round": 1},
    "fedmdcg": {"server_steps": 1},
}.items():
    simulation = Simulation(name, short | more, 0, torch.device("cpu"))
    simulation.exchange()
    simulation.run_round()
print("torch._dynamo" in sys.modules)
torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
print("torch._dynamo" in sys.modules)
"""


def test_no_method_loads_the_compiler_and_pytorchs_own_optimisers_are_left_as_they_are() -> None:
    said = subprocess.run([sys.executable, "-c", _ROUNDS], capture_output=True, text=True, check=True).stdout.split()
    assert said == ["False", "True"]


@pytest.mark.parametrize("momenta", [(0.0, 0.0, 0.0), (0.0, 0.5, 0.9)])
@pytest.mark.parametrize("decays", [(0.0, 0.0, 0.0), (0.01, 0.0, 0.2)])
def test_sgd_of_each_is_that_of_every_model(momenta: tuple[float, ...], decays: tuple[float, ...]) -> None:
    """Stacked models with settings of their own against PyTorch's SGD of each, in float64."""
    rates, generator = (0.1, 0.01, 1.0), torch.Generator().manual_seed(0)
    starts, steps = (
        [torch.randn(3, *shape, generator=generator).double() for shape in ((4, 2), (5,), ())] for _ in "ab"
    )
    stacked = [start.clone() for start in starts]
    ours = optimisers.SGDOfEach(stacked, rates, momenta, decays)
    for step in range(1, 4):
        for weights, direction in zip(stacked, steps, strict=True):
            weights.grad = direction * step
        ours.step()
    for k, (lr, momentum, decay) in enumerate(zip(rates, momenta, decays, strict=True)):
        own = [start[k].clone() for start in starts]
        plain = torch.optim.SGD(own, lr=lr, momentum=momentum, weight_decay=decay)
        for step in range(1, 4):
            for weights, direction in zip(own, steps, strict=True):
                weights.grad = direction[k] * step
            plain.step()
        for mine, its in zip(stacked, own, strict=True):
            torch.testing.assert_close(mine[k], its, rtol=1e-14, atol=1e-14)
