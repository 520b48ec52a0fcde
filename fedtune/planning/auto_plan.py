"""From what a user asks of `fedtune auto` to the runs that will be made, with every problem of the request found
first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtune.console.progress import duration
from fedtune.machine import resources
from fedtune.planning import auto_costs
from fedtune.planning.auto_methods import Able, Unable, able, check_conditions
from fedtune.planning.auto_request import AutoRequest, Options, options, settings
from fedtune.planning.checks import runs_folder
from fedtune.planning.estimate import START_UP
from fedtune.planning.plan import device_of
from fedtune.record.auto_record import AutoRecord, Candidate, Excluded
from fedtune.record.experiment import Experiment, search_seeds
from fedtune.record.run_directory import absolute
from fedtune.trials.early_stopping import default_grace
from fedtune.trials.known_points import PAPER
from search_spaces.errors import Shown, UserError, sentence
from search_spaces.metrics import METRICS
from search_spaces.space import Space

#: Trials that every method gets, where the search's budget pays for them.
LEAST = 3
REDUCTION = 3
#: Fresh seeds of every method and final seeds of the leader, from the most to the fewest.
SEEDS = ((3, 3), (2, 2), (2, 1))
KINDS = ("fresh", "final")
#: The most trials that a method can have; the budget ends a search long before.
MOST = 1_000_000


@dataclass(frozen=True)
class AutoPlan:
    """A request that can be carried out."""

    folder: Path
    record: AutoRecord
    #: Every method's search, in the order of `record.methods`: its experiment, its space, its facts.
    searches: tuple[tuple[Experiment, Space, Mapping[str, Any]], ...]
    notes: tuple[str, ...]


def plan_auto(request: AutoRequest, say: Callable[[str], None] = lambda text: None) -> AutoPlan:
    """Checks all of a request and times a few rounds of every method; `say` is told which. Raises one `UserError` with
    every problem; writes nothing but the data set's cache."""
    problems: list[str] = []
    folder = runs_folder(request.runs_dir, request.name if request.name is not None else "auto", problems)
    asked = options(request, problems)
    given = settings(request, asked.methods, problems)
    packing, lag = resources.pack(
        resources.machine() if request.address is None else None,
        problems,
        trials=MOST,
        lag=request.lag,
        looks_back=True,
        concurrency=request.concurrency,
        cpus=request.cpus_per_trial,
        gpus=request.gpus_per_trial,
    )
    _measurable(asked, given, problems)
    if problems:
        raise UserError(*dict.fromkeys(problems))
    device = device_of(packing.gpus, request.address)
    found, excluded = _taking_part(request, asked, given, device, packing.threads, say)
    rounds = int(found[0][0].typical["rounds"])
    found, excluded = _within_budget(request, asked, found, excluded, rounds, packing.concurrency)
    candidates = [candidate for _, candidate in found]
    record = budgeted(request, asked, folder.name, candidates, excluded, rounds, packing.concurrency)
    searches = tuple((_experiment(one, request, record, packing, lag), one.space, one.facts) for one, _ in found)
    return AutoPlan(folder, record, searches, _notes(record, packing.concurrency))


def _measurable(asked: Options, given: Mapping[str, Mapping[str, Any]], problems: list[str]) -> None:
    """Adds a problem where the conditions do not measure the metric for any method."""
    values: Mapping[str, Any] = next(iter(given.values()), {})
    needed = [asked.metric, *(one.metric for one in asked.require)]
    problems += [
        f"{metric.name} is measured only where {metric.needs} is above 0, and it is 0. Raise it with --set "
        f"{metric.needs}=VALUE."
        for metric in (METRICS[name] for name in dict.fromkeys(needed) if name in METRICS and values)
        if metric.needs and not values.get(metric.needs)
    ]
    if values and asked.metric.startswith("val_") and not values.get("validation_fraction"):
        problems.append("validation_fraction is 0, so there are no validation data to select on. Raise it with --set.")


def _taking_part(
    request: AutoRequest,
    asked: Options,
    given: Mapping[str, Mapping[str, Any]],
    device: str | None,
    threads: int,
    say: Callable[[str], None],
) -> tuple[list[tuple[Able, Candidate]], list[Excluded]]:
    """The methods that take part with the cost of their rounds, and the others. Raises `UserError` where none is
    left, or where their spaces have different conditions."""
    able_ones: list[Able] = []
    found: list[tuple[Able, Candidate]] = []
    left_out: dict[str, str] = {}
    seed = search_seeds(request.seed, 1)[0]
    for name in asked.methods:
        say(f"checking {name}")
        try:
            able_ones.append(able(name, request, asked, given[name], seed, device))
        except (Unable, UserError) as error:
            left_out[name] = str(error)
    check_conditions(able_ones, request)
    for one in able_ones:
        say(f"measuring {one.name}")
        try:
            found.append((one, _measured(one, request, asked, seed, device, threads)))
        except (Unable, UserError) as error:
            left_out[one.name] = str(error)
    excluded = [Excluded(name, left_out[name].rstrip(".")) for name in asked.methods if name in left_out]
    if not found:
        whys = list(dict.fromkeys(one.why for one in excluded))
        if len(whys) == 1:
            raise UserError(f"No method is left: {whys[0]}.")
        raise UserError("No method is left.", *(f"{one.name} cannot take part: {one.why}." for one in excluded))
    return found, excluded


