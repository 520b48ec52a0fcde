"""Prototypes of classes: how precisely they are summed, and classes that nobody holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
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


def client_of(values: Tensor, labels: Tensor, toy: Path) -> Any:
    """A client of the toy data with these samples, one number each."""
    data = Simulation("dhf", values_for("dhf", toy), 3, CPU).data.clients[0]

    class Given(type(data)):  # type: ignore[misc]
        def __len__(self) -> int:
            return len(values)

        def batch(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
            return values[chosen, None], labels[chosen]

    return Given(**{**vars(data), "y": labels})


def test_sums_run_in_double_precision(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2²⁴ + 1 is no float32: ones that are added to it one by one would be lost."""
    given = client_of(torch.tensor([2.0**24, 1.0, 1.0, 5.0]), torch.tensor([0, 0, 0, 2]), toy)
    monkeypatch.setattr(prototypes, "_BATCH", 1)
    found = prototypes.class_means(Same(), given)  # type: ignore[arg-type]
    assert found.dtype == torch.float32
    assert found.flatten().tolist() == [(2**24 + 2) / 3, 0.0, 5.0, 0.0]


def test_means_are_of_a_model_in_evaluation_mode(toy: Path) -> None:
    class Noisy(Same):
        def features(self, x: Tensor) -> Tensor:
            return x + 100.0 if self.training else x

    given = client_of(torch.tensor([1.0, 2.0, 5.0]), torch.tensor([0, 0, 3]), toy)
    assert prototypes.class_means(Noisy().train(), given).flatten().tolist() == [1.5, 0.0, 0.0, 5.0]  # type: ignore[arg-type]


def test_distances_to_prototypes_do_not_cancel() -> None:
    """Features around 1000 that differ by thousandths: |a|² + |b|² - 2ab, which many rows are otherwise computed by,
    loses all of it in float32."""
    model: Any = Same()
    model.classes = 30
    x = 1000.0 + torch.arange(40.0)[:, None] / 64
    known = {j: torch.tensor([1000.0 + j / 64]) for j in range(30)}
    module = prototypes.NearestPrototype(model)
    module.load_state_dict(prototypes.with_prototypes({}, known, 30))
    expected = -np.abs(np.arange(40)[:, None] - np.arange(30)[None]) / 64
    np.testing.assert_array_equal(module(x).numpy(), expected)


def test_no_class_is_predicted_before_there_are_prototypes() -> None:
    model: Any = Same()
    model.classes = 3
    assert prototypes.NearestPrototype(model)(torch.ones(2, 1)).tolist() == [[-torch.inf] * 3] * 2
