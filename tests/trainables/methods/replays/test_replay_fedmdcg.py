"""FedMD-CG, two rounds: both stages of the clients with what they keep, and the server's distillation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
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
from tests.trainables.methods.replays.crossed import aggregated, agreement, noise, part
from tests.trainables.methods.replays.networks import CLASSES, cnn_features, features_of, head, learn, one_hot
from tests.trainables.methods.replays.plain import (
    Adam,
    Params,
    Sgd,
    ce,
    drawn_batches,
    drawn_counts,
    kl,
    label_shares,
    mean_square,
    pairs,
    sgd_steps,
)

CROSSED: dict[str, Any] = {
    "noise_dim": 8,
    "gen_lr": 3e-3,
    "gen_weight_decay": 1e-3,
    "server_steps": 3,
    "server_lr": 3e-3,
    "server_batch_size": 12,
    "kd_temperature_server": 3.0,
}
LAMBDAS: dict[str, Any] = {
    "lambda1": 0.9,
    "lambda2": 1.4,
    "lambda3": 1.2,
    "lambda4": 0.8,
    "lambda5": 0.7,
    "lambda6": 1.5,
    "kd_temperature_client": 2.0,
}

CASES = {
    "kdc": {"server_agg": "kdc", "ramp_power": 1.0, "diversity_kind": "div2"},
    "kd": {
        "server_agg": "kd",
        "ramp_power": 0.0,
        "diversity_kind": "div1",
        "noise": "uniform",
        "server_kl_norm": "element",
        "lambda3": 0.5,
        "lambda6": 0.6,
    },
    "ave_star": {"server_agg": "ave_star", "ramp_power": 0.0, "diversity_kind": "div0", "lambda2": 0.6},
}


@pytest.mark.parametrize("case", CASES)
def test_fedmdcg(case: str, toy: Path) -> None:
    fedmdcg = world("fedmdcg", toy, **CROSSED | LAMBDAS | CASES[case])
    initial = fedmdcg.fed.initial_params()
    bodies = {i: part(initial, of_head=False) for i in range(4)}
    generators = {i: dict(fedmdcg.start.generator) for i in range(4)}
    adams = {i: Adam(fedmdcg.config.gen_lr, decay=fedmdcg.config.gen_weight_decay) for i in range(4)}
    generator, classifier, p_y = (
        dict(fedmdcg.start.generator),
        part(initial, of_head=True),
        torch.full((CLASSES,), 1 / CLASSES),
    )
    for played in fedmdcg.play():
        uploads, heads, counts = [], [], []
        for i, result in played.results.items():
            assert_equal(unpacked("generator", played.payloads[i]), generator, f"generator sent to {i}")
            start = bodies[i] | classifier
            model, data_loss, n = first_stage(fedmdcg, played, i, start, generator, p_y)
            own, gd_loss = second_stage(fedmdcg, played, i, model, generators[i], adams[i])
            assert_step(unpacked("generator", result.upload), own, generators[i], f"generator of {i}")
            assert_step(unpacked("head", result.upload), part(model, of_head=True), classifier, f"classifier of {i}")
            assert result.model is not None and result.loss is not None
            assert_step(result.model, model, start, f"model of {i}")
            assert torch.equal(result.upload["label_counts"], n)
            kept = client_state(result)
            assert_step(kept.body, part(model, of_head=False), bodies[i], f"extractor kept by {i}")
            assert_equal(kept.generator, own, f"generator kept by {i}")
            assert_adam(kept.adam, adams[i].kept(), f"Adam kept by {i}")
            assert_close(result.loss, data_loss, f"loss of {i}")
            assert_close(result.metrics["gd_loss"], gd_loss, f"G+D loss of {i}")
            bodies[i], generators[i] = part(model, of_head=False), own
            uploads.append(own)
            heads.append(part(model, of_head=True))
            counts.append(n)
        tau, p_y = label_shares(counts)
        before, before_head = generator, classifier
        sizes = [len(fedmdcg.clients[i].y) for i in played.results]
        generator, classifier = aggregated(
            fedmdcg.config, uploads, heads, sizes, tau, p_y, fedmdcg.server_rng(played.number)
        )
        assert_step(played.after.generator, generator, before, f"G after round {played.number}")
        assert_step(played.after.head, classifier, before_head, f"D after round {played.number}")
        assert_equal({"p(y)": played.after.label_probabilities}, {"p(y)": p_y}, f"p(y) after round {played.number}")


def first_stage(
    fedmdcg: World, played: Round, i: int, start: Params, generator: Params, p_y: Tensor
) -> tuple[Params, float, Tensor]:
    """Eqs. (1)-(4): the model, the mean cross-entropy on data, and n_i^y."""
    c, data, rng = fedmdcg.config, fedmdcg.clients[i], fedmdcg.client_rng(played.number, i)
    same, free, labels = (rng.child("stage 1").torch(name) for name in ("noise", "free noise", "free labels"))
    ramp = ((played.number - 1) / 4) ** c.ramp_power
    l1, l2, l3 = (ramp * value for value in (c.lambda1, c.lambda2, c.lambda3))
    if c.server_agg == "ave_star":
        l1 = l3 = 0.0
    on_data = []

    def loss_of(p: Params, x: Tensor, y: Tensor) -> Tensor:
        f = cnn_features(p, x)
        loss = ce(head(p, f), y)
        on_data.append(float(loss.detach()))
        if l2 > 0 or l3 > 0:
            g = features_of(generator, noise(c, len(y), same), y, False)
            loss = loss + l2 * mean_square(f, g) + l3 * kl(head(p, g).detach(), head(p, f), c.kd_temperature_client)
        if l1 > 0:
            free_y = torch.multinomial(p_y, len(y), replacement=True, generator=labels)
            loss = loss + l1 * ce(head(p, features_of(generator, noise(c, len(y), free), free_y, False)), free_y)
        return loss

    drawn = drawn_batches(data, c.local_steps, c.batch_size, rng.torch("batches"))
    model, _ = sgd_steps(start, data, drawn, loss_of, Sgd(c.lr, c.momentum, c.weight_decay))
    return model, sum(on_data) / len(on_data), drawn_counts(data, drawn, CLASSES)


def second_stage(
    fedmdcg: World, played: Round, i: int, model: Params, start: Params, adam: Adam
) -> tuple[Params, float]:
    """Eqs. (5)-(9): the client's generator and its G+D loss; its Adam goes on from round to round."""
    c, data, rng = fedmdcg.config, fedmdcg.clients[i], fedmdcg.client_rng(played.number, i).child("stage 2")
    random, generator = rng.torch("noise"), dict(start)
    for chosen in drawn_batches(data, c.local_steps, c.batch_size, rng.torch("batches")):
        x, y = data.batch(chosen)
        z, f = noise(c, len(y), random), cnn_features(model, x)

        def loss_of(here: Params, z: Tensor = z, y: Tensor = y, f: Tensor = f) -> Tensor:
            g = features_of(here, z, y, True)
            logits = head(model, g)
            loss = kl(head(model, f), logits) + c.lambda4 * mean_square(g, f) + c.lambda5 * ce(logits, y)
            weight = pairs(torch.cat([z, one_hot(y)], dim=1) if c.diversity_kind == "div1" else z)
            if c.diversity_kind == "div2":
                weight = weight * torch.exp(pairs(one_hot(y), power=1))
            return loss + c.lambda6 * torch.exp(-(pairs(g) * weight).sum() / len(y) ** 2)

        learn(generator, adam, loss_of)
    return generator, agreement(c, generator, model, data.y, rng.torch("agreement"))
