"""`--slots auto`: how many trials at once, with how many threads each, finish most trials per hour here.

One federation in the middle of the space is run alone, then two, four, … at the same time, each with one thread and
then with an equal part of the cores, as long as more of them finish more trials per hour. The cores, the memory, the
GPU and the number of trials limit how many are tried. In the fixed order of trials the search's lag is a further limit:
the lag decides what is proposed, and that must not depend on a measurement. Where trials are bundled, what is run alone
and side by side are processes with so many of them.

The result is part of the recorded request, because the number of threads changes the last bits of sums, and a resumed
search has to keep it. The measurements are recorded in the run's provenance. On a cluster the same is measured on one
machine of each kind (`pack_cluster.py`).
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from fedtune.console import progress
from fedtune.console.busy import busy
from fedtune.machine import resources
from fedtune.options import SearchRequest
from fedtune.planning.timed_federations import MIB, Federations, Footprint, OutOfMemory
from fedtune.record.experiment import Experiment
from search_spaces.errors import UserError
from search_spaces.parameter import Value
from search_spaces.run_folder import FIXED

#: The part of the free memory that trials may take; the rest is for the driver, Ray and the system.
MEMORY = 0.9
#: An arrangement is preferred to one with fewer trials or threads only if it is faster by this factor; less is noise.
GAIN = 1.02


@dataclass(frozen=True)
class Sample:
    """One arrangement as measured: `trials` at once (on one GPU, if there is any) with `threads` each."""

    trials: int
    threads: int
    #: Seconds that one trial needs for a round.
    seconds_per_round: float
    #: Trials that all of them together would finish in an hour if none were stopped early.
    trials_per_hour: float


@dataclass(frozen=True)
class Bounds:
    """The limits of the choice; of one GPU and its part of the cores, where there are several GPUs."""

    cores: int
    most: int
    #: Given by --per-trial cpus=N.
    threads: int | None = None
    #: So many trials share a process.
    bundle: int = 1


class Timed(Protocol):
    """Federations that run side by side, as `Federations` are, here or on another machine."""

    footprint: Footprint
    surcharge: float

    def time(self, count: int, threads: int) -> float:
        """The rounds per second of `count` of them, all together. Raises `OutOfMemory`."""


class Packed(NamedTuple):
    """An experiment with the packing that measured best, what is recorded of it, and what is told."""

    experiment: Experiment
    facts: Mapping[str, Any]
    notes: list[str]


def packed(e: Experiment, middle: Mapping[str, Value], asked: SearchRequest) -> Packed:
    """Measures a configuration in the `middle` of the space. Raises `UserError` where it does not run."""
    here = resources.machine()
    on_gpu = e.gpus_per_trial > 0
    gpus = here.gpus if on_gpu else 1
    bounds = limits(e, asked, here)
    load = os.getloadavg()[0]
    with (
        busy(progress.style(asked.plain, asked.quiet), "starting a federation") as say,
        Federations(
            e.method,
            middle,
            e.seeds,
            device="cuda" if on_gpu else "cpu",
            data_dir=e.data_dir,
            bundle=bounds.bundle,
        ) as federations,
    ):
        table, full = explore(asking(federations, e.rounds, say), bounds, lambda: fit(federations.footprint))
        footprint = federations.footprint
    best = pick(table)
    found = resources.Machine(here.cores, gpus if on_gpu else 0)
    return _settled(e, asked, best, table, footprint, full, found, load)


def asking(federations: Timed, rounds: int, say: Callable[..., None], where: str = "") -> Callable[[int, int], Sample]:
    """What `explore` asks: times so many trials with so many threads in each process. rounds: of a trial."""

    def ask(trials: int, threads: int) -> Sample:
        say(
            f"measuring {trials} trial{'s' * (trials > 1)} at once with {threads} thread{'s' * (threads > 1)} each"
            + where,
            at_once=True,
        )
        per_second = federations.time(trials, threads) / federations.surcharge
        return Sample(trials, threads, trials / per_second, 3600 * per_second / rounds)

    return ask


def most_at_once(e: Experiment) -> int:
    """How many trials could run at the same time if there were room for all."""
    return min(e.width, e.lag) if e.looks_back and e.order == FIXED else e.width


def limits(e: Experiment, asked: SearchRequest, here: resources.Machine) -> Bounds:
    """What the cores, the GPUs, the trials, the lag and the command line allow."""
    gpus = here.gpus if e.gpus_per_trial > 0 else 1
    room = most_at_once(e)
    if asked.gpus_per_trial:
        room = min(room, max(1, resources.room_on(math.inf, gpus, 1.0, asked.gpus_per_trial)))
    cores = max(1, here.cores // gpus)
    threads = None if asked.cpus_per_trial is None else resources.threads(asked.cpus_per_trial)
    by_cores = e.bundle * cores if asked.cpus_per_trial is None else max(1, int(cores / asked.cpus_per_trial + 1e-9))
    most = min(by_cores, math.ceil(room / gpus))
    bundle = min(e.bundle, most)
    return Bounds(cores, most - most % bundle, threads, bundle)


def explore(ask: Callable[[int, int], Sample], bounds: Bounds, fit: Callable[[], int]) -> tuple[list[Sample], str]:
    """Measures one trial, or one bundle of them, then two, four, … as long as more finish more trials per hour. Returns
    the samples, and why it ended there.

    `fit` tells how many processes fit into memory; it is called after one has run."""
    table: list[Sample] = []
    most = bounds.most
    trials, why = bounds.bundle, "no more are allowed at once"
    while True:
        before = max((s.trials_per_hour for s in table), default=0.0)
        try:
            processes = trials // bounds.bundle
            each = {1, max(1, bounds.cores // processes)} if bounds.threads is None else {bounds.threads}
            table += [ask(trials, threads) for threads in sorted(each)]
        except OutOfMemory:
            if not table:
                raise UserError(
                    "--slots auto found that one configuration in the middle of the space does not fit into the "
                    "memory. "
                    f"Take a smaller model, a smaller batch_size or fewer seeds{', or no bundle' * (trials > 1)}."
                ) from None
            return table, f"{trials} did not fit into memory"
        if trials == bounds.bundle and (room := trials * max(1, fit())) < most:
            most, why = room, f"no more than {room} fit into memory"
        if trials >= most:
            return table, why
        if trials > bounds.bundle and max(s.trials_per_hour for s in table) <= before * GAIN:
            return table, "more at once finished no more trials per hour"
        trials = min(most, 2 * trials)


def pick(table: list[Sample]) -> Sample:
    """The arrangement with most trials per hour. Of those that differ from it only by noise, the one with fewest
    trials, then with fewest threads."""
    best = max(s.trials_per_hour for s in table)
    return min((s for s in table if s.trials_per_hour * GAIN >= best), key=lambda s: (s.trials, s.threads))


def fit(footprint: Footprint) -> int:
    """How many processes of that size fit into the memory of the machine and of the GPU."""
    from trainables.worker.process import CONTEXT

    shared = footprint.resident - footprint.private
    room = int(
        (MEMORY * available() + footprint.resident - shared) / max(1, footprint.private)
    )  # the one measured is there already
    if footprint.gpu_total:
        room = min(room, int((footprint.gpu_free + CONTEXT) / (footprint.gpu + CONTEXT)))
    return room


def available() -> int:
    """Bytes of memory that can be taken without swapping, within a container's limit."""
    with open("/proc/meminfo", encoding="ascii") as file:
        found = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        if limit != "max":
            found = min(found, int(limit) - int(Path("/sys/fs/cgroup/memory.current").read_text()))
    except (OSError, ValueError):
        pass
    return max(0, found)


