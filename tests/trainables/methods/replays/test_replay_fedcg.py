"""FedCG, two rounds: both stages of the clients with what they keep, and the server's distillation."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.trainables.methods.replays.actual import (
    Round,
    World,
    assert_adam,
    assert_close,
    assert_equal,
    assert_step,
    client_state,
    unpacked,
    world,
)
from tests.trainables.methods.replays.crossed import aggregated, agreement, noise, part
from tests.trainables.methods.replays.networks import CLASSES, cnn_features, features_of, head, learn
from tests.trainables.methods.replays.plain import (
    Adam,
    Params,
    Sgd,
    ce,
    drawn_batches,
    drawn_counts,
    gradients,
    label_shares,
    mean_square,
    sgd_steps,
    watched,
)
from trainables import models

FEDCG: dict[str, Any] = {
    "noise_dim": 8,
    "gen_lr": 3e-3,
    "dis_lr": 4e-3,
    "gen_weight_decay": 1e-3,
    "server_steps": 3,
    "server_lr": 3e-3,
    "server_batch_size": 12,
    "kd_temperature_server": 3.0,
    "gamma": 1.7,
}

CASES = {
    "kd": {"server_agg": "kd", "ramp": "sigmoid"},
    "kdc": {"server_agg": "kdc", "ramp": "polynomial", "ramp_power": 0.0, "noise": "uniform", "gan_beta1": 0.5},
}


@pytest.mark.parametrize("case", CASES)
def test_fedcg(case: str, toy: Path) -> None:
    fedcg = world("fedcg", toy, **FEDCG | CASES[case])
    c, initial = fedcg.config, fedcg.fed.initial_params()
    bodies = {i: part(initial, of_head=False) for i in range(4)}
    critics = {i: initial_critic(fedcg) for i in range(4)}
    betas = (0.5 if case == "kdc" else 0.9, 0.999)
    adams = {i: tuple(Adam(lr, betas, c.gen_weight_decay) for lr in (c.gen_lr, c.dis_lr)) for i in range(4)}
    generator, classifier = dict(fedcg.start.generator), part(initial, of_head=True)
    for played in fedcg.play():
        uploads, heads, counts = [], [], []
        for i, result in played.results.items():
            assert_equal(unpacked("generator", played.payloads[i]), generator, f"generator sent to {i}")
            start, data = bodies[i] | classifier, fedcg.clients[i]
            drawn = drawn_batches(
                data, c.local_steps, c.batch_size, fedcg.client_rng(played.number, i).torch("batches")
            )
            model, data_loss = first_stage(fedcg, played, i, start, generator, drawn)
            own, critic, gd_loss = second_stage(fedcg, played, i, model, generator, critics[i], adams[i])
            assert_step(unpacked("generator", result.upload), own, generator, f"generator of {i}")
            assert_step(unpacked("head", result.upload), part(model, of_head=True), classifier, f"classifier of {i}")
            assert result.model is not None and result.loss is not None
            assert_step(result.model, model, start, f"model of {i}")
            kept = client_state(result)
            assert_step(kept.body, part(model, of_head=False), bodies[i], f"extractor kept by {i}")
            assert_step(kept.discriminator, critic, critics[i], f"discriminator kept by {i}")
            assert_adam(kept.generator_adam, adams[i][0].kept(), f"generator's Adam kept by {i}")
            assert_adam(kept.discriminator_adam, adams[i][1].kept(), f"discriminator's Adam kept by {i}")
            assert_close(result.loss, data_loss, f"loss of {i}")
            assert_close(result.metrics["gd_loss"], gd_loss, f"G+D loss of {i}")
            bodies[i], critics[i] = part(model, of_head=False), critic
            uploads.append(own)
            heads.append(part(model, of_head=True))
            counts.append(drawn_counts(data, drawn, CLASSES))
            if case == "kdc":
                assert torch.equal(result.upload["label_counts"], counts[-1])
        uniform = torch.full((3, CLASSES), 1 / 3), torch.full((CLASSES,), 1 / CLASSES)
        tau, p_y = label_shares(counts) if case == "kdc" else uniform
        before, before_head = generator, classifier
        sizes = [len(fedcg.clients[i].y) for i in played.results]
        generator, classifier = aggregated(c, uploads, heads, sizes, tau, p_y, fedcg.server_rng(played.number))
        assert_step(played.after.generator, generator, before, f"G after round {played.number}")
        assert_step(played.after.head, classifier, before_head, f"D after round {played.number}")


def initial_critic(fedcg: World) -> Params:
    """Q's first weights: a classifier with one output, drawn from its own stream."""
    module = models.build(fedcg.fed.model, fedcg.fed.shape, 1).head
    models.initialise(module, fedcg.fed.rng.torch("init", "discriminator"))
    return {name: value.detach().clone() for name, value in module.named_parameters()}


def first_stage(
    fedcg: World, played: Round, i: int, start: Params, generator: Params, drawn: list[torch.Tensor]
) -> tuple[Params, float]:
    """The model, and the mean cross-entropy on data."""
    c, past = fedcg.config, played.number - 1
    random = fedcg.client_rng(played.number, i).child("stage 1").torch("noise")
    grown = 2 / (1 + math.exp(-10 * min(past / 50, 1))) - 1 if c.ramp == "sigmoid" else (past / 4) ** c.ramp_power
    on_data = []

    def loss_of(p: Params, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        f = cnn_features(p, x)
        loss = ce(head(p, f), y)
        on_data.append(float(loss.detach()))
        return (
            loss + c.gamma * grown * mean_square(f, features_of(generator, noise(c, len(y), random), y, False))
            if grown > 0
            else loss
        )

    model, _ = sgd_steps(start, fedcg.clients[i], drawn, loss_of, Sgd(c.lr, c.momentum, c.weight_decay))
    return model, sum(on_data) / len(on_data)


def second_stage(
    fedcg: World, played: Round, i: int, model: Params, start: Params, first_critic: Params, adams: tuple[Adam, Adam]
) -> tuple[Params, Params, float]:
    """Generator, discriminator and G+D loss. Both see one batch of noise: Q steps first, then G against the new Q."""
    c, data, rng = fedcg.config, fedcg.clients[i], fedcg.client_rng(played.number, i).child("stage 2")
    random, generator, critic = rng.torch("noise"), dict(start), dict(first_critic)
    for chosen in drawn_batches(data, c.local_steps, c.batch_size, rng.torch("batches")):
        x, y = data.batch(chosen)
        z, f = noise(c, len(y), random), cnn_features(model, x)
        here = watched(critic)
        real, fake = believed(here, f), believed(here, features_of(dict(generator), z, y, True))
        adams[1].step(critic, gradients(-(torch.log(real) + torch.log(1 - fake)).sum() / len(y), here))

        def deceived(g: Params, z: torch.Tensor = z, y: torch.Tensor = y) -> torch.Tensor:
            return -torch.log(believed(critic, features_of(g, z, y, True))).sum() / len(y)

        learn(generator, adams[0], deceived)
    return generator, critic, agreement(c, generator, model, data.y, rng.torch("agreement"))


def believed(critic: Params, features: torch.Tensor) -> torch.Tensor:
    """Q's probability that features are real."""
    return torch.sigmoid(F.linear(features, critic["weight"], critic["bias"]))
