"""A run as somebody may hand it on, which a test damages."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.analysis import synthetic


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("runs") / "tpe", trials=8, figures=())


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A search of eight trials; it is the test's own."""
    return shutil.copytree(made, tmp_path / "run")
