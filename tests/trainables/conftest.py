"""What tests of several folders of trainables share."""

from __future__ import annotations

import pytest

from trainables.models import precision


@pytest.fixture
def bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    """bfloat16 is let through on any processor: where it has none PyTorch computes it all the same, slowly."""
    monkeypatch.setattr(precision, "processor_flags", lambda: frozenset({"avx512_bf16"}))
