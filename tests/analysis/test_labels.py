"""Values in prose: one unit for one number."""

from __future__ import annotations

import pytest

from analysis.labels import size, told


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (812, "812 bytes"),
        (999.6, "1 kB"),
        (120_000, "120 kB"),
        (5_480_000, "5.48 MB"),
        (5_500_000, "5.5 MB"),
        (999_600_000, "1 GB"),
        (23.4e9, "23.4 GB"),
    ],
)
def test_sizes(count: float, shown: str) -> None:
    assert size(count) == shown


@pytest.mark.parametrize(
    ("metric", "value", "shown"),
    [
        ("val_global_accuracy", 0.8123, "81.23 %"),
        ("wlp", 0.5, "50.00 %"),
        ("fm", 0.0041, "0.0041"),
        ("global_loss", 0.41234, "0.4123 nats"),
        ("bytes_up", 5_500_000.0, "5.5 MB"),
        ("amp", float("nan"), "–"),
    ],
)
def test_values_in_prose(metric: str, value: float, shown: str) -> None:
    assert told(metric, value) == shown
