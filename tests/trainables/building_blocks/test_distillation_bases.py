"""What server-side distillation builds on: the base's check, data-free mode, and counts of drawn samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from search_spaces.errors import UserError
from tests.contracts.test_methods import CPU, same, values_for
from trainables import registry
from trainables.building_blocks.distillation_bases import LabelCounting, label_counts
from trainables.local import LocalResult
from trainables.simulation.rounds import Simulation


def test_fedavg_is_no_base_for_clients_of_several_widths(toy: Path) -> None:
    with pytest.raises(UserError, match="rho must be 0 when base is fedavg"):
        registry.resolve("dfrd", values_for("dfrd", toy, base="fedavg", rho=1), "a test")
    registry.resolve("dfrd", values_for("dfrd", toy, base="fedavg", rho=0), "a test")
    registry.resolve("dfrd", values_for("dfrd", toy, base="fedrolex", rho=1), "a test")


def test_a_narrow_client_that_comes_late_to_data_free_mode_draws_a_narrow_model(toy: Path) -> None:
    """It is sent nothing after the first round."""
    s = Simulation("dfrd", values_for("dfrd", toy, base="none", rho=5), 3, CPU)
    late, m = 3, s.method
    assert s.fed.widths[late] < 1
    sent = m.download(s.config, s.fed, replace(s.progress.state, round=2), late)
    result = m.client(s.config, s.fed, sent, None, s.data.clients[late], s.fed.rng.child("late"))
    narrow = s.fed.initial_params(width=s.fed.widths[late])
    assert sent == {} and result.model is not None
    assert {k: t.shape for k, t in result.model.items()} == {k: t.shape for k, t in narrow.items()}


def test_what_a_client_keeps_of_earlier_draws_is_not_written_over(toy: Path) -> None:
    data = Simulation("dfrd", values_for("dfrd", toy), 3, CPU).data.clients[0]
    counting = LabelCounting(counter_window="cumulative")
    before = torch.zeros(len(data), dtype=torch.bool)
    before[:2] = True
    kept = before.clone()
    counts, seen = label_counts(counting, data, LocalResult(0.0, torch.tensor([[1, 4]])), before)
    assert torch.equal(before, kept)
    assert seen is not None and seen.nonzero().flatten().tolist() == [0, 1, 4]
    expected = np.bincount(data.y.numpy()[[0, 1, 4]], minlength=4)
    assert counts is not None and same(counts, torch.from_numpy(expected))
