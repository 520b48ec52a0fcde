"""What a search would cost, from a few rounds measured here."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedtune.planning.timed_federations import typical
from fedtune.planning.waiting import turns
from search_spaces.parameter import Value

if TYPE_CHECKING:
    from fedtune.planning.plan import Plan

#: How many seconds an estimate counts for starting Ray and the first workers.
START_UP = 10.0
#: After so many seconds of rounds only what an estimate cannot do without is timed.
PATIENCE = 5.0
#: Where more than `NEXT` clients take part in a round, rounds of so few are timed first.
FEW = 2
#: And then of `MORE`; or of `NEXT` where those of a few were long already.
MORE, NEXT = 10, 4


@dataclass(frozen=True)
class Estimate:
    """What a search would cost; times in seconds."""

    plan: Plan
    round_seconds: float
    at_most: float
    rounds: int = field(default=0)
    #: With how many clients rounds were timed, where these were fewer than take part.
    timed_with: tuple[int, ...] = field(default=())


@dataclass(frozen=True)
class RoundCost:
    """The average seconds of a round, and with how many clients rounds were timed where it is a conclusion from fewer
    than take part."""

    seconds: float
    timed_with: tuple[int, ...] = ()


def estimate(planned: Plan) -> Estimate:
    """Times a few rounds of one configuration in the middle of the space, for one seed; see `round_cost`. Work that is
    not done in every round counts in proportion (`fedtune.planning.timed_federations.typical`)."""
    e = planned.experiment
    device = "cuda" if e.gpus_per_trial else "cpu"
    cost = timed_cost(e.method, planned.middle, e.seeds[0], device=device, threads=e.threads, data_dir=e.data_dir)
    whole = e.seed_rounds // (e.rounds * e.each)
    at_most = START_UP + turns(e, whole) * e.rounds * e.each * cost.seconds
    at_most = min(at_most, e.time) if e.time is not None else at_most
    return Estimate(planned, cost.seconds, at_most, e.seed_rounds, cost.timed_with)


def timed_cost(
    method: str, values: Mapping[str, Value], seed: int, *, device: str, threads: int, data_dir: str | None
) -> RoundCost:
    """What a round of one seed costs with these `values`, which are complete, from a few rounds that are run now."""
    import torch

    from trainables.simulation.replicates import Replicates

    def timed(clients: int | None) -> tuple[float, float]:
        """The average seconds of a round in which so many clients take part (None: as many as planned), and those that
        it took to find out."""
        short = {**values, "rounds": 2} | ({} if clients is None else {"active_clients": clients})
        simulation = Replicates(method, short, (seed,), device=device, data_dir=data_dir)
        begun = time.perf_counter()
        return typical(simulation, values, PATIENCE)[0], time.perf_counter() - begun

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.backends.cudnn.flags(benchmark=False, deterministic=True, allow_tf32=False):  # as trials compute
            return round_cost(timed, taking_part(values))
    finally:
        torch.set_num_threads(before)


def round_cost(timed: Callable[[int | None], tuple[float, float]], clients: int) -> RoundCost:
    """What a round costs in which so many `clients` take part. `timed` measures rounds with fewer, or as they are
    planned (None); it returns their average cost, and how long it took.

    A round's cost is a part that every round has, and a part per client, so that rounds with a few clients and with
    some more tell that of all. Where all of them are quick they are measured: that is what a trial does."""
    if clients <= NEXT:
        return RoundCost(timed(None)[0])
    few, took = timed(FEW)
    more = NEXT if took > PATIENCE / 2 else min(MORE, clients)
    if more == clients or took * clients / FEW <= PATIENCE:
        return RoundCost(timed(None)[0])
    some, longer = timed(more)

    def of_all(at_few: float, at_more: float) -> float:
        return at_more + (clients - more) * max(0.0, at_more - at_few) / (more - FEW)

    if of_all(took, longer) <= PATIENCE:
        return RoundCost(timed(None)[0])
    return RoundCost(of_all(few, some), (FEW, more))


def taking_part(values: Mapping[str, Value]) -> int:
    """How many clients take part in a round."""
    clients = values["active_clients"] or values["clients"]
    assert isinstance(clients, int)
    return clients
