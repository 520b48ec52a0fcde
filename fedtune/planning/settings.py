"""The values that follow from what a user asked for.

Values come from several places. In this order, a later one replaces an earlier one: declared defaults, the space's
`fix`, its profile (`small`, or `paper`), --dataset and --rounds, --set.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache as memoise
from pathlib import Path

from fedtune.options import AutoRequest, RunRequest, SearchRequest
from search_spaces import presets
from search_spaces.dimension import Dimension
from search_spaces.errors import UserError, sentence, unknown
from search_spaces.files import given
from search_spaces.parameter import Parameter, Value, canonical
from search_spaces.space import Space
from trainables import data
from trainables.data import libraries, own
from trainables.data.partition import NATURAL

#: Where a round's clients and its server would compute more multiply-adds with the model cnn, the small profile has
#: another model unless one is named. It is counted and not timed, so that a request means the same on every machine
#: (`docs/defaults.md`). A core does so many in five to ten seconds.
MULTIPLY_ADDS = 500e9
QUICK = "lenet5"
#: The same where a method needs statistics of batches, or where clients train sub-models of different widths: one that
#: normalises batches, as the narrow ones of lenet5 do not learn and at rates of the small profiles diverge.
QUICK_NORMALISED = "lenet_code"
#: Where the declared share of validation data holds fewer samples, the small profile takes a larger one, up to this,
#: unless one is named: of fewer, chance is more than half of what differs from seed to seed (`docs/defaults.md`).
FEW_VALIDATED, MORE_VALIDATED = 240, 0.25
#: The parameters on which it hangs how many samples clients are dealt.
_DEALT = ("dataset", "partition", "client_test_fraction")
#: The parameters whose value may name a file of the user's.
FILES = ("dataset", "model", "own_metrics")


@dataclass(frozen=True)
class Settings:
    """The values that follow from a request."""

    #: The space without the parameters that the request or the profile fixes. Its `fix` holds every value that is fixed
    #: and is not just a default.
    space: Space
    #: Every parameter that is not searched.
    values: dict[str, Value]
    #: Those of `seeds`, `trials`, `sampler` and `scheduler` that the profile gives.
    options: Mapping[str, Value]
    #: Every declared default.
    defaults: Mapping[str, Value]
    #: What the user is told of values that nobody has given, and of these and the space.
    chosen: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def value(self, key: str) -> Value:
        """The value of a parameter; if it is searched, its default."""
        return self.values.get(key, self.defaults[key])


def configuration(request: SearchRequest | RunRequest, problems: list[str]) -> dict[str, Value]:
    """Every parameter of a run without a search. What the space would search or vary has its declared default."""
    settings = settled(request, problems)
    return {**settings.defaults, **settings.values}


def settled(
    request: SearchRequest | RunRequest, problems: list[str], assigned: Mapping[str, Value] | None = None
) -> Settings:
    """All values of a request. Raises `UserError`, with the `problems` so far, where there is no such method or
    space. assigned: in place of the values that the request sets, where these have been converted already."""
    from trainables import registry

    try:
        declared = registry.declared(request.method)
        if assigned is None:
            assigned = overrides(request, declared, problems)
        space = presets.load(request.method, request.space, declared)
    except UserError as error:
        raise UserError(*problems, *error.problems) from None
    if Path(request.space).suffix:
        problems.extend(_shown(space, request.space))
    profile = dict(space.profiles.get("paper" if request.paper else "small", {}))
    if request.paper and not profile:
        problems.append(
            f"The space {space.name!r} of {request.method} has no paper profile (--paper). Leave --paper out, or "
            f"set values with --set."
        )
    options: dict[str, Value] = {
        key: profile.pop(key) for key in ("seeds", "trials", "sampler", "scheduler") if key in profile
    }
    fixed = {**space.fix, **profile, **assigned}
    search = {key: dimension for key, dimension in space.search.items() if key not in fixed}
    vary = {key: _conditions(dimension) for key, dimension in space.vary.items() if key not in fixed}
    defaults = {key: parameter.default for key, parameter in declared.items()}
    values = {key: value for key, value in defaults.items() if key not in search and key not in vary} | fixed
    chosen: list[str] = []
    free = not request.paper and not problems and "model" not in fixed and values.get("model") == "auto"
    if free and (found := smaller_model({request.method: {**defaults, **values}}, request.data_dir)) is not None:
        quick, said = found
        fixed, values = {**fixed, "model": quick}, {**values, "model": quick}
        chosen.append(said)
    asked = request.paper or problems or "min_samples" in fixed or "clients" not in fixed
    if not asked and (least := _fewest_samples(values, request.data_dir)) is not None:
        fixed, values = {**fixed, "min_samples": least}, {**values, "min_samples": least}
        chosen.append(
            f"min_samples {least}: not each of {values['clients']} clients can have the default of "
            f"{defaults['min_samples']} training samples."
        )
    asked = request.paper or problems or "validation_fraction" in {**fixed, **search, **vary}
    if not asked and (share := _validation_share(values, request.data_dir)) is not None:
        fixed, values = {**fixed, "validation_fraction": share}, {**values, "validation_fraction": share}
        usual = defaults["validation_fraction"]
        chosen.append(
            f"Validation share {share:g}: {usual:g} would be fewer than {FEW_VALIDATED} samples, and chance among so "
            f"few causes much of the difference between seeds. --set validation_fraction={usual:g} takes {usual:g}."
        )
    left = dataclasses.replace(space, search=search, vary=vary, fix=fixed)
    return Settings(left, values, options, defaults, tuple(chosen), (*chosen, *_hint(left, request.space)))


def _fewest_samples(values: Mapping[str, Value], data_dir: str | None) -> int | None:
    """How many samples a client has at least where the data do not suffice for the value that is there: half of an
    equal share; None where they do, or where not even one for each is there."""
    found = _shared_out(values)
    if found is None or values.get("partition", NATURAL) == NATURAL:
        return None
    clients, least, fraction = found
    there = _dealt([values.get(name) for name in _DEALT], fraction, data_dir)
    return max(1, there // clients // 2) if clients <= there < clients * least else None


def _validation_share(values: Mapping[str, Value], data_dir: str | None) -> float | None:
    """The share of validation data where the one that is there holds too few samples; None where it holds enough, or
    where the clients would have too few samples left."""
    found = _shared_out(values)
    if found is None:
        return None
    clients, least, fraction = found
    samples = _samples(str(values["dataset"]), data_dir)
    asked = [values.get(name) for name in _DEALT]
    share = min(math.ceil(100 * FEW_VALIDATED / max(samples, 1)) / 100, MORE_VALIDATED)
    return share if share > fraction and clients * least <= _dealt(asked, share, data_dir) else None


def _shared_out(values: Mapping[str, Value]) -> tuple[int, int, float] | None:
    """Clients, the fewest samples of one, the validation share; None where one is searched or none of the method's."""
    if not all(name in values for name in ("dataset", "clients", "min_samples", "validation_fraction")):
        return None
    clients, least, fraction = (values[name] for name in ("clients", "min_samples", "validation_fraction"))
    assert isinstance(clients, int) and isinstance(least, int) and isinstance(fraction, float)
    return clients, least, fraction


