"""The clients' training loop: how many steps, what is gathered at once, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.contracts.test_methods import CPU, values_for
from trainables import local
from trainables.federation import ClientData
from trainables.local import LocalTraining, batches, draw_batches, train
from trainables.rng import Rng
from trainables.simulation.rounds import Simulation


@pytest.mark.parametrize(
    ("samples", "epochs", "steps", "batch"), [(10, 3, 6, 4), (10, 1, 2, 4), (3, 2, 2, 3), (4, 5, 5, 4), (40, 2, 20, 4)]
)
def test_an_epoch_has_the_whole_batches_that_a_client_holds(samples: int, epochs: int, steps: int, batch: int) -> None:
    config = LocalTraining(local_epochs=epochs, batch_size=4)
    assert draw_batches(config, samples, 1.0, Rng(0)).shape == (steps, batch)
    assert draw_batches(config, samples, 0.5, Rng(0)).shape == (max(1, round(steps / 2)), batch)


@pytest.mark.parametrize(
    ("bound", "expected"), [(1000, [20]), (8, [8, 8, 4]), (11, [8, 8, 4]), (4, [4] * 5), (3, [4] * 5)]
)
def test_as_many_batches_are_gathered_at_once_as_the_bound_holds_and_one_at_least(
    bound: int, expected: list[int], toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = Simulation("fedavg", values_for("fedavg", toy), 3, CPU).data.clients[0]
    drawn = draw_batches(LocalTraining(local_steps=5, batch_size=4), len(data), 1.0, Rng(0))
    asked, batch = [], ClientData.batch

    def gathered(data: ClientData, chosen: Tensor) -> tuple[Tensor, Tensor]:
        asked.append(len(chosen))
        return batch(data, chosen)

    monkeypatch.setattr(local, "GATHER", bound)
    monkeypatch.setattr(ClientData, "batch", gathered)
    found = list(batches(data, drawn))
    assert asked == expected and len(found) == 5
    for (x, y), chosen in zip(found, drawn, strict=True):
        expected_x, expected_y = batch(data, chosen)
        assert torch.equal(x, expected_x) and torch.equal(y, expected_y)


def test_a_step_has_momentum_and_decay() -> None:
    """v ← m v + g + d w, w ← w - η v, by hand, with a gradient that moves."""
    config = LocalTraining(lr=0.1, momentum=0.9, weight_decay=0.05)
    w = torch.tensor([2.0, -1.0], dtype=torch.float64, requires_grad=True)
    optimiser = local.sgd(config, [w])
    expected, velocity = w.detach().clone(), torch.zeros(2, dtype=torch.float64)
    for step in range(1, 5):
        w.grad = torch.tensor([step, -0.5 * step], dtype=torch.float64)
        optimiser.step()
        velocity = 0.9 * velocity + w.grad + 0.05 * expected
        expected = expected - 0.1 * velocity
        torch.testing.assert_close(w.detach(), expected, rtol=1e-12, atol=0)


def test_the_loss_is_the_mean_over_the_steps_and_frozen_parameters_stay(toy: Path) -> None:
    """Each step starts without the last one's gradient: the losses `w_1 + w_2` fall by 1 a step, and w_3 rests."""
    data = Simulation("fedavg", values_for("fedavg", toy), 3, CPU).data.clients[0]
    module = nn.Linear(3, 1, bias=False).eval()
    nn.init.constant_(module.weight, 2.0)
    frozen = nn.Linear(1, 1, bias=False)
    nn.init.constant_(frozen.weight, 7.0)
    module.add_module("frozen", frozen.requires_grad_(False))
    modes = []

    def objective(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        modes.append(module.training)
        return module.weight[0, :2].sum()  # type: ignore[index]

    result = train(LocalTraining(local_steps=3, batch_size=4, lr=0.5), module, data, Rng(0), objective)
    assert result.loss == pytest.approx((4 + 3 + 2) / 3) and modes == [True] * 3
    assert module.weight.tolist() == [[0.5, 0.5, 2.0]] and frozen.weight.tolist() == [[7.0]]
    assert torch.equal(result.drawn, draw_batches(LocalTraining(local_steps=3, batch_size=4), len(data), 1.0, Rng(0)))
