"""The files of a folder that holds several runs are damaged, those of `fedtune auto` and of `fedtune reproduce`: its
own records, and those of the runs in it."""

from __future__ import annotations

import shutil
from pathlib import Path

from search_spaces import run_folder
from tests.faults import outcome
from tests.faults.cases.damage import EXPECTED, WAYS, damage
from tests.faults.registry import EQUAL, REFUSED, case
from tests.faults.scene import Scene

AUTO, TABLE = "of `auto`", "of `reproduce`"
#: A run in the folder, any of them.
PART, CELL = "of a run of `auto`", "of a run of `reproduce`"
_RECORDS = f"{run_folder.EXPERIMENT} {run_folder.SPACE}"
_BESIDE = f"{run_folder.CONFIG} {run_folder.PARTITION} {run_folder.LOG}"
_TABLES = " ".join((run_folder.VERDICTS, run_folder.NUMBERS, *run_folder.TABLES.values(), run_folder.REPORT))
#: What must come of each way, in the order of `WAYS`. Of `_RECORDS` one file is damaged, of other names all.
FILES = {
    (run_folder.AUTO, AUTO): "rrrrr",
    (run_folder.LOCK, AUTO): "EEEEr",
    ("best/<method>.yaml", AUTO): "EEEEr",
    (_RECORDS, PART): "rrrrr",
    (run_folder.STUDY, PART): "Errrr",
    (run_folder.ROUNDS, PART): "EEEEr",
    (_BESIDE, PART): "EEEEr",
    (run_folder.REPRODUCTION, TABLE): "rrrrr",
    (run_folder.LOCK, TABLE): "EEEEr",
    (_TABLES, TABLE): "EEEEr",
    (_RECORDS, CELL): "rrrrr",
    (run_folder.STUDY, CELL): "Errrr",
    (run_folder.ROUNDS, CELL): "EEEEr",
    (_BESIDE, CELL): "EEEEr",
}


def again(scene: Scene, kind: str) -> outcome.Done:
    """The command that goes on with a folder of this kind."""
    return (scene.resume() if kind == "auto" else scene.reproduce()).wait()


def found(folder: Path, whose: str, name: str) -> list[Path]:
    """The files that a name stands for, in the folder itself or in the runs in it."""
    if name.startswith(run_folder.BEST):
        return sorted((folder / run_folder.BEST).iterdir())
    return sorted(folder.rglob(name)) if whose in (PART, CELL) else [folder / name]


def damaged(scene: Scene, names: str, whose: str, way: str) -> str:
    kind = "auto" if whose in (AUTO, PART) else "reproduce"
    folder = scene.copied(kind)
    listed = names.split()
    if names == _BESIDE:  # of one trial
        place = scene.rng.choice(found(folder, whose, run_folder.PARTITION)).parent
        paths = [place / name for name in listed]
    elif names == _RECORDS or len(listed) == 1:
        paths = [scene.rng.choice(found(folder, whose, scene.rng.choice(listed)))]
    else:
        paths = [folder / name for name in listed]
    for path in paths:
        damage(scene, path, way)
    before, elsewhere = outcome.state(folder), outcome.state(scene.folder / "elsewhere")
    done = again(scene, kind)
    if outcome.state(scene.folder / "elsewhere") != elsewhere:
        return "changed what a link leads to"
    if done.code == 0:
        return outcome.same(done, folder, getattr(scene.stock, kind)[1])
    return outcome.refused(done, folder, before)


def register(names: str, whose: str, way: str, expected: str) -> None:
    """One case."""
    kind, one = ("auto", "`resume`") if whose in (AUTO, PART) else ("reproduce", "`reproduce`")

    @case(
        f"{names.replace(' ', ', ')} {whose.replace('`', '')} {way}",
        f"Then {one}.",
        EXPECTED[expected],
        of=(names, whose, way),
        needs=(kind,),
    )
    def make(scene: Scene) -> str:
        return damaged(scene, names, whose, way)


for (_names, _whose), _expected in FILES.items():
    for _way, _letter in zip(WAYS, _expected, strict=True):
        register(_names, _whose, _way, _letter)


def gone(scene: Scene, kind: str, part: str) -> str:
    """A run in the folder is removed."""
    folder = scene.copied(kind)
    shutil.rmtree(scene.rng.choice(sorted((folder / part).iterdir())))
    before, done = outcome.state(folder), again(scene, kind)
    if done.code == 0:
        return outcome.same(done, folder, getattr(scene.stock, kind)[1])
    return outcome.refused(done, folder, before)


@case("search of auto gone", "The search of one method is removed; then `resume`.", REFUSED, needs=("auto",))
def search_gone(scene: Scene) -> str:
    return gone(scene, "auto", run_folder.SEARCHES)


@case("fresh seeds of auto gone", "The run of one method's best is removed; then `resume`.", EQUAL, needs=("auto",))
def fresh_gone(scene: Scene) -> str:
    return gone(scene, "auto", run_folder.FRESH)


@case("final run of auto gone", "The leader's final run is removed; then `resume`.", EQUAL, needs=("auto",))
def final_gone(scene: Scene) -> str:
    return gone(scene, "auto", run_folder.FINAL)


@case("cell of reproduce gone", "A cell's run is removed; then `reproduce`.", EQUAL, needs=("reproduce",))
def cell_gone(scene: Scene) -> str:
    return gone(scene, "reproduce", run_folder.CELLS)
