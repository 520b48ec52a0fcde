"""The tests here carry out commands."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def commands(forks: None) -> None:
    """They are forked."""
