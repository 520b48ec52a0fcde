"""Ray as a search starts it, in a process of its own: told on stdin whether it asks for a token, answers on stdout what
its start, calls of an actor and its end took, and what its start and the calls took of the processor in this process
and all below it.

A search imports PyTorch while Ray starts. That takes longer than the start, and differs from one time to the next by
more than a token takes, so here it is done before.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.search_process import tree

CALLS = 200


def main() -> None:
    task = json.loads(sys.stdin.readline())
    answers, sys.stdout = sys.stdout, sys.stderr
    import trainables.tune  # noqa: F401  (what a search imports while Ray starts)
    from fedtune.machine import cluster

    if task["unguarded"]:
        _without_token()
    started, used = time.perf_counter(), processor()
    with cluster.joined(None, trials=1, cpus=1, gpus=0):
        start, processor_start = time.perf_counter() - started, processor() - used
        import ray

        @ray.remote(num_cpus=1)
        class Answers:
            def answer(self) -> int:
                return 1

        actor = Answers.remote()
        ray.get(actor.answer.remote())  # its process has imported PyTorch, which takes as long with a token as without
        started, used = time.perf_counter(), processor()
        for _call in range(CALLS):
            ray.get(actor.answer.remote())
        calls, processor_calls = time.perf_counter() - started, processor() - used
        started = time.perf_counter()
    end = time.perf_counter() - started
    found = {"start": start, "calls": calls, "end": end, "processor": processor_start + processor_calls}
    answers.write(json.dumps(found) + "\n")
    answers.flush()


def processor() -> float:
    """Seconds of the processor that this process, all below it and those of them that have ended have taken."""
    ticks = sum(map(_ticks, tree(os.getpid())))
    return ticks / os.sysconf("SC_CLK_TCK")


def _ticks(pid: int) -> int:
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15]))
    return 0


def _without_token() -> None:
    """From now on a Ray of our own asks nobody for a token: what that takes is measured."""
    from fedtune.machine import private_ray

    setting = private_ray._set

    def unguarded(changes: Mapping[str, str | None]) -> None:
        open_ = {"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN_PATH": None}
        setting({**changes, **open_} if changes.get("RAY_AUTH_MODE") == "token" else changes)

    private_ray._set = unguarded


if __name__ == "__main__":
    main()