def _dealt(asked: Sequence[Value | None], validation_fraction: float, data_dir: str | None) -> int:
    """How many samples clients would be dealt with that share of validation data, the fewest where that is varied; 0
    where there are no such data. asked: the values of `_DEALT`."""
    from trainables.simulation.federated_data import dealt  # which needs PyTorch

    dataset, partition, kept = asked
    try:
        source = data.load(str(dataset), data_dir)
    except UserError:  # told by the preflight, where it is one that the user can mend
        return 0
    return dealt(source, str(partition or NATURAL), validation_fraction, float(kept or 0.0))


def _samples(name: str, data_dir: str | None) -> int:
    """Of training; 0 where there are no such data."""
    if name in data.names():
        return data.describe(name).train
    try:
        return len(data.load(name, data_dir).train_y)
    except UserError:  # told by the preflight, where it is one that the user can mend
        return 0


def smaller_model(
    of: Mapping[str, Mapping[str, Value]], data_dir: str | None, named: bool = True
) -> tuple[str, str] | None:
    """The model that the small profile has in place of cnn, one for all these methods by the values of each, and what
    is said of that; None where with cnn no method's round is dearer than it may be. Methods that can train no such
    model do not count.

    named: whether these methods are asked for by name, so that a model is taken which all of them can train."""
    rounds = {method: _round_of_cnn(method, values, data_dir) for method, values in of.items()}
    dear = [method for method, of_round in rounds.items() if sum(of_round) > MULTIPLY_ADDS]
    small = {method: _quick(method, of[method]) for method in (of if dear else ())}
    only_normalised = QUICK_NORMALISED in small.values() if named else QUICK not in small.values()
    quick = QUICK_NORMALISED if only_normalised else QUICK
    able = [method for method in dear if small[method] in (QUICK, quick)]
    if not able:
        return None
    dearest = max(able, key=lambda method: sum(rounds[method]))
    clients, server = rounds[dearest]
    of_method, of_server = f" of {dearest}" * (len(of) > 1), f" and its server {server / 1e9:,.0f}" if server else ""
    return quick, (
        f"Model {quick}: with cnn, which the papers have on such images, the clients of a round{of_method} would "
        f"compute {clients / 1e9:,.0f} billion multiply-adds{of_server}, and above {MULTIPLY_ADDS / 1e9:,.0f} billion "
        f"the small profile takes {quick}{' for all methods' * (len(of) > 1)}. --set model=cnn takes cnn."
    )


