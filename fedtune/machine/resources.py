"""How trials share the machine: how many at once, with how many cores and what part of a GPU each.

Small federations gain nothing from a second thread and lose much when threads outnumber cores (measured: up to 7.6
times slower), so a trial has one core and one thread unless told otherwise, and one trial runs per core. Threads change
the last bits of sums; that they do not follow from the number of concurrent trials keeps records equal.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

from search_spaces.errors import Shown, sentence

#: Trial n looks at trials 0 … n - LAG unless told otherwise. It follows neither from the machine nor from the length of
#: the search, as it decides what is proposed: the same request gives the same record everywhere.
LAG = 4
#: Without a lag of the user's own the first trials wait for more: each looks at all before it except the last one, as
#: far as these are among the first EARLY. What is known then is so little that every result counts, and two at a time
#: keep a small machine busy.
EARLY = 8
#: Ray counts shares in steps of this.
LEAST = 0.0001
#: The largest concurrency and lag.
MOST = 1_000_000
#: Trials that share a GPU by default; small models leave most of one idle.
TRIALS_PER_GPU = 4


@dataclass(frozen=True)
class Machine:
    """What there is to share."""

    cores: int
    gpus: int


@dataclass(frozen=True)
class Packing:
    """The shares of one trial."""

    concurrency: int
    cpus: float
    gpus: float

    @property
    def threads(self) -> int:
        """Of torch, per trial."""
        return max(1, int(self.cpus))


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


def early(lag: int | None) -> int:
    """`Experiment.early` of a search whose user asked for this lag (None: for none)."""
    return EARLY if lag is None else 0


def held_back(here: Machine, concurrency: int, threads: int, gpus: float, *, lag: int, trials: int) -> str | None:
    """A note where the search's lag, and nothing else, keeps more trials of `threads` threads and `gpus` of a GPU each
    from running at once."""
    room = _room(here, threads, gpus)
    if not concurrency == lag < min(trials, room):
        return None
    return (
        f"Only {concurrency} trials run at the same time, because the lag is {lag}: a trial waits for the one {lag} "
        f"before it. More run with --lag {room}."
    )


def crowding(concurrency: int, threads: int, cores: int) -> str | None:
    """A warning where trials have more threads than there are cores."""
    if concurrency * threads <= cores:
        return None
    if threads > 1:
        return (
            f"{concurrency} trials at once with {threads} threads each are {concurrency * threads} threads on "
            f"{cores} cores, which can make all of them "
            f"several times slower (measured: up to 7.6). Better: --concurrency {max(1, cores // threads)}."
        )
    turns = f"{concurrency} trials at once take turns on {cores} core{'s' * (cores > 1)}"
    return f"{turns}; they need more memory and are no faster than --concurrency {cores}."


def larger(share: tuple[float, float], cores: float) -> tuple[float, float] | None:
    """The share (cores, GPUs) at which a trial goes on that ran out of memory with `share`: twice the part of a GPU, up
    to a whole one; without a GPU all `cores`, so that nothing runs beside it. None where there is no larger one."""
    cpus, gpus = share
    if gpus > 0:
        return (cpus, min(1.0, 2 * gpus)) if gpus < 1 else None
    return (cores, 0.0) if cpus < cores else None


def pack(
    here: Machine | None,
    problems: list[str],
    *,
    trials: int,
    lag: int | None,
    looks_back: bool,
    concurrency: int | None = None,
    cpus: float | None = None,
    gpus: float | None = None,
) -> tuple[Packing, int]:
    """The packing and the search's lag. What cannot be is appended to `problems`.

    here: None is a cluster that is joined later; shares are then taken as asked for, and Ray places what fits.
    lag: as asked for; None is `LAG`. No more trials run at once than that, where trials look back."""
    room_to_look_back = LAG if lag is None else lag
    _check_amounts(problems, concurrency=concurrency, cpus=cpus, gpus=gpus, lag=lag)
    if problems:
        return Packing(1, 1.0, 0.0), room_to_look_back
    if here is None:
        at_once = concurrency or (room_to_look_back if looks_back else trials)
        cpus, gpus = cpus or 1.0, gpus or 0.0
        here, concurrency = Machine(at_once * math.ceil(cpus), at_once * math.ceil(gpus)), at_once
    if gpus is None:
        gpus = 1 / TRIALS_PER_GPU if here.gpus else 0.0
    _check_fit(here, cpus, gpus, problems)
    share = cpus if cpus is not None else 1.0
    room = _room(here, share, gpus)
    if concurrency is None:
        concurrency = min(room, trials, room_to_look_back) if looks_back else min(room, trials)
    elif cpus is not None and concurrency > room:
        each = f"{share:g} of {here.cores} cores" + (f" and {gpus:g} GPU" if gpus else "")
        problems.append(sentence("concurrency", f"at most {room} with {each} per trial", concurrency, "--concurrency"))
    elif gpus > 0 and concurrency > room and gpus * concurrency > here.gpus:
        problems.append(
            sentence("concurrency", f"at most {room} with {gpus:g} GPU per trial", concurrency, "--concurrency")
        )
    elif concurrency * share > here.cores:
        share = here.cores / concurrency
    if looks_back and concurrency > room_to_look_back:
        fix = f"Give --lag {concurrency} as well; it changes what is proposed."
        problems.append(
            sentence("concurrency", f"at most the lag, {room_to_look_back}", concurrency, "--concurrency", fix)
        )
    return Packing(concurrency, share, gpus), room_to_look_back


def _check_amounts(
    problems: list[str], *, concurrency: int | None, cpus: float | None, gpus: float | None, lag: int | None
) -> None:
    """Each number that was asked for, by itself."""
    for name, value in (("concurrency", concurrency), ("lag", lag)):
        if value is not None and not 1 <= value <= MOST:
            problems.append(sentence(name, f"a whole number in [1, {MOST}]", value, f"--{name}"))
    check_shares(problems, cpus=cpus, gpus=gpus)


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


def _room(here: Machine, cpus: float, gpus: float) -> int:
    """How many trials of that size the machine has room for; at least one."""
    room = max(1, int(here.cores / cpus + 1e-9))
    return min(room, on_gpus(here.gpus, gpus)) if gpus > 0 else room


def on_gpus(count: int, share: float) -> int:
    """How many trials with that share of a GPU `count` GPUs have room for, at least one. A part of a GPU is a part of
    one: of two GPUs, four trials have 0.4 and not five."""
    return max(1, count * int(1 / share + 1e-9) if share <= 1 else count // int(share))
