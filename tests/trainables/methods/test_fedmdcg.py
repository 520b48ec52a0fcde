"""FedMD-CG, where the replays of whole rounds do not go: the paper's label distance, and what a round keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.contracts.test_methods import same, simulate, untimed
from tests.trainables.building_blocks.test_losses import ce
from trainables.methods import fedcg, fedgen, fedmdcg
from trainables.methods.fedmdcg import Config, Weights, diversity_loss


def test_the_l1_norm_of_different_labels_is_two() -> None:
    """With the paper's sum, pairs of different classes weigh e² times as much; with the code's mean e^(2/C)."""
    made, z, y = torch.tensor([[0.0], [1.0]]).double(), torch.tensor([[0.0], [1.0]]).double(), torch.eye(4).double()[:2]
    for label_dist, factor in (("sum", np.exp(2)), ("mean", np.exp(0.5))):
        value = float(diversity_loss(Config(label_dist=label_dist), made, z, y))
        assert value == pytest.approx(np.exp(-factor / 2), rel=1e-9)


@pytest.mark.parametrize("method", [fedcg, fedgen, fedmdcg], ids=lambda module: module.METHOD.name)
def test_the_sum_of_a_rounds_losses_is_on_data_alone_and_keeps_no_graph(method: Any, toy: Path) -> None:
    """In the second round, in which the generator guides."""
    s, _ = simulate(method.METHOD.name, toy, 1)
    payload = s.method.download(s.config, s.fed, s.progress.state, 0)
    module = s.fed.network().train()
    x, y = s.data.clients[0].batch(torch.arange(5))
    more = [Weights(0.7, 0.8, 0.9), torch.stack([y, y])] if method is fedmdcg else []
    objective = method._LocalObjective(s.config, s.fed, payload, *more, s.fed.rng)
    on_data = ce(module(x).detach().double().numpy(), y.numpy())
    for _ in range(2):
        objective(module, x, y).backward()
    assert float(objective.data_loss) == pytest.approx(2 * on_data, rel=1e-5)
    assert not objective.data_loss.requires_grad
    assert all(p.grad is None for p in objective.generator.parameters())


def test_rows_do_not_depend_on_who_used_the_modules_before(toy: Path) -> None:
    """Cached modules are loaded, never trusted: a federation that ran other clients first gives the same."""
    s, used = (simulate("fedmdcg", toy, 0, model="mlp")[0] for _ in range(2))
    for module in (used.fed.network(), used.fed.network(role="frozen")):
        nn.init.constant_(module.head.weight, 5.0)
    assert untimed(s.run_round()) == untimed(used.run_round()) and same(s.save(), used.save())


def test_average_weighting_draws_labels_evenly(toy: Path) -> None:
    simulation, _ = simulate("fedmdcg", toy, 1, label_weighting="average")
    assert simulation.progress.state.label_probabilities.tolist() == [0.25] * 4
