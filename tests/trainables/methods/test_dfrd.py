"""DFRD, where the replays of whole rounds do not go: the other divisor, no server steps, no embedding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.contracts.test_methods import simulate
from tests.trainables.building_blocks.test_losses import kl, softmax
from trainables.methods.dfrd import (
    Config,
    embedding_hinge,
    transfer_mask,
    transferability_loss,
)
from trainables.params import pack
from trainables.wire import Upload

# y = 0 throughout; columns: ensemble right & student wrong, both right, both wrong alike, both wrong differently,
# ensemble wrong & student right
ENSEMBLE = torch.tensor([[3.0, 0, 0], [3, 1, 0], [0, 3, 0], [0, 3, 0], [0, 3, 1]], dtype=torch.float64)
STUDENT = torch.tensor([[0.0, 3, 0], [2, 0, 0], [0, 2, 0], [0, 0, 3], [3, 0, 0]], dtype=torch.float64)
Y = torch.zeros(5, dtype=torch.long)


@pytest.mark.parametrize("rule", ["all", "disagree", "targeted"])
def test_the_transferability_loss_may_be_divided_by_the_samples_that_count(rule: str) -> None:
    config = Config(transferability=rule, kd_temperature=2.0)
    mask = transfer_mask(rule, ENSEMBLE, STUDENT, Y).numpy()
    rows = kl(softmax(STUDENT.numpy(), 2.0), softmax(ENSEMBLE.numpy(), 2.0))
    selected = transferability_loss(replace(config, tran_norm="selected"), ENSEMBLE, STUDENT, Y)
    assert float(selected) == pytest.approx(-(mask * rows).sum() / mask.sum(), rel=1e-9)
    assert float(transferability_loss(Config(tran_norm="selected"), ENSEMBLE, ENSEMBLE, Y)) == 0.0  # none counts


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


def test_the_hinge_starts_at_the_scale_times_the_root_of_the_width() -> None:
    """Rows of the lengths 6, 2 and 0.5 over γ√d = 0.5 · √4 = 1 by 5, 1 and nothing: 2 in the mean."""
    embedded = torch.tensor([[2.0, 4, 4, 0], [1, 1, 1, 1], [0.5, 0, 0, 0]])
    assert float(embedding_hinge(embedded, 0.5)) == pytest.approx(2.0, rel=1e-6)


def test_the_hinge_of_an_embedding_is_nothing_where_there_is_none(toy: Path) -> None:
    """Labels that are appended as they are have no embedding."""
    ends = [simulate("dfrd", toy, 1, merge_op="ncat", beta_ey=weight)[0].progress.state.model for weight in (0.0, 0.5)]
    assert all(torch.equal(ends[0][key], ends[1][key]) for key in ends[0])
