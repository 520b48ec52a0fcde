"""Ditto, FedBABU, Per-FedAvg and FedRoD: their equations in NumPy, what is shared, what is kept, what is measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.contracts.test_methods import CPU, same, simulate, values_for
from tests.trainables.building_blocks.test_losses import random, softmax
from trainables.building_blocks.split_model import body_module, body_of, head_of, partly_trained
from trainables.local import train
from trainables.methods import ditto, fedbabu, fedrod, perfedavg
from trainables.models import Model
from trainables.params import put, take
from trainables.simulation import evaluation
from trainables.simulation.rounds import Simulation

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


@pytest.mark.parametrize(("lambda_", "epochs"), [(0.0, 0), (5.0, 0), (5.0, 1)])
def test_dittos_global_track_is_fedavg_whatever_the_other_is(lambda_: float, epochs: int, toy: Path) -> None:
    s, rows = simulate("ditto", toy, 3, **{"lambda": lambda_, "momentum": 0.5, "personal_epochs": epochs})
    plain, others = simulate("fedavg", toy, 3, momentum=0.5)
    assert same(s.global_model(), plain.global_model())
    assert [r["client_accuracy"] for r in rows] == [r["client_accuracy"] for r in others]
    assert [r["bytes_up"] for r in rows] == [r["bytes_up"] for r in others]
    # What the global track's clients trained is measured beside the personal models.
    assert [r["shared_local_accuracy"] for r in rows] == [r["local_accuracy"] for r in others]


# -- FedBABU -----------------------------------------------------------------------------------------------------------


def test_fedbabu_sends_bodies_and_never_trains_the_head(toy: Path) -> None:
    s, rows = simulate("fedbabu", toy, 2)
    _, others = simulate("fedavg", toy, 2)
    head = 4 * sum(t.numel() for t in head_of(s.fed.initial_params()).values())
    for key in ("bytes_up", "bytes_down"):
        assert [r[key] for r in rows] == [r[key] - 4 * head for r in others]
    model = s.global_model()
    assert model is not None and same(head_of(model), head_of(s.fed.initial_params()))
    assert not same(body_of(model), body_of(s.fed.initial_params()))


def test_fedbabu_with_nothing_frozen_is_fedavg_and_then_fine_tuning(toy: Path) -> None:
    """Bit for bit: the global model is FedAvg's, and what is measured is FedAvg's model trained on for two passes."""
    s, rows = simulate("fedbabu", toy, 2, frozen="none", finetune_epochs=2)
    plain, others = simulate("fedavg", toy, 2)
    assert same(s.global_model(), plain.global_model())
    assert [r["global_loss"] for r in rows] == [r["global_loss"] for r in others]
    model = plain.global_model()
    assert model is not None
    expected = []
    for i, data in enumerate(plain.data.clients):
        module = plain.fed.network()
        put(module, model)
        train(replace(plain.config, local_epochs=2), module, data, plain.fed.rng.child("round", 2, "personal", i))
        share = plain.data.test.shares[i]
        right = (
            evaluation.logits_of(module, plain.data, plain.data.test, share).argmax(dim=1) == plain.data.test.y[share]
        )
        expected.append(float(right.double().mean()))
    assert rows[1]["local_accuracies"] == expected


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


def test_perfedavg_is_measured_after_its_step(toy: Path) -> None:
    s, rows = simulate("perfedavg", toy, 1, alpha=0.5, adapt_steps=4)
    tuned, start = s._fine_tuned([0, 1, 2, 3]), s.global_model()
    assert tuned is not None and start is not None
    for i, model in tuned.items():
        module, share = s.fed.network(), s.data.test.shares[i]
        put(module, model)
        right = evaluation.logits_of(module, s.data, s.data.test, share).argmax(dim=1) == s.data.test.y[share]
        assert rows[0]["local_accuracies"][i] == float(right.double().mean())
        assert not same(model, start)


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


def test_fedrods_generic_part_without_balancing_is_fedavg_bit_for_bit(toy: Path) -> None:
    s, rows = simulate("fedrod", toy, 3, gamma=0.0, momentum=0.5)
    plain, others = simulate("fedavg", toy, 3, momentum=0.5)
    assert same(s.global_model(), plain.global_model())
    for key in ("train_loss", "client_accuracy", "bytes_up", "bytes_down"):
        assert [r[key] for r in rows] == [r[key] for r in others]
    assert not same(simulate("fedrod", toy, 3, gamma=1.0, momentum=0.5)[0].global_model(), plain.global_model())


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


def test_ditto_and_local_training_differ_only_by_the_global_track(toy: Path) -> None:
    """λ = 0 with stragglers: the personal model makes the steps that the client manages, as Local Training's does."""
    more = {"stragglers": 0.5, "straggler_work": 0.5, "momentum": 0.5}
    s = Simulation("ditto", values_for("ditto", toy, **{"lambda": 0.0}, **more), 3, CPU)
    plain = Simulation("local", values_for("local", toy, **more), 3, CPU)
    for _ in range(3):
        row, other = s.run_round(), plain.run_round()
        assert (row["local_accuracies"], row["train_loss"]) == (other["local_accuracies"], other["train_loss"])
    for i, state in plain.progress.client_states.items():
        assert same(state.model, s.progress.client_states[i].model)
