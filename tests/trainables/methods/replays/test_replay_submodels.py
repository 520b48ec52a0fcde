"""FedRolex, HeteroFL and Federated Dropout, three rounds: cutting sub-models, training them, and Eq. (1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.trainables.methods.replays.actual import assert_step, world
from tests.trainables.methods.replays.phases import averaged, trained_parts

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "fedrolex": ("fedrolex", {}),
    "fedrolex backward": ("fedrolex", {"roll": "backward"}),
    "heterofl": ("heterofl", {"masked_ce": True, "agg_weight": "uniform"}),
    "feddropout": ("feddropout", {"own_class_rows_only": True}),
}


@pytest.mark.parametrize("case", CASES)
def test_methods_with_submodels(case: str, toy: Path) -> None:
    name, settings = CASES[case]
    played_world = world(name, toy, rho=3, **settings)
    model = dict(played_world.start.model)
    for played in played_world.play(((0, 2, 3), (1, 2, 3), (0, 1, 2))):
        before = model
        parts = trained_parts(played_world, played, model, name, rho=3)
        model = averaged(played_world, model, parts)
        assert_step(played.after.model, model, before, f"model after round {played.number}")
