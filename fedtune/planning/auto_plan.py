"""From what a user asks of `fedtune auto` to the searches that will be made, one of each method that can take part.

A method's search is a `SearchRequest`, which is planned as any other (`fedtune.planning.plan`). What it is asked for,
who takes part and why the others do not is said here; what they cost and how the budget is divided in `auto_budget.py`.
"""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.auto.record import AutoRecord, Candidate, Excluded
from fedtune import option
from fedtune.decisions import initial_design
from fedtune.options import MAX_TRIALS, AutoRequest, Sampler, SearchRequest
from fedtune.planning import auto_budget, checks
from fedtune.planning.auto_budget import Options, budgeted, shown, within_budget
from fedtune.planning.checks import named_folder
from fedtune.planning.objects import spelled
from fedtune.planning.plan import AMX, Plan, device_of, placement, plan
from fedtune.planning.selection import recorded
from fedtune.planning.settings import FILES, data_of, settled, smaller_model, whole
from fedtune.record.run_directory import new_folder, write_document
from fedtune.record.storage import check_uri
from search_spaces import presets, run_folder
from search_spaces.errors import Shown, UserError, sentence, unknown
from search_spaces.metrics import METRICS
from search_spaces.parameter import Value, canonical, pairs, parameters
from search_spaces.requirements import asked
from search_spaces.space import Space
from trainables.data import own

if TYPE_CHECKING:
    from trainables.method import Method

#: What a search chooses by the data where nobody sets it.
CHOSEN = ("model", "min_samples", "validation_fraction")
#: Proposes values within each method.
SAMPLER: Sampler = "tpe"


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
    started, request = time.monotonic(), dataclasses.replace(request, **spelled(request))
    problems: list[str] = []
    folder = named_folder(str(request.name), problems)
    wanted = options(request, problems)
    chosen: list[str] = []
    given = settings(request, wanted, problems, chosen)
    if request.address is not None and request.slots is None:
        problems.append("How far a budget reaches depends on how many trials run at once on the cluster. Give --slots.")
    packing = placement(request, problems, trials=MAX_TRIALS, order=request.order)
    if request.bundle > 1 and wanted.unit == "seconds":
        must = "1 with a budget in time, as what a trial takes beside others in a process is not known from one alone"
        fix = "Give a --budget such as 600rounds or 2GB with it."
        problems.append(sentence("bundle of trials", must, Shown(f"{request.bundle:g}"), "--per-trial", fix))
    if problems:
        raise UserError(*dict.fromkeys(problems))
    if request.address is not None:  # whose machines are asked once for all methods
        had = {"cpus": packing.cpus, "gpus": packing.gpus, "bundle": request.bundle}
        request = dataclasses.replace(request, per_trial=had)
    searches, excluded = _taking_part(request, wanted, given, folder, say)
    device = device_of(packing.gpus, request.address)
    enough = started + auto_budget.TIMING * wanted.budget if wanted.unit == "seconds" and wanted.every else math.inf
    found, excluded = _timed(searches, excluded, request, wanted, device, packing.threads, enough, say)
    rounds = found[0][0].experiment.rounds
    at_once, clock = packing.concurrency, time.monotonic() - started
    found, excluded = within_budget(request, wanted, found, excluded, rounds, at_once, clock)
    candidates = [candidate for _, candidate in found]
    record = budgeted(request, wanted, folder.name, candidates, excluded, rounds, at_once, clock)
    slow = [AMX] if any(AMX in search.notes for search, _ in found) else []
    return AutoPlan(folder, record, tuple(search for search, _ in found), (*chosen, *_notes(record), *slow))


