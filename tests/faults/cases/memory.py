"""The memory of a trial's process runs out."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from tests.faults import outcome, processes
from tests.faults.registry import EQUAL, case
from tests.faults.scene import Scene


@case("memory of a worker limited", "From a random round on it gets no page more (RLIMIT_AS).", EQUAL, moments=1)
def of_a_worker(scene: Scene) -> str:
    session = scene.search()
    scene.at_rows(session, 0.1, 0.6)
    pid = scene.rng.choice(session.until(lambda: processes.named(session.process.pid, "worker")))
    used = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.prlimit(pid, resource.RLIMIT_AS, (used, used))
    done = session.wait()
    return outcome.equal(done, scene.run, scene.whole) if done.code == 0 else scene.after(done)
