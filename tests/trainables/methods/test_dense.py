"""DENSE: the batch statistics that clients report, and a mean over few samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from search_spaces.errors import UserError
from tests.contracts.test_methods import CPU, simulate, values_for
from tests.trainables.building_blocks.test_losses import kl, random, softmax
from trainables import registry
from trainables.methods.dense import (
    Config,
    adversarial_loss,
    normalisation_layers,
    tracking,
    watching,
)
from trainables.simulation.rounds import Simulation

ENSEMBLE, STUDENT, Y = random(6, 4), random(6, 4, seed=1), torch.tensor([0, 1, 2, 3, 0, 1])


def test_the_other_adversarial_loss_is_finite_and_whole_where_none_or_one_sample_counts() -> None:
    """`-Σ_b ε_b KL(u_S ‖ u_T) / Σ_b ε_b`, ε = 1 where exactly one of the two is right."""
    y = ENSEMBLE.argmax(dim=1).clone()
    y[:3] = STUDENT.argmax(dim=1)[:3]
    y[3] = (y[3] + 1) % 4  # where both are wrong, or both right, a sample does not count
    assert float(adversarial_loss(Config(adversarial="dfdg"), ENSEMBLE, ENSEMBLE, y)) == 0.0
    right = [x.numpy().argmax(1) == y.numpy() for x in (ENSEMBLE, STUDENT)]
    first = int((right[0] ^ right[1]).argmax())
    alone = y.clone()
    alone[np.arange(6) != first] = 9  # no other sample is right on either side
    expected = -kl(softmax(STUDENT.numpy(), 2.0), softmax(ENSEMBLE.numpy(), 2.0))[first]
    config = Config(kd_temperature=2.0, adversarial="dfdg")
    assert float(adversarial_loss(config, ENSEMBLE, STUDENT, alone)) == pytest.approx(expected, rel=1e-9)


def test_a_model_without_normalisation_is_refused_while_its_statistics_are_wanted(toy: Path) -> None:
    with pytest.raises(UserError, match="beta_bn must be 0 for model lenet5"):
        registry.resolve("dense", values_for("dense", toy, model="lenet5"))
    _, rows = simulate("dense", toy, 1, model="lenet5", beta_bn=0)
    assert rows[0]["round"] == 1


@pytest.mark.parametrize("width", [1.0, 0.5])
def test_they_are_of_the_population_and_without_the_scaler(width: float, toy: Path) -> None:
    """Mean and variance over the batch and all positions of what a convolution gives, in the unit of a model in
    evaluation."""
    fed = Simulation("heterofl", values_for("heterofl", toy, model="cnn_small"), 3, CPU).fed
    module = fed.network(width, scaler=True).train()
    entering: list[Tensor] = []
    hooks = [
        module.get_submodule(name.replace("norms", "convs")).register_forward_hook(
            lambda _, __, out: entering.append(out)
        )
        for name in normalisation_layers(module)
    ]
    found: dict[str, tuple[Tensor, Tensor]] = {}
    with watching(module, lambda name, mean, var: found.update({name: (mean, var)})):
        module(torch.rand(1, *fed.shape, generator=torch.Generator().manual_seed(0)))
    for hook in hooks:
        hook.remove()
    assert list(found) == normalisation_layers(module) and len(entering) == len(found) > 0
    for (mean, var), x in zip(found.values(), entering, strict=True):
        values = x.detach().double().numpy()
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
    module.get_submodule(normalisation_layers(module)[1]).register_forward_pre_hook(
        lambda _, inputs: entering.append(inputs[0].dtype)
    )
    with watching(module, lambda name, mean, var: found.extend([mean.dtype, var.dtype])):
        module(torch.rand(2, *fed.shape, generator=torch.Generator().manual_seed(0)))
    assert entering == [torch.bfloat16] and set(found) == {torch.float32}
