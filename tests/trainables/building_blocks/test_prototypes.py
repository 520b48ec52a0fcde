"""Prototypes of classes: how precisely they are summed, and classes that nobody holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.contracts.test_methods import CPU, values_for
from trainables.building_blocks import prototypes
from trainables.simulation.rounds import Simulation


class Same(nn.Module):
    """Features are the input."""

    feature_width = 1

    def features(self, x: Tensor) -> Tensor:
        return x


def test_sums_run_in_double_precision(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2²⁴ + 1 is no float32: ones that are added to it one by one would be lost."""
    data = Simulation("dhf", values_for("dhf", toy), 3, CPU).data.clients[0]
    values = torch.tensor([2.0**24, 1.0, 1.0, 5.0])
    labels = torch.tensor([0, 0, 0, 2])

    class Four(type(data)):  # type: ignore[misc]
        def __len__(self) -> int:
            return 4

        def batch(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
            return values[chosen, None], labels[chosen]

    monkeypatch.setattr(prototypes, "_BATCH", 1)
    given: Any = Four(**{**vars(data), "y": labels})
    found = prototypes.class_means(Same(), given)  # type: ignore[arg-type]
    assert found.dtype == torch.float32
    assert found.flatten().tolist() == [(2**24 + 2) / 3, 0.0, 5.0, 0.0]


def test_a_class_nobody_reported_keeps_its_prototype() -> None:
    old, valid = torch.tensor([[7.0], [8.0], [9.0]]), torch.tensor([True, True, False])
    own = torch.tensor([[[1.0], [2.0], [0.0]], [[4.0], [0.0], [0.0]]])
    merged, now = prototypes.merge(old, valid, own, torch.tensor([[1, 1, 0], [2, 0, 0]]))
    assert merged.tolist() == [[3.0], [2.0], [9.0]] and now.tolist() == [True, True, False]
