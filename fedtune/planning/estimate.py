"""What a search would cost, from a few rounds that are measured here, or from parts of one where rounds are long."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedtune.machine import resources
from fedtune.planning.short_round import ERROR, Known, concluded
from fedtune.planning.timed_federations import as_a_trial, typical
from fedtune.record.experiment import Experiment
from search_spaces.parameter import Value
from search_spaces.run_folder import FIXED

if TYPE_CHECKING:
    from fedtune.planning.plan import Plan

#: How many seconds an estimate counts for planning and for starting Ray and the first workers (`benchmarks/cases/
#: start.py` has some 5 to the first round), and how many more where workers do not fork: on GPUs and on a cluster.
START_UP, SPAWNED = 6.0, 4.0
#: Rounds of which the three that are timed would take longer than so many seconds are not timed as they are.
PATIENCE = 5.0


@dataclass(frozen=True)
class Estimate:
    """What a search would cost; times in seconds."""

    plan: Plan
    round_seconds: float
    at_most: float
    rounds: int = field(default=0)
    #: By what share of itself the cost of a round may be wrong, where it is concluded from parts of one.
    error: float = 0.0


@dataclass(frozen=True)
class RoundCost:
    """The average seconds of a round, and by what share of them that may be wrong where it is concluded."""

    seconds: float
    error: float = 0.0


def estimate(planned: Plan) -> Estimate:
    """What a round of one configuration in the middle of the space costs here, for one seed; see `timed_cost`. Work
    that is not done in every round counts in proportion."""
    e = planned.experiment
    # The GPUs may be those of other machines of a cluster.
    device = "cuda" if e.gpus_per_trial and (e.address is None or resources.machine().gpus) else "cpu"
    cost = timed_cost(e.method, planned.middle, e.seeds[0], device=device, threads=e.threads, data_dir=e.data_dir)
    whole = e.seed_rounds // (e.rounds * e.each)
    spawned = SPAWNED if e.gpus_per_trial or e.address is not None else 0.0
    at_most = START_UP + spawned + turns(e, whole) * e.rounds * e.each * cost.seconds
    at_most = min(at_most, e.time) if e.time is not None else at_most
    return Estimate(planned, cost.seconds, at_most, e.seed_rounds, cost.error)


def turns(e: Experiment, whole: int) -> int:
    """After how many times a trial's duration so many trials have ended, where all take equally long and none is
    stopped: each waits for a slot, and in the fixed order for the trials that it sees."""
    ended = [0] * e.taken
    for number in range(e.taken, e.taken + whole):
        waits = e.looks_back and e.order == FIXED
        before = [number - e.concurrency, *([e.seen(number) - 1] if waits else [])]
        ended.append(1 + max((ended[other] for other in before if other >= 0), default=0))
    return ended[-1] if ended else 0


def timed_cost(
    method: str,
    values: Mapping[str, Value],
    seed: int,
    *,
    device: str,
    threads: int,
    data_dir: str | None,
    known: Known | None = None,
) -> RoundCost:
    """What a round of one seed costs with these `values`, which are complete. Three rounds are run now where they take
    no longer than `PATIENCE`, and where clients are trained as one program, of which no part tells the whole.

    known: what other configurations have told, on the same device; what computes the same is not timed again."""
    from trainables import registry
    from trainables.simulation.replicates import Replicates

    with as_a_trial(threads):
        short = registry.possible(method, {**values, "rounds": 2})
        federation = Replicates(method, short, (seed,), device=device, data_dir=data_dir)
        simulation = federation.simulations[0]
        if simulation.executor != "vmap":
            seconds = concluded(simulation, values, _clock(device, threads), known)
            if 3 * seconds > PATIENCE:
                return RoundCost(seconds, ERROR)
        return RoundCost(typical(federation, values, PATIENCE)[0])


def _clock(device: str, threads: int) -> Callable[[], float]:
    """Seconds of computing where that is what one thread of a processor does: beside other work the clock on the wall
    would say more than a round costs."""
    import torch

    if device == "cpu":
        return time.process_time if threads == 1 else time.perf_counter

    def finished() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return finished
