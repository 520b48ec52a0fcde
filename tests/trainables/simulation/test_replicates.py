"""Several seeds of one configuration: whose checkpoints they go on from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contracts.test_methods import values_for
from trainables.simulation import checkpoint
from trainables.simulation.replicates import Replicates


def test_a_checkpoint_of_another_version_or_of_other_seeds_is_refused(toy: Path, tmp_path: Path) -> None:
    trial = Replicates("fedavg", values_for("fedavg", toy), (3,))
    trial.save(tmp_path / "now")
    for version in (1, 2, 3, 99):
        checkpoint.save(tmp_path / "other", checkpoint.load(tmp_path / "now") | {"version": version})
        with pytest.raises(ValueError, match=f"has version {version} and this fedtune reads version 4"):
            trial.load(tmp_path / "other")
    with pytest.raises(ValueError, match=r"of the seeds \(3,\)"):
        Replicates("fedavg", values_for("fedavg", toy), (4,)).load(tmp_path / "now")
