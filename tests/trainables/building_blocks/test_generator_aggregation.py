"""The server's aggregation of generators and classifiers (FedMD-CG Eqs. 10 to 12, FedCG's step), against NumPy, and
how many steps the teachers answer at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.contracts.test_methods import simulate, values_for
from tests.trainables.building_blocks.test_losses import random, softmax
from tests.trainables.methods.test_dfrd import kl
from trainables.building_blocks import generator_aggregation
from trainables.building_blocks.generator_aggregation import (
    GeneratorAggregation,
    draw_noise,
    kd_loss,
    kdc_losses,
    ramp,
)
from trainables.simulation.rounds import Simulation
from trainables.wire import Upload

TAU = torch.tensor([[0.1, 0.5, 0.0, 1.0], [0.9, 0.5, 1.0, 0.0]], dtype=torch.float64)


def linear(seed: int) -> nn.Linear:
    layer = nn.Linear(3, 4).double()
    with torch.no_grad():
        layer.weight.copy_(random(4, 3, seed=seed))
        layer.bias.copy_(random(4, seed=seed + 1))
    return layer


def test_kd_loss_is_fedcgs_step() -> None:
    rho, logits, shares = random(2, 5, 4), random(5, 4, seed=1), torch.tensor([0.3, 0.7], dtype=torch.float64)
    teacher = 0.3 * rho[0].numpy() + 0.7 * rho[1].numpy()
    expected = kl(softmax(teacher, 10.0), softmax(logits.numpy(), 10.0)).mean()
    assert float(kd_loss(rho, logits, shares, 10.0)) == pytest.approx(expected, rel=1e-9)
    rho.requires_grad_(), logits.requires_grad_()
    kd_loss(rho, logits, shares, 10.0).backward()
    assert rho.grad is None and logits.grad is not None  # teachers do not learn


def test_kdc_losses_are_eqs_10_and_11() -> None:
    own, made, d, heads = random(4, 3), random(2, 4, 3, seed=1), linear(2), [linear(4), linear(6)]
    rho = torch.stack([head(m) for head, m in zip(heads, made, strict=True)])
    found = kdc_losses(own, made, rho, d, heads, TAU, 10.0)

    def numpy(layer: nn.Linear, x: Tensor) -> np.ndarray:
        return softmax(x.numpy() @ layer.weight.detach().numpy().T + layer.bias.detach().numpy(), 10.0)

    targets = [numpy(head, m) for head, m in zip(heads, made, strict=True)]
    students = ([numpy(d, own)] * 2, [numpy(d, m) for m in made], [numpy(head, own) for head in heads])
    for loss, student in zip(found, students, strict=True):
        expected = sum(TAU[i].numpy() * kl(targets[i], student[i]) for i in range(2)).mean()
        assert float(loss.detach()) == pytest.approx(expected, rel=1e-9)


def test_each_kdc_loss_trains_what_it_should_and_no_teacher() -> None:
    """L_kl,1 moves G and D, L_kl,2 only D, L_kl,3 only G."""
    for which, moves_g, moves_d in ((0, True, True), (1, False, True), (2, True, False)):
        own, made, d, heads = (
            random(4, 3).requires_grad_(),
            random(2, 4, 3, seed=1).requires_grad_(),
            linear(2),
            [linear(4), linear(6)],
        )
        rho = random(2, 4, 4, seed=8).requires_grad_()
        for head in heads:
            head.requires_grad_(False)
        kdc_losses(own, made, rho, d, heads, TAU, 1.0)[which].backward()
        assert (own.grad is not None and float(own.grad.abs().sum()) > 0) is moves_g
        assert (d.weight.grad is not None and float(d.weight.grad.abs().sum()) > 0) is moves_d
        assert rho.grad is None and made.grad is None


def test_ramp_starts_at_zero_unless_there_is_none() -> None:
    assert [ramp(r, 4, 1.0) for r in (1, 2, 3, 4)] == [0.0, 0.25, 0.5, 0.75]
    assert ramp(3, 4, 3.0) == 0.125 and ramp(1, 4, 0.0) == 1.0


def uploads_of(toy: Path, **values: object) -> tuple[Simulation, list[Upload]]:
    simulation = Simulation("fedmdcg", values_for("fedmdcg", toy, **values), 3, torch.device("cpu"))
    m, s = simulation.method, simulation
    return s, [
        Upload(
            i,
            m.client(
                s.config, s.fed, m.download(s.config, s.fed, s.progress.state, i), None, data, s.fed.rng.child(i)
            ).upload,
        )
        for i, data in enumerate(s.data.clients)
    ]


def test_how_many_steps_the_teachers_answer_at_once_changes_nothing(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps of eight samples: all at once, or two and one."""
    ends = []
    for samples in (1024, 16):
        monkeypatch.setattr("trainables.building_blocks.generator_aggregation._CHUNK", samples)
        more = {"server_steps": 3, "server_batch_size": 8, "noise_dim": 8}
        ends.append(simulate("fedcg", toy, 1, **more)[0].progress.state)
    for name, tensor in ends[0].generator.items():
        torch.testing.assert_close(ends[1].generator[name], tensor)


@pytest.mark.parametrize(
    ("bound", "expected"), [(1024, [24]), (16, [16, 8]), (23, [16, 8]), (8, [8] * 3), (5, [8] * 3)]
)
def test_teachers_answer_for_as_many_steps_as_the_bound_holds_and_for_one_at_least(
    bound: int, expected: list[int], toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three steps of eight samples."""
    s, uploads = uploads_of(toy, server_steps=3)
    asked = []

    def drawn(config: GeneratorAggregation, samples: int, *more: Any) -> Tensor:
        asked.append(samples)
        return draw_noise(config, samples, *more)

    monkeypatch.setattr(generator_aggregation, "_CHUNK", bound)
    monkeypatch.setattr(generator_aggregation, "draw_noise", drawn)
    answers = list(generator_aggregation._Teachers(s.config, s.fed, uploads).batches(torch.full((4,), 0.25), s.fed.rng))
    assert asked == expected
    shapes = [(len(z), len(y), made.shape[:2], rho.shape) for z, y, made, rho in answers]
    assert shapes == [(8, 8, (4, 8), (4, 8, 4))] * 3
