"""What it costs that a machine does not see the run directory, so that its trials' files are sent home."""

from __future__ import annotations

import dataclasses
import functools
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.measure import say
from benchmarks.results import Case, Goal
from benchmarks.standin import Standin, products

TITLE = "Trials that are sent home"
TEXT = """
A trial of a stand-in for a federation, in a process of Ray's, in turn in a folder that it sees and in one whose files it sends through Ray to the
actor that writes them. Its rounds are of a fixed amount of arithmetic, its checkpoints as large as those of ten clients with a LeNet-5 each. *Sending*
is the time that the trial takes for it and waits for the actor, which is what being sent home costs: whole trials differ by more where the machine does other
things as well. Sender and writer are processes of one machine, so what a network takes is not in these figures.
"""
ROUNDS, SECONDS, TURNS = 60, 10.0, 7
#: Bytes of a checkpoint: eleven times the weights of LeNet-5.
CHECKPOINT = 11 * 4 * 61_706


class Heavy(Standin):
    """A stand-in whose checkpoint has a federation's size."""

    def save(self, path: str | Path, *, merged: bool = False) -> tuple[str, ...]:
        Path(path).write_bytes(f"{self.round}\n".encode().ljust(CHECKPOINT, b"\0"))
        return ()

    def load(self, path: str | Path) -> tuple[str, ...]:
        self.round = int(Path(path).read_bytes().partition(b"\n")[0])
        return ()


class Machine:
    """The process of a trial."""

    def run(self, job: Any) -> tuple[float, float]:
        """The seconds from the job to the end of its trial, and those of them that sending took."""
        from trainables.tune import Trial
        from trainables.worker.home import SentFolder

        sending, outer = [0.0], [True]

        def timed(function: Callable[[SentFolder], None]) -> Callable[[SentFolder], None]:
            def call(folder: SentFolder) -> None:
                begun, outer[0], is_outer = time.perf_counter(), False, outer[0]
                function(folder)
                if is_outer:  # (the one waits within the other)
                    outer[0] = True
                    sending.append(time.perf_counter() - begun)

            return call

        with (
            mock.patch.object(SentFolder, "send", timed(SentFolder.send)),
            mock.patch.object(SentFolder, "arrived", timed(SentFolder.arrived)),
        ):
            started = time.perf_counter()
            trial = Trial({"job": job})
            while not (result := trial.step())["done"]:
                pass
            took = time.perf_counter() - started
        assert result["ending"].stop_reason == "completed", result["ending"].error
        return took, sum(sending)


def run(quick: bool) -> Case:
    import ray

    from fedtune.machine import cluster

    case = Case("home", TITLE, TEXT, quick=quick)
    turns, seconds = (1, 1.0) if quick else (TURNS, SECONDS)
    each = products(seconds / ROUNDS)
    found: dict[str, list[float]] = {"seen": [], "sent": []}
    shares = []
    with tempfile.TemporaryDirectory(prefix="fedtune-bench-") as place:
        runs = Path(place) / "run"
        with cluster.joined(None, trials=2, cpus=1, gpus=0):
            home = cluster.run_home("home", [str(runs)], [], None)
            machine = ray.remote(num_cpus=1)(Machine).remote()
            for turn in range(turns + 1):
                for arm in ("seen", "sent") if turn % 2 else ("sent", "seen"):
                    job = _job(runs, 2 * turn + (arm == "sent"), each, arm == "sent")
                    took, sending = ray.get(machine.run.remote(job))
                    say(f"  {arm}, turn {turn} of {turns}: {took:.2f} s, of which sending {sending:.3f} s")
                    if turn:  # in the first one the processes import
                        found[arm].append(took)
                        shares += [100 * sending / (took - sending)] if arm == "sent" else []
            del home
    rows = [[arm, statistics.median(took), min(took), max(took)] for arm, took in found.items()]
    case.table(f"Trials of {ROUNDS} rounds and {seconds:.0f} s", ("the trial's folder is", "s", "least", "most"), rows)
    goal = Goal(
        f"Sending a trial of {seconds:.0f} s home, of the trial's time",
        3.0,
        statistics.median(shares),
        least=False,
        unit=" %",
    )
    case.goals.append(dataclasses.replace(goal, spread=(min(shares), max(shares))))
    return case


def _job(runs: Path, number: int, each: int, sent: bool) -> Any:
    """The job of a trial in a folder of its own."""
    from fedtune.decisions.early_stopping import Never
    from trainables.worker.environment import Environment, Token
    from trainables.worker.job import Job

    folder = runs / "trials" / f"{number:04d}"
    folder.mkdir(parents=True)
    environment = Environment(token=Token(f"{runs}/.session-unseen", ""), home="home") if sent else Environment()
    return Job(
        number,
        str(folder),
        "fedavg",
        {"rounds": ROUNDS, "momentum": 0.3},
        (0,),
        ("val_global_accuracy",),
        (1,),
        Never(),
        environment=environment,
        simulate=functools.partial(Heavy, products=each),
    )
