"""What a round of each method costs, how the budget of a search over methods is divided, and which methods it pays for.

A few rounds of a method's paper's values are timed before the search begins, one where the budget is in time, and
recorded with it. A quarter of the budget is kept for fresh seeds, or more where the first ones of every method take
more. A budget in time is one by the clock: planning, the start of Ray and what a trial needs beside its rounds are
counted, and trials that run at the same time share it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.auto.record import AutoRecord, Candidate, Excluded
from fedtune.console.progress import duration
from fedtune.decisions.fresh_seeds import together
from fedtune.decisions.prices import START
from fedtune.options import AutoRequest
from fedtune.planning.estimate import START_UP
from fedtune.planning.plan import Plan
from fedtune.planning.timed_federations import as_a_trial, share_of_rounds, step_seconds, typical
from search_spaces.errors import Shown, UserError, sentence
from search_spaces.parameter import Value
from search_spaces.requirements import Requirement

#: Trials that every method gets, where the search's budget pays for them.
LEAST = 3
#: Fresh seeds of every method that come first, those that it has at most, and the part of the budget that is kept for
#: them.
FRESH, MOST_FRESH, KEPT = 2, 10, 0.25
#: Where all methods may take part, timing them takes at most this part of a budget by the clock.
TIMING = 1 / 6
#: Final seeds of the leader, from the most to the fewest.
FINAL = (3, 2, 1)
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
    clock: float = 0.0,
) -> tuple[list[tuple[Plan, Candidate]], list[Excluded]]:
    """Where the user names no methods, those that the budget pays for: the dearest are left out, one after the other,
    until it does. Two stay where it does not pay for two either, which is refused later, as it is for methods with
    names."""
    cheap = sorted(found, key=lambda item: (item[1].costs[asked.unit], item[1].costs["seconds"]))
    kept = list(found)
    for count in range(len(found), 1 if asked.every else len(found), -1):
        names = {candidate.name for _, candidate in cheap[:count]}
        kept = [item for item in found if item[1].name in names]
        try:
            budgeted(request, asked, "", [candidate for _, candidate in kept], excluded, rounds, concurrency, clock)
        except UserError:
            continue
        return kept, [*excluded, *(_too_dear(candidate, asked, rounds) for _, candidate in cheap[count:])]
    return kept, list(excluded)


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
    clock: float = 0.0,
) -> AutoRecord:
    """The record, with the budget divided. Raises `UserError` where it does not pay for one trial of each method.

    clock: of a budget by the clock, the seconds that have passed since the command began."""
    in_time = asked.unit == "seconds"
    slots, before, start = (concurrency, clock + START_UP, START) if in_time else (1, 0.0, 0.0)
    prices = [rounds * candidate.costs[asked.unit] + start for candidate in found]
    first = (request.fresh_seeds or FRESH) * sum(prices) / slots
    fresh = first if request.fresh_seeds else max(first, KEPT * asked.budget)
    seeds = request.fresh_seeds or FRESH, _final(request, asked.budget, fresh, max(prices), slots)
    final = together([max(prices)] * seeds[1], slots)
    once = request.seeds * sum(prices) / slots
    needed = once * (request.least or 1)
    if asked.budget < before + needed + first + final:
        raise _too_small(request, shown(before + needed + first + final, asked.unit, up=True), len(found), seeds)
    fresh = min(fresh, asked.budget - before - needed - final)
    search = asked.budget - before - fresh - final
    return AutoRecord(
        name=name,
        metric=asked.metric,
        methods=tuple(found),
        excluded=tuple(excluded),
        unit=asked.unit,
        cost=asked.unit,
        search_budget=search + START_UP if in_time else search,
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
        most_fresh=request.fresh_seeds or MOST_FRESH,
        clock=round(clock, 3) if in_time else None,
    )


def _final(request: AutoRequest, budget: float, fresh: float, price: float, slots: int) -> int:
    """Final seeds, as asked for; by default the most of `FINAL` that half of the budget pays for beside fresh seeds.

    fresh: what is kept for those; price: of a federation of the dearest method."""
    for count in FINAL:
        if 2 * (fresh + together([price] * count, slots)) <= budget:
            break
    return request.final_seeds or count


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
    method: str,
    values: Mapping[str, Value],
    seed: int,
    *,
    device: str,
    threads: int,
    data_dir: str | None,
    once: bool = False,
) -> dict[str, float]:
    """Of one federation: the seconds of computing of a round (on a GPU and of a budget by the clock those that pass),
    what it takes to set a trial up included; seed-rounds, which is 1; the bytes that are sent in a round, both ways;
    and `bytes_up`, those that clients send.

    values: every parameter. once: one round alone is run, which warms up and does what is done at intervals, so that it
    says a little too much; what trials cost is learnt from them then. Raises `UserError` where the federation is not
    possible."""
    from trainables import registry
    from trainables.simulation.replicates import Replicates

    with as_a_trial(threads):
        begun, computing = time.perf_counter(), time.process_time()
        short = registry.possible(method, {**values, "rounds": 1 if once else 2})
        federation = Replicates(method, short, (seed,), device=device, data_dir=data_dir)
        set_up = time.perf_counter() - begun
        last = _Last(federation)
        seconds = _of_one(last, values) if once else typical(last, values)[0]
        took, computing = time.perf_counter() - begun, time.process_time() - computing
    planned = values["rounds"]
    assert isinstance(planned, int)
    up, down = (float(last.row.get(f"bytes_{way}") or 0) for way in ("up", "down"))
    # On a machine that is busy with other work the clock would say more than the method costs; where the budget is by
    # the clock, just that is to be known.
    share = min(1.0, computing / (took * threads)) if device == "cpu" and not once else 1.0
    # A method that sends nothing still costs a little: a budget of bytes must have an end.
    return {
        "seconds": share * (seconds + set_up / planned),
        "seed-rounds": 1.0,
        "bytes": max(up + down, 1.0),
        "bytes_up": up,
    }


def _of_one(simulation: _Last, values: Mapping[str, Value]) -> float:
    """The seconds of the next round, with the evaluation counted as often as it is done."""
    plain, measuring = step_seconds(simulation)
    return plain + measuring * share_of_rounds(values, values.get("eval_every", 1))


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
