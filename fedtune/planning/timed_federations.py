"""Runs federations at the same time, each in its own process, and times them: for `--slots auto`, and for
the typical cost of a round.

Such a process is set up as a trial's process is: the same imports, the same number of threads, the same handling of
freed memory. It reads one order per line of its standard input, as JSON, and answers each with a line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import TracebackType
from typing import Any

from search_spaces.errors import UserError
from search_spaces.parameter import Value

#: An answer is awaited for so many seconds. A round of the papers' largest setting takes minutes on a core.
PATIENCE = 3600.0
#: Each arrangement is timed for at least so many seconds, and for at least a whole round.
WINDOW = 3.0
MIB = 1 << 20


@dataclass(frozen=True)
class Footprint:
    """The memory of a process with one federation, or a bundle of them, at its peak, in bytes."""

    #: All of it, including pages that it shares with other processes.
    resident: int
    #: Only pages that it shares with no other process.
    private: int
    #: Memory of the GPU: what the process took without its CUDA context, what there is in all, what was free before.
    gpu: int = 0
    gpu_total: int = 0
    gpu_free: int = 0


class OutOfMemory(Exception):
    """One more federation did not fit into memory."""


class Federations:
    """Processes that all run one configuration, which `values` gives in full, or a `bundle` of so many trials of it; as
    many as `time` has asked for so far. They end with the context."""

    def __init__(
        self,
        method: str,
        values: Mapping[str, Value],
        seeds: Sequence[int],
        *,
        device: str = "cpu",
        data_dir: str | None = None,
        bundle: int = 1,
    ) -> None:
        self._bundle = bundle
        self._order = {
            "method": method,
            "values": dict(values),
            "seeds": list(seeds),
            "device": device,
            "data_dir": data_dir,
            "bundle": bundle,
        }
        self._processes: list[subprocess.Popen[str]] = []
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115  closed with the context
        self.footprint = Footprint(0, 0)
        #: The average cost of a round, divided by the cost of the rounds that are timed here. These leave out work that
        #: is done only every few rounds.
        self.surcharge = 1.0

    def __enter__(self) -> Federations:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.communicate()
        self._errors.close()

    def time(self, count: int, threads: int) -> float:
        """The rounds per second of `count` trials together, with `threads` threads in each process.

        Raises `OutOfMemory` where they do not fit, `UserError` where the configuration does not run."""
        processes = count // self._bundle
        self._start(processes, threads)
        running = self._processes[:processes]
        for process in running:
            self._tell(process, {"threads": threads, "seconds": WINDOW})
        return self._bundle * rate([self._answer(process)["marks"] for process in running])

    def _start(self, count: int, threads: int) -> None:
        new = []
        while len(self._processes) < count:
            new.append(self._process(threads))
            self._processes.append(new[-1])
        for process in new:
            ready = self._answer(process)
            if self.footprint.resident == 0:
                self.surcharge = ready.pop("surcharge")
                self.footprint = Footprint(**ready)

    def _process(self, threads: int) -> subprocess.Popen[str]:
        from fedtune.machine.cluster import ENVIRONMENT

        # The same path as here without the current directory, where somebody else's module may have the name of ours.
        path = [entry for entry in sys.path if entry]
        environment = {**ENVIRONMENT, **os.environ, "OMP_NUM_THREADS": str(threads)}
        if self._order["device"] == "cuda":
            environment["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
        process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-c",
                f"import sys; sys.path[:] = {path!r}; from fedtune.planning.timed_federations import serve; serve()",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )
        self._tell(process, {**self._order, "threads": threads})
        return process

    def _tell(self, process: subprocess.Popen[str], order: Mapping[str, Any]) -> None:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died; its answer will be missing
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], PATIENCE)[0]:
            raise UserError(
                f"--slots auto has waited {PATIENCE / 60:.0f} minutes for one configuration in the middle of the "
                "space. Give a number of slots, or leave --slots out."
            )
        line = process.stdout.readline()
        if not line:
            if process.wait() == -9:
                raise OutOfMemory
            self._errors.seek(0)
            last = (self._errors.read().strip().splitlines() or [f"exit code {process.returncode}"])[-1]
            raise UserError(
                f"--slots auto could not run one configuration in the middle of the space: its process ended "
                f"({last}). Give a number of slots, or leave --slots out."
            )
        answer: dict[str, Any] = json.loads(line)
        if answer.get("out_of_memory"):
            raise OutOfMemory
        if "error" in answer:
            raise UserError(
                f"--slots auto could not run one configuration in the middle of the space: {answer['error']}"
            )
        return answer


def rate(marks: Sequence[Sequence[float]]) -> float:
    """Rounds per second of all federations together, over the time in which all of them ran. `marks` has, for each
    federation, the times at which its first round began and each round ended."""
    begin, end = max(own[0] for own in marks), min(own[-1] for own in marks)
    if end <= begin:  # they never ran at the same time: the sum of what each does alone
        return sum((len(own) - 1) / (own[-1] - own[0]) for own in marks)
    done = 0.0
    for own in marks:
        for a, b in pairwise(own):
            done += max(0.0, min(b, end) - max(a, begin)) / (b - a)
    return done / (end - begin)


def intervals(values: Mapping[str, Value]) -> list[int]:
    """After how many rounds a method does extra work: the values above 1 of its parameters called `…_interval`."""
    return [
        value for name, value in values.items() if name.endswith("_interval") and isinstance(value, int) and value > 1
    ]


def share_of_rounds(values: Mapping[str, Value], every: Value | None) -> float:
    """In which share of a trial's rounds something is done that is done every so many rounds and in the last one."""
    rounds = values["rounds"]
    assert isinstance(every, int) and isinstance(rounds, int)
    return -(-rounds // every) / rounds


@contextlib.contextmanager
def as_a_trial(threads: int) -> Iterator[None]:
    """Computes in this process as a trial does, with so many threads, while the block runs."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.backends.cudnn.flags(benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_num_threads(before)


def step_seconds(simulation: Any) -> tuple[float, float]:
    """The seconds of the next round without those of its evaluation, and those of its evaluation."""
    rows = simulation.step()
    measuring = sum(row["seconds_evaluation"] for row in rows)
    return sum(row["seconds"] for row in rows) - measuring, measuring


def typical(simulation: Any, values: Mapping[str, Value], patience: float | None = None) -> tuple[float, float]:
    """The average seconds of a round over a trial of these `values`, and the seconds of a round without the extra work
    that is done at intervals. `simulation` has the same values, only `rounds` is 2, and it has not begun.

    The first round warms up. The second is the last one planned, so it includes all work that is not done in every
    round: the evaluation (`eval_every`) and what a method does at `intervals`. A trial does both every so many rounds
    and in its last round, in which alone it measures on the test set where `eval_test` says so.

    Where rounds are long, no third one begins after `patience` seconds of them. Then the second stands for all, with
    its evaluation counted as often as it is done; where it did work that is done at intervals, the first stands for
    the rounds without it. As that one warmed up, the average is at most what is returned."""
    spent = 0.0

    def cost() -> tuple[float, float]:
        nonlocal spent
        plain, measuring = step_seconds(simulation)
        spent += plain + measuring
        return plain, measuring

    apart = intervals(values)
    first, validation = cost()
    heavy, evaluation = cost()
    if patience is not None and spent > patience:
        plain = min(first, heavy) if apart else heavy
    else:
        plain, validation = cost()
        while _is_heavy(simulation.round, apart):
            plain, validation = cost()
    every, at_end = share_of_rounds(values, values.get("eval_every", 1)), 0.0
    if values.get("eval_test", "every") == "end" and 0 < validation < evaluation:
        at_end = (evaluation - validation) * share_of_rounds(values, values["rounds"])
        evaluation = validation
    base = plain + evaluation * every + at_end
    return base + (max(0.0, heavy - plain) * share_of_rounds(values, min(apart)) if apart else 0.0), base


def _is_heavy(round_: int, apart: Sequence[int]) -> bool:
    return any(round_ % interval == 0 for interval in apart)


class Bundle:
    """Trials that go through their rounds together; one alone, as it does alone."""

    def __init__(self, trials: Sequence[Any]) -> None:
        self._trials = trials

    @property
    def round(self) -> int:
        """Completed rounds."""
        completed: int = self._trials[0].round
        return completed

    def step(self) -> list[Any]:
        """The rows of all of them. Raises what the round of one raises."""
        from trainables.simulation.replicates import step_together

        rows: list[Any] = []
        for found in step_together(self._trials):
            if isinstance(found, BaseException):
                raise found
            rows += found
        return rows


def serve() -> None:
    """The program of a process: builds its federation, lets it do all its work once, times rounds when told to."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed

    def answer(what: Mapping[str, Any]) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    from trainables import tune as _tune  # noqa: F401  a trial's process holds it too
    from trainables.simulation.replicates import Replicates
    from trainables.worker import process

    try:
        order = json.loads(sys.stdin.readline())
        process.set_threads(order["threads"])
        if order["device"] == "cuda":
            process.use_gpu()
        values = order["values"]
        free, total = _gpu() if order["device"] == "cuda" else (0, 0)
        how = {"device": order["device"], "data_dir": order["data_dir"]}
        simulation = Bundle(
            [
                Replicates(order["method"], {**values, "rounds": 2}, order["seeds"], **how)
                for _ in range(order["bundle"])
            ]
        )
        mean, base = typical(simulation, values)
        answer(
            {
                **_peak(),
                "surcharge": mean / base if base > 0 else 1.0,
                "gpu": _reserved(order["device"]),
                "gpu_total": total,
                "gpu_free": free,
            }
        )
        for line in sys.stdin:
            order = json.loads(line)
            process.set_threads(order["threads"])
            answer({"marks": _timed(simulation, intervals(values), order["seconds"])})
    except UserError as error:
        answer({"error": " ".join(error.problems)})
    except Exception as error:
        answer(
            {
                "error": f"{type(error).__name__}: {error}".splitlines()[0],
                "out_of_memory": process.is_out_of_memory(error),
            }
        )


def _timed(simulation: Any, apart: Sequence[int], seconds: float) -> list[float]:
    """Times rounds for `seconds`, leaving out those with extra work: when the first began, and when each ended."""
    while _is_heavy(simulation.round + 1, apart):
        simulation.step()
    marks = [time.monotonic()]
    while len(marks) < 2 or marks[-1] - marks[0] < seconds and not _is_heavy(simulation.round + 1, apart):
        simulation.step()
        marks.append(time.monotonic())
    return marks[1:] if len(marks) > 3 else marks  # the first round of several may have had to warm up


def _peak() -> dict[str, int]:
    """The bytes that were resident at the peak, and how many of them were not shared."""
    with open("/proc/self/status", encoding="ascii") as file:
        found = {
            line.split(":")[0]: int(line.split()[1]) * 1024
            for line in file
            if line.startswith(("VmHWM", "RssFile", "RssShmem"))
        }
    return {"resident": found["VmHWM"], "private": found["VmHWM"] - found["RssFile"] - found["RssShmem"]}


def _gpu() -> tuple[int, int]:
    import torch

    return torch.cuda.mem_get_info()


def _reserved(device: str) -> int:
    import torch

    return torch.cuda.max_memory_reserved() if device == "cuda" else 0
