"""What memory a federation takes as it has more clients, and where these keep something."""

from __future__ import annotations

from benchmarks.cases.client_round import federation
from benchmarks.images import DIGITS, kinds
from benchmarks.measure import Arm, Processes, interleave
from benchmarks.results import Case, Goal

TITLE = "Memory"
TEXT = """
ResNet-18 (11 million weights, 43 MiB), one step of 16 images a client, all clients in every round. FedAvg's server needs sums alone, and SCAFFOLD's
clients keep a control as large as the model from round to round. After two rounds: the process's proportional set size, and the most resident memory
that it had. A checkpoint is written after every round. What SCAFFOLD's clients keep goes into files as soon as more than 256 MiB of it is in memory,
and is mapped from there.
"""
#: Method and how many clients.
FEDERATIONS = (("fedavg", 5), ("fedavg", 20), ("fedavg", 40), ("scaffold", 5), ("scaffold", 20), ("scaffold", 40))
#: Clients of those on Fashion-MNIST, resized to the same 32×32: memory hangs on the model and not on what images show.
REAL = 5


def run(quick: bool) -> Case:
    case = Case("memory", TITLE, TEXT, quick=quick)
    lines, most, there = [], {}, kinds(case)
    planned = [(*one, of) for one in FEDERATIONS for of in (there if one[1] == REAL else there[:1])]
    for method, clients, of in [("fedavg", 2, DIGITS), ("scaffold", 2, DIGITS)] if quick else planned:
        name = f"{method}, {clients} clients, {of}"
        values, _ = federation("lenet5" if quick else "resnet18", 32, 3, clients, 1, 64 if quick else 16, of=of)
        with Processes(f"memory, {name}") as processes:  # one after the other: they share a machine's memory
            processes.start(name, Arm("SavedRounds", {"method": method, "values": values}))
            interleave(processes, {name: [name]}, repeats=2, drop=0)
            found = processes.describe(name)["memory"]
        most[method, clients, of] = found["peak"]
        lines.append([method, clients, of, found["pss"], found["peak"]])
    case.table("Memory of a process", ("method", "clients", "images", "PSS, MiB", "most resident, MiB"), lines)
    if not quick:
        for title, method, few in (("FedAvg", "fedavg", 5), ("SCAFFOLD", "scaffold", 20)):
            more = 100 * most[method, 40, DIGITS] / most[method, few, DIGITS] - 100
            goal = f"{title} with ResNet-18: 40 clients over {few}, most memory"
            case.goals.append(Goal(goal, 10.0, more, least=False, unit=" %"))
    return case