def _settled(
    e: Experiment,
    asked: SearchRequest,
    best: Sample,
    table: list[Sample],
    footprint: Footprint,
    full: str,
    here: resources.Machine,
    load: float,
) -> Packed:
    """The experiment with `best` as its packing, and the reasons."""
    gpus, cores = here.gpus, here.cores
    limit = most_at_once(e)
    at_once = min(best.trials * max(1, gpus), limit)
    bundle = min(e.bundle, best.trials, at_once)
    processes = -(-at_once // bundle)
    share = asked.gpus_per_trial if asked.gpus_per_trial is not None else resources.part(best.trials) if gpus else 0.0
    threads = best.threads if asked.cpus_per_trial is not None else min(best.threads, max(1, cores // processes))
    of_process = float(threads) if processes * threads <= cores else cores / processes
    cpus = asked.cpus_per_trial if asked.cpus_per_trial is not None else of_process * resources.part(bundle)
    experiment = dataclasses.replace(
        e, concurrency=at_once, cpus_per_trial=cpus, gpus_per_trial=share, threads=threads, bundle=bundle
    )
    each = (
        f"{cpus:g} core{'s' * (cpus != 1)}"
        + (f", {share:.4g} GPU" if share else "")
        + f", {threads} thread{'s' * (threads > 1)}"
        + (f" for the {bundle} of a bundle" if bundle > 1 else "")
    )
    lines = [
        f"Measured on {cores} cores" + (f" and one of {gpus} GPU{'s' * (gpus > 1)}" if gpus else "") + ":",
        *in_lines(table, best, footprint, bundle),
        f"Slots: {at_once} × ({each}). {reason(best, table, full)}",
        *busy_before(load, here.cores),
        *([crowded] if (crowded := resources.crowding(processes, threads, cores)) else []),
    ]
    chosen = {
        "concurrency": at_once,
        "threads": threads,
        "cpus_per_trial": cpus,
        "gpus_per_trial": share,
        "why": reason(best, table, full),
    }
    return Packed(experiment, chosen | recorded(table, footprint, load), lines)


def recorded(table: list[Sample], footprint: Footprint, load: float) -> dict[str, Any]:
    """The measurements as they are recorded; memory in MiB."""
    return {
        "table": [{key: round(value, 4) for key, value in asdict(sample).items()} for sample in table],
        "peak_mib": round(footprint.resident / MIB),
        "private_mib": round(footprint.private / MIB),
        "gpu_mib": round(footprint.gpu / MIB),
        "load_before": round(load, 2),
    }


def busy_before(load: float, cores: int) -> list[str]:
    """A warning where other programs were running."""
    if load <= cores / 4:
        return []
    return [
        f"Other programs were running (load {load:.1f} on {cores} cores when this began), so these figures "
        "may be wrong. Override them with --slots and --per-trial."
    ]


def in_lines(table: list[Sample], best: Sample, footprint: Footprint, bundle: int = 1) -> list[str]:
    """The measurements as a table, with an arrow at the `best`. bundle: trials in a process."""
    lines = ["  at once  threads  s/round  trials/hour  MiB in all"]
    for s in table:
        memory = (s.trials // bundle * footprint.private + footprint.resident - footprint.private) / MIB
        lines.append(
            f"  {s.trials:7}  {s.threads:7}  {s.seconds_per_round:7.3g}  {s.trials_per_hour:11.4g}  {memory:10.0f}"
            + ("  ←" if s == best else "")
        )
    if footprint.gpu_total:
        one = "one trial" if bundle == 1 else "a bundle"
        lines.append(f"  GPU memory of {one}: {footprint.gpu / MIB:.0f} MiB, and its CUDA context.")
    return lines


def reason(best: Sample, table: list[Sample], full: str) -> str:
    """The reason in words: `2 at once with 1 thread each finish 60 trials per hour, 1.98 times those of one with 1
    thread and 1.29 times those of one with 2 threads; …`"""
    fewest = min(s.trials for s in table)
    others = [s for s in table if s != best and s.trials == fewest]
    against = " and ".join(
        f"{best.trials_per_hour / s.trials_per_hour:.2f} times those of {'one' if fewest == 1 else fewest} with "
        f"{s.threads} thread{'s' * (s.threads > 1)}"
        for s in others
    )
    each = f"{best.threads} thread{'s' * (best.threads > 1)} each"
    text = f"{best.trials} at once with {each} finish {best.trials_per_hour:.4g} trials per hour"
    return text + (f", {against}" if against else "") + f"; {full}."
