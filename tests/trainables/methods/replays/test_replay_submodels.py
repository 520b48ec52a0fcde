"""FedRolex, HeteroFL and Federated Dropout, three rounds: cutting sub-models, training them, and Eq. (1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.trainables.methods.replays.actual import assert_step, world
from tests.trainables.methods.replays.phases import averaged, trained_parts

CASES: dict[str, dict[str, Any]] = {
    "fedrolex": {},
    "heterofl": {"masked_ce": True, "agg_weight": "uniform"},
    "feddropout": {"own_class_rows_only": True},
}


@pytest.mark.parametrize("name", CASES)
def test_methods_with_submodels(name: str, toy: Path) -> None:
    played_world = world(name, toy, rho=3, **CASES[name])
    model = dict(played_world.start.model)
    for played in played_world.play(((0, 2, 3), (1, 2, 3), (0, 1, 2))):
        before = model
        parts = trained_parts(played_world, played, model, name, rho=3)
        model = averaged(played_world, model, parts)
        assert_step(played.after.model, model, before, f"model after round {played.number}")