def _measured(
    one: Able, request: AutoRequest, asked: Options, seed: int, device: str | None, threads: int
) -> Candidate:
    """The method with the cost of its rounds. Raises `Unable` where its clients send too much."""
    costs = auto_costs.measured(
        one.name, one.typical, seed, device=device or "cpu", threads=threads, data_dir=request.data_dir
    )
    up = costs.pop("bytes_up")
    if asked.most_bytes_up is not None and up > asked.most_bytes_up:
        raise Unable(
            f"its clients send {up / 1e6:.3g} MB in a round, more than {asked.most_bytes_up / 1e6:.3g} MB "
            f"(--max-bytes-up)"
        )
    return Candidate(one.name, one.title, costs)


def _within_budget(
    request: AutoRequest,
    asked: Options,
    found: Sequence[tuple[Able, Candidate]],
    excluded: Sequence[Excluded],
    rounds: int,
    concurrency: int,
) -> tuple[list[tuple[Able, Candidate]], list[Excluded]]:
    """Where the user names no methods, those that the budget pays for: the dearest are left out, one after the other,
    until it does. At least two stay; a budget too small for them is refused later, as it is for methods with names."""
    cheap = sorted(found, key=lambda item: (item[1].costs[asked.unit], item[1].costs["seconds"]))
    for count in range(len(found), 1 if request.every else len(found), -1):
        names = {one.name for one, _ in cheap[:count]}
        kept = [item for item in found if item[0].name in names]
        try:
            budgeted(request, asked, "", [candidate for _, candidate in kept], excluded, rounds, concurrency)
        except UserError:
            continue
        return kept, [*excluded, *(_too_dear(one, candidate, asked, rounds) for one, candidate in cheap[count:])]
    return list(found), list(excluded)


def _too_dear(one: Able, candidate: Candidate, asked: Options, rounds: int) -> Excluded:
    price = shown(candidate.costs[asked.unit] * rounds, asked.unit)
    return Excluded(one.name, f"the budget does not pay for it beside cheaper methods; a trial of it costs {price}")


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
        cost=asked.cost,
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


def _experiment(
    one: Able, request: AutoRequest, record: AutoRecord, packing: resources.Packing, lag: int
) -> Experiment:
    """The search of one method."""
    point = one.space.declared_point()
    return Experiment(
        name=one.name,
        kind="search",
        method=one.name,
        space=one.space.name,
        profile="small",
        values=one.values,
        metric=(record.metric,),
        select_on="validation" if record.metric.startswith("val_") else "test",
        trials=MOST,
        rounds=record.rounds,
        seed=request.seed,
        seeds=search_seeds(request.seed, request.seeds),
        sampler="tpe",
        scheduler="asha",
        reduction_factor=REDUCTION,
        grace=default_grace(record.rounds, REDUCTION),
        lag=lag,
        first=() if point is None else ({"values": point, "from": PAPER},),
        part=True,
        require=record.require,
        data_dir=absolute(request.data_dir),
        concurrency=packing.concurrency,
        cpus_per_trial=packing.cpus,
        gpus_per_trial=packing.gpus,
        threads=packing.threads,
        address=request.address,
    )


def _notes(record: AutoRecord, concurrency: int) -> tuple[str, ...]:
    """What the user is told before anything runs."""
    left_out = [f"{one.name} is left out: {one.why}." for one in record.excluded]
    parts = [
        f"{shown(budget / (concurrency if record.unit == 'seconds' else 1), record.unit)} for {what}"
        for budget, what in (
            (record.search_budget, "the search"),
            (record.fresh_budget, "fresh seeds of each method's best configuration"),
            (record.final_budget, "the final run of the leader"),
        )
    ]
    share = (
        "Every method gets the same part of it"
        if record.equal
        else f"Every method gets at least {record.least} trial{'s' * (record.least > 1)} of {record.rounds} rounds"
    )
    required = f" where {' and '.join(record.require)}" if record.require else ""
    costs = ", ".join(
        f"{one.name} {shown(one.costs[record.cost] * record.rounds, record.cost)}" for one in record.methods
    )
    return (
        *left_out,
        f"{len(record.methods)} method{'s' * (len(record.methods) > 1)}, selecting by {record.metric}{required}. "
        f"Planned: {', '.join(parts)}. {share}.",
        f"Measured cost of a whole trial: {costs}.",
    )


def shown(amount: float, unit: str, up: bool = False) -> str:
    """An amount of a unit for people; `up`: never less than it is."""
    if unit == "seconds":
        return f"{int(amount) + 1} s" if up else f"{amount:.2g} s" if amount < 10 else duration(amount)
    if unit == "bytes":
        return f"{amount / 1e6:.3g} MB" if not up else f"{int(amount / 1e6) + 1} MB"
    return f"{int(amount) + (up and amount > int(amount))} seed-rounds"
