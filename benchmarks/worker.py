"""The process of one arm: told on stdin what to prepare, then to work or to describe itself; answers on stdout, in JSON
lines."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


def memory() -> dict[str, float]:
    """This process's memory in MiB: `pss` (shared pages counted in part) now, `own`, without the pages of files such as
    libraries, of which a part counts that depends on who else has them, and `peak` resident memory so far."""
    rollup = dict(line.split(":", 1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    found = {"pss": rollup["Pss"], "own": rollup["Anonymous"], "peak": status["VmHWM"]}
    return {name: int(size.split()[0]) / 1024 for name, size in found.items()}


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr

    def answer(found: dict[str, Any]) -> None:
        answers.write(json.dumps(found) + "\n")
        answers.flush()

    task = json.loads(sys.stdin.readline())
    import torch

    from benchmarks import plain_models, plain_torch, workloads

    if task["workload"] == "PlainRounds":  # before anything of the engine is imported
        plain_torch.apply()
    plain_models.register()
    torch.set_num_threads(task["threads"])
    unit = getattr(workloads, task["workload"])(**task["options"])
    answer({"ready": True})
    for line in sys.stdin:
        if json.loads(line)["do"] == "run":
            started = time.perf_counter()
            measured = unit.run()
            seconds = time.perf_counter() - started
            answer({"seconds": seconds if measured is None else measured})
        else:
            answer({"memory": memory(), **unit.describe()})


if __name__ == "__main__":
    main()
