"""Every test of data has a cache of its own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cache that holds nothing yet."""
    monkeypatch.setenv("FEDTUNE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
