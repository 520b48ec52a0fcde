"""From what a user asks of `fedtune auto` to the runs that will be made, with every problem of the request found
first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedtune.decisions.early_stopping import REDUCTION, default_grace
from fedtune.machine import resources
from fedtune.options import AutoRequest
from fedtune.planning import auto_budget
from fedtune.planning.auto_budget import budgeted, shown, within_budget
from fedtune.planning.auto_request import Able, Options, Unable, able, check_conditions, options, settings
from fedtune.planning.checks import named_folder
from fedtune.planning.plan import Plan, device_of
from fedtune.record.auto_record import AutoRecord, Candidate, Excluded
from fedtune.record.experiment import Experiment, search_seeds
from fedtune.record.run_directory import absolute, new_folder, write_document
from search_spaces import run_folder
from search_spaces.errors import UserError
from search_spaces.metrics import METRICS
from search_spaces.run_folder import PAPER

#: Proposes values within each method.
SAMPLER = "tpe"
#: The most trials that a method can have; the budget ends a search long before.
MOST = 1_000_000


@dataclass(frozen=True)
class AutoPlan:
    """A request that can be carried out."""

    folder: Path
    record: AutoRecord
    #: Every method's search, in the order of `record.methods`.
    searches: tuple[Plan, ...]
    notes: tuple[str, ...]

    def create(self) -> None:
        """Makes the folder with its record and the run directory of every method's search, all at once or not at all.

        Raises `UserError` where the folder exists or the disk refuses."""
        with new_folder(self.folder) as temporary:
            write_document(temporary / run_folder.AUTO, self.record.to_yaml())
            for search in self.searches:
                search.create(temporary / search.folder.relative_to(self.folder))
            for name in (run_folder.BEST, run_folder.FRESH, run_folder.FINAL):
                (temporary / name).mkdir()


def plan_auto(request: AutoRequest, say: Callable[[str], None] = lambda text: None) -> AutoPlan:
    """Checks all of a request and times a few rounds of every method; `say` is told which. Raises one `UserError` with
    every problem; writes nothing but the data set's cache."""
    problems: list[str] = []
    folder = named_folder(str(request.name), problems)
    asked = options(request, problems)
    given = settings(request, asked.methods, problems)
    if request.address is not None and request.slots is None:
        problems.append("How far a budget reaches depends on how many trials run at once on the cluster. Give --slots.")
    packing = resources.pack(
        resources.machine() if request.address is None else None,
        problems,
        trials=MOST,
        slots=request.slots,
        order=request.order,
        cpus=request.cpus_per_trial,
        gpus=request.gpus_per_trial,
    )
    _measurable(asked, given, problems)
    if problems:
        raise UserError(*dict.fromkeys(problems))
    device = device_of(packing.gpus, request.address)
    found, excluded = _taking_part(request, asked, given, device, packing.threads, say)
    rounds = int(found[0][0].typical["rounds"])
    found, excluded = within_budget(request, asked, found, excluded, rounds, packing.concurrency)
    candidates = [candidate for _, candidate in found]
    record = budgeted(request, asked, folder.name, candidates, excluded, rounds, packing.concurrency)
    searches = tuple(_search(folder, one, _experiment(one, request, record, packing)) for one, _ in found)
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
    costs = auto_budget.measured(
        one.name, one.typical, seed, device=device or "cpu", threads=threads, data_dir=request.data_dir
    )
    up = costs.pop("bytes_up")
    if asked.most_bytes_up is not None and up > asked.most_bytes_up:
        raise Unable(
            f"its clients send {up / 1e6:.3g} MB in a round, more than {asked.most_bytes_up / 1e6:.3g} MB "
            f"(--max-bytes-up)"
        )
    return Candidate(one.name, one.title, costs)


def _search(folder: Path, one: Able, experiment: Experiment) -> Plan:
    """The plan of one method's search."""
    return Plan(folder / run_folder.SEARCHES / one.name, experiment, one.space, one.facts, (), one.typical)


def _experiment(one: Able, request: AutoRequest, record: AutoRecord, packing: resources.Packing) -> Experiment:
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
        sampler=SAMPLER,
        scheduler="asha",
        reduction_factor=REDUCTION,
        grace=default_grace(record.rounds, REDUCTION),
        order=packing.order,
        lag=resources.lag(packing.slots),
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
