"""Memory, files and sizes of files are limited, from the beginning or from a random round on."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from pathlib import Path

from tests.faults import outcome, processes
from tests.faults.registry import EQUAL, REFUSED, case
from tests.faults.scene import Scene


def limit(which: int, value: int) -> Callable[[], None]:
    """To be called in the new process."""
    return lambda: resource.setrlimit(which, (value, value))


def limited(scene: Scene, kind: str, which: int, value: Callable[[int], int]) -> str:
    """One process, the driver or a worker, is limited to `value(its id)` while rounds are run."""
    session = scene.search()
    scene.at_rows(session, 0.1, 0.6)
    pid = session.process.pid
    if kind != "driver":
        pid = scene.rng.choice(session.until(lambda: processes.named(session.process.pid, kind)))
    resource.prlimit(pid, which, (value(pid), value(pid)))
    done = session.wait()
    return outcome.equal(done, scene.run, scene.whole) if done.code == 0 else scene.after(done)


def memory(pid: int) -> int:
    """Addresses that a process uses, in bytes: not one page more."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def files(pid: int) -> int:
    """Files that a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def refused(scene: Scene, which: int, value: int) -> str:
    before = outcome.state(scene.cut())
    return outcome.refused(scene.resume(limits=limit(which, value)).wait(), scene.run, before)


@case("little memory from the beginning", "`resume` with 1 GiB of addresses (RLIMIT_AS).", REFUSED)
def memory_at_start(scene: Scene) -> str:
    return refused(scene, resource.RLIMIT_AS, 1 << 30)


@case("memory of a worker limited", "From a random round on it gets no page more (RLIMIT_AS).", EQUAL, moments=1)
def memory_of_a_worker(scene: Scene) -> str:
    return limited(scene, "worker", resource.RLIMIT_AS, memory)


@case("few files from the beginning", "`resume` with 40 open files (RLIMIT_NOFILE).", REFUSED)
def files_at_start(scene: Scene) -> str:
    return refused(scene, resource.RLIMIT_NOFILE, 40)


@case("files of a worker limited", "From a random round on it opens no file more (RLIMIT_NOFILE).", EQUAL, moments=1)
def files_of_a_worker(scene: Scene) -> str:
    return limited(scene, "worker", resource.RLIMIT_NOFILE, files)


@case("files of the driver limited", "From a random round on it opens no file more (RLIMIT_NOFILE).", EQUAL, moments=1)
def files_of_the_driver(scene: Scene) -> str:
    return limited(scene, "driver", resource.RLIMIT_NOFILE, files)


@case(
    "sizes of a worker's files limited", "From a random round on no file passes 4 KiB (RLIMIT_FSIZE).", EQUAL, moments=1
)
def sizes_of_a_worker(scene: Scene) -> str:
    return limited(scene, "worker", resource.RLIMIT_FSIZE, lambda pid: 4096)


@case(
    "sizes of the driver's files limited",
    "From a random round on no file passes 4 KiB (RLIMIT_FSIZE); Ray may say so of its own log.",
    EQUAL,
    moments=1,
)
def sizes_of_the_driver(scene: Scene) -> str:
    return limited(scene, "driver", resource.RLIMIT_FSIZE, lambda pid: 4096)
