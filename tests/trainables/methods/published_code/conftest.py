"""Double precision, as in the replays."""

from __future__ import annotations

from tests.trainables.methods.replays.conftest import double_precision

__all__ = ["double_precision"]