def _quick(method: str, values: Mapping[str, Value]) -> str | None:
    """The small model that the method can train; None where it can train none."""
    able = [QUICK_NORMALISED] if values.get("rho", 0) else [QUICK, QUICK_NORMALISED]
    return next((model for model in able if _is_possible(method, {**values, "model": model})), None)


def _round_of_cnn(method: str, values: Mapping[str, Value], data_dir: str | None) -> tuple[float, float]:
    """The multiply-adds of a round with the model cnn: those of its clients, and those of its server where that
    distils; 0 where the model `auto` is another one on these data, or where there are none. Generators, and servers
    that work on features, cost the same whatever the model is."""
    from trainables import registry
    from trainables.building_blocks.server_distillation import ServerDistillation
    from trainables.federation import budgets
    from trainables.local import LocalTraining
    from trainables.simulation.federated_data import resolve_model

    nothing = 0.0, 0.0
    # A method of the user's own may count its training otherwise.
    if not all(key in values for key in ("dataset", "local_steps")):
        return nothing
    name, steps, epochs, batch = (values[key] for key in ("dataset", "local_steps", "local_epochs", "batch_size"))
    clients, active, rho, sigma = (values[key] for key in ("clients", "active_clients", "rho", "sigma"))
    assert isinstance(steps, int) and isinstance(epochs, int) and isinstance(batch, int)
    assert isinstance(clients, int) and isinstance(active, int) and isinstance(rho, int) and isinstance(sigma, int)
    if name in data.names() and resolve_model("auto", data.describe(str(name)).shape) != "cnn":
        return nothing
    try:
        config = registry.possible(method, {**values, "model": "cnn"}).config
        source = data.load(str(name), data_dir)
    except UserError:  # told by the preflight, where it is one that the user can mend
        return nothing
    if resolve_model("auto", source.shape, source.kind) != "cnn":
        return nothing
    each = len(source.train_y) / clients
    samples = epochs * each if epochs else steps * min(batch, each)
    one, taking_part = _of_cnn(source.shape, source.classes), active or clients
    passes = config.passes_per_sample if isinstance(config, LocalTraining) else 3
    server = 0.0
    if isinstance(config, ServerDistillation):  # a model of width R has R² of the multiply-adds of a whole one
        sizes = [width**2 for width in budgets(clients, rho, sigma)]
        server = config.server_passes(taking_part * sum(sizes) / clients)
    return taking_part * samples * passes * one, server * one


@memoise
def _of_cnn(shape: tuple[int, int, int], classes: int) -> float:
    """The multiply-adds of one image through the model cnn."""
    import torch

    from trainables import models
    from trainables.work import counting

    with torch.no_grad(), counting() as counted:
        models.build("cnn", shape, classes)(torch.zeros(2, *shape))
    return counted.multiply_adds / 2


def _is_possible(method: str, values: Mapping[str, Value]) -> bool:
    from trainables import registry

    try:
        registry.declared(method)["model"].convert(values["model"])
        registry.possible(method, values)
    except UserError:
        return False
    return True


def _conditions(dimension: Dimension) -> Dimension:
    """The same values; of data sets, paths in whole."""
    if dimension.key != "dataset":
        return dimension
    return dataclasses.replace(dimension, options=tuple(map(_dataset, dimension.options)))


def _hint(space: Space, file: str) -> Iterable[str]:
    """A sentence where a space looks for the best value of a condition."""
    found = [key for key, dimension in space.search.items() if dimension.parameter.condition]
    if found:
        are = "is a condition" if len(found) == 1 else "are conditions"
        stand, it = ("stands", "it") if len(found) == 1 else ("stand", "them")
        yield (
            f"{' and '.join(found)} {are} of the experiment and {stand} under `search` of {file}, where the best value "
            f"is looked for; put {it} under `vary`, and results are told for each condition."
        )


def _shown(space: Space, file: str) -> Iterable[str]:
    """A sentence for every figure that a user's own space names and that does not exist."""
    from analysis import figures

    for name in space.figures:
        if name not in figures.names():
            yield unknown("figure", name, figures.names(), file)


