"""Arms side by side: each in a process of its own, one unit of work at a time, in turn (A, B, C, A, B, C …).

Processes that wait for their turn cost nothing, so all see the same machine within seconds of each other; a machine
that grows slower does so for all of them. Ratios are medians over the rounds of taking turns, each within one round.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: Results, the page made of them and the data; ignored by git. Tests have another folder.
OUT = Path(os.environ.get("FEDTUNE_BENCH", ROOT / "bench"))
#: Nothing is silent for longer, in seconds.
SILENCE = 3.0
#: No unit of work takes longer, in seconds.
LIMIT = 1200.0
#: Seconds that a process may take to end when there is no more work.
PATIENCE = 20.0


def say(text: str) -> None:
    """One line of progress."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Arm:
    """What one process does: `workload` names a class or function of `benchmarks.workloads`, `options`
    are its arguments."""

    workload: str
    options: Mapping[str, Any] = field(default_factory=dict)
    threads: int = 1
    #: With the allocator's settings that `fedtune` gives its workers.
    malloc: bool = True
    #: The command of the process, where it is not ours, and what it finds in its environment.
    command: tuple[str, ...] = (sys.executable, "-m", "benchmarks.worker")
    variables: Mapping[str, str] = field(default_factory=dict)


def environment(threads: int, malloc: bool) -> dict[str, str]:
    """The environment of an arm: threads pinned, the repository on the path, the allocator as fedtune's workers have it
    or untouched."""
    from fedtune.machine.cluster import ENVIRONMENT

    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    kept = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    settings = {key: value for key, value in ENVIRONMENT.items() if key.startswith("MALLOC_")}
    return (
        kept
        | dict.fromkeys(names, str(threads))
        | {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        | (settings if malloc else {})
    )


class Processes:
    """Named processes that wait for work; ended when the block is left."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._errors: dict[str, Any] = {}
        self._starting: list[str] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._running.values():
            if process.stdin is not None:
                process.stdin.close()  # the end of its work
        for process in self._running.values():
            try:
                process.wait(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for file in self._errors.values():
            file.close()

    def start(self, name: str, arm: Arm) -> None:
        """Starts an arm; it is waited for before the first work of any."""
        errors = self._errors[name] = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the block)
        self._running[name] = subprocess.Popen(
            list(arm.command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            start_new_session=True,
            env={**environment(arm.threads, arm.malloc), **arm.variables},
        )
        self._tell(name, {"workload": arm.workload, "options": dict(arm.options), "threads": arm.threads})
        self._starting.append(name)

    def ready(self) -> None:
        """Waits until every process is prepared."""
        starting, self._starting = self._starting, []
        if starting:
            self._answers(starting, f"preparing {', '.join(starting)}")

    def run(self, names: Sequence[str]) -> tuple[float, list[dict[str, Any]]]:
        """One unit of work of each of the processes at the same time: wall-clock seconds until the last is done, and
        their answers."""
        self.ready()
        started = time.perf_counter()
        for name in names:
            self._tell(name, {"do": "run"})
        answers = self._answers(names, " + ".join(names))
        return time.perf_counter() - started, answers

    def describe(self, name: str) -> dict[str, Any]:
        """What the process says of its state: its result so far and its memory."""
        self.ready()
        self._tell(name, {"do": "describe"})
        return self._answers([name], name)[0]

    def _tell(self, name: str, message: Mapping[str, Any]) -> None:
        pipe = self._running[name].stdin
        assert pipe is not None
        pipe.write(json.dumps(message) + "\n")
        pipe.flush()

    def _answers(self, names: Sequence[str], doing: str) -> list[dict[str, Any]]:
        started = time.monotonic()
        found: dict[str, dict[str, Any]] = {}
        with selectors.DefaultSelector() as selector:
            for name in names:
                pipe = self._running[name].stdout
                assert pipe is not None
                selector.register(pipe, selectors.EVENT_READ, name)
            while len(found) < len(names):
                ready = selector.select(timeout=SILENCE)
                if not ready:
                    seconds = time.monotonic() - started
                    say(f"  {self.title}: {doing} ... {seconds:.0f} s")
                    if seconds > LIMIT:
                        raise RuntimeError(f"{doing} took more than {LIMIT:.0f} s")
                for key, _ in ready:
                    line = key.fileobj.readline()  # type: ignore[union-attr]
                    if not line:
                        raise RuntimeError(f"The process of {key.data} ended:\n{self._last_words(key.data)}")
                    found[key.data] = json.loads(line)
                    selector.unregister(key.fileobj)
        return [found[name] for name in names]

    def _last_words(self, name: str) -> str:
        file = self._errors[name]
        file.seek(0)
        return str(file.read())[-3000:]


#: Lanes that take turns: by name, the processes that work at the same time in it.
Lanes = Mapping[str, Sequence[str]]


def interleave(processes: Processes, lanes: Lanes, *, repeats: int, drop: int = 1) -> dict[str, list[float]]:
    """Seconds of every lane over `repeats` rounds of taking turns, the first `drop` left out.

    A lane of one process takes the seconds it measured itself (which may be a part of its work), one of several the
    wall clock."""
    found: dict[str, list[float]] = {name: [] for name in lanes}
    for turn in range(drop + repeats):
        for name, members in lanes.items():
            wall, answers = processes.run(members)
            found[name].append(answers[0]["seconds"] if len(members) == 1 else wall)
        latest = ", ".join(f"{name} {seconds[-1]:.3g} s" for name, seconds in found.items())
        say(f"  {processes.title}: {'warm-up' if turn < drop else f'{turn - drop + 1}/{repeats}'}: {latest}")
    return {name: seconds[drop:] for name, seconds in found.items()}


def ratio(reference: Sequence[float], seconds: Sequence[float]) -> float:
    """How many times faster `seconds` are than `reference`: the median over the turns of the quotient within a turn."""
    return statistics.median(a / b for a, b in zip(reference, seconds, strict=True))


def spread(reference: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """The smallest and largest of those quotients."""
    quotients = [a / b for a, b in zip(reference, seconds, strict=True)]
    return min(quotients), max(quotients)
