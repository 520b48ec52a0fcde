"""FedKF, three rounds: the clients' fusion with their generators, ACA and OCA."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

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
from tests.trainables.methods.replays.networks import batch_norm, cnn, cnn_features, head, statistics
from tests.trainables.methods.replays.plain import (
    Adam,
    Params,
    Sgd,
    ce,
    drawn_batches,
    gradients,
    kl,
    sgd_steps,
    watched,
    weighted_mean,
)
from trainables import models
from trainables.generators.noise import NoiseGenerator

FEDKF: dict[str, Any] = {
    "lambda1": 0.7,
    "lambda2": 0.4,
    "gamma": 1.6,
    "gen_lr": 4e-3,
    "noise_dim": 6,
    "kd_temperature": 2.0,
}

CASES = {
    "oca": {"teacher": "oca", "readout": "oca"},
    "aca": {
        "teacher": "aca",
        "kd_from_round": 1,
        "kl_direction": "literal",
        "entropy_scale": "unit",
        "activation_norm": "sum",
    },
    "code": {"teacher": "oca", "cache_init": "w0", "gen_adversarial": True, "local_epochs": 1, "batch_size": 25},
}


@pytest.mark.parametrize("case", CASES)
def test_fedkf(case: str, toy: Path) -> None:
    fedkf = world("fedkf", toy, **FEDKF | CASES[case])
    c, sizes = fedkf.config, [len(data.y) for data in fedkf.clients]
    model = initial = dict(fedkf.start.model)
    overall: Params | None = None
    latest = dict.fromkeys(range(4), initial) if c.cache_init == "w0" else {}
    generators = {i: initial_generator(fedkf) for i in range(4)}
    adams = {i: Adam(c.gen_lr) for i in range(4)}
    for played in fedkf.play(((0, 2), (0, 3), (1, 2, 3))):
        fuses = played.number >= c.kd_from_round
        teacher = None if not fuses else model if c.teacher == "aca" or overall is None else overall
        for i, result in played.results.items():
            assert_equal(unpacked("model", played.payloads[i]), model, f"model sent to {i}")
            assert_equal(
                unpacked("teacher", played.payloads[i]),
                overall if fuses and c.teacher == "oca" and overall else {},
                f"teacher sent to {i}",
            )
            own, loss, generator = fused(fedkf, played, i, model, teacher, generators[i], adams[i])
            assert_step(unpacked("model", result.upload), own, model, f"upload of {i}")
            assert result.model is not None and result.loss is not None
            assert_equal(result.model, own, f"model of {i}")
            assert_close(result.loss, loss, f"loss of {i}")
            if teacher is not None:
                assert_step(client_state(result).generator, generator, generators[i], f"generator kept by {i}")
                assert_adam(client_state(result).adam, adams[i].kept(), f"Adam kept by {i}")
            latest[i], generators[i] = own, generator
        before = model
        model = weighted_mean([latest[i] for i in played.results], [sizes[i] for i in played.results])
        overall = weighted_mean([latest[i] for i in sorted(latest)], [sizes[i] for i in sorted(latest)])
        assert_step(played.after.model, model, before, f"ACA after round {played.number}")
        readouts = fedkf.method.readouts
        assert readouts is not None
        found = readouts(c, fedkf.fed, played.after)
        assert_step(found["aca"], model, before, "ACA")
        assert_step(found["oca"], overall, before, f"OCA after round {played.number}")
        assert_equal(
            fedkf.method.global_model(c, fedkf.fed, played.after) or {},
            overall if c.readout == "oca" else model,
            "global model",
        )


def initial_generator(fedkf: World) -> Params:
    """θ's first weights, the same on every client. (Drawn as the package's modules lie in memory, channels last: normal
    numbers are drawn in that order.)"""
    fed = fedkf.fed
    module = fed.cached(
        "the replay's own", lambda: NoiseGenerator(fed.shape, fedkf.config.noise_dim, fed.mean, fed.std)
    )
    models.initialise(module, fed.rng.torch("init", "noise generator"))
    return {name: value.detach().clone() for name, value in module.named_parameters()}


def inputs_of(fedkf: World, p: Params, z: Tensor) -> Tensor:
    """g(z; θ) for 8×8 images: 2×2, twice twice the side, sigmoid, normalised."""

    def norm(x: Tensor, layer: str) -> Tensor:
        return batch_norm(x, p[f"{layer}.weight"], p[f"{layer}.bias"], *statistics(x))

    x = norm((z @ p["linear.weight"].t() + p["linear.bias"]).view(len(z), -1, 2, 2), "norm0")
    for layer in ("1", "2"):
        x = x.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
        x = norm(F.conv2d(x, p[f"conv{layer}.weight"], p[f"conv{layer}.bias"], padding=1), f"norm{layer}")
        x = torch.where(x > 0, x, 0.2 * x)
    s = torch.sigmoid(F.conv2d(x, p["conv3.weight"], p["conv3.bias"], padding=1))
    mean, std = (torch.tensor(v).view(1, -1, 1, 1) for v in (fedkf.fed.mean, fedkf.fed.std))
    return (s - mean) / std


def generator_loss(fedkf: World, logits: Tensor, features: Tensor) -> Tensor:
    """Eq. (5)."""
    c = fedkf.config
    mean_prediction = torch.softmax(logits, dim=1).sum(dim=0) / len(logits)
    l_ie = (mean_prediction * torch.log(mean_prediction)).sum()
    l_oh = ce(logits, logits.detach().argmax(dim=1))
    l_a = -features.abs().sum() / (len(features) if c.activation_norm == "sum" else features.numel())
    return (
        (l_ie / math.log(logits.shape[1]) if c.entropy_scale == "unit" else l_ie) + c.lambda1 * l_oh + c.lambda2 * l_a
    )


def fused(
    fedkf: World, played: Round, i: int, start: Params, teacher: Params | None, first: Params, adam: Adam
) -> tuple[Params, float, Params]:
    """Eqs. (5)-(8): the client's model, its mean loss, and its generator."""
    c, data, rng = fedkf.config, fedkf.clients[i], fedkf.client_rng(played.number, i)
    steps = c.local_steps
    if c.local_epochs:  # as many passes over the mean client's batches
        steps = c.local_epochs * max(1, sum(len(d.y) for d in fedkf.clients) // (len(fedkf.clients) * c.batch_size))
    random, generator = rng.torch("noise"), dict(first)

    def l_kl(teaching: Tensor, learning: Tensor) -> Tensor:
        pair = (teaching, learning) if c.kl_direction == "teacher_first" else (learning, teaching)
        return kl(*pair, c.kd_temperature)

    def loss_of(p: Params, x: Tensor, y: Tensor) -> Tensor:
        if teacher is None:
            return ce(cnn(p, x), y)
        z, here = torch.randn(c.batch_size, c.noise_dim, generator=random), watched(generator)
        images = inputs_of(fedkf, here, z)
        features = cnn_features(teacher, images)
        logits = head(teacher, features)
        loss = generator_loss(fedkf, logits, features)
        if c.gen_adversarial:
            loss = loss - c.gamma * l_kl(
                logits.detach(), cnn({name: value.detach() for name, value in p.items()}, images)
            )
        adam.step(generator, gradients(loss, here))
        return ce(cnn(p, x), y) + c.gamma * l_kl(logits.detach(), cnn(p, images.detach()))

    drawn = drawn_batches(data, steps, c.batch_size, rng.torch("batches"))
    model, losses = sgd_steps(start, data, drawn, loss_of, Sgd(c.lr, c.momentum, c.weight_decay))
    return model, sum(losses) / len(losses), generator
