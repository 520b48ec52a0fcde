"""FedCG's equations, each against NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.contracts.test_methods import simulate, values_for
from tests.trainables.building_blocks.test_losses import random
from tests.trainables.methods.test_fedmdcg import ce
from trainables.methods.fedcg import (
    Config,
    _LocalObjective,
    discriminator,
    discriminator_loss,
    gamma_of,
    generator_loss,
)
from trainables.simulation.rounds import Simulation


def test_the_two_ramps() -> None:
    sigmoid = Config(gamma=2.0)
    assert gamma_of(sigmoid, 1, 100) == 0.0
    assert gamma_of(sigmoid, 6, 100) == pytest.approx(2 * (2 / (1 + np.exp(-1)) - 1), rel=1e-12)
    assert (
        gamma_of(sigmoid, 51, 100)
        == gamma_of(sigmoid, 99, 100)
        == pytest.approx(2 * (2 / (1 + np.exp(-10)) - 1), rel=1e-12)
    )
    assert gamma_of(Config(gamma=2.0, ramp="polynomial"), 51, 100) == pytest.approx(2 * 0.5**3)


def test_gan_losses() -> None:
    real, made = random(6, 1), random(6, 1, seed=1)
    q_real, q_made = (1 / (1 + np.exp(-v.numpy())) for v in (real, made))
    assert float(discriminator_loss(real, made)) == pytest.approx(
        -(np.log(q_real) + np.log(1 - q_made)).mean(), rel=1e-9
    )
    assert float(generator_loss(made)) == pytest.approx(-np.log(q_made).mean(), rel=1e-9)
    extreme = torch.full((2, 1), 200.0)
    assert torch.isfinite(discriminator_loss(-extreme, extreme)) and torch.isfinite(generator_loss(-extreme))


def test_the_discriminator_is_the_classifier_with_one_output(toy: Path) -> None:
    simulation, _ = simulate("fedcg", toy, 1, model="lenet_code")
    q = discriminator(simulation.fed, "local")
    assert [tuple(p.shape) for p in q.parameters()] == [(128, 128), (128,), (1, 128), (1,)]


def test_the_gan_leaves_the_local_model_alone(toy: Path) -> None:
    """Stage 2 trains generator and discriminator; the model that is measured and kept is the one of stage 1."""
    simulation, _ = simulate("fedcg", toy, 1)
    s, m = simulation, simulation.method
    payload = m.download(s.config, s.fed, s.progress.state, 0)
    slow, fast = (
        m.client(
            type(s.config)(**{**vars(s.config), "gen_lr": lr, "dis_lr": lr}),
            s.fed,
            payload,
            s.progress.client_states[0],
            s.data.clients[0],
            s.fed.rng.child(5),
        )
        for lr in (1e-7, 1e-2)
    )
    assert (
        slow.model is not None
        and fast.model is not None
        and all(torch.equal(slow.model[k], fast.model[k]) for k in slow.model)
    )
    assert not torch.equal(slow.upload["generator/layers.0.weight"], fast.upload["generator/layers.0.weight"])
    assert not torch.equal(slow.client_state.discriminator["weight"], fast.client_state.discriminator["weight"])


def test_the_local_generator_starts_from_the_global_one_and_adams_live_on(toy: Path) -> None:
    simulation, _ = simulate("fedcg", toy, 2, local_steps=3)
    client_state = simulation.progress.client_states[0]
    for adam in (client_state.generator_adam, client_state.discriminator_adam):
        assert {int(v) for k, v in adam.items() if k.endswith("step")} == {6}
    s, m = simulation, simulation.method
    payload = m.download(s.config, s.fed, s.progress.state, 0)
    still = type(s.config)(**{**vars(s.config), "gen_lr": 1e-7, "gen_weight_decay": 0.0})
    upload = m.client(still, s.fed, payload, client_state, s.data.clients[0], s.fed.rng.child(9)).upload
    torch.testing.assert_close(
        upload["generator/layers.0.weight"], payload["generator/layers.0.weight"], atol=1e-5, rtol=0
    )


def test_counts_travel_for_kdc_alone(toy: Path) -> None:
    sent = {kind: simulate("fedcg", toy, 1, server_agg=kind)[1][0]["bytes_up"] for kind in ("ave_star", "kd", "kdc")}
    assert sent["ave_star"] == sent["kd"] == sent["kdc"] - 4 * 4 * 8


@pytest.mark.usefixtures("float64")
def test_the_local_loss(toy: Path) -> None:
    """CE + γ_r mean (F(x) - G(z, y))² with G detached; nothing but CE in the first round."""
    simulation, _ = simulate("fedcg", toy, 1, gamma=3.0, ramp="polynomial", ramp_power=1.0)
    s = simulation
    payload = s.method.download(s.config, s.fed, s.progress.state, 0)
    objective = _LocalObjective(s.config, s.fed, payload, s.fed.rng.child("stage 1"))
    module = s.fed.network()
    x, y = s.data.clients[0].batch(torch.arange(5))
    loss = objective(module, x, y)
    with torch.no_grad():
        g = (
            objective.generator(torch.randn(5, 8, generator=s.fed.rng.child("stage 1").torch("noise")), y)
            .double()
            .numpy()
        )
        f, logits = module.features(x).double().numpy(), module(x).double().numpy()
    assert float(loss) == pytest.approx(ce(logits, y.numpy()) + 3 * (1 / 4) * ((f - g) ** 2).mean(), rel=1e-9)
    loss.backward()
    assert all(p.grad is None for p in objective.generator.parameters())
    assert not objective.data_loss.requires_grad  # a sum over a round must not keep every step's graph
    first = s.method.download(s.config, s.fed, s.method.init(s.config, s.fed, s.fed.rng), 0)
    plain = _LocalObjective(s.config, s.fed, first, s.fed.rng)(module, x, y)
    assert float(plain) == float(F.cross_entropy(module(x), y))


def test_the_first_moment_of_the_clients_adams_decays_with_beta1(toy: Path) -> None:
    """After one step the discriminator's moment is (1 - β1) times the gradient, which both runs have in common."""
    moments = []
    for beta1 in (0.9, 0.5):
        s = Simulation("fedcg", values_for("fedcg", toy, local_steps=1, gan_beta1=beta1), 3, torch.device("cpu"))
        payload = s.method.download(s.config, s.fed, s.progress.state, 0)
        kept = s.method.client(s.config, s.fed, payload, None, s.data.clients[0], s.fed.rng.child(0)).client_state
        moments.append(
            torch.cat([v.flatten() for k, v in kept.discriminator_adam.items() if k.endswith("exp_avg")])  # type: ignore[attr-defined]
        )
    assert float(moments[0].abs().sum()) > 0
    torch.testing.assert_close(moments[1] / 0.5, moments[0] / 0.1, rtol=1e-5, atol=1e-9)
