"""The data set, or its prepared copy in the cache, is gone or another one."""

from __future__ import annotations

import shutil

import numpy as np

from search_spaces import run_folder
from tests.faults import outcome
from tests.faults.registry import EQUAL, REFUSED, case
from tests.faults.scene import Scene, begun


def change(scene: Scene) -> None:
    """Every label of the training data becomes the next one."""
    with np.load(scene.data) as arrays:
        content = dict(arrays)
    content["y_train"] = (content["y_train"] + 1) % 4
    np.savez(scene.data, **content)


def put_back(scene: Scene) -> None:
    shutil.copy2(scene.stock.toy, scene.data)


def gone(scene: Scene) -> None:
    scene.data.unlink()


def between(scene: Scene, fault) -> str:  # type: ignore[no-untyped-def]
    """The fault happens between two sessions; when it is gone, the run goes on as if nothing had been."""
    before = outcome.state(scene.cut())
    fault(scene)
    found = outcome.refused(scene.resume().wait(), scene.run, before)
    put_back(scene)
    if found == REFUSED and (after := scene.resumed()) != EQUAL:
        return f"refused, but then {after}"
    return found


def during(scene: Scene, fault) -> str:  # type: ignore[no-untyped-def]
    """The fault happens while rounds are run."""
    session = scene.search()
    scene.at_rows(session, 0.0, 0.5)
    fault(scene)
    done = session.wait()
    put_back(scene)
    return outcome.equal(done, scene.run, scene.whole) if done.code == 0 else scene.after(done)


@case(
    "data set gone between sessions",
    "`resume` finds no file; then it is back, and `resume` again.",
    REFUSED,
    short=True,
)
def gone_between(scene: Scene) -> str:
    return between(scene, gone)


@case("data set changed between sessions", "`resume` finds other labels; then the old ones.", REFUSED)
def changed_between(scene: Scene) -> str:
    return between(scene, change)


@case(
    "data set gone during a session",
    "The file is removed at a random round; then it is back, and `resume`.",
    EQUAL,
    moments=1,
)
def gone_during(scene: Scene) -> str:
    return during(scene, gone)


@case(
    "data set changed during a session",
    "It gets other labels at a random round; then the old ones, and `resume`.",
    EQUAL,
    moments=1,
)
def changed_during(scene: Scene) -> str:
    return during(scene, change)


@case("data set changed under its old time", "Other labels, and the file's time of change as before.", EQUAL)
def same_time(scene: Scene) -> str:
    """The prepared copy is used, which is the data set that the run began with."""
    scene.cut()
    change(scene)
    if scene.data.stat().st_size != scene.stock.toy.stat().st_size:
        return "the changed file has another size, so this case shows nothing"
    shutil.copystat(scene.stock.toy, scene.data)
    return scene.resumed()


@case("cache gone between sessions", "The prepared data set is removed, and prepared again.", EQUAL)
def cache_gone(scene: Scene) -> str:
    scene.environment["FEDTUNE_CACHE"] = str(scene.folder / "another")
    scene.cut()
    return scene.resumed()


@case("cache gone during a session", "The prepared data set is removed at a random round.", EQUAL, moments=1)
def cache_gone_during(scene: Scene) -> str:
    cache = scene.folder / "another"
    scene.environment["FEDTUNE_CACHE"] = str(cache)
    return during(scene, lambda scene: shutil.rmtree(cache))


@case("cache truncated", "The prepared images are cut in half.", REFUSED)
def cache_truncated(scene: Scene) -> str:
    cache = scene.folder / "another"
    shutil.copytree(scene.stock.folder / "cache", cache)
    scene.environment["FEDTUNE_CACHE"] = str(cache)
    before = outcome.state(scene.cut())
    for path in cache.rglob("train_x.npy"):
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)
    return outcome.refused(scene.resume().wait(), scene.run, before)


@case(
    "folder of a trial gone during a session",
    "The folder of a trial that runs is removed; then `resume`.",
    EQUAL,
    moments=1,
)
def folder_gone(scene: Scene) -> str:
    session = scene.search()
    scene.at_rows(session, 0.1, 0.6)
    found = session.until(lambda: begun(scene.run))
    shutil.rmtree(scene.rng.choice(found), ignore_errors=True)
    done = session.wait()
    (scene.run / run_folder.TRIALS).mkdir(exist_ok=True)
    # Where the trial had just ended nobody misses the folder before the next command.
    return scene.resumed() if done.code == 0 else scene.after(done)
