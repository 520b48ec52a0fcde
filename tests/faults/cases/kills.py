"""Processes are killed, one after another, at random moments."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.faults import outcome, processes
from tests.faults.registry import EQUAL, case
from tests.faults.scene import NoMoment, Scene, Session

DRIVER, WORKER, RAYLET, GCS = 10, 8, 6, 6
#: A trial whose process dies three times is given up; two deaths can not be too many, whichever trials they hit.
DEATHS = 2
#: Seconds in which a search ends whose server died: to notice it and to leave Ray take less than that together
#: (`tests/fedtune/machine/test_server_watch.py`).
SOON = 30.0


def begin(scene: Scene) -> Session:
    """The search, or where it was killed before, its resumption."""
    return scene.resume() if scene.run.exists() else scene.search()


def chain(scene: Scene, kills: int, at_a_moment: Callable[[Scene, Session], str | None]) -> str:
    """Kills in a run and in its resumptions; where the run ends before all are done, in further runs. All of them must
    be the run that nothing disturbed."""
    done = 0
    while done < kills:
        session = begin(scene)
        try:
            if (other := at_a_moment(scene, session)) is not None:
                return f"kill {done + 1}: {other}"
            done += 1
        except NoMoment:
            if (other := outcome.equal(session.wait(), scene.run, scene.whole)) != EQUAL:
                return f"after kill {done}: {other}"
            scene.anew()
    last = begin(scene).wait()
    return outcome.equal(last, scene.run, scene.whole)


@case(
    "driver killed",
    "The process of `search` or `resume` is killed, from its first moment on; then `resume`.",
    EQUAL,
    moments=DRIVER,
    kills=True,
)
def driver(scene: Scene) -> str:
    def at_a_moment(scene: Scene, session: Session) -> None:
        moment = time.monotonic() + scene.rng.uniform(0, 1.1 * scene.stock.seconds)
        session.until(lambda: time.monotonic() >= moment)
        session.kill()

    return chain(scene, DRIVER, at_a_moment)


@case(
    "driver killed while rounds are run",
    "The same, at a random round of the search.",
    EQUAL,
    moments=1,
    short=True,
)
def driver_in_rounds(scene: Scene) -> str:
    session = scene.search()
    scene.at_rows(session, 0.1, 0.8)
    session.kill()
    return scene.resumed()


@case(
    "worker killed",
    "A process that runs a trial is killed, or the one from which it forked, twice in a session, and the session goes "
    "on.",
    EQUAL,
    moments=WORKER,
    kills=True,
)
def worker(scene: Scene) -> str:
    done = 0
    while done < WORKER:
        session = scene.search()
        for _ in range(DEATHS):
            try:
                at_a_round_of(scene, session, scene.rng.choice(("worker", "fork server")))
                done += 1
            except NoMoment:
                break
        if (other := outcome.equal(session.wait(), scene.run, scene.whole)) != EQUAL:
            return f"after kill {done}: {other}"
        scene.anew()
    return EQUAL


def server(scene: Scene, kind: str, kills: int) -> str:
    def at_a_moment(scene: Scene, session: Session) -> str | None:
        at_a_round_of(scene, session, kind)
        began = time.monotonic()
        found = session.wait(SOON)
        if found.code == 0 and time.monotonic() - began < 5:
            raise NoMoment("it had just ended")
        return outcome.told(found)

    return chain(scene, kills, at_a_moment)


@case(
    "raylet killed",
    "Ray's server that starts processes is killed: one sentence within 30 s; then `resume`.",
    EQUAL,
    moments=RAYLET,
    kills=True,
)
def raylet(scene: Scene) -> str:
    return server(scene, "raylet", RAYLET)


@case(
    "GCS killed",
    "Ray's server that keeps its state is killed: one sentence within 30 s; then `resume`.",
    EQUAL,
    moments=GCS,
    kills=True,
)
def gcs(scene: Scene) -> str:
    return server(scene, "GCS", GCS)


def at_a_round_of(scene: Scene, session: Session, kind: str) -> None:
    """Kills one of the processes of this kind at a random round."""
    scene.at_rows(session, 0.0, 0.6)
    found = session.until(lambda: processes.named(session.process.pid, kind))
    processes.kill(scene.rng.choice(found))


@case(
    "all processes killed",
    "Every process of the search is killed at the same moment, as a machine that goes down does; then `resume`.",
    EQUAL,
    moments=1,
)
def everything(scene: Scene) -> str:
    session = scene.search()
    scene.at_rows(session, 0.1, 0.8)
    for pid in (session.process.pid, *processes.below(session.process.pid)):
        processes.kill(pid)
    session.wait()
    return scene.resumed()


@case(
    "search killed while it makes its run directory",
    "A `search` is killed with its run directory half made, and another one begins under the same name.",
    EQUAL,
)
def half_made(scene: Scene) -> str:
    session = scene.search()
    session.until(lambda: list((scene.run.parent).glob(".run.*.tmp")))
    session.kill()
    if scene.run.exists():  # it was just complete
        return scene.resumed()
    found = outcome.equal(scene.search().wait(), scene.run, scene.whole)
    left = [path.name for path in scene.run.parent.iterdir() if path != scene.run]
    return found if not left else f"left behind {', '.join(left)}"
