"""What a round of a method costs in each unit: measured on a few rounds of its paper's values before a search over
several methods begins, and recorded with it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from fedtune.planning.timed_federations import typical
from search_spaces.parameter import Value


def measured(
    method: str, values: Mapping[str, Value], seed: int, *, device: str, threads: int, data_dir: str | None
) -> dict[str, float]:
    """Of one federation: the seconds of computing of a round (on a GPU those of the clock), what it takes to set a
    trial up included; seed-rounds, which is 1; the bytes that are sent in a round, both ways. And `bytes_up`, those
    that clients send.

    values: every parameter. Raises `UserError` where the federation is not possible."""
    import torch

    from trainables.simulation.replicates import Replicates

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.backends.cudnn.flags(benchmark=False, deterministic=True, allow_tf32=False):  # as trials compute
            begun, computing = time.perf_counter(), time.process_time()
            federation = Replicates(method, {**values, "rounds": 2}, (seed,), device=device, data_dir=data_dir)
            set_up = time.perf_counter() - begun
            last = _Last(federation)
            seconds, _ = typical(last, values)
            took, computing = time.perf_counter() - begun, time.process_time() - computing
    finally:
        torch.set_num_threads(before)
    rounds = values["rounds"]
    assert isinstance(rounds, int)
    up, down = (float(last.row.get(f"bytes_{way}") or 0) for way in ("up", "down"))
    # On a machine that is busy with other work the clock would say more than the method costs.
    share = min(1.0, computing / (took * threads)) if device == "cpu" else 1.0
    # A method that sends nothing still costs a little: a budget of bytes must have an end.
    return {
        "seconds": share * (seconds + set_up / rounds),
        "seed-rounds": 1.0,
        "bytes": max(up + down, 1.0),
        "bytes_up": up,
    }


class _Last:
    """A simulation that remembers the last row of a step."""

    def __init__(self, simulation: Any) -> None:
        self._simulation = simulation
        self.row: Mapping[str, Any] = {}

    @property
    def round(self) -> int:
        return int(self._simulation.round)

    def step(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self._simulation.step()
        self.row = rows[-1]
        return rows
