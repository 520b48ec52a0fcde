"""Thousands of clients: what a checkpoint, the partition and the record's rows cost."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.cases.client_round import federation
from benchmarks.images import DIGITS, kinds
from benchmarks.measure import Arm, Processes, interleave, say
from benchmarks.results import Case, Goal

TITLE = "Thousands of clients"
TEXT = """
Checkpoints of federations whose clients keep models of their own (DFRD's CNN at half its widths), a tenth of them in a round: the seconds that writing
one takes until it is on the disk, after each round, in per cent of the round, and the bytes that are written. Partitions deal 60,000 samples of ten
classes. Rows are those of 100 rounds with 1,000 clients, of which 50 train.
"""
METHODS = ("ditto", "fedper", "scaffold")


def run(quick: bool) -> Case:
    case = Case("clients", TITLE, TEXT, quick=quick)
    for of in kinds(case):
        checkpoints(case, of, quick)
    partitions(case, quick)
    rows(case, quick)
    return case


def checkpoints(case: Case, of: str, quick: bool) -> None:
    """Every client has trained once before rounds are counted, so that all of them keep something."""
    clients, active, turns = (4, 2, 3) if quick else (100, 10, 4)
    values, _ = federation("lenet5" if quick else "cnn_narrow", 32, 3, clients, 2, 16 if quick else 64, of)
    names, lines = list(METHODS[-1:] if quick or of != DIGITS else METHODS), []
    with Processes(f"clients, checkpoints, {of}") as processes:
        for method in names:
            processes.start(
                method, Arm("SavedRounds", {"method": method, "values": values | {"active_clients": active}})
            )
        found = interleave(processes, {name: [name] for name in names}, repeats=turns)
        for name in names:
            saved = processes.describe(name)["saved"][1:]
            shares = [100 * one["seconds"] / one["round"] for one in saved]
            middle = {key: statistics.median(one[key] for one in saved) for key in saved[0]}
            share = statistics.median(shares)
            lines.append(
                [name, statistics.median(found[name]), middle["seconds"], share, middle["written"], middle["kept"]]
            )
            if not quick and of == DIGITS:
                case.goals.append(
                    Goal(
                        f"{name}, {clients} clients: a checkpoint after each round, of the round",
                        5.0,
                        share,
                        least=False,
                        unit=" %",
                        spread=(min(shares), max(shares)),
                    )
                )
    case.table(
        f"Checkpoints of {clients} clients, {active} in a round, {of}",
        ("method", "s/round with checkpoint", "s/checkpoint", "% of the round", "MB written", "MB on the disk"),
        lines,
    )


def partitions(case: Case, quick: bool) -> None:
    """The seconds of one partition; every client is asked to have at least 10 samples of 1,000 clients, 3 of 10,000."""
    from search_spaces.errors import UserError
    from trainables.data.partition import RECIPES, partition

    labels, lines = np.repeat(np.arange(10), 600 if quick else 6_000), []
    for clients, least in ((200, 10),) if quick else ((1_000, 10), (10_000, 3)):
        for recipe in sorted(RECIPES):
            say(f"clients: {recipe}, {clients} clients")
            started, fewest = time.perf_counter(), "refused"
            try:
                dealt = partition(
                    recipe, labels, clients, classes=10, rng=np.random.default_rng(0), omega=0.1, min_size=least
                )
                fewest = str(min(map(len, dealt)))
            except UserError:
                pass  # which has to be quick, too
            lines.append([recipe, clients, time.perf_counter() - started, fewest])
    case.table("Partitions at omega 0.1", ("partition", "clients", "s", "fewest samples of a client"), lines)
    if not quick:
        slowest = max(line[2] for line in lines if line[1] == 1_000)
        case.goals.append(Goal("The slowest partition over 1,000 clients", 1.0, float(slowest), least=False, unit=" s"))


def rows(case: Case, quick: bool) -> None:
    """The rows of a run with numbers of every client."""
    from trainables.worker import rounds_jsonl

    clients, trained, rounds = (200, 10, 3) if quick else (1_000, 50, 100)
    drawn = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="fedtune-bench-") as folder:
        path = Path(folder) / "rounds.jsonl"
        for round_ in range(1, rounds + 1):
            local: list[float | None] = [None] * clients
            for client in drawn.choice(clients, trained, replace=False):
                local[client] = float(drawn.random())
            numbers = {"client_accuracy": drawn.random(clients).tolist(), "local_accuracies": local}
            rounds_jsonl.append(path, [{"round": round_, "seed": 0, "global_accuracy": 0.5, **numbers}])
        seconds = []
        for _ in range(5):
            started = time.perf_counter()
            assert len(rounds_jsonl.read_rows(path)) == rounds
            seconds.append(time.perf_counter() - started)
        line = [clients, rounds, path.stat().st_size / rounds, 1000 * statistics.median(seconds)]
    case.table("Rows", ("clients", "rounds", "bytes of a row", "ms to read all"), [line])
