"""Ditto, FedBABU, Per-FedAvg and FedRoD: their equations in NumPy, and their modules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.contracts.test_methods import simulate
from tests.trainables.building_blocks.test_losses import random, softmax
from trainables.building_blocks.split_model import body_module, body_of, partly_trained
from trainables.methods import ditto, fedbabu, fedrod, perfedavg
from trainables.models import Model
from trainables.params import put, take

# -- Ditto -------------------------------------------------------------------------------------------------------------


def test_dittos_objective_beside_a_plain_cross_entropy() -> None:
    module = ditto.Pair(torch.nn.Linear(3, 4).double(), torch.nn.Linear(3, 4).double())
    anchor = [random(4, 3, seed=1), random(4, seed=2)]
    x, y = random(5, 3), torch.tensor([0, 1, 2, 3, 0])
    losses, errors = {}, {}
    for track in ("shared", "own"):
        p = softmax(getattr(module, track)(x).detach().numpy())
        losses[track] = -np.log(p[np.arange(5), y.numpy()]).mean()
        errors[track] = (p - np.eye(4)[y.numpy()]).T @ x.numpy() / 5
    own = [p.detach().numpy() for p in module.own.parameters()]
    distance = sum(((a - b.numpy()) ** 2).sum() for a, b in zip(own, anchor, strict=True))
    loss = ditto.both_tracks(0.6, anchor)(module, x, y)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(losses["own"] + 0.3 * distance, rel=1e-12)
    gradients: Any = {name: p.grad for name, p in module.named_parameters()}
    np.testing.assert_allclose(gradients["shared.weight"].numpy(), errors["shared"], rtol=1e-10)
    np.testing.assert_allclose(
        gradients["own.weight"].numpy(), errors["own"] + 0.6 * (own[0] - anchor[0].numpy()), rtol=1e-10
    )


# -- FedBABU -----------------------------------------------------------------------------------------------------------


def test_partly_trained_modules_are_the_federations_architecture(toy: Path) -> None:
    s, _ = simulate("fedbabu", toy, 0)
    for part in ("head", "body"):
        module = partly_trained(s.fed, part)
        assert {n.startswith("head.") for n, p in module.named_parameters() if p.requires_grad} == {part == "head"}
        assert take(module).keys() == s.fed.initial_params().keys()
    assert partly_trained(s.fed, "full") is s.fed.network()


def test_a_body_alone_answers_features(toy: Path) -> None:
    s, _ = simulate("moon", toy, 0)
    model, x = s.fed.network(), s.data.clients[0].batch(torch.arange(6))[0]
    put(model, s.fed.initial_params())
    body = body_module(s.fed, "by hand")
    put(body, body_of(s.fed.initial_params()))
    assert isinstance(body, Model) and torch.equal(body.eval()(x), model.eval().features(x))


# -- Per-FedAvg --------------------------------------------------------------------------------------------------------


def quadratic(matrices: list[np.ndarray]) -> perfedavg.Gradient:
    """`L(w; B) = ½ wᵀ A_B w`, with A chosen by the part's label; the gradient is A w."""

    def gradient(w: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        a = torch.from_numpy(matrices[int(y[0])])
        return {"w": a @ w["w"]}, w["w"] @ a @ w["w"] / 2

    return gradient


@pytest.mark.parametrize("variant", ["fo", "hf"])
def test_perfedavgs_direction_on_quadratics(variant: str) -> None:
    """The derivative of L₂(w - α A₁ w) is (I - α A₁) A₂ (I - α A₁) w; first-order leaves the left factor out, and the
    Hessian-free one takes A₃ for it, exactly, as gradients of quadratics are linear."""
    rng = np.random.default_rng(3)
    matrices = [m + m.T for m in rng.normal(size=(3, 4, 4))]
    w, alpha, eye = rng.normal(size=4), 0.3, np.eye(4)
    config = perfedavg.Config(alpha=alpha, variant=variant, delta=0.1)
    labels = torch.tensor([0, 0, 1, 1] if variant == "fo" else [0, 0, 1, 1, 2, 2])
    direction, loss = perfedavg.meta_direction(
        config, quadratic(matrices), {"w": torch.from_numpy(w)}, torch.zeros(len(labels), 1), labels
    )
    adapted = (eye - alpha * matrices[0]) @ w
    expected = matrices[1] @ adapted
    if variant == "hf":
        expected = (eye - alpha * matrices[2]) @ expected
    np.testing.assert_allclose(direction["w"].numpy(), expected, rtol=1e-9)
    assert float(loss) == pytest.approx(adapted @ matrices[1] @ adapted / 2, rel=1e-12)


@pytest.mark.parametrize(("samples", "parts"), [(5, [3, 2]), (2, [1, 1]), (1, [1, 1])])
def test_perfedavg_divides_a_batch_and_uses_one_that_is_too_small_whole(samples: int, parts: list[int]) -> None:
    sizes = []

    def gradient(w: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        assert len(x) == len(y)
        sizes.append(len(x))
        return {"w": torch.ones(1)}, torch.tensor(0.0)

    perfedavg.meta_direction(
        perfedavg.Config(), gradient, {"w": torch.zeros(1)}, torch.zeros(samples, 1), torch.zeros(samples)
    )
    assert sizes == parts


def test_perfedavg_adapts_by_plain_sgd_at_alpha() -> None:
    config = perfedavg.Config(alpha=0.2, lr=0.7, adapt_steps=3, momentum=0.9, weight_decay=0.01, local_epochs=5)
    own = perfedavg.adapting(config)
    assert own is not None
    assert (own.lr, own.local_steps, own.local_epochs, own.momentum, own.weight_decay) == (0.2, 3, 0, 0.0, 0.0)
    assert perfedavg.adapting(replace(config, alpha=0.0)) is None


# -- FedRoD ------------------------------------------------------------------------------------------------------------


def heads() -> fedrod.TwoHeads:
    class Small(Model):
        def __init__(self) -> None:
            super().__init__((1, 1, 3), 4, 1.0, False)
            self.body, self.head = torch.nn.Linear(3, 2), torch.nn.Linear(2, 4)

        def features(self, x: Tensor) -> Tensor:
            made: Tensor = self.body(x)
            return made

    return fedrod.TwoHeads(Small().double(), torch.nn.Linear(2, 4).double())


@pytest.mark.parametrize("gamma", [1.0, 0.5, 0.0])
def test_fedrods_losses(gamma: float) -> None:
    """Balanced softmax: `n_y^γ e^(u_y) / Σ_c n_c^γ e^(u_c)`, of which a class without samples has no part."""
    module, counts = heads(), np.array([5, 0, 2, 9])
    x, y = random(4, 3), torch.tensor([0, 2, 3, 3])
    u, v = (t.detach().numpy() for t in module.logits(x))
    scaled = counts**gamma * (counts > 0 if gamma else 1) * np.exp(u)
    balanced = scaled / scaled.sum(axis=1, keepdims=True)
    both = softmax(u + v)
    rows = np.arange(4)
    prior = fedrod.log_prior(gamma, torch.from_numpy(counts)).double()
    loss = fedrod.both_heads(prior)(module, x, y)
    assert float(loss.detach()) == pytest.approx(-np.log(balanced[rows, y.numpy()]).mean(), rel=1e-6)
    loss.backward()
    z, one_hot = module.body(x).detach().numpy(), np.eye(4)[y.numpy()]  # type: ignore[operator]
    gradients: Any = {name: p.grad.numpy() for name, p in module.named_parameters() if p.grad is not None}
    np.testing.assert_allclose(gradients["head.weight"], (balanced - one_hot).T @ z / 4, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(gradients["personal.weight"], (both - one_hot).T @ z / 4, rtol=1e-6, atol=1e-9)
    head = module.head.weight.detach().numpy()  # type: ignore[union-attr]
    into_body = ((balanced - one_hot) @ head).T @ x.numpy() / 4
    np.testing.assert_allclose(gradients["body.weight"], into_body, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(module(x).detach().numpy(), u + v, rtol=1e-12)


def test_fedrods_attacker_knows_what_is_sent(toy: Path) -> None:
    """Body and generic head are uploaded under the names they have in the client's network."""
    s, _ = simulate("fedrod", toy, 1)
    assert s.progress.sent == ("features", "head")


def test_what_these_methods_say_of_themselves() -> None:
    assert fedrod.METHOD.capabilities == ditto.METHOD.capabilities == ("global model",)
    assert (
        fedbabu.METHOD.capabilities
        == perfedavg.METHOD.capabilities
        == (
            "global model",
            "fine-tuned before it is measured",
        )
    )
