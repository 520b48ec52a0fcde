"""The clock is set back. It cannot be set for one process, so Python's is replaced (`tests/faults/clock`)."""

from __future__ import annotations

import os
from pathlib import Path

from tests.faults import outcome
from tests.faults.registry import EQUAL, case
from tests.faults.scene import Scene

CLOCK = Path(__file__).resolve().parents[1] / "clock"
DAY = 86400


def set_back(scene: Scene, after: float) -> None:
    """From so many seconds after a process has started its clock shows the day before."""
    paths = [str(CLOCK), *filter(None, [os.environ.get("PYTHONPATH")])]
    scene.environment |= {
        "PYTHONPATH": os.pathsep.join(paths),
        "FEDTUNE_FAULTS_CLOCK": f"{-DAY}",
        "FEDTUNE_FAULTS_CLOCK_AFTER": f"{after}",
    }


@case("clock set back between sessions", "`resume` runs a day before the search began.", EQUAL)
def between(scene: Scene) -> str:
    scene.cut()
    set_back(scene, 0)
    return scene.resumed()


@case(
    "clock set back during a session",
    "In every process the clock falls a day back at a random moment.",
    EQUAL,
    moments=1,
)
def during(scene: Scene) -> str:
    set_back(scene, scene.rng.uniform(0, scene.stock.seconds))
    return outcome.equal(scene.search().wait(), scene.run, scene.whole)
