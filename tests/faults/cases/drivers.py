"""A second process wants to drive the same run."""

from __future__ import annotations

from tests.faults import outcome, processes
from tests.faults.registry import EQUAL, REFUSED, case
from tests.faults.scene import Scene


def second(scene: Scene, *words: object) -> str:
    """While a search runs, somebody calls another command; and the search is what it would have been. Its trials stand
    still meanwhile: it is short, and on a busy machine it would end before the other command has begun."""
    session = scene.search()
    scene.at_rows(session, 0.0, 0.2)
    with processes.held(processes.named(session.process.pid, "worker")):
        done = scene.start(*words).wait()
    if (other := outcome.told(done)) is not None:
        return other
    first = outcome.equal(session.wait(), scene.run, scene.whole)
    return REFUSED if first == EQUAL else f"refused, but the first one: {first}"


@case(
    "second driver: resume",
    "`resume` of a run that a search drives; the search ends as ever.",
    REFUSED,
    moments=1,
    short=True,
)
def resume(scene: Scene) -> str:
    return second(scene, "resume", scene.run)


@case("second driver: extend", "`extend` of a run that a search drives; the search ends as ever.", REFUSED, moments=1)
def extend(scene: Scene) -> str:
    return second(scene, "extend", scene.run, "--trials", 2)


@case("two searches of one name", "Both begin at the same moment: one is refused, the other one ends as ever.", REFUSED)
def same_name(scene: Scene) -> str:
    ends = [session.wait() for session in [scene.search(), scene.search()]]
    ends.sort(key=lambda done: done.code or 0)
    if (first := outcome.equal(ends[0], scene.run, scene.whole)) != EQUAL:
        return f"the first one: {first}"
    left = [path.name for path in scene.run.parent.iterdir() if path != scene.run]
    return outcome.told(ends[1]) or (f"left behind {', '.join(left)}" if left else REFUSED)
