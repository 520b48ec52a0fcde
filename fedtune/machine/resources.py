"""How trials share the machine: how many at once, with how many cores and what part of a GPU each.

Small federations gain nothing from a second thread and lose much when threads outnumber cores (measured: up to 7.6
times slower), so a trial has one core and one thread unless told otherwise, and one trial runs per core. Threads change
the last bits of sums; that they do not follow from the number of concurrent trials keeps records equal.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fedtune.options import FIXED_UP_TO
from search_spaces.errors import Shown, sentence
from search_spaces.run_folder import ARRIVAL, FIXED

#: Ray counts shares in steps of this.
LEAST = 0.0001
#: The largest number of slots.
MOST = 1_000_000
#: Of trials that share a process.
LARGEST_BUNDLE = 4096
#: Trials that share a GPU by default; small models leave most of one idle.
TRIALS_PER_GPU = 4


class Machine(NamedTuple):
    """What there is to share."""

    cores: int
    gpus: int
    #: The kind of its GPUs, as Ray names it; empty where Ray knows none.
    kind: str = ""


class Share(NamedTuple):
    """What a trial has of a machine."""

    cpus: float
    gpus: float
    #: The kind that its GPUs must be of; empty: any.
    kind: str = ""


@dataclass(frozen=True)
class Packing:
    """How many trials run at once, and the shares of one."""

    concurrency: int
    cpus: float
    gpus: float
    #: How many could run at once where there is room for them, and what a trial sees of others (`Experiment.order`).
    slots: int
    order: str
    #: How many of them share a process.
    bundle: int = 1

    @property
    def threads(self) -> int:
        """Of torch, per trial."""
        return threads(self.cpus)


def machine() -> Machine:
    """Cores this process may use, and CUDA devices."""
    import torch

    return Machine(cores(), torch.cuda.device_count() if torch.cuda.is_available() else 0)


def cores() -> int:
    """Cores this process may run on, within a container's quota."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            found = min(found, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):
        pass
    return found


def part(trials: int) -> float:
    """1/n of a GPU as Ray counts, which rounds to four decimals: never so much that the n-th would not fit."""
    return math.floor(10_000 / trials) / 10_000


def usual_gpus(machines: Iterable[Machine], bundle: float = 1) -> float:
    """The part of a GPU that a trial has unless told otherwise, `bundle` of them in a process; 0 without a GPU."""
    there = any(machine.gpus and machine.cores for machine in machines)
    return part(TRIALS_PER_GPU * int(bundle)) if there else 0.0


def threads(cpus: float) -> int:
    """Threads of torch in a trial with so many cores."""
    return max(1, int(cpus))


def lag(slots: int) -> int:
    """`Experiment.lag` of the fixed order: twice the slots, so that no slot has to wait as soon as another's trial is
    the longer one. One slot never waits, so its trials see all before them."""
    return 2 * slots if slots > 1 else 1


def early(slots: int) -> int:
    """`Experiment.early`: the first trials see all before them but one for each slot beside theirs. What is known then
    is so little that every result counts."""
    return 4 * slots


def crowding(concurrency: int, threads: int, cores: int) -> str | None:
    """A warning where trials have more threads than there are cores."""
    if concurrency * threads <= cores:
        return None
    if threads > 1:
        return (
            f"{concurrency} trials at once with {threads} threads each are {concurrency * threads} threads on "
            f"{cores} cores, which can make all of them "
            f"several times slower (measured: up to 7.6). Better: --slots {max(1, cores // threads)}."
        )
    turns = f"{concurrency} trials at once take turns on {cores} core{'s' * (cores > 1)}"
    return f"{turns}; they need more memory and are no faster than --slots {cores}."


def of_process(shares: Sequence[Share]) -> Share:
    """What trials with these shares, all of one kind, have in one process: part of one GPU, if of any."""
    if len(shares) == 1:
        return shares[0]
    return Share(sum(one.cpus for one in shares), min(1.0, sum(one.gpus for one in shares)), shares[0].kind)


def larger(share: Share, cores: float) -> Share | None:
    """The share at which a trial goes on that ran out of memory with `share`: twice the part of a GPU, up to a whole
    one; without a GPU twice the cores, up to `cores`, so that fewer run beside it. None where there is no larger
    one."""
    if share.gpus > 0:
        return share._replace(gpus=min(1.0, 2 * share.gpus)) if share.gpus < 1 else None
    return share._replace(cpus=min(cores, 2 * share.cpus)) if share.cpus < cores else None


def larger_card(share: Share, had: str, memory: Mapping[str, int]) -> Share | None:
    """The same number of whole GPUs, of the kind that has least of those with more memory than the kind that it `had`.
    None where there is no such kind. memory: of a GPU, by kind."""
    more = [(size, kind) for kind, size in memory.items() if kind and size > memory.get(had, math.inf)]
    return share._replace(kind=min(more)[1]) if more and share.gpus >= 1 else None


