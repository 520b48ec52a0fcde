"""The disk is full, has no room for one more file, or takes nothing at all."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.faults import mounts, outcome
from tests.faults.registry import EQUAL, REFUSED, case
from tests.faults.scene import Scene, begun

#: Of a run of this campaign, whole, many times over; and less than the first files of a run need.
ENOUGH, TOO_LITTLE = 16 << 20, 64 << 10


def fill(folder: Path) -> None:
    """Until not one byte more can be written."""
    with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


def fill_inodes(folder: Path) -> None:
    """Until not one file more can be made."""
    (folder / "filler").mkdir()
    with contextlib.suppress(OSError):
        number = 0
        while True:
            (folder / "filler" / str(number)).touch()
            number += 1


def empty(folder: Path) -> None:
    place = folder / "filler"
    shutil.rmtree(place) if place.is_dir() else place.unlink()


def full_during(scene: Scene, filled: Callable[[Path], None]) -> str:
    """A disk that fills up while rounds are run, and then has room again."""
    with mounts.small_disk(scene.run.parent, ENOUGH, files=400):
        session = scene.search()
        scene.at_rows(session, 0.1, 0.6)
        filled(scene.run.parent)
        done = session.wait()
        empty(scene.run.parent)
        return outcome.equal(done, scene.run, scene.whole) if done.code == 0 else scene.after(done)


@case(
    "disk full from the beginning",
    "`search` on a disk with 64 KiB: nothing is left of it.",
    REFUSED,
)
def full_at_start(scene: Scene) -> str:
    with mounts.small_disk(scene.run.parent, TOO_LITTLE, files=400):
        before = outcome.state(scene.run.parent)
        return outcome.refused(scene.search().wait(), scene.run.parent, before)


@case(
    "disk full during a session",
    "The disk of the run directory fills up at a random round: one sentence; then room, and `resume`.",
    EQUAL,
    moments=1,
    short=True,
)
def full(scene: Scene) -> str:
    return full_during(scene, fill)


@case(
    "disk without inodes during a session",
    "No more files can be made from a random round on: one sentence; then room, and `resume`.",
    EQUAL,
    moments=1,
)
def inodes(scene: Scene) -> str:
    return full_during(scene, fill_inodes)


@case("disk full at resume", "`resume` where not one byte more can be written.", REFUSED)
def full_at_resume(scene: Scene) -> str:
    with mounts.small_disk(scene.run.parent, ENOUGH, files=400):
        scene.cut()
        fill(scene.run.parent)
        before = outcome.state(scene.run)
        return outcome.refused(scene.resume().wait(), scene.run, before)


@case("temporary folder full", "TMPDIR lies on a full disk: the next place for temporary files is taken.", EQUAL)
def temporary(scene: Scene) -> str:
    place = scene.folder / "tmp"
    with mounts.small_disk(place, TOO_LITTLE, files=400):
        fill(place)
        scene.environment["TMPDIR"] = str(place)
        scene.cut()
        return scene.resumed()


@case("Ray's folder full", "RAY_TMPDIR, which names one place and no other, lies on a full disk.", REFUSED)
def rays_folder(scene: Scene) -> str:
    place = scene.stock.folder / "r"  # a path that is short enough for it
    with mounts.small_disk(place, TOO_LITTLE, files=400):
        fill(place)
        scene.environment["RAY_TMPDIR"] = str(place)
        before = outcome.state(scene.cut())
        return outcome.refused(scene.resume().wait(), scene.run, before)


@case("folder for runs read-only", "`search` where no run directory can be made.", REFUSED)
def read_only_runs(scene: Scene) -> str:
    scene.run.parent.mkdir()
    with mounts.read_only(scene.run.parent):
        return outcome.refused(scene.search().wait(), scene.run.parent, {})


@case("run directory read-only", "`resume` where nothing can be written.", REFUSED)
def read_only_run(scene: Scene) -> str:
    before = outcome.state(scene.cut())
    with mounts.read_only(scene.run):
        return outcome.refused(scene.resume().wait(), scene.run, before)


@case("folder of a trial read-only", "`resume` where one trial that had begun cannot write; then it can.", EQUAL)
def read_only_trial(scene: Scene) -> str:
    scene.cut()
    with mounts.read_only(begun(scene.run)[0]):
        done = scene.resume().wait()
    return scene.after(done)


@case("cache read-only and empty", "The prepared data sets are gone, and there is no place to prepare them.", REFUSED)
def cache(scene: Scene) -> str:
    before = outcome.state(scene.cut())
    place = scene.folder / "cache"
    place.mkdir()
    scene.environment["FEDTUNE_CACHE"] = str(place)
    with mounts.read_only(place):
        return outcome.refused(scene.resume().wait(), scene.run, before)
