"""A search in a process of its own, as a user's: told on stdin what to search, answers on stdout what it took.

Ray's start and end are timed where `fedtune` calls them; memory is sampled every half second over the tree of
processes, by kind.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def main() -> None:
    task = json.loads(sys.stdin.readline())
    answers, sys.stdout = sys.stdout, sys.stderr
    from fedtune.machine import cluster

    os.environ.update({key: value for key, value in cluster.ENVIRONMENT.items() if key not in os.environ})
    import ray

    import fedtune
    from benchmarks import standin  # workers find it too: the repository is on PYTHONPATH

    spent: dict[str, float] = {}
    ray.init, ray.shutdown = _timed(ray.init, spent, "init"), _timed(ray.shutdown, spent, "shutdown")
    work = {key: task[key] for key in ("products", "sleep", "diary") if key in task}
    simulate = None if task.get("real") else functools.partial(standin.Standin, **work)
    samples = Samples() if task.get("memory") else None
    started = time.perf_counter()
    result = fedtune.search(
        task.get("method", "fedavg"), quiet=True, simulate=simulate, **{"confirm": False, **task["options"]}
    )
    seconds = time.perf_counter() - started
    answers.write(
        json.dumps(
            {
                "seconds": seconds,
                "drive": result.seconds,
                "init": spent.get("init", 0.0),
                "shutdown": spent.get("shutdown", 0.0),
                "counts": dict(result.counts),
                "memory": samples.stop() if samples else None,
            }
        )
        + "\n"
    )
    answers.flush()
    gc.freeze()  # as the command line: modules are not taken apart piece by piece at the end, which takes a second


def _timed(function: Callable[..., Any], spent: dict[str, float], name: str) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[name] = spent.get(name, 0.0) + time.perf_counter() - started

    return timed


class Samples(threading.Thread):
    """Largest proportional set size in MiB of the processes below this one: this one, the largest worker that runs
    trials, Ray's servers, idle workers and the fork server together, and all."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.largest: dict[str, float] = {}
        self._over = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._over.wait(0.5):
            found = {"driver": 0.0, "worker": 0.0, "ray": 0.0, "all": 0.0}
            for pid, name in sorted(tree(os.getpid()).items()):
                size = pss(pid)
                found["all"] += size
                if pid == os.getpid():
                    found["driver"] = size
                elif re.match(r"ray::(?!IDLE|\w+Agent)", name):
                    found["worker"] = max(found["worker"], size)
                else:
                    found["ray"] += size
            self.largest = {key: max(self.largest.get(key, 0.0), value) for key, value in found.items()}

    def stop(self) -> dict[str, float]:
        self._over.set()
        self.join()
        return self.largest


def tree(root: int) -> dict[int, str]:
    """The process `root` and all below it, with their command lines."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
    below, found = {root}, {}
    while below:
        pid = below.pop()
        try:
            found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        below |= {child for child, parent in parents.items() if parent == pid}
    return found


def pss(pid: int) -> float:
    """A process's proportional set size in MiB; 0 where it has ended."""
    try:
        line = next(
            line for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() if line.startswith("Pss:")
        )
    except (OSError, StopIteration):
        return 0.0
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
