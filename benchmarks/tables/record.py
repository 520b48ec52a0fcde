"""Records tables: one federation after the other, each kept as soon as it ends.

A process per core simulates; a kill loses at most the federations under way. All configurations of the first seed come
first, then those of the second: whenever it is stopped, the complete seeds are a complete table of fewer seeds.
Where a second stage is declared, the best configurations have further seeds then, the same for all of them.

A federation that diverges, or a configuration that is impossible, has NaN from that round on.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from analysis.curve_table import CurveTable
from benchmarks.measure import ROOT, environment, say
from benchmarks.tables.auto_specs import AUTO_SPECS, CONDITIONS, FAMILY
from benchmarks.tables.lines import Curve, Key, Lines
from benchmarks.tables.specs import SPECS, Spec
from search_spaces.errors import UserError
from search_spaces.metrics import twin
from search_spaces.parameter import Value

#: Seconds between two lines of progress.
PACE = 20.0


def simulate(spec: Spec, values: Mapping[str, Value], seed: int) -> Curve:
    """Simulates one federation to its end, or until it diverges."""
    from trainables.simulation.replicates import Replicates
    from trainables.worker.trial_values import TrialValues

    metrics = (spec.metric, twin(spec.metric))
    found: dict[str, list[float]] = {name: [math.nan] * spec.rounds for name in (*metrics, *spec.others)}
    seconds: list[float] = []

    def curve(seconds: float) -> Curve:
        own = {name: tuple(values) for name, values in found.items()}
        return Curve(own.pop(metrics[0]), own.pop(metrics[1]), seconds, also=own)

    try:
        method, complete = spec.federation(values)
        federation = Replicates(method, complete, (seed,))
    except UserError:
        return curve(math.nan)
    judge = TrialValues((spec.metric,), (1,))
    for round_ in range(spec.rounds):
        rows = federation.step()
        seconds.append(float(rows[0]["seconds"]))
        judge.add(rows)
        if judge.broken(rows) is not None:
            break
        for name, values in found.items():
            values[round_] = float(rows[0][name])
    return curve(float(np.mean(seconds)))


def work(spec: Spec) -> None:
    """A process that simulates: reads a federation per line from stdin, and writes its curve as a line, until stdin
    ends, as it does when the process that asks is killed."""
    from trainables.worker import process

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a simulation prints is no answer
    process.set_threads(1)
    points = spec.points()
    for line in sys.stdin:
        place, seed = json.loads(line)
        curve = simulate(spec, points[place], seed)
        answers.write(json.dumps([curve.validation, curve.test, curve.seconds, curve.also]) + "\n")
        answers.flush()


def origin() -> dict[str, str]:
    """When, where and at which revision this process records."""
    from fedtune.record import provenance

    machine, versions = provenance.machine(), provenance.versions()
    return {
        "date": time.strftime("%Y-%m-%d"),
        "revision": str(provenance.git_revision()),
        "machine": f"{machine['processor']}, {machine['cores']} cores, {machine['instructions']}",
        "torch": str(versions.get("torch")),
    }


class Recording:
    """One session of recording: what is missing, handed to processes as they become free."""

    def __init__(self, lines: Lines, keys: list[Key], deadline: float, command: tuple[str, ...] | None = None) -> None:
        self.lines, self.keys, self.deadline = lines, keys, deadline
        self.command = command or (sys.executable, "-m", "benchmarks.tables", "work", lines.spec.name)
        self.done = 0
        self.failure: str | None = None
        self._missing: Iterator[Key] = iter([key for key in keys if key not in lines.curves])
        self._made = origin()
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def run(self, processes: int) -> None:
        """Until nothing is missing or the deadline has passed. Raises RuntimeError where a process ended."""
        several = [threading.Thread(target=self._drive, daemon=True) for _ in range(processes)]
        for thread in several:
            thread.start()
        told = time.monotonic()
        try:
            while any(thread.is_alive() for thread in several):
                for thread in several:
                    thread.join(timeout=0.2)
                if time.monotonic() - told > PACE:
                    told = time.monotonic()
                    there = sum(key in self.lines.curves for key in self.keys)
                    say(f"  {self.lines.spec.name}: {there} of {len(self.keys)} federations, {self.done} of them now")
        finally:
            self._stop.set()
        if self.failure is not None:
            raise RuntimeError(self.failure)

    def _next(self) -> Key | None:
        with self._lock:
            if self._stop.is_set() or time.monotonic() >= self.deadline:
                return None
            return next(self._missing, None)

    def _drive(self) -> None:
        """One process, from federation to federation."""
        process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment(1, malloc=True),
            start_new_session=True,  # Ctrl-C is for the process that asks
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            while (key := self._next()) is not None:
                process.stdin.write(json.dumps(key) + "\n")
                process.stdin.flush()
                answer = process.stdout.readline()
                if not answer:
                    self.failure = f"The process that simulated configuration {key[0]}, seed {key[1]} ended."
                    self._stop.set()
                    return
                self._keep(key, json.loads(answer))
        except OSError as error:
            self.failure = str(error)
            self._stop.set()
        finally:
            process.kill()
            process.wait()

    def _keep(self, key: Key, answer: Any) -> None:
        validation, test, seconds, also = answer
        others = {name: tuple(values) for name, values in also.items()}
        with self._lock:
            self.lines.add(key, Curve(tuple(validation), tuple(test), seconds, self._made, others))
            self.done += 1


def record(
    lines: Lines, *, configurations: int, seeds: int, processes: int, deadline: float = math.inf
) -> CurveTable | None:
    """Simulates what is missing of the first `configurations` and `seeds`, and once the whole first stage is there of
    the second, until `deadline` (of `time.monotonic`), and writes the table, also where it is interrupted. None where
    no seed is complete, or a larger table is there."""
    keys = [(c, seed) for seed in lines.spec.seed_numbers[:seeds] for c in range(configurations)]
    try:
        Recording(lines, keys, deadline).run(processes)
        if further := [(c, seed) for seed in lines.spec.further_seeds for c in lines.second_stage()]:
            Recording(lines, further, deadline).run(processes)
    finally:
        table = lines.write(configurations)
    return table


def spec(name: str) -> Spec:
    """The declared table of that name. Raises `UserError` with those that there are."""
    return specs([name])[0]


def specs(names: Sequence[str]) -> list[Spec]:
    """The declared tables of these names, or all of them where none is given; `auto` stands for all tables of that
    family, and `auto/digits` for those of a data set. Raises `UserError` with those that there are."""
    every = SPECS | AUTO_SPECS
    found: dict[str, Spec] = {}
    for name in names or every:
        meant = {one: every[one] for one in every if one == name or one.startswith(f"{name}/")}
        if not meant:
            families = [FAMILY, *(f"{FAMILY}/{dataset}" for dataset in CONDITIONS)]
            raise UserError(f"{name} is no table; there are {', '.join([*SPECS, *families])}.")
        found |= meant
    return [*found.values()]
