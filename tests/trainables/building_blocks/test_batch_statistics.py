"""Statistics of what enters normalisation layers, against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.contracts.test_methods import CPU, values_for
from trainables.building_blocks.batch_statistics import layers, tracking, watching
from trainables.simulation.rounds import Simulation


@pytest.mark.parametrize("width", [1.0, 0.5])
def test_they_are_of_the_population_and_without_the_scaler(width: float, toy: Path) -> None:
    """Mean and variance over the batch and all positions, in the unit of a model in evaluation."""
    fed = Simulation("heterofl", values_for("heterofl", toy), 3, CPU).fed
    module = fed.network(width, scaler=True).train()
    entering: list[Tensor] = []
    hooks = [
        module.get_submodule(name).register_forward_pre_hook(lambda _, inputs: entering.append(inputs[0]))
        for name in layers(module)
    ]
    found: dict[str, tuple[Tensor, Tensor]] = {}
    with watching(module, lambda name, mean, var: found.update({name: (mean, var)})):
        module(torch.rand(1, *fed.shape, generator=torch.Generator().manual_seed(0)))
    for hook in hooks:
        hook.remove()
    assert list(found) == layers(module) and len(entering) == len(found) > 0
    for (mean, var), x in zip(found.values(), entering, strict=True):
        values = x.detach().double().numpy() * width  # the scaler multiplies by 1 / width
        expected = [values[:, c].flatten() for c in range(values.shape[1])]
        np.testing.assert_allclose(mean.detach(), [v.sum() / v.size for v in expected], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(
            var.detach(), [((v - v.sum() / v.size) ** 2).sum() / v.size for v in expected], rtol=1e-4, atol=1e-9
        )


def test_tracked_ones_start_with_the_first_batch_and_follow_the_others(toy: Path) -> None:
    fed = Simulation("fedavg", values_for("fedavg", toy), 3, CPU).fed
    module = fed.network().train()
    batches = torch.rand(3, 2, *fed.shape, generator=torch.Generator().manual_seed(0)).unbind()
    every: list[dict[str, Tensor]] = []
    for batch in batches:
        every.append({})
        with watching(module, lambda name, mean, var: every[-1].update({f"{name}.mean": mean, f"{name}.var": var})):
            module(batch)
    with tracking(module, 0.9) as tracked:
        for batch in batches:
            module(batch)
    assert tracked.keys() == every[0].keys() and not any(t.requires_grad for t in tracked.values())
    for name, value in tracked.items():
        first, second, third = (one[name].detach().double().numpy() for one in every)
        np.testing.assert_allclose(value, 0.81 * first + 0.09 * second + 0.1 * third, rtol=1e-5)


@pytest.mark.usefixtures("bf16")
def test_they_are_float32_where_maps_are_not(toy: Path) -> None:
    fed = Simulation("fedavg", values_for("fedavg", toy, precision="bf16"), 3, CPU).fed
    module, entering, found = fed.network(), list[torch.dtype](), list[torch.dtype]()
    module.get_submodule(layers(module)[1]).register_forward_pre_hook(
        lambda _, inputs: entering.append(inputs[0].dtype)
    )
    with watching(module, lambda name, mean, var: found.extend([mean.dtype, var.dtype])):
        module(torch.rand(2, *fed.shape, generator=torch.Generator().manual_seed(0)))
    assert entering == [torch.bfloat16] and set(found) == {torch.float32}
