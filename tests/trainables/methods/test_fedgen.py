"""FedGen's equations, each against NumPy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.contracts.test_methods import simulate
from tests.trainables.building_blocks.test_losses import random, softmax
from tests.trainables.methods.test_dfrd import kl
from tests.trainables.methods.test_fedmdcg import ce
from trainables.methods.fedgen import Config, _LocalObjective, feature_diversity, generator_loss

Y = torch.tensor([0, 1, 2, 3, 0])


def test_the_generators_loss_weights_the_classifiers_losses_per_label() -> None:
    logits, tau = random(2, 5, 4), torch.rand(2, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    shares, made, z = torch.tensor([0.2, 0.8], dtype=torch.float64), random(5, 3, seed=1), random(5, 6, seed=2)
    rows = [-np.log(softmax(logits[i].numpy()))[np.arange(5), Y.numpy()] for i in range(2)]
    config = Config(div_weight=0.7)
    spread = float(feature_diversity(config, made, z))
    expected = np.mean(sum(tau[i].numpy() * rows[i] for i in range(2))) + 0.7 * spread
    assert float(generator_loss(config, logits, Y, tau, shares, made, z)) == pytest.approx(expected, rel=1e-9)
    averaged = ce((0.2 * logits[0] + 0.8 * logits[1]).numpy(), Y.numpy())
    assert float(
        generator_loss(Config(teacher="logits", div_weight=0.0), logits, Y, tau, shares, made, z)
    ) == pytest.approx(averaged, rel=1e-9)


@pytest.mark.parametrize("norm", ["mean_abs", "mean_sq"])
def test_feature_diversity(norm: str) -> None:
    made, z = random(5, 3).numpy(), random(5, 6, seed=1).numpy()
    of = {"mean_abs": lambda a: np.abs(a).mean(), "mean_sq": lambda a: (a**2).mean()}[norm]
    pairs = [of(made[j] - made[k]) * ((z[j] - z[k]) ** 2).mean() for j in range(5) for k in range(5)]
    found = feature_diversity(Config(diversity_norm=norm), torch.tensor(made), torch.tensor(z))
    assert float(found) == pytest.approx(np.exp(-np.mean(pairs)), rel=1e-9)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("as_in_the_code", [False, True])
def test_the_local_loss(as_in_the_code: bool, toy: Path) -> None:
    """CE + a·0.98^r CE(D(G(z', y')), y') + b·0.98^r KL(D(G(z, y)) ‖ f(x)), G and the teacher's side detached. The code
    has z from U[0, 1), 0.98^(r-1), and a·6/16 for 6 generated features beside a batch size of 16."""
    code = {"noise": "uniform", "guide_scale": "ratio", "gen_decay_from": 1, "batch_size": 16}
    simulation, _ = simulate(
        "fedgen", toy, 2, gen_alpha=0.7, gen_beta=0.4, guide_batch_size=6, **(code if as_in_the_code else {})
    )
    draw, ratio = (torch.rand, 6 / 16) if as_in_the_code else (torch.randn, 1.0)
    s = simulation
    payload = s.method.download(s.config, s.fed, s.progress.state, 0)
    assert int(payload["round"]) == 3
    objective = _LocalObjective(s.config, s.fed, payload, s.fed.rng.child("guide"))
    module = s.fed.network()
    x, y = s.data.clients[0].batch(torch.arange(5))
    loss = objective(module, x, y)
    rng = s.fed.rng.child("guide")
    free_y = torch.multinomial(payload["label_probabilities"], 6, replacement=True, generator=rng.torch("free labels"))
    with torch.no_grad():
        g = objective.generator
        free = module.head(g(draw(6, 8, generator=rng.torch("free noise")), free_y)).double().numpy()
        teacher = module.head(g(draw(5, 8, generator=rng.torch("noise")), y)).double().numpy()
        logits = module(x).double().numpy()
    factor = 0.98**2 if as_in_the_code else 0.98**3
    expected = ce(logits, y.numpy()) + factor * (
        ratio * 0.7 * ce(free, free_y.numpy()) + 0.4 * kl(softmax(teacher), softmax(logits)).mean()
    )
    assert float(loss) == pytest.approx(expected, rel=1e-9)
    loss.backward()
    assert all(p.grad is None for p in objective.generator.parameters())
    assert not objective.data_loss.requires_grad  # a sum over a round must not keep every step's graph
    only_teacher = _LocalObjective(replace(s.config, gen_alpha=0.0), s.fed, payload, s.fed.rng.child("guide"))
    module.zero_grad()
    (only_teacher(module, x, y) - F.cross_entropy(module(x), y)).backward()
    assert module.head.weight.grad is not None and float(module.head.weight.grad.abs().sum()) > 0
