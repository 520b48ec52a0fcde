"""DFRD's server phase against the loops of the papers' releases."""

from __future__ import annotations

import statistics
from typing import Any

from tests.benchmarks.fingerprint import apart
from tests.benchmarks.images import npz
from tests.benchmarks.measure import Arm, Processes, interleave, ratio, say
from tests.benchmarks.results import Case

TITLE = "DFRD's server phase, one thread"
TEXT = """
Ten teachers, the 4-layer CNN on 3×32×32, batches of 64, two generator steps and five distillation steps with the moving average's images per
iteration; measured on one iteration and given for ten. *Naive* runs the teachers one after the other, contiguous, gathering gradients of their
weights (with the system's allocator); *frozen* spares weight gradients and graphs that nobody asks for (with fedtune's allocator settings). All arms see
the same uploads and noise and must reach the same global model (relative difference of all weights in the last column).
"""


def federation(clients: int, **more: Any) -> dict[str, Any]:
    """Values of a DFRD trial whose clients' work is next to nothing."""
    return {
        "dataset": str(npz(clients * 40, 40, 32, 3)), "model": "cnn", "base": "fedavg", "clients": clients, "partition": "iid", "min_samples": 1,
        "validation_fraction": 0.0, "local_steps": 1, "batch_size": 8, "server_iters": 1, "rounds": 1000,
    } | more


def run(quick: bool) -> Case:
    from trainables.registry import declared

    case = Case("server_phase", TITLE, TEXT, quick=quick)
    values = federation(2 if quick else 10, **({"server_batch_size": 4, "gen_steps": 1, "distill_steps": 1} if quick else {}))
    arms = {
        "naive": Arm("dfrd_server", {"values": values, "arm": "naive"}, malloc=False),
        "frozen": Arm("dfrd_server", {"values": values, "arm": "frozen"}),
        "fedtune": Arm("dfrd_server", {"values": values, "arm": "fedtune"}),
    }
    if "precision" in declared("dfrd"):
        arms["fedtune, bf16"] = Arm("dfrd_server", {"values": values | {"precision": "bf16"}, "arm": "fedtune"})
    else:
        say("  server_phase: there is no parameter `precision` yet, so nothing in bf16")
    with Processes("server_phase") as processes:
        for name, arm in arms.items():
            processes.start(name, arm)
        found = interleave(processes, {name: [name] for name in arms}, repeats=2)
        said = {name: processes.describe(name) for name in arms}
    case.table("Seconds per server phase of ten iterations", ("arm", "s", "speed-up over naive", "over frozen", "PSS, MiB", "differs by"), [
        [name, 10 * statistics.median(seconds), ratio(found["naive"], seconds), ratio(found["frozen"], seconds), said[name]["memory"]["pss"],
         apart(said["frozen"]["model"], said[name]["model"])] for name, seconds in found.items()])
    case.faster("DFRD server phase, fp32, against the naive loops", 2.4, found["naive"], found["fedtune"])
    case.faster("DFRD server phase, fp32, against frozen teachers", 1.8, found["frozen"], found["fedtune"])
    if "fedtune, bf16" in found:
        case.faster("DFRD server phase, bf16, against the naive loops", 4.5, found["naive"], found["fedtune, bf16"])
    return case
