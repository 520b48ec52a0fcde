"""What a client's pass costs under each method that DHF is compared with, in FedAvg's passes."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks.cases.client_round import federation
from benchmarks.measure import Arm, Processes, ratio, say, spread
from benchmarks.results import Case, Goal

TITLE = "Client passes of the methods that DHF is compared with, one thread"
TEXT = """
The client phase of one round (DHF's CNN-2 on 28×28 images, two clients with ten steps of 64), all methods in turn within one process. A *pass* is one batch
forward and backward, as a step of FedAvg has it; a batch that goes forward only counts a third, batches for prototypes, logits and other clients' models
included. *Times FedAvg's pass* is what a client phase costs, divided by its passes and by FedAvg's cost of one. What a method does beside its passes
(parameters that are copied, compared, factorised or sent) is in it, and so has to be small. A step of Per-FedAvg makes two passes of half a batch; it is
compared with FedAvg on batches of 32. *Server s/round* is what the server adds to a round, with the method's own default steps where it trains something.
FedKD's clients decompose their update once a round: 0.06 s for the one large matrix (512×1,024), whatever the steps. At ten steps that is most of what it is
above its goal; at the 300 steps that an epoch over 3,000 images in batches of ten has, it is less than a hundredth.
"""
STEPS, BATCH, CLIENTS = 10, 64, 2
#: At most so many times FedAvg's pass.
MUST = 1.15
#: What each method's clients are asked to do, and the passes of a step; where a second model is trained, it has its own.
METHODS: dict[str, tuple[dict[str, Any], float]] = {
    "fedavg": ({}, 1),
    "fedavg of halves": ({"batch_size": 32}, 1),
    "fedavgm": ({}, 1),
    "fedadam": ({}, 1),
    "fedyogi": ({}, 1),
    "fednova": ({}, 1),
    "scaffold": ({}, 1),
    "fedbabu": ({}, 1),
    "fedrod": ({}, 1),
    "fedamp": ({}, 1),
    "moon": ({}, 1 + 2 / 3),
    "perfedavg": ({"variant": "fo"}, 2),
    "ditto": ({}, 2),
    "fedphp": ({}, 1 + 1 / 3),
    "fml": ({}, 2),
    "fedkd": ({}, 2),
    "feddistill": ({}, 1),
    "fedproto": ({}, 1),
    "fedgh": ({}, 1),
    "fedtgp": ({}, 1),
    "fedfomo": ({"peers": 1}, 1),
}
#: Methods whose clients pass all their samples forward once a round, after the training.
AFTERWARDS = {"fedproto", "feddistill", "fedgh", "fedtgp"}


def values_of(name: str) -> tuple[str, dict[str, Any]]:
    """The method and the trial of a line, which is like that of all others but for its own parameters."""
    from trainables.registry import declared

    method = name.split()[0]
    known = declared(method)
    shared, _ = federation("cnn2", 28, 1, CLIENTS, STEPS, BATCH)
    shared |= {"local_epochs": 0, "eval_every": 1000}
    shared |= {key: value for key, value in {"nu": 0.0, "shared_model": "cnn2"}.items() if key in known}
    return method, shared | METHODS[name][0]


def passes(name: str) -> float:
    """How many passes a client's step stands for, what is passed forward once a round divided among the steps."""
    from trainables.registry import declared

    method, values = values_of(name)
    own = STEPS * BATCH  # images of a client
    forward = float(own) if method in AFTERWARDS else 0.0
    if method == "fedfomo":
        # The baseline, the client's own model and its peers'.
        forward = own * declared(method)["val_ratio"].default * (2 + values["peers"])
    return METHODS[name][1] + forward / (3 * BATCH * STEPS)


def run(quick: bool) -> Case:
    case = Case("client_passes", TITLE, TEXT, quick=quick)
    names = list(METHODS)[: 3 if quick else None]
    turns = 2 if quick else 6
    with Processes("client_passes") as processes:
        processes.start("all", Arm("ClientPhases", {"trials": {name: values_of(name) for name in names}}))
        for turn in range(turns):
            processes.run(["all"])
            say(f"  client_passes: {turn + 1}/{turns}")
        said = processes.describe("all")
        seconds, server = (  # the first prepares
            {name: found[1:] for name, found in said[part].items()} for part in ("seconds", "server")
        )
    made = {name: passes(name) for name in names}
    rows = []
    for name in names:
        reference = "fedavg of halves" if name == "perfedavg" else "fedavg"
        per_pass, one = [s / made[name] for s in seconds[name]], seconds[reference]
        times, of_server = ratio(per_pass, one), statistics.median(server[name])
        rows.append([name, statistics.median(seconds[name]), made[name], times, of_server])
        if not name.startswith("fedavg of") and name != "fedavg":
            goal = Goal(f"{name}, times FedAvg's pass", MUST, times, least=False, spread=spread(per_pass, one))
            case.goals.append(goal)
    columns = ("method", "s/round", "passes a step", "times FedAvg's pass", "server s/round")
    case.table("Seconds of both clients, and of the server", columns, rows)
    return case
