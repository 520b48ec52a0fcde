"""Synthetic run directories, written once per session."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.runs import Run, load_run
from tests.analysis import synthetic


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds the runs of `synthetic.examples`."""
    return synthetic.examples(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def loaded(root: Path) -> dict[str, Run]:
    """The same, read."""
    return {folder.name: load_run(folder) for folder in root.iterdir()}
