"""DFRD's server phase against the loops of the papers' releases."""

from __future__ import annotations

import statistics
from typing import Any

import torch

from benchmarks.fingerprint import apart
from benchmarks.images import npz
from benchmarks.measure import Arm, Processes, interleave, ratio
from benchmarks.results import Case
from trainables.models.precision import supported

TITLE = "DFRD's server phase, one thread"
TEXT = """
Ten teachers, 4-layer CNNs on 3×32×32, batches of 64, two generator steps and five distillation steps with the moving average's images per
iteration; measured on one iteration and given for ten. *Naive* runs the teachers one after the other, contiguous, gathering gradients of their
weights (with the system's allocator); *frozen* spares weight gradients and graphs that nobody asks for (with fedtune's allocator settings). All arms see
the same uploads and noise and must reach the same global model (relative difference of all weights in the last column).

Left as the equations have it: the models normalise with the statistics of each batch, so convolution and normalisation are not folded into one, and the
generator's and its average's images do not share a pass; teachers of equal width run one after the other, as stacked ones become grouped convolutions,
which are slower on a CPU. In bfloat16 the generator's first two layers are matrix products, which spares laying out their weights at every call. In
float32, where no gradient is asked for, the first is one too, and the second takes eight images side by side, both to the same bits. More was tried
there: products for its other layers and in the diversity loss's gradient changed a seeded run's loss by 4e-5 after its first round, as client
training with BatchNorm magnifies rounding, where a change for speed alone may make 1e-5.
"""


def federation(model: str, clients: int, **more: Any) -> dict[str, Any]:
    """Values of a DFRD trial whose clients compute next to nothing."""
    return {
        "dataset": str(npz(clients * 40, 40, 32, 3)),
        "model": model,
        "base": "fedavg",
        "clients": clients,
        "partition": "iid",
        "min_samples": 1,
        "validation_fraction": 0.0,
        "local_steps": 1,
        "batch_size": 8,
        "server_iters": 1,
        "rounds": 1000,
    } | more


#: The narrow CNN, for which the goals are set, and DFRD's own, whose wide convolutions leave less time outside of them
#: to save.
MODELS = (("cnn_narrow", "32-64-64-128"), ("cnn", "64-128-256-512"))


def run(quick: bool) -> Case:
    case = Case("server_phase", TITLE, TEXT, quick=quick)
    rows = []
    for model, widths in MODELS[:1] if quick else MODELS:
        values = federation(
            model, 2 if quick else 10, **({"server_batch_size": 4, "gen_steps": 1, "distill_steps": 1} if quick else {})
        )
        arms = {
            "naive": Arm("dfrd_server", {"values": values, "arm": "naive"}, malloc=False),
            "frozen": Arm("dfrd_server", {"values": values, "arm": "frozen"}),
            "fedtune": Arm("dfrd_server", {"values": values, "arm": "fedtune"}),
        }
        if supported(torch.device("cpu")):
            arms["fedtune, bf16"] = Arm("dfrd_server", {"values": values | {"precision": "bf16"}, "arm": "fedtune"})
        else:
            case.notes.append("This processor has no bfloat16 arithmetic, so there is nothing in bf16.")
        with Processes(f"server_phase, {model}") as processes:
            for name, arm in arms.items():
                processes.start(name, arm)
            found = interleave(processes, {name: [name] for name in arms}, repeats=6 if model == "cnn_narrow" else 2)
            said = {name: processes.describe(name) for name in arms}
        rows += [
            [
                widths if name == "naive" else "",
                name,
                10 * statistics.median(seconds),
                ratio(found["naive"], seconds),
                ratio(found["frozen"], seconds),
                said[name]["memory"]["pss"],
                apart(said["frozen"]["model"], said[name]["model"]),
            ]
            for name, seconds in found.items()
        ]
        case.notes.append(_without_passes(widths, said["fedtune"]["generator"], found))
        if model == "cnn_narrow":
            case.faster("DFRD server phase, fp32, against the naive loops", 2.4, found["naive"], found["fedtune"])
            case.faster("DFRD server phase, fp32, against frozen teachers", 1.8, found["frozen"], found["fedtune"])
            if "fedtune, bf16" in found:
                case.faster(
                    "DFRD server phase, bf16, against the naive loops", 4.5, found["naive"], found["fedtune, bf16"]
                )
    case.table(
        "Seconds per server phase of ten iterations",
        ("teachers", "arm", "s", "speed-up over naive", "over frozen", "PSS, MiB", "differs by"),
        rows,
    )
    return case


def _without_passes(widths: str, passes: float, found: dict[str, list[float]]) -> str:
    """A sentence on how fast fedtune is without the generator's own passes, of so many seconds, which all arms share."""
    rest = {name: [seconds - passes for seconds in found[name]] for name in ("naive", "frozen", "fedtune")}
    return (
        f"{widths}: the generator's own passes, no shorter in the other arms, take {10 * passes:.3g} s of "
        f"fedtune's {10 * statistics.median(found['fedtune']):.3g} s in fp32. With so much taken off every arm, fedtune is "
        f"{ratio(rest['naive'], rest['fedtune']):.3g} times as fast as the naive loops and "
        f"{ratio(rest['frozen'], rest['fedtune']):.3g} times as fast as those with frozen teachers."
    )