def _notes(record: AutoRecord) -> tuple[str, ...]:
    """What the user is told before anything runs."""
    left_out = [f"{one.name} is left out: {one.why}." for one in record.excluded]
    parts = [
        f"{shown(budget, record.unit)} for {what}"
        for budget, what in (
            (record.search_budget, "the search"),
            (record.fresh_budget, "fresh seeds of the methods' best configurations"),
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


ALL = "all"

_COUNT = re.compile(r"(\d+)\s*(?:seed-)?rounds")
_BYTES = re.compile(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmgt]?)b")
_SCALE = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


# -- what is asked for -------------------------------------------------------------------------------------------------


def options(request: AutoRequest, problems: list[str]) -> Options:
    """Every option by itself. What cannot be used is added to `problems`."""
    problems.extend(option.problems(request))
    check_uri(request.storage, problems)
    if request.equal and request.least is not None:
        problems.append("--equal gives every method the same part of the budget, so --least would change nothing.")
    if _is_file(request.space):
        fix = "A file holds the space of one method: fedtune search METHOD --space FILE."
        problems.append(sentence("space", "the name of a space of the methods", request.space, "--space", fix))
    budget, unit = _budget(request.budget, problems)
    most = None if request.max_bytes_up is None else _bytes(request.max_bytes_up)
    if request.max_bytes_up is not None and most is None:
        problems.append(sentence("max-bytes-up", "an amount such as 50MB", request.max_bytes_up, "--max-bytes-up"))
    metric = _metric(request, problems)
    require = asked(request.require, "validation", problems)
    return Options(budget, unit, metric, require, most, *_methods(request, problems))


def _budget(text: str, problems: list[str]) -> tuple[float, str]:
    wanted = str(text).strip().lower()
    if (count := _COUNT.fullmatch(wanted)) is not None and int(count[1]) > 0:
        return float(count[1]), "seed-rounds"
    if (amount := _bytes(wanted)) is not None:
        return amount, "bytes"
    if wanted and not wanted[-1].isdigit():
        found: list[str] = []
        seconds = checks.seconds_of(wanted, found)
        if seconds is not None:
            return seconds, "seconds"
    must = (
        "a length such as 30m or 2h, a count such as 600rounds (rounds of single federations), or traffic such as 2GB"
    )
    problems.append(sentence("budget", must, text, "--budget"))
    return math.inf, "seconds"


def _bytes(text: str) -> float | None:
    """`50MB` in bytes; None for something else."""
    match = _BYTES.fullmatch(str(text).strip().lower())
    found = 0.0 if match is None else float(match[1]) * _SCALE[match[2]]
    return found if 0 < found < 1e300 else None


def _metric(request: AutoRequest, problems: list[str]) -> str:
    """The recorded name of the metric to select by."""
    if request.metric is None:
        return "val_global_accuracy"
    checks.known("metric", canonical(request.metric), METRICS, problems, "--metric")
    (name,) = recorded([request.metric], "validation")
    return name


def _methods(request: AutoRequest, problems: list[str]) -> tuple[tuple[str, ...], bool]:
    """The names of all methods that are asked for, in the order given (`all` and those of a family: by name), and
    whether none is asked for by its own name."""
    from trainables import registry

    words = tuple(dict.fromkeys(registry.named(name.strip()) for text in request.methods for name in text.split(",")))
    known = registry.methods()
    if not words or words == ("",):
        problems.append("No method is named. Give --methods fedavg,fedprox, or --methods all.")
    found: list[str] = []
    for name in filter(None, words):
        within = [one for one, method in known.items() if name == ALL or name.lower() in method.family.lower()]
        if name not in known and not within:
            families = sorted({method.family for method in known.values()})
            problems.append(unknown("method or family", name, (*known, *families), "--methods"))
        found += [name] if name in known else within
    return tuple(dict.fromkeys(found)), not any(name in known for name in words)


def settings(
    request: AutoRequest, checked: Options, problems: list[str], chosen: list[str]
) -> dict[str, dict[str, Any]]:
    """By method, what the request sets: the conditions that all methods share, or those of the space that it names, and
    what `--set` says of each. What a search would choose by the data all have, and what is to be told of that is
    `chosen`."""
    methods = checked.methods
    if not methods:
        return {}  # told already
    from search_spaces.parameter import defaults
    from trainables import registry
    from trainables.federation import FederationConfig

    spaces = {name: None for method in methods for name in (presets.DEFAULT, *presets.names(method))}
    if request.space not in spaces:
        if not _is_file(request.space):
            problems.append(unknown("space", request.space, spaces, "--space"))
        return {}
    shared: dict[str, Any] = dict(defaults(FederationConfig))
    given = pairs(request.set, "--set", problems, "name=value or method.name=value")
    of_data = {canonical(name): str(value) for name, value in given if canonical(name) in own.OPTIONS}
    wanted: list[tuple[str, object]] = [*data_of(request, of_data, problems).items()]
    wanted += [] if request.rounds is None else [("rounds", request.rounds)]
    wanted += [] if request.model is None else [("model", request.model)]
    wanted += [("own_metrics", ",".join(request.own_metrics))] if request.own_metrics else []
    wanted += [(name, value) for name, value in given if canonical(name) not in of_data]
    found = {method: _of_space(request.space, method, shared) or dict(shared) for method in methods}
    for values in found.values():
        values.pop("eval_test", None)  # the plan of each search says it, where the user does not
    for name, value in wanted:
        method, dot, key = name.partition(".")
        method, key = (method, canonical(key)) if dot else ("", canonical(name))
        takers = [one for one in methods if (one == method or not dot) and key in registry.declared(one)]
        if not takers:
            every = {key for one in methods if one == method or not dot for key in registry.declared(one)}
            problems.append(unknown("parameter", name, every or set(methods), "--set"))
        for one in takers:
            try:
                said = whole(key, value) if key in FILES else value
                found[one][key] = registry.declared(one)[key].convert(said, "--set")
            except UserError as error:
                problems.extend(problem for problem in error.problems if problem not in problems)
    if request.space == presets.DEFAULT and not problems:
        free = [key for key in CHOSEN if key not in {canonical(name) for name, _ in wanted}]
        by_data, said = _by_data(found, free, request, named=not checked.every)
        chosen.extend(said)
        for values in found.values():
            values |= {key: value for key, value in by_data.items() if values[key] == shared[key]}
    return found


def _by_data(
    found: Mapping[str, Mapping[str, Any]], free: Sequence[str], request: AutoRequest, *, named: bool
) -> tuple[dict[str, Value], list[str]]:
    """Of `CHOSEN` what nobody has set, `free`, as a search would choose it by the data, and what is said of it. Methods
    are compared, so that all have the same model, and the dearest of them decides whether that is a small one.

    named: whether the methods are asked for by name."""
    from search_spaces.parameter import defaults
    from trainables import registry
    from trainables.federation import FederationConfig

    declared, usual, said = registry.declared("fedavg"), defaults(FederationConfig)["model"], list[str]()
    given = {key: value for key, value in next(iter(found.values())).items() if key in declared and key not in free}
    settings_of = settled(SearchRequest("fedavg", data_dir=request.data_dir), [], {"model": usual, **given})
    chosen = {key: settings_of.values[key] for key in free}
    if "model" in free:
        of = {}
        for method in (one for one, values in found.items() if values["model"] == usual):
            asks = SearchRequest(method, data_dir=request.data_dir)
            own_settings = settled(asks, [], {**_local_training(method, request.space), **found[method]})
            of[method] = {**own_settings.defaults, **own_settings.values}
        if (smaller := smaller_model(of, request.data_dir, named)) is not None:
            chosen["model"], told = smaller
            said.append(told)
    return chosen, [*said, *settings_of.chosen]


def _of_space(name: str, method: str, shared: Mapping[str, Any]) -> dict[str, Any]:
    """The conditions of the method's space of this name, what it fixes and the method's declared values, but for what
    it searches or asks for several values of. None of the default one, whose conditions are one paper's choice, nor
    where there is no such space: the method is left out."""
    if name == presets.DEFAULT or name not in presets.names(method):
        return {}
    values = settled(SearchRequest(method, space=name), []).values
    return {key: values[key] for key in shared if key in values}


def _is_file(space: str) -> bool:
    return "/" in space or "." in space


# -- who takes part ----------------------------------------------------------------------------------------------------


class Unable(Exception):
    """A method cannot take part; the text says why."""


def _taking_part(
    request: AutoRequest,
    wanted: Options,
    given: Mapping[str, Mapping[str, Any]],
    folder: Path,
    say: Callable[[str], None],
) -> tuple[list[Plan], list[Excluded]]:
    """The searches of the methods that can take part, and the other methods. Raises `UserError` where none is left, or
    where their spaces have different conditions."""
    found, excluded = [], []
    for name in wanted.methods:
        say(f"checking {name}")
        try:
            found.append(_search(name, request, wanted, given[name], folder))
        except (Unable, UserError) as error:
            excluded.append(_left_out(name, error))
    _check_conditions(found, request)
    return found, excluded


def _timed(
    searches: Sequence[Plan],
    excluded: Sequence[Excluded],
    request: AutoRequest,
    wanted: Options,
    device: str | None,
    threads: int,
    enough: float,
    say: Callable[[str], None],
) -> tuple[list[tuple[Plan, Candidate]], list[Excluded]]:
    """The methods with the cost of their rounds, without those whose clients send too much. Raises `UserError` where
    none is left.

    enough: from this reading of the clock on no further method is timed, once there are two. So FedAvg comes first,
    with which all are compared, then those with the fewest parameters, which take least time too."""
    from trainables import registry

    def parameters_of(search: Plan) -> int:
        return 0 if search.experiment.method == "fedavg" else len(registry.declared(search.experiment.method))

    found: list[tuple[Plan, Candidate]] = []
    left_out = {one.name: one for one in excluded}
    for search in sorted(searches, key=parameters_of):
        name = search.experiment.method
        if len(found) > 1 and time.monotonic() >= enough:
            left_out[name] = Excluded(name, "the budget does not pay for timing it; name it with --methods")
            continue
        say(f"measuring {name}")
        try:
            found.append((search, _measured(search, request, wanted, device, threads)))
        except (Unable, UserError) as error:
            left_out[name] = _left_out(name, error)
    listed = [left_out[name] for name in wanted.methods if name in left_out]
    if not found:
        whys = list(dict.fromkeys(one.why for one in listed))
        if len(whys) == 1:
            raise UserError(f"No method is left: {whys[0]}.")
        raise UserError("No method is left.", *(f"{one.name} cannot take part: {one.why}." for one in listed))
    return sorted(found, key=lambda item: wanted.methods.index(item[1].name)), listed


def _left_out(name: str, error: Unable | UserError) -> Excluded:
    """The method with the reason why it cannot take part."""
    why = " ".join(error.problems) if isinstance(error, UserError) else str(error)
    return Excluded(name, why.rstrip("."))


def _search(name: str, request: AutoRequest, wanted: Options, given: Mapping[str, Any], folder: Path) -> Plan:
    """The search of one method, under the conditions that are `given` to all. Raises `Unable`, or `UserError`, where
    the method cannot take part."""
    from search_spaces.parameter import defaults
    from trainables import registry
    from trainables.federation import FederationConfig
    from trainables.method import no_global_model

    method = registry.method(name)
    if method.widths == "equal" and given.get("rho"):
        raise Unable("its clients all train the same model, and the setting has models of different widths")
    for needed in (wanted.metric, *(one.metric for one in wanted.require)):
        if METRICS[needed].of_global_model and method.global_model is no_global_model:
            raise Unable(f"it has no global model, and {needed} is measured of one")
    asks = SearchRequest(
        name,
        space=request.space,
        metric=(wanted.metric,),
        require=request.require,
        trials=MAX_TRIALS,  # the budget ends a search long before
        seeds=request.seeds,
        race=False,
        confirm=False,  # winners of all methods are trained on fresh seeds together
        sampler=SAMPLER,
        scheduler="asha",
        order=request.order,
        storage=request.storage,
        seed=request.seed,
        slots=request.slots,
        per_trial=request.per_trial,
        address=request.address,
        data_dir=request.data_dir,
        name=folder / run_folder.SEARCHES / name,
    )
    declared = registry.declared(name)
    for key, value in defaults(FederationConfig).items():
        if key in given and (key in CHOSEN or given[key] == value):  # nobody need have set it for this method
            declared[key].convert(given[key])
    problems: list[str] = []
    values = settled(asks, problems, {**_local_training(name, request.space), **given})
    if problems:
        raise UserError(*problems)
    if values.space.vary:
        raise Unable(f"its space asks for several values of {' and '.join(values.space.vary)}; fix one with --set")
    if not values.space.search:
        raise Unable("every parameter of its space is fixed by --set")
    planned = plan(asks, values)
    if request.no_label_counts and (why := _sends_label_counts(method, planned.space, _typical(planned))):
        raise Unable(why)
    # Its values are those of the request, so that no profile is recorded.
    space = dataclasses.replace(planned.space, profiles={})
    experiment = dataclasses.replace(initial_design.without(planned.experiment), part=True, early=0)
    return dataclasses.replace(planned, experiment=experiment, space=space)


def _local_training(name: str, space: str) -> dict[str, Value]:
    """The method's declared values of local training, where its default space would fix them: that is one paper's
    choice, of which only the method's own parameters stay."""
    from trainables import registry
    from trainables.local import LocalTraining

    if space != presets.DEFAULT:
        return {}
    declared = registry.declared(name)
    preset = presets.load(name, space, declared)
    fixed, local = {**preset.fix, **preset.profiles.get("small", {})}, parameters(LocalTraining)
    return {key: declared[key].default for key in fixed if key in local and key in declared}


def _typical(search: Plan) -> Mapping[str, Value]:
    """Every parameter at the paper's values, or, where these lie outside the space, in its middle."""
    from trainables import registry

    e = search.experiment
    if not e.first:
        return search.middle
    return registry.possible(e.method, {**e.values, **e.first[0]["values"]}).values


def _measured(search: Plan, request: AutoRequest, wanted: Options, device: str | None, threads: int) -> Candidate:
    """The method with the cost of its rounds. Raises `Unable` where its clients send too much."""
    e = search.experiment
    costs = auto_budget.measured(
        e.method,
        _typical(search),
        e.seeds[0],
        device=device or "cpu",
        threads=threads,
        data_dir=request.data_dir,
        once=wanted.unit == "seconds",
    )
    up = costs.pop("bytes_up")
    if wanted.most_bytes_up is not None and up > wanted.most_bytes_up:
        raise Unable(
            f"its clients send {up / 1e6:.3g} MB in a round, more than {wanted.most_bytes_up / 1e6:.3g} MB "
            f"(--max-bytes-up)"
        )
    return Candidate(e.method, str(search.facts["method_title"]), costs)


def _check_conditions(found: Sequence[Plan], request: AutoRequest) -> None:
    """Raises `UserError` where the methods' spaces set data, clients or local training differently, unless `--set` does
    so for one method."""
    from trainables.federation import FederationConfig
    from trainables.local import LocalTraining

    own = {key for name, _ in pairs(request.set, "--set", []) for _, dot, key in [name.partition(".")] if dot}
    own.add("eval_test")  # which decides no result
    keys = [key for key in {**parameters(FederationConfig), **parameters(LocalTraining)} if key not in own]
    experiments = [search.experiment for search in found]
    problems = []
    for key in keys if request.space != presets.DEFAULT else ():
        values = {one.method: one.values[key] for one in experiments if key in one.values}
        if len(set(values.values())) > 1:
            told = ", ".join(f"{value} in that of {name}" for name, value in values.items())
            problems.append(
                f"The methods' spaces {request.space!r} must have the same {key}, got {told}. Give one value with "
                f"--set {key}=VALUE."
            )
    if problems:
        raise UserError(*problems)


def _sends_label_counts(method: Method, space: Space, values: Mapping[str, Value]) -> str:
    """Why the method cannot be used where label counts must not leave the clients; empty where it can."""
    from trainables import registry

    if isinstance(method.shares_label_counts, bool):
        return "label counts leave its clients" if method.shares_label_counts else ""
    choices: list[dict[str, Value]] = [{}]
    choices += [
        {dimension.key: word}
        for dimension in space.search.values()
        if dimension.parameter.kind in ("choice", "flag")
        for word in dimension.values()
    ]
    for choice in choices:
        try:
            config = registry.possible(method.name, {**values, **choice}).config
        except UserError:
            continue  # such a trial fails by itself
        if method.sends_label_counts(config):
            return "label counts leave its clients in configurations that it would search"
    return ""
