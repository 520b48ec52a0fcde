"""DFRD's equations, each against NumPy; numbers are the paper's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.contracts.test_methods import simulate, values_for
from tests.trainables.building_blocks.test_losses import random, softmax
from trainables.building_blocks.distillation_bases import label_counts
from trainables.building_blocks.server_distillation import label_distribution, moving_average
from trainables.local import LocalResult
from trainables.methods.dfrd import (
    Config,
    embedding_hinge,
    generator_loss,
    transfer_mask,
    transferability_loss,
)
from trainables.params import pack
from trainables.simulation.rounds import Simulation
from trainables.wire import Upload


def kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return (p * (np.log(p) - np.log(q))).sum(axis=1)


# y = 0 throughout; columns: ensemble right & student wrong, both right, both wrong alike, both wrong differently,
# ensemble wrong & student right
ENSEMBLE = torch.tensor([[3.0, 0, 0], [3, 1, 0], [0, 3, 0], [0, 3, 0], [0, 3, 1]], dtype=torch.float64)
STUDENT = torch.tensor([[0.0, 3, 0], [2, 0, 0], [0, 2, 0], [0, 0, 3], [3, 0, 0]], dtype=torch.float64)
Y = torch.zeros(5, dtype=torch.long)


@pytest.mark.parametrize(
    ("rule", "expected"), [("all", [1, 1, 1, 1, 1]), ("disagree", [1, 0, 0, 1, 1]), ("targeted", [1, 0, 0, 0, 0])]
)
def test_transferability_rules(rule: str, expected: list[int]) -> None:
    """Table 3: triangle, nabla, diamond."""
    assert transfer_mask(rule, ENSEMBLE, STUDENT, Y).tolist() == expected


@pytest.mark.parametrize("rule", ["all", "disagree", "targeted"])
def test_transferability_loss_is_eq_3(rule: str) -> None:
    config = Config(transferability=rule, kd_temperature=2.0)
    mask = transfer_mask(rule, ENSEMBLE, STUDENT, Y).numpy()
    rows = kl(softmax(STUDENT.numpy(), 2.0), softmax(ENSEMBLE.numpy(), 2.0))
    assert float(transferability_loss(config, ENSEMBLE, STUDENT, Y)) == pytest.approx(
        -(mask * rows).sum() / 5, rel=1e-9
    )
    selected = transferability_loss(replace(config, tran_norm="selected"), ENSEMBLE, STUDENT, Y)
    assert float(selected) == pytest.approx(-(mask * rows).sum() / mask.sum(), rel=1e-9)


def test_transferability_loss_moves_the_ensemble_alone_unless_asked_and_is_finite_on_an_empty_mask() -> None:
    for grad, student_moves in (("ensemble", False), ("both", True)):
        ensemble, student = ENSEMBLE.clone().requires_grad_(), STUDENT.clone().requires_grad_()
        transferability_loss(Config(tran_grad=grad, transferability="all"), ensemble, student, Y).backward()
        assert float(ensemble.grad.abs().sum()) > 0  # type: ignore[union-attr]
        assert (student.grad is not None) is student_moves
    agreeing = transferability_loss(Config(tran_norm="selected"), ENSEMBLE, ENSEMBLE, Y)
    assert float(agreeing) == 0.0


def test_generator_loss_is_eq_5() -> None:
    u_t, u_s, y = random(6, 4), random(6, 4, seed=1), torch.tensor([0, 1, 2, 3, 0, 1])
    s, h = random(6, 1, 2, 2, seed=2), random(6, 3, seed=3)
    config = Config(beta_tran=0.7, beta_div=1.3, transferability="all", kd_temperature=5.0)
    fidelity = -np.log(softmax(u_t.numpy()))[np.arange(6), y.numpy()].mean()
    transfer = -kl(softmax(u_s.numpy(), 5.0), softmax(u_t.numpy(), 5.0)).mean()
    pairs = [
        np.mean((s[j].numpy() - s[k].numpy()) ** 2) * np.mean((h[j].numpy() - h[k].numpy()) ** 2)
        for j in range(6)
        for k in range(6)
    ]
    expected = fidelity + 0.7 * transfer + 1.3 * np.exp(-np.mean(pairs))
    assert float(generator_loss(config, u_t, u_s, y, s, h)) == pytest.approx(expected, rel=1e-9)
    assert float(generator_loss(replace(config, beta_tran=0.0, beta_div=0.0), u_t, u_s, y, s, h)) == pytest.approx(
        fidelity, rel=1e-9
    )


def test_moving_average_is_eq_6() -> None:
    old, new = (
        {"w": torch.tensor([1.0, 2.0]), "n": torch.tensor(3)},
        {"w": torch.tensor([3.0, 6.0]), "n": torch.tensor(9)},
    )
    mixed = moving_average(old, new, 0.75)
    assert mixed["w"].tolist() == [1.5, 3.0] and int(mixed["n"]) == 9


def test_without_server_steps_the_average_goes_on_and_the_generator_stays(toy: Path) -> None:
    """w̃ ← λ w̃ + (1 - λ) w with λ = 0.8, from an average that is not the generator."""
    s, _ = simulate("dfrd", toy, 0, server_iters=0, **{"lambda": 0.8})
    generator = s.progress.state.generator
    before = replace(s.progress.state, ema={name: tensor + 1 for name, tensor in generator.items()})
    uploads = [Upload(0, pack("model", before.model) | {"label_counts": torch.tensor([1, 0, 0, 0])})]
    after = s.method.server(s.config, s.fed, before, uploads, s.fed.rng)
    assert after.round == 1 and all(torch.equal(after.generator[k], generator[k]) for k in generator)
    for name, tensor in after.ema.items():
        if tensor.is_floating_point():
            torch.testing.assert_close(tensor, generator[name] + 0.8)


def test_label_law_weights_and_sampling() -> None:
    """Sec. 3.2: τ_{i,y} = n_i^y / Σ_j n_j^y, p(y) = Σ_j n_j^y / n; class 2 has no data."""
    counts = torch.tensor([[1, 4, 0], [3, 0, 0]])
    labels = label_distribution(counts, 2, 3)
    np.testing.assert_allclose(labels.weights.numpy(), [[0.25, 1.0, 0.5], [0.75, 0.0, 0.5]])
    np.testing.assert_allclose(labels.probabilities.numpy(), [0.5, 0.5, 0.0])
    uniform = label_distribution(None, 4, 2)
    assert uniform.weights.tolist() == [[0.25, 0.25]] * 4 and uniform.probabilities.tolist() == [0.5, 0.5]


def test_label_counters(toy: Path) -> None:
    """Distinct samples drawn this round, drawn so far, held; nothing for `average`."""
    simulation = Simulation("dfrd", values_for("dfrd", toy), 0, torch.device("cpu"))
    data = simulation.data.clients[0]
    trained = LocalResult(0.0, torch.tensor([[0, 1], [1, 2]]))
    expected = np.bincount(data.y[:3].numpy(), minlength=4)
    counts, seen = label_counts(Config(), data, trained, None)
    assert counts is not None and counts.tolist() == expected.tolist() and seen is None
    _, seen = label_counts(Config(counter_window="cumulative"), data, trained, None)
    later, seen = label_counts(
        Config(counter_window="cumulative", label_smoothing_count=1), data, LocalResult(0.0, torch.tensor([[3]])), seen
    )
    assert later is not None and later.tolist() == (np.bincount(data.y[:4].numpy(), minlength=4) + 1).tolist()
    held, _ = label_counts(Config(label_weighting="static"), data, trained, None)
    assert held is not None and held.tolist() == np.bincount(data.y.numpy(), minlength=4).tolist()
    assert label_counts(Config(label_weighting="average"), data, trained, None) == (None, None)


def test_embedding_hinge() -> None:
    embedded = torch.tensor([[3.0, 4.0], [0.1, 0.0], [0.0, 0.0]])
    assert float(embedding_hinge(embedded, 1.0)) == pytest.approx((5 - np.sqrt(2)) / 3)


def test_the_hinge_of_an_embedding_is_nothing_where_there_is_none(toy: Path) -> None:
    """Labels that are appended as they are have no embedding."""
    ends = [simulate("dfrd", toy, 1, merge_op="ncat", beta_ey=weight)[0].progress.state.model for weight in (0.0, 0.5)]
    assert all(torch.equal(ends[0][key], ends[1][key]) for key in ends[0])
