"""What a round of each method costs, how the budget of a search over methods is divided, and which methods it pays for.

A few rounds of a method's paper's values are timed before the search begins, and recorded with it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.auto.record import AutoRecord, Candidate, Excluded
from fedtune.console.progress import duration
from fedtune.options import AutoRequest
from fedtune.planning.estimate import START_UP
from fedtune.planning.plan import Plan
from fedtune.planning.timed_federations import as_a_trial, typical
from search_spaces.errors import Shown, UserError, sentence
from search_spaces.parameter import Value
from search_spaces.requirements import Requirement

#: Trials that every method gets, where the search's budget pays for them.
LEAST = 3
#: Fresh seeds of every method and final seeds of the leader, from the most to the fewest.
SEEDS = ((3, 3), (2, 2), (2, 1))
KINDS = ("fresh", "final")


@dataclass(frozen=True)
class Options:
    """The request's options, checked."""

    #: In seconds of wall clock, seed-rounds or bytes.
    budget: float
    unit: str
    metric: str
    require: tuple[Requirement, ...]
    most_bytes_up: float | None
    methods: tuple[str, ...]
    #: Whether none of them is asked for by its own name.
    every: bool


def within_budget(
    request: AutoRequest,
    asked: Options,
    found: Sequence[tuple[Plan, Candidate]],
    excluded: Sequence[Excluded],
    rounds: int,
    concurrency: int,
) -> tuple[list[tuple[Plan, Candidate]], list[Excluded]]:
    """Where the user names no methods, those that the budget pays for: the dearest are left out, one after the other,
    until it does. At least two stay; a budget too small for them is refused later, as it is for methods with names."""
    cheap = sorted(found, key=lambda item: (item[1].costs[asked.unit], item[1].costs["seconds"]))
    for count in range(len(found), 1 if asked.every else len(found), -1):
        names = {candidate.name for _, candidate in cheap[:count]}
        kept = [item for item in found if item[1].name in names]
        try:
            budgeted(request, asked, "", [candidate for _, candidate in kept], excluded, rounds, concurrency)
        except UserError:
            continue
        return kept, [*excluded, *(_too_dear(candidate, asked, rounds) for _, candidate in cheap[count:])]
    return list(found), list(excluded)


def _too_dear(candidate: Candidate, asked: Options, rounds: int) -> Excluded:
    price = shown(candidate.costs[asked.unit] * rounds, asked.unit)
    return Excluded(
        candidate.name, f"the budget does not pay for it beside cheaper methods; a trial of it costs {price}"
    )


def budgeted(
    request: AutoRequest,
    asked: Options,
    name: str,
    found: Sequence[Candidate],
    excluded: Sequence[Excluded],
    rounds: int,
    concurrency: int,
) -> AutoRecord:
    """The record, with the budget divided. Raises `UserError` where it does not pay for one trial of each method."""
    prices = [candidate.costs[asked.unit] for candidate in found]
    at_once = concurrency if asked.unit == "seconds" else 1
    start = START_UP * (asked.unit == "seconds")
    whole = (asked.budget - start) * at_once
    seeds = _seeds(request, whole, rounds * sum(prices), rounds * max(prices))
    fresh, final = seeds[0] * rounds * sum(prices), seeds[1] * rounds * max(prices)
    search = whole - fresh - final
    once = request.seeds * rounds * sum(prices)
    needed = once * (request.least or 1)
    if search < needed:
        enough = shown((needed + fresh + final) / at_once + start, asked.unit, up=True)
        raise _too_small(request, enough, len(found), seeds)
    return AutoRecord(
        name=name,
        metric=asked.metric,
        methods=tuple(found),
        excluded=tuple(excluded),
        unit=asked.unit,
        cost=asked.unit,
        search_budget=search,
        fresh_budget=fresh,
        final_budget=final,
        least=1 if request.equal else request.least or min(LEAST, max(1, int(search / once))),
        equal=request.equal,
        rounds=rounds,
        seed=request.seed,
        seeds=request.seeds,
        fresh=seeds[0],
        final=seeds[1],
        require=tuple(map(str, asked.require)),
    )


def _seeds(request: AutoRequest, whole: float, all_methods: float, leader: float) -> tuple[int, int]:
    """Fresh seeds and final seeds, as asked for; by default the most of `SEEDS` for which half of the budget pays.

    all_methods: what one federation of each method costs; leader: one of the dearest."""
    for fresh, final in SEEDS:
        found = request.fresh_seeds or fresh, request.final_seeds or final
        if 2 * (found[0] * all_methods + found[1] * leader) <= whole:
            break
    return found


def _too_small(request: AutoRequest, enough: str, methods: int, seeds: tuple[int, int]) -> UserError:
    trials = f"{request.least} trials" if request.least else "one trial"
    fresh, final = (f"{count} {kind} seed{'s' * (count > 1)}" for count, kind in zip(seeds, KINDS, strict=True))
    return UserError(
        sentence(
            "budget",
            f"at least {enough}, which pays for {trials} of each of {methods} method{'s' * (methods > 1)}, for {fresh} "
            f"of its best configuration and for {final} of the leader",
            Shown(request.budget),
            "--budget",
            "Give more, or fewer --methods, --rounds, --fresh-seeds or --final-seeds.",
        )
    )


def shown(amount: float, unit: str, up: bool = False) -> str:
    """An amount of a unit for people; `up`: never less than it is."""
    if unit == "seconds":
        return f"{int(amount) + 1} s" if up else f"{amount:.2g} s" if amount < 10 else duration(amount)
    if unit == "bytes":
        return f"{amount / 1e6:.3g} MB" if not up else f"{int(amount / 1e6) + 1} MB"
    return f"{int(amount) + (up and amount > int(amount))} seed-rounds"


def measured(
    method: str, values: Mapping[str, Value], seed: int, *, device: str, threads: int, data_dir: str | None
) -> dict[str, float]:
    """Of one federation: the seconds of computing of a round (on a GPU those of the clock), what it takes to set a
    trial up included; seed-rounds, which is 1; the bytes that are sent in a round, both ways. And `bytes_up`, those
    that clients send.

    values: every parameter. Raises `UserError` where the federation is not possible."""
    from trainables.simulation.replicates import Replicates

    with as_a_trial(threads):
        begun, computing = time.perf_counter(), time.process_time()
        federation = Replicates(method, {**values, "rounds": 2}, (seed,), device=device, data_dir=data_dir)
        set_up = time.perf_counter() - begun
        last = _Last(federation)
        seconds, _ = typical(last, values)
        took, computing = time.perf_counter() - begun, time.process_time() - computing
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
