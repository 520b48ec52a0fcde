"""FedKF's equations, each against NumPy; who moves whom; what is measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.contracts.test_methods import same, simulate, values_for
from tests.trainables.building_blocks.test_losses import random, softmax
from trainables.generators.noise import NoiseGenerator
from trainables.local import draw_batches
from trainables.methods import fedkf
from trainables.methods.fedkf import (
    Config,
    Fusion,
    activation_loss,
    generator_loss,
    information_entropy_loss,
    one_hot_loss,
)
from trainables.params import put
from trainables.simulation.rounds import Simulation

CPU = torch.device("cpu")


def test_information_entropy_loss_is_eq_3() -> None:
    logits = random(6, 4)
    p = softmax(logits.numpy()).mean(axis=0)
    assert float(information_entropy_loss(logits)) == pytest.approx((p * np.log(p)).sum(), rel=1e-12)
    assert float(information_entropy_loss(logits, "unit")) == pytest.approx(
        (p * np.log(p)).sum() / np.log(4), rel=1e-12
    )
    assert float(information_entropy_loss(torch.zeros(5, 4, dtype=torch.float64))) == pytest.approx(
        -np.log(4), rel=1e-12
    )  # the minimum: all classes alike


def test_information_entropy_loss_is_finite_where_a_class_is_never_predicted() -> None:
    logits = torch.tensor([[0.0, -500.0], [0.0, -500.0]], requires_grad=True)
    loss = information_entropy_loss(logits)
    loss.backward()
    assert float(loss.detach()) == pytest.approx(0.0, abs=1e-6)
    assert logits.grad is not None and bool(torch.isfinite(logits.grad).all())


def test_one_hot_loss_is_eq_2() -> None:
    logits = random(6, 4)
    p = softmax(logits.numpy())
    assert float(one_hot_loss(logits)) == pytest.approx(-np.log(p.max(axis=1)).mean(), rel=1e-12)


def test_activation_loss_is_eq_4() -> None:
    features = random(6, 3)
    assert float(activation_loss(features)) == pytest.approx(-np.abs(features.numpy()).mean(), rel=1e-12)
    assert float(activation_loss(features, "sum")) == pytest.approx(-np.abs(features.numpy()).sum() / 6, rel=1e-12)


def test_generator_loss_is_eq_5() -> None:
    logits, features = random(6, 4), random(6, 3, seed=1)
    p = softmax(logits.numpy())
    entropy, one_hot, activation = (
        (p.mean(0) * np.log(p.mean(0))).sum(),
        -np.log(p.max(1)).mean(),
        -np.abs(features.numpy()).mean(),
    )
    assert float(generator_loss(Config(lambda1=0.3, lambda2=0.7), logits, features)) == pytest.approx(
        entropy + 0.3 * one_hot + 0.7 * activation, rel=1e-12
    )
    assert float(generator_loss(Config(lambda1=0.0, lambda2=0.0), logits, features)) == pytest.approx(
        entropy, rel=1e-12
    )


def fusion(toy: Path, **more: Any) -> tuple[Simulation, Fusion, torch.nn.Module]:
    """An objective with a drawn teacher and another drawn student."""
    s = Simulation("fedkf", values_for("fedkf", toy, model="lenet5", **more), 3, CPU)
    objective = Fusion(s.config, s.fed, s.fed.initial_params("teacher"), None, s.fed.rng.child("test"))
    student = s.fed.network()
    fedkf.put(student, s.fed.initial_params("student"))
    return s, objective, student.train()


@pytest.mark.usefixtures("float64")
def test_client_loss_is_eq_8_and_the_generators_step_is_adams_on_eq_5(toy: Path) -> None:
    s, objective, student = fusion(toy, gamma=0.7, lambda1=0.3, lambda2=0.2)
    x, y = s.data.clients[0].batch(torch.arange(10))
    generator, teacher = objective.generator, objective.teacher
    z = torch.randn(s.config.batch_size, s.config.noise_dim, generator=s.fed.rng.child("test").torch("noise"))
    images = generator(z)
    features = teacher.features(images)
    p, q, own = (softmax(m.detach().numpy()) for m in (teacher.head(features), student(images), student(x)))
    expected = -np.log(own[np.arange(10), y.numpy()]).mean() + 0.7 * (p * (np.log(p) - np.log(q))).sum(axis=1).mean()
    generator_loss(s.config, teacher.head(features), features).backward(inputs=list(generator.parameters()))
    # Adam's first step is -β g/(|g| + 1e-8) whatever the moments' decay.
    stepped = {
        k: (v - s.config.gen_lr * v.grad / (v.grad.abs() + 1e-8)).detach().clone()
        for k, v in generator.named_parameters()
    }
    loss = objective(student, x, y)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-9)
    for k, v in generator.named_parameters():
        np.testing.assert_allclose(v.detach().numpy(), stepped[k].numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("adversarial", [False, True])
def test_gradients_reach_the_student_from_eq_8_alone_and_the_teacher_never(adversarial: bool, toy: Path) -> None:
    s, objective, student = fusion(toy, gen_adversarial=adversarial)
    x, y = s.data.clients[0].batch(torch.arange(10))
    before = {k: v.detach().clone() for k, v in objective.generator.named_parameters()}
    loss = objective(student, x, y)
    assert all(p.grad is None for p in student.parameters())  # the generator's step left nothing on the student
    stepped = [p.grad.clone() for p in objective.generator.parameters() if p.grad is not None]
    loss.backward()
    assert all(p.grad is not None for p in student.parameters())
    assert all(p.grad is None for p in objective.teacher.parameters())
    assert same(
        stepped, [p.grad for p in objective.generator.parameters()]
    )  # the student's loss adds nothing to the generator
    assert any(not torch.equal(before[k], v) for k, v in objective.generator.named_parameters())


def test_both_readouts_are_measured_and_one_is_the_global_model(toy: Path) -> None:
    for readout in ("aca", "oca"):
        _, rows = simulate("fedkf", toy, 3, active_clients=2, readout=readout)
        for metric in ("amp", "fm", "wlp", "global_accuracy"):
            assert (
                rows[-1][metric] == rows[-1][f"{readout}_{metric}"]
                and rows[-1][f"val_{metric}"] == rows[-1][f"val_{readout}_{metric}"]
            )


def test_equal_local_steps_are_passes_over_the_mean_client(toy: Path) -> None:
    s = Simulation("fedkf", values_for("fedkf", toy, local_epochs=3, batch_size=16, omega=0.5), 3, CPU)
    batches = sum(s.fed.sizes) // (4 * 16)
    steps = [draw_batches(fedkf.planned(s.config, s.fed), n, 1.0, s.fed.rng).shape[0] for n in s.fed.sizes]
    assert steps == [3 * batches] * 4 and batches == 3
    assert fedkf.planned(replace(s.config, batch_size=1000), s.fed).local_steps == 3  # one batch a pass at least
    own = fedkf.planned(replace(s.config, equal_local_steps=False), s.fed)
    assert len({draw_batches(own, n, 1.0, s.fed.rng).shape[0] for n in s.fed.sizes}) > 1


def test_what_is_looked_at_is_the_first_generator_and_the_cached_average_judges_it(toy: Path) -> None:
    """Recomputed on modules of its own; looking moves no model that trains."""
    s, _ = simulate("fedkf", toy, 3, active_clients=2)
    state, kept = s.progress.state, s.progress.client_states
    assert state.round == 3 and s.method.painters is not None
    # After three rounds both say the same class of everything; these do not.
    state = replace(state, cache=replace(state.cache, overall=s.fed.initial_params("another")))
    state = replace(state, model=s.fed.initial_params("a third"))
    before = {name: tensor.clone() for name, tensor in s.fed.network().state_dict().items()}
    painter = s.method.painters(s.config, s.fed, state, {5: kept[max(kept)], 1: kept[min(kept)]})["generator"]
    module = s.fed.cached("a test", lambda: NoiseGenerator(s.fed.shape, s.config.noise_dim, s.fed.mean, s.fed.std))
    put(module, kept[min(kept)].generator)
    z, y = torch.randn(40, s.config.noise_dim), torch.zeros(40, dtype=torch.long)
    with torch.no_grad():
        images = painter.paint(z, y)
        assert torch.equal(images, module(z))
    images = s.data.batch(s.data.test, torch.arange(80))
    judges = []
    for model in (state.cache.overall, state.model):
        network = s.fed.network(role="a test").eval()
        put(network, model)
        with torch.no_grad():
            judges.append(network(images).argmax(dim=1))
    assert painter.judge is not None and painter.judge(images).tolist() == judges[0].tolist() != judges[1].tolist()
    after = s.fed.network().state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    fresh = s.method.painters(s.config, s.fed, replace(state, cache=None), {1: kept[min(kept)]})["generator"]
    assert fresh.judge is not None and fresh.judge(images).tolist() == judges[1].tolist()
    assert s.method.painters(s.config, s.fed, state, {}) == {}