def overrides(
    request: SearchRequest | RunRequest, declared: Mapping[str, Parameter], problems: list[str]
) -> dict[str, Value]:
    """--dataset with what is said of it, --rounds and --set, converted."""
    asked: list[tuple[str, object, str]] = []
    of_data = _said_of_data(request)
    if request.dataset is not None:
        asked.append(("dataset", request.dataset, "--dataset"))
    if request.rounds is not None:
        asked.append(("rounds", request.rounds, "--rounds"))
    if request.model is not None:
        asked.append(("model", request.model, "model"))
    asked += [("own_metrics", name, "--metric") for name in request.own_metrics]
    if isinstance(request.set, Mapping):
        asked += [(name, given, "--set") for name, given in request.set.items()]
    else:  # as `pairs`, without another function on the way from the command line to the loss
        for text in request.set:
            name, equals, raw = text.partition("=")
            is_pair = bool(equals and name.strip())
            asked.append((name, raw.strip(), "--set") if is_pair else ("", text, "--set"))
    found: dict[str, Value] = {}
    for name, wanted, where in asked:
        key = canonical(name)
        if key in own.OPTIONS and key not in declared:
            of_data[key] = str(wanted)
            continue
        if not name:
            problems.append(sentence("--set", "name=value", wanted))
            continue
        if key not in declared:
            problems.append(_stranger(name.strip(), key, declared))
            continue
        try:
            if key in FILES:
                wanted = whole(key, f"{found[key]},{wanted}" if key == "own_metrics" and key in found else wanted)
            found[key] = declared[key].convert(wanted, where)
        except UserError as error:
            problems.extend(error.problems)
    _refer(found, of_data, request.data_dir, problems)
    return found


def data_of(request: AutoRequest, said: Mapping[str, str], problems: list[str]) -> dict[str, Value]:
    """The data set that is asked for, with what is `said` of it by --set or by options, and with its clients where they
    exist already."""
    found: dict[str, Value] = {} if request.dataset is None else {"dataset": _dataset(str(request.dataset))}
    _refer(found, {**_said_of_data(request), **said}, request.data_dir, problems)
    return found


def _said_of_data(request: SearchRequest | RunRequest | AutoRequest) -> dict[str, str]:
    """What options say of a data set of the user's own, by their names."""
    return {name: value for name in own.OPTIONS if (value := getattr(request, name)) is not None}


def _refer(found: dict[str, Value], of_data: Mapping[str, str], data_dir: str | None, problems: list[str]) -> None:
    """Puts what is said of a data set of the user's own beside its path, and its clients, where they exist already, in
    place of drawn ones."""
    if of_data and "dataset" not in found:
        option = next(iter(of_data))
        problems.append(f"{option} is said of a data set of your own. Give --dataset FILE beside it.")
    if of_data and found.get("dataset") in data.names():
        option, name = next(iter(of_data)), found["dataset"]
        problems.append(f"{option} is said of a data set of your own, and {name} is known by name. Leave it out.")
    if "dataset" not in found or problems:
        return
    try:
        reference = dataclasses.replace(own.Reference.read(str(found["dataset"])), **of_data)
        found["dataset"] = str(reference)
        if reference.client is not None:
            found.setdefault("partition", NATURAL)
            if found["partition"] == NATURAL:
                found.setdefault("clients", len(data.load(str(reference), data_dir).owners))
    except UserError as error:
        problems.extend(error.problems)


def whole(key: str, wanted: object) -> object:
    """What a user gave for one of `FILES`; a file's path is whole, so that the run can be resumed from anywhere, and a
    model's file, or a metric's, is now one that the user has named."""
    if key == "dataset":
        return _dataset(str(wanted))
    if not isinstance(wanted, str):
        return wanted
    from trainables import models, own_metrics

    return models.named(wanted) if key == "model" else own_metrics.named(wanted)


def _stranger(name: str, key: str, declared: Mapping[str, Parameter]) -> str:
    """The sentence for `--set name=…` where there is no such parameter."""
    if key in ("seeds", "trials", "sampler", "scheduler", "seed", "metric", "name", "time"):
        return f"{name} is not a parameter (--set). It is the option --{key}."
    return unknown("parameter", name, declared, "--set")


def _dataset(name: str) -> str:
    """A path is kept whole, so that the run can be resumed from anywhere."""
    try:
        reference = own.Reference.read(name)
    except UserError:
        return name  # told where the data set is loaded
    path = reference.path
    if libraries.is_named(path):
        return str(libraries.whole(reference))
    if "/" in path or path.endswith(own.SUFFIXES) or Path(path).is_dir():
        return str(dataclasses.replace(reference, path=str(given(path, "--dataset").resolve())))
    return name
