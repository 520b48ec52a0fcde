"""What a final run keeps beside its rows is damaged: saved models, which are then loaded, and images, which a report
draws.

Damaged images are left out of the report. A damaged model must not be taken for the one that was trained.
"""

from __future__ import annotations

from pathlib import Path

from search_spaces import run_folder
from tests.faults import outcome
from tests.faults.cases.damage import EXPECTED, WAYS, damage
from tests.faults.registry import case
from tests.faults.scene import CLIENTS, Scene

WHOSE = "of a final run"
FILES = {
    "model-<seed>.safetensors": "rrrrr",
    "model-<seed>.json": "rrrrr",
    "clients-<seed>.safetensors": "rrrrr",
    "clients-<seed>.json": "rrrrr",
    "images-<seed>-<round>.npz": "EEEEr",
}
#: A user's program: loads a whole model, and then the damaged one, of a file of clients each of them.
_LOAD = """
import sys
import fedtune
from search_spaces.errors import UserError
whole, damaged, *clients = sys.argv[1:]
for client in clients:
    fedtune.load_model(whole, int(client))
if not clients:
    fedtune.load_model(whole)
try:
    for client in clients:
        fedtune.load_model(damaged, int(client))
    if not clients:
        fedtune.load_model(damaged)
except UserError as error:
    print(*error.problems, sep="\\n", file=sys.stderr)
    sys.exit(2)
"""


def files(run: Path, name: str) -> list[Path]:
    """The files that a name stands for, and of images not those of the data."""
    start, ending = name.split("<")[0], name.rpartition(".")[2]
    every = sorted(run.glob(f"{run_folder.TRIALS}/*/{start}*.{ending}"))
    return [path for path in every if "data" not in path.name]


def loaded(scene: Scene, run: Path, path: Path) -> outcome.Done:
    """What comes of loading a saved model."""
    damaged = path.with_suffix(".safetensors")
    whole = scene.stock.final[0] / damaged.relative_to(run)
    clients = range(CLIENTS) if path.name.startswith("clients-") else ()
    return scene.python(_LOAD, whole, damaged, *clients).wait()


def damaged(scene: Scene, name: str, way: str) -> str:
    run = scene.copied("final")
    path = scene.rng.choice(files(run, name))
    damage(scene, path, way)
    before = outcome.state(run)
    if not name.startswith("images"):
        return outcome.refused(loaded(scene, run, path), run, before)
    done = scene.start("report", run).wait()
    if done.code == 0:
        return outcome.same(done, run, scene.stock.final[1], but=path)
    return outcome.refused(done, run, before)


def register(name: str, way: str, expected: str) -> None:
    """One case."""

    @case(
        f"{name} {WHOSE} {way}",
        "Then the report." if name.startswith("images") else "Then the model is loaded.",
        EXPECTED[expected],
        of=(name, WHOSE, way),
        needs=("final",),
    )
    def make(scene: Scene) -> str:
        return damaged(scene, name, way)


for _name, _expected in FILES.items():
    for _way, _letter in zip(WAYS, _expected, strict=True):
        register(_name, _way, _letter)
