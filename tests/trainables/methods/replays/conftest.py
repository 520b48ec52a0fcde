"""Replays run in double precision: rounding is then many orders of magnitude below what a wrong step changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def double_precision(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """New tensors are float64, and where the package asks for single precision by `.float()` it gets double as well."""
    before = torch.get_default_dtype()
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
