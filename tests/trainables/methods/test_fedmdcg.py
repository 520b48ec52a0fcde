"""FedMD-CG's client equations, each against NumPy; numbers are the paper's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.contracts.test_methods import same, simulate, untimed, values_for
from tests.trainables.building_blocks.test_losses import random, softmax
from tests.trainables.methods.test_dfrd import kl
from trainables.methods.fedmdcg import Config, Weights, _LocalObjective, diversity_loss, generator_loss, model_loss
from trainables.simulation.rounds import Simulation

Y = torch.tensor([0, 1, 2, 3, 0])
FREE = torch.tensor([3, 3, 1, 0, 2])
ONEHOT = torch.eye(4, dtype=torch.float64)[Y]


def ce(logits: np.ndarray, y: np.ndarray) -> float:
    return float(-np.log(softmax(logits))[np.arange(len(y)), y].mean())


def test_model_loss_is_eq_4() -> None:
    f, g = random(5, 3), random(5, 3, seed=1)
    logits, made, free = random(5, 4, seed=2), random(5, 4, seed=3), random(5, 4, seed=4)
    weights, config = Weights(0.7, 1.3, 0.4), Config(kd_temperature_client=6.0)
    expected = (
        ce(logits.numpy(), Y.numpy())
        + 0.7 * ce(free.numpy(), FREE.numpy())
        + 1.3 * ((f - g).numpy() ** 2).mean()
        + 0.4 * kl(softmax(made.numpy(), 6.0), softmax(logits.numpy(), 6.0)).mean()
    )
    assert float(model_loss(config, weights, f, logits, Y, g, made, free, FREE)) == pytest.approx(expected, rel=1e-9)
    assert float(model_loss(config, Weights(0, 0, 0), f, logits, Y, None, None, None, None)) == pytest.approx(
        ce(logits.numpy(), Y.numpy()), rel=1e-9
    )


def test_model_loss_moves_extractor_and_classifier_as_the_paper_says() -> None:
    """CE on free labels moves D alone, the squared distance F alone, the KL both but through the student's side
    only."""
    for weights, moves_f, moves_d in (
        (Weights(1, 0, 0), False, True),
        (Weights(0, 1, 0), True, False),
        (Weights(0, 0, 1), True, True),
    ):
        f, g, free = random(5, 3).requires_grad_(), random(5, 3, seed=1).requires_grad_(), random(5, 3, seed=5)
        d = nn.Linear(3, 4).double()
        made = d(g)
        loss = model_loss(Config(), weights, f, d(f), Y, g, made, d(free), FREE) - model_loss(
            Config(), Weights(0, 0, 0), f, d(f), Y, None, None, None, None
        )
        grads = torch.autograd.grad(loss, [f, d.weight, g], allow_unused=True)
        moved = [grad is not None and float(grad.abs().sum()) > 1e-12 for grad in grads]
        assert moved == [moves_f, moves_d, False]


@pytest.mark.parametrize(
    ("kind", "label_dist"), [("div0", "mean"), ("div1", "mean"), ("div2", "mean"), ("div2", "sum")]
)
def test_diversity_losses_are_eqs_7_and_8(kind: str, label_dist: str) -> None:
    made, z = random(5, 3), random(5, 6, seed=1)

    def d(a: np.ndarray, j: int, k: int) -> float:
        return float(((a[j] - a[k]) ** 2).mean())

    y = ONEHOT.numpy()
    pairs = []
    for j in range(5):
        for k in range(5):
            l1 = np.abs(y[j] - y[k]).sum() if label_dist == "sum" else np.abs(y[j] - y[k]).mean()
            weight = {
                "div0": d(z.numpy(), j, k),
                "div1": d(np.concatenate([z.numpy(), y], axis=1), j, k),
                "div2": d(z.numpy(), j, k) * np.exp(l1),
            }[kind]
            pairs.append(d(made.numpy(), j, k) * weight)
    config = Config(diversity_kind=kind, label_dist=label_dist)
    assert float(diversity_loss(config, made, z, ONEHOT)) == pytest.approx(np.exp(-np.mean(pairs)), rel=1e-9)


def test_the_l1_norm_of_different_labels_is_two() -> None:
    """With the paper's sum, pairs of different classes weigh e² times as much; with the code's mean e^(2/C)."""
    made, z, y = torch.tensor([[0.0], [1.0]]).double(), torch.tensor([[0.0], [1.0]]).double(), torch.eye(4).double()[:2]
    for label_dist, factor in (("sum", np.exp(2)), ("mean", np.exp(0.5))):
        value = float(diversity_loss(Config(label_dist=label_dist), made, z, y))
        assert value == pytest.approx(np.exp(-factor / 2), rel=1e-9)


def test_generator_loss_is_eq_9() -> None:
    made, features, z = random(5, 3), random(5, 3, seed=1), random(5, 6, seed=2)
    made_logits, logits = random(5, 4, seed=3), random(5, 4, seed=4)
    config = Config(lambda4=0.3, lambda5=0.8, lambda6=1.7)
    fit = kl(softmax(logits.numpy()), softmax(made_logits.numpy())).mean()
    parts = (
        ((made - features).numpy() ** 2).mean(),
        ce(made_logits.numpy(), Y.numpy()),
        float(diversity_loss(config, made, z, ONEHOT)),
    )
    assert float(generator_loss(config, made, made_logits, features, logits, z, Y)) == pytest.approx(
        fit + np.dot((0.3, 0.8, 1.7), parts), rel=1e-9
    )
    for off in (
        {"lambda4": 0.0, "lambda5": 0.0, "lambda6": 0.0},
        {"lambda4": 0.0, "lambda5": 0.0, "diversity_kind": "none"},
    ):
        assert float(
            generator_loss(replace(config, **off), made, made_logits, features, logits, z, Y)
        ) == pytest.approx(fit, rel=1e-9)


def test_the_generator_learns_from_a_teacher_that_is_detached() -> None:
    made, made_logits = random(5, 3).requires_grad_(), random(5, 4, seed=3).requires_grad_()
    features, logits = random(5, 3, seed=1).requires_grad_(), random(5, 4, seed=4).requires_grad_()
    generator_loss(Config(), made, made_logits, features, logits, random(5, 6, seed=2), Y).backward()
    assert features.grad is None and logits.grad is None
    assert made.grad is not None and made_logits.grad is not None


def test_diversity_at_initialisation_is_strictly_inside_its_range_and_has_a_gradient() -> None:
    from trainables.generators.feature import FeatureGenerator

    g, z, y = FeatureGenerator(128, 10, 128), torch.randn(64, 128), torch.arange(64) % 10
    for kind in ("div0", "div1", "div2"):
        g.zero_grad()
        loss = diversity_loss(Config(diversity_kind=kind), g(z, y), z, torch.eye(10)[y])
        loss.backward()
        assert 0.01 < float(loss) < 0.999 and float(g.layers[-1].weight.grad.abs().sum()) > 0


def test_the_sum_of_a_rounds_losses_is_on_data_alone_and_keeps_no_graph(toy: Path) -> None:
    s = Simulation("fedmdcg", values_for("fedmdcg", toy), 3, torch.device("cpu"))
    payload = s.method.download(s.config, s.fed, s.progress.state, 0)
    objective = _LocalObjective(s.config, s.fed, payload, Weights(0.7, 0.8, 0.9), s.fed.rng)
    module = s.fed.network().train()
    x, y = s.data.clients[0].batch(torch.arange(5))
    on_data = ce(module(x).detach().double().numpy(), y.numpy())
    for _ in range(2):
        objective(module, x, y).backward()
    assert float(objective.data_loss) == pytest.approx(2 * on_data, rel=1e-5)
    assert not objective.data_loss.requires_grad
    assert all(p.grad is None for p in objective.generator.parameters())


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("term", ["ce", "mse", "kl"])
def test_each_term_of_the_local_loss_comes_with_its_weight_alone(term: str, toy: Path) -> None:
    """0.6 times CE(D(G(z', y')), y'), mean (F(x) - G(z, y))² or KL(D(G(z, y)) ‖ f(x)) at the clients' temperature."""
    s = Simulation("fedmdcg", values_for("fedmdcg", toy, kd_temperature_client=3.0), 3, torch.device("cpu"))
    payload = s.method.download(s.config, s.fed, s.progress.state, 0)
    weights = Weights(**dict.fromkeys(("ce", "mse", "kl"), 0.0) | {term: 0.6})
    rng, module = s.fed.rng.child("stage 1"), s.fed.network().train()
    objective = _LocalObjective(s.config, s.fed, payload, weights, rng)
    x, y = s.data.clients[0].batch(torch.arange(5))
    free_y = torch.multinomial(payload["label_probabilities"], 5, replacement=True, generator=rng.torch("free labels"))
    with torch.no_grad():
        loss, f, logits = float(objective(module, x, y)), module.features(x), module(x).numpy()
        g = objective.generator(torch.randn(5, 8, generator=rng.torch("noise")), y)
        free = module.head(objective.generator(torch.randn(5, 8, generator=rng.torch("free noise")), free_y))
        taught = module.head(g).numpy()
    terms = {
        "ce": ce(free.numpy(), free_y.numpy()),
        "mse": ((f - g).numpy() ** 2).mean(),
        "kl": kl(softmax(taught, 3.0), softmax(logits, 3.0)).mean(),
    }
    assert loss - ce(logits, y.numpy()) == pytest.approx(0.6 * terms[term], rel=1e-9)


def test_rows_do_not_depend_on_who_used_the_modules_before(toy: Path) -> None:
    """Cached modules are loaded, never trusted: a federation that ran other clients first gives the same."""
    s = Simulation("fedmdcg", values_for("fedmdcg", toy), 3, torch.device("cpu"))
    used = Simulation("fedmdcg", values_for("fedmdcg", toy), 3, torch.device("cpu"))
    for module in (used.fed.network(), used.fed.network(role="frozen")):
        nn.init.constant_(module.head.weight, 5.0)
    assert untimed(s.run_round()) == untimed(used.run_round()) and same(s.save(), used.save())


def test_average_weighting_draws_labels_evenly(toy: Path) -> None:
    simulation, _ = simulate("fedmdcg", toy, 1, label_weighting="average")
    assert simulation.progress.state.label_probabilities.tolist() == [0.25] * 4
