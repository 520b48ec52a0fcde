"""What a search would cost, from a few rounds measured here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedtune.planning.timed_federations import typical

if TYPE_CHECKING:
    from fedtune.planning.plan import Plan

#: How many seconds an estimate counts for starting Ray and the first workers.
START_UP = 10.0
#: After so many seconds of rounds no further one is timed.
PATIENCE = 5.0


@dataclass(frozen=True)
class Estimate:
    """What a search would cost; times in seconds."""

    plan: Plan
    round_seconds: float
    at_most: float
    rounds: int = field(default=0)


def estimate(planned: Plan) -> Estimate:
    """Times a few rounds of one configuration in the middle of the space, for one seed; only one where rounds are long.
    Work that is not done in every round counts in proportion (`fedtune.planning.timed_federations.typical`)."""
    import torch

    from trainables.simulation.replicates import Replicates

    e = planned.experiment
    before = torch.get_num_threads()
    torch.set_num_threads(e.threads)
    try:
        device = "cuda" if e.gpus_per_trial else "cpu"
        with torch.backends.cudnn.flags(benchmark=False, deterministic=True, allow_tf32=False):  # as trials compute
            simulation = Replicates(
                e.method, {**planned.middle, "rounds": 2}, e.seeds[:1], device=device, data_dir=e.data_dir
            )
            seconds, _ = typical(simulation, planned.middle, PATIENCE)
    finally:
        torch.set_num_threads(before)
    whole = e.seed_rounds // (e.rounds * e.each)
    waves = -(-whole // e.concurrency)
    at_most = START_UP + waves * e.rounds * e.each * seconds
    return Estimate(planned, seconds, min(at_most, e.time) if e.time is not None else at_most, e.seed_rounds)
