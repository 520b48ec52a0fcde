"""What a method answers for its clients where its file says nothing of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trainables import registry


@pytest.mark.parametrize(("method", "scaler"), [("heterofl", True), ("heterofl", False), ("fedavg", None)])
def test_a_clients_network_has_its_width_and_the_scaler_it_trained_with(method: str, scaler: bool | None) -> None:
    asked = []
    fed: Any = SimpleNamespace(widths=[1.0, 0.25], network=lambda width, scaler: asked.append((width, scaler)))
    found = registry.method(method)
    config = found.Config() if scaler is None else found.Config(scaler=scaler)
    found.client_network(config, fed, 1)
    assert asked == [(0.25, bool(scaler))]
