"""What a client of partial training says of its classes, and the cross-entropy over those it holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.contracts.test_methods import CPU, values_for
from trainables.building_blocks.partial_training import masked_cross_entropy, owned_classes
from trainables.simulation.rounds import Simulation


def test_a_client_names_the_classes_it_holds_where_that_is_asked(toy: Path) -> None:
    s = Simulation("heterofl", values_for("heterofl", toy), 3, CPU)
    data = s.data.clients[0]
    lacking = replace(data, y=torch.tensor([0, 1, 3]).repeat(len(data))[: len(data)])
    assert owned_classes(s.config, lacking) == {}
    owned = owned_classes(replace(s.config, own_class_rows_only=True), lacking)["owned"]
    assert owned.tolist() == [True, True, False, True]


def test_logits_of_classes_that_are_not_held_count_as_0() -> None:
    logits = torch.tensor([[1.0, 5.0, 2.0], [0.5, -3.0, 1.0]])
    loss = masked_cross_entropy(torch.tensor([True, False, True]))(nn.Identity(), logits, torch.tensor([0, 2]))
    rows = np.array([[1.0, 0.0, 2.0], [0.5, 0.0, 1.0]])
    expected = np.mean([np.log(np.exp(row).sum()) - row[y] for row, y in zip(rows, (0, 2), strict=True)])
    assert float(loss) == pytest.approx(expected, rel=1e-6)
