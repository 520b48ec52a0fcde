"""The executors loop and vmap, fp32 and bf16: seconds per round, and what bf16 does to accuracy."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks import arithmetic
from benchmarks.cases.client_round import federation
from benchmarks.fingerprint import apart
from benchmarks.images import AS_DIGITS, FASHION, file, kinds
from benchmarks.measure import Arm, Processes, interleave, ratio, say
from benchmarks.results import Case

TITLE = "Executors and precision"
TEXT = """
The same federation with every client on its own (*loop*) or all in one batched program (*vmap*), in fp32 or with bfloat16 autocast, on one CPU thread.
vmap is meant for GPUs: on a CPU its convolutions become grouped ones.
"""
#: The model, its title, side, channels, clients and steps.
MODELS = (("lenet5", "LeNet-5", 28, 1, 10, 5), ("cnn", "DFRD's CNN", 32, 3, 2, 4))
#: Accuracy runs: method and what is set.
ACCURACY: tuple[tuple[str, dict[str, Any]], ...] = (
    ("fedavg", {"rounds": 20, "lr": 0.05, "omega": 0.5}),
    ("dfrd", {"rounds": 5, "lr": 0.05, "omega": 0.5, "base": "fedavg", "kd_temperature": 3.0, "server_iters": 5}),
)


def variants() -> list[tuple[str, dict[str, Any]]]:
    """The variants that can be run here, by name; what is missing is said."""
    import torch

    from trainables.models import precision

    found: list[tuple[str, dict[str, Any]]] = [
        ("loop, fp32", {"executor": "loop"}),
        ("vmap, fp32", {"executor": "vmap"}),
    ]
    if precision.supported(torch.device("cpu")):
        return [*found, ("loop, bf16", {"executor": "loop", "precision": "bf16"})]
    say("  variants: this processor has no bfloat16 arithmetic")
    return found


def run(quick: bool) -> Case:
    case = Case("variants", TITLE, TEXT, quick=quick)
    chosen, there = variants(), kinds(case)
    planned = [(*one, of) for one in MODELS for of in there]
    for model, title, side, channels, clients, steps, of in planned[: 1 if quick else None]:
        values, _ = federation(model, side, channels, 2 if quick else clients, 2 if quick else steps, of=of)
        with Processes(f"variants, {model}, {of}") as processes:
            for name, changed in chosen:
                processes.start(name, Arm("rounds", {"method": "fedavg", "values": values | changed}))
            found = interleave(processes, {name: [name] for name, _ in chosen}, repeats=2 if quick else 4)
            said = {name: processes.describe(name) for name, _ in chosen}
        first = chosen[0][0]
        case.table(
            f"{title}, {of}, {values['clients']} clients × {values['local_steps']} × {values['batch_size']}",
            ("variant", "s/round", "speed-up over loop, fp32", "PSS, MiB", "differs by"),
            [
                [
                    name,
                    statistics.median(seconds),
                    ratio(found[first], seconds),
                    said[name]["memory"]["pss"],
                    apart(said[first]["model"], said[name]["model"]),
                ]
                for name, seconds in found.items()
            ],
        )
    if any("precision" in changed for _, changed in chosen):
        most = 2 if quick else 3
        compared = [(m, v | {"rounds": 2} if quick else v) for m, v in ACCURACY[: 1 if quick else 2]]
        if FASHION in there:
            real = {"dataset": str(file(FASHION, *AS_DIGITS)), "model": "lenet5"}
            compared.append((ACCURACY[0][0], ACCURACY[0][1] | real))
        arithmetic.judge(case, compared, ("bf16",), "cpu", most=most)
    else:
        case.notes.append("There was no bf16 to compare accuracies with.")
    return case
