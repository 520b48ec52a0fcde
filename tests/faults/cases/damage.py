"""Each file of a run directory is damaged between two sessions, in each of five ways."""

from __future__ import annotations

from pathlib import Path

from search_spaces import run_folder
from tests.faults import outcome
from tests.faults.registry import EQUAL, REFUSED, case
from tests.faults.scene import Scene, begun, ended

WAYS = ("truncated", "emptied", "garbled", "removed", "linked")

#: What must come of each way, in the order of `WAYS`. E: equal, r: refused.
RUN = {
    run_folder.EXPERIMENT: "rrrrr",
    run_folder.SPACE: "rrrrr",
    run_folder.PROVENANCE: "rrrEr",
    run_folder.STUDY: "Errrr",  # what is missing at its end is run again
    run_folder.LOCK: "EEEEr",
}
#: Of a trial that had begun. (Files of which no session reads what it needs are damaged together.)
BEGUN = {
    run_folder.ROUNDS: "EEEEr",
    run_folder.CHECKPOINT: "EEEEr",
    f"{run_folder.CONFIG} {run_folder.PARTITION} {run_folder.LOG}": "EEEEr",
}
#: Of a trial that had ended.
ENDED = {
    run_folder.ROUNDS: "EEEEr",
    f"{run_folder.CONFIG} {run_folder.PARTITION} {run_folder.LOG}": "EEEEr",
}
EXPECTED = {"E": EQUAL, "r": REFUSED}


BEGAN, OVER = "of a trial that began", "of a trial that ended"


def damage(scene: Scene, path: Path, way: str) -> None:
    """A file that is removed, or of which a link stands in its place, lies elsewhere from now on."""
    content = path.read_bytes()
    if way == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif way == "emptied":
        path.write_bytes(b"")
    elif way == "garbled":
        third = len(content) // 3
        path.write_bytes(content[:third] + scene.rng.randbytes(third + 1) + content[2 * third + 1 :])
    else:
        elsewhere = scene.folder / "elsewhere" / path.name
        elsewhere.parent.mkdir(exist_ok=True)
        path.rename(elsewhere)
        if way == "linked":
            path.symlink_to(elsewhere)


def damaged(scene: Scene, names: str, whose: str, way: str) -> str:
    run = folder = scene.cut()
    if whose:
        folder = scene.rng.choice((begun if whose == BEGAN else ended)(run))
    for name in names.split():
        damage(scene, folder / name, way)
    before, elsewhere = outcome.state(run), outcome.state(scene.folder / "elsewhere")
    found = outcome.either(scene.resume().wait(), run, before, scene.whole)
    same = outcome.state(scene.folder / "elsewhere") == elsewhere
    return found if same else "changed what a link leads to"


def register(names: str, whose: str, way: str, expected: str) -> None:
    """One case."""

    @case(
        f"{names.replace(' ', ', ')} {whose} {way}".replace("  ", " "),
        "Then `resume`.",
        EXPECTED[expected],
        of=(names, whose, way),
        short=(names, whose, way) == (run_folder.CHECKPOINT, BEGAN, "garbled"),
    )
    def make(scene: Scene) -> str:
        return damaged(scene, names, whose, way)


for _whose, _files in (("", RUN), (BEGAN, BEGUN), (OVER, ENDED)):
    for _names, _expected in _files.items():
        for _way, _letter in zip(WAYS, _expected, strict=True):
            register(_names, _whose, _way, _letter)