class _Free:
    """What is free of a machine: cores, and of each GPU a part."""

    def __init__(self, machine: Machine) -> None:
        self.cores, self.gpus, self.kind = float(machine.cores), [1.0] * machine.gpus, machine.kind

    def on(self, share: Share) -> list[int] | None:
        """The GPUs with room for a share on which the least is left; None where the machine has no room."""
        cpus, gpus, kind = share
        if kind not in ("", self.kind):
            return None
        able = [i for i, left in enumerate(self.gpus) if left >= min(gpus, 1.0) - 1e-6]
        if cpus > self.cores + 1e-6 or len(able) < math.ceil(gpus):
            return None
        return sorted(able, key=lambda i: self.gpus[i])[: math.ceil(gpus)]

    def take(self, share: Share, on: Iterable[int]) -> None:
        self.cores -= share.cpus
        for i in on:
            self.gpus[i] -= min(share.gpus, 1.0)


def fit(shares: Iterable[Share], machines: Iterable[Machine]) -> bool:
    """Whether trials with these shares find room side by side: those that need a kind of GPU and the larger ones first,
    each where the least is left. A part of a GPU is a part of one."""
    free = [_Free(machine) for machine in machines]
    for share in sorted(shares, key=lambda share: (bool(share.kind), share.gpus, share.cpus), reverse=True):
        places = [(machine, on) for machine in free if (on := machine.on(share)) is not None]
        if not places:
            return False
        machine, on = min(places, key=lambda place: (sum(place[0].gpus[i] for i in place[1]), place[0].cores))
        machine.take(share, on)
    return True


def pack(
    here: Machine | None,
    problems: list[str],
    *,
    trials: int,
    slots: int | None = None,
    order: str | None = None,
    cpus: float | None = None,
    gpus: float | None = None,
    bundle: float = 1,
) -> Packing:
    """How so many trials are packed. What cannot be is appended to `problems`.

    here: None is a cluster; shares are then taken as asked for, and without a number of slots as many trials run as fit
    at any time, as machines join it and leave it. slots: None is as many as the machine has room for; of more, those
    that fit run at the same time. order: None is the default for so many slots. bundle: so many trials share a process,
    and its core and part of a GPU."""
    if bundle != int(bundle) or not 1 <= bundle <= LARGEST_BUNDLE:
        must = f"a whole number in [1, {LARGEST_BUNDLE}]"
        problems.append(sentence("bundle of trials", must, Shown(f"{bundle:g}"), "--per-trial"))
    if slots is not None and not 1 <= slots <= MOST:
        problems.append(sentence("slots", f"a whole number in [1, {MOST}]", slots, "--slots"))
    check_shares(problems, cpus=cpus, gpus=gpus)
    if problems:
        return Packing(1, 1.0, 0.0, 1, FIXED)
    share = cpus if cpus is not None else 1.0 if bundle == 1 else part(int(bundle))
    if here is None:
        room, gpus = trials, gpus or 0.0
        if slots is None and order == FIXED:
            problems.append(
                "In the fixed order what a trial sees depends on the number of slots. Give it with --slots."
            )
    else:
        gpus = usual_gpus([here], bundle) if gpus is None else gpus
        _check_fit(here, cpus, gpus, problems)
        room = max(1, room_on(here.cores, here.gpus, share, gpus))
    slots = room if slots is None else slots
    if order is None:
        order = FIXED if slots <= FIXED_UP_TO else ARRIVAL
    at_once = min(slots, room, trials)
    of_gpu = at_once if gpus == 0 else int(1 / gpus + 1e-9)  # those that share one
    return Packing(at_once, share, gpus, slots, order, max(1, min(int(bundle), at_once, of_gpu)))


def check_shares(problems: list[str], *, cpus: float | None, gpus: float | None) -> None:
    """A trial's shares of the machine, each by itself; None was not asked for."""
    if cpus is not None and not LEAST <= cpus < math.inf:
        problems.append(sentence("cpus of a trial", f"a number of at least {LEAST}", cpus, "--per-trial"))
    if gpus is not None and not (gpus == 0 or LEAST <= gpus < math.inf):
        problems.append(sentence("gpus of a trial", f"0 or a number of at least {LEAST}", gpus, "--per-trial"))


def _check_fit(here: Machine, cpus: float | None, gpus: float, problems: list[str]) -> None:
    """Whether one trial fits on the machine."""
    if gpus > here.gpus:
        must = f"at most {here.gpus}, the number of GPUs of this machine" if here.gpus else "0, as no GPU was found"
        problems.append(sentence("gpus of a trial", must, Shown(f"{gpus:g}"), "--per-trial"))
    elif gpus > 1 and gpus != int(gpus):
        problems.append(
            sentence("gpus of a trial", "a whole number where it is above 1", Shown(f"{gpus:g}"), "--per-trial")
        )
    if cpus is not None and cpus > here.cores:
        problems.append(
            sentence(
                "cpus of a trial",
                f"at most {here.cores}, the number of cores of this machine",
                Shown(f"{cpus:g}"),
                "--per-trial",
            )
        )


def room_on(cores: float, gpus: float, cpus: float, share: float) -> int:
    """How many trials with so many `cpus` and that `share` of a GPU a machine of `cores` and `gpus` has room for. A
    part of a GPU is a part of one: of two GPUs, four trials have 0.4 and not five."""
    room = math.floor(cores / cpus + 1e-9) if cores < math.inf else MOST
    if share > 0:
        room = min(room, int(gpus) * int(1 / share + 1e-9) if share <= 1 else int(gpus) // int(share))
    return room
