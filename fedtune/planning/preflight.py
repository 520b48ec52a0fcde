"""Builds the federation of a request once, to learn what nothing else can tell: whether it is possible, what its data
are, and which metrics it yields. Of a method in a user's own file one round is run, so that its first error is told
in a sentence."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.runs.conditions import named
from search_spaces import metrics, own_files
from search_spaces.errors import Shown, UserError, sentence
from search_spaces.metrics import LOCAL_MODELS, METRICS, READOUTS, TRAFFIC
from search_spaces.parameter import Value, convert_all
from search_spaces.space import Space

if TYPE_CHECKING:
    from trainables.method import Method
    from trainables.simulation.rounds import Simulation

#: Pixels a side from which on bfloat16 was seen to pay.
LARGE_IMAGES = 28
#: Of a round that is run to see what it gives: samples of each set that are measured, and clients that take part.
IMAGES, CLIENTS = 1000, 2


@dataclass(frozen=True)
class Checked:
    """What is known of a configuration that can be run."""

    #: What is recorded with the run: `method_title`, the `dataset`'s name and hash, the `partition`'s hash by seed, and
    #: `method_file` and `model_file` of what is in a user's own files.
    facts: Mapping[str, Any]
    #: How many validation samples there are; 0 where that is not known.
    validation: int = 0
    #: Whether bfloat16 would make the server several times as fast on this processor, and is not asked for.
    bfloat16_pays: bool = False


def preflight(
    method: str,
    values: Mapping[str, Value],
    seeds: Sequence[int],
    data_dir: str | None,
    problems: list[str],
    metric: Sequence[str] = (),
    device: str | None = "cpu",
    required: Sequence[str] = (),
    keep_images: bool = False,
) -> Checked:
    """Checks `values`, every parameter of a configuration, then builds its federation once. So a missing data set, an
    impossible federation, one of `metric` or of `required` that is not measured, or that there is no image for
    `keep_images` is found before anything is created.

    It is built on the CPU, whatever `device` it will run on (None stands for a cluster), and only where `problems` is
    empty. Whatever is found is added to `problems`."""
    from trainables import registry

    try:
        registry.possible(method, values)
    except UserError as error:
        problems.extend(error.problems)
    if problems:
        return Checked({})
    import torch

    from trainables import data, own_code
    from trainables.models import precision
    from trainables.simulation import executors
    from trainables.simulation.rounds import Simulation

    def one_round(**fewer: int) -> Mapping[str, Any]:
        # One step of a client, and one of the server, is enough, where the method may take so few; and of large data
        # some samples to measure on.
        declared = registry.declared(method)
        counts = ("alternations", "steps")
        steps = {key: 1 for key, p in declared.items() if p.work in counts and anywhere.values.get(key)}
        shorter = anywhere
        for few in ({"local_steps": 1, "local_epochs": 0}, steps, *({key: value} for key, value in fewer.items())):
            with contextlib.suppress(UserError):
                shorter = registry.possible(method, {**shorter.values, **convert_all(declared, few)})
        short = Simulation(method, shorter, seeds[0], torch.device("cpu"), data_dir)
        whole = short.data.validation
        validation = None if whole is None else whole.some(IMAGES, IMAGES)
        short.data = dataclasses.replace(short.data, validation=validation, test=short.data.test.some(IMAGES, IMAGES))
        return short.run_round()

    is_own_file = registry.own_code_of(method) is not None
    try:
        if device is not None:
            precision.check(str(values["precision"]), torch.device(device))
            executors.check(str(values["executor"]), torch.device(device))
        anywhere = registry.possible(method, {**values, "precision": "fp32", "executor": "loop"})
        built = Simulation(method, anywhere, seeds[0], torch.device("cpu"), data_dir)
        dataset = data.load(str(values["dataset"]), data_dir)
        if is_own_file:
            one_round()
    except UserError as error:
        problems.extend(error.problems)
        return Checked({})
    except own_files.RAISED as error:
        if not (is_own_file or isinstance(error, SystemExit)) or isinstance(error, OSError | MemoryError):
            raise
        problems.append(f"The first round of {method} fails: {own_code.told(error)}. No run was created.")
        return Checked({})

    if keep_images:
        problems.extend(_no_images(built))
    some = {} if is_own_file else {"active_clients": min(CLIENTS, anywhere.federation.clients)}
    problems.extend(_not_measured(built, metric, required, lambda: one_round(rounds=1, attack_images=0, **some)))
    facts: dict[str, Any] = {
        "method_title": built.method.title,
        "dataset": {"name": dataset.name, "hash": dataset.hash},
        "partition": {str(seeds[0]): built.data.fingerprint},
    }
    facts |= registry.own_files_of(built.method.name, values)
    validation = 0 if built.data.validation is None else len(built.data.validation.indices)
    return Checked(facts, validation, device == "cpu" and values["precision"] == "fp32" and _bfloat16_pays(built))


def _bfloat16_pays(built: Simulation) -> bool:
    """Whether the server distils models on images of some size and the processor has AMX. On small images convolutions
    are little of its work."""
    from trainables.building_blocks.server_distillation import ServerDistillation
    from trainables.models import precision

    distils = isinstance(built.config, ServerDistillation) and built.config.server_iters > 0
    large = distils and min(built.fed.shape[1:]) >= LARGE_IMAGES
    return large and precision.multiplies_bfloat16()


def _no_images(built: Simulation) -> list[str]:
    """A sentence where a run would have no image to keep."""
    from search_spaces.kept_images import is_plane
    from trainables import registry

    if built.fed.kind != "images":
        return [sentence("keep_images", f"left out for {built.fed.kind}, which are no images", built.settings.dataset)]
    if built.method.painters is not None or is_plane(built.fed.shape):
        return []
    able = [name for name in registry.methods() if registry.method(name).painters is not None]
    fix = f"Leave keep_images out, or train one of {', '.join(able)}."
    return [sentence("keep_images", "left out for a method without a generator", built.method.name, fix=fix)]


def _not_measured(
    built: Simulation, metric: Sequence[str], required: Sequence[str], one_round: Callable[[], Mapping[str, Any]]
) -> list[str]:
    """A sentence for each metric that cannot be selected by, or required; a round is run where only that shows it."""
    method, has_global = built.method.name, built.global_model() is not None
    has_virtual = built.method.measures_virtual(built.config)
    found, doubtful = _unmeasured(built.method, metric, has_global=has_global, has_virtual=has_virtual)
    for name in required:
        never, unsure = _unmeasured(built.method, (name,), has_global=has_global, has_virtual=has_virtual)
        found += [_cannot_require(name, method)] if never else []
        doubtful += unsure
    row = one_round() if doubtful else {}
    return found + [
        _not_finite(name, built.settings.own_metrics)
        if METRICS[name].own and name in row
        else _cannot_require(name, method)
        if name not in metric
        else f"{name} is not measured for {method} with these values. Select by another --metric, or change what it "
        f"depends on with --set."
        for name in doubtful
        if row.get(name) is None
    ]


def _not_finite(name: str, own_metrics: str) -> str:
    """own_metrics: what the federation measures of the user's own, among which is this metric."""
    from trainables.own_metrics import references

    where = next(one for one in references(own_metrics) if one.rpartition(":")[2] == metrics.plain(name))
    got = Shown("NaN or inf in the first round")
    return sentence(f"What the metric {metrics.plain(name)} returns", "a finite number", got, where)


def _cannot_require(name: str, method: str) -> str:
    return f"{name} is not measured for {method} with these values, so --require cannot name it."


def _unmeasured(
    declared: Method, metric: Sequence[str], *, has_global: bool, has_virtual: bool
) -> tuple[list[str], list[str]]:
    """A sentence for each of `metric` that this method does not measure, and the metrics of which only a round shows
    whether they are."""
    method = declared.name
    found, doubtful = [], []
    for name in metric:
        known, plain = METRICS[name], name.removeprefix("val_")
        part = plain.rpartition("_")[2]
        if known.of_global_model and not has_global:
            local = f"local_{plain}" if known.own else "local_accuracy"
            found.append(
                f"{name} is measured of a global model, and {method} has none with these values. "
                + f"Select by --metric {local}"
                + " or g_acc_virtual." * has_virtual
                + "." * (not has_virtual)
            )
        elif known.own:
            doubtful.append(name)
        elif part in TRAFFIC and part not in declared.traffic:
            whole = plain.removesuffix(f"_{part}")
            found.append(
                f"{name} counts the traffic for {TRAFFIC[part]}, which {method} does not count separately. Select by "
                f"--metric {whole}."
            )
        elif (own := plain.partition("_")[0]) in LOCAL_MODELS and own not in declared.other_networks:
            found.append(
                f"{name} is measured of {LOCAL_MODELS[own]} that clients train beside a model of their own, and "
                f"{method} has no such. Select by --metric {plain.removeprefix(f'{own}_')}."
            )
        elif plain == "g_acc_virtual" and not has_virtual:
            some = " with these values" if declared.virtual else ""
            other = " or global_accuracy" if has_global or not declared.virtual else ""
            found.append(f"{name} is not measured for {method}{some}. Select by --metric local_accuracy{other}.")
        elif plain == "gd_loss" or plain.partition("_")[0] in READOUTS:
            doubtful.append(name)
    return found, doubtful


def under_conditions(
    method: str,
    space: Space,
    values: Mapping[str, Value],
    seeds: Sequence[int],
    data_dir: str | None,
    problems: list[str],
) -> dict[str, Any]:
    """Builds the data of every condition once, so that a data set that cannot be had, or an impossible federation, is
    found before anything is created. Returns what is recorded where data sets are varied: `datasets`, hashes by name.

    values: every parameter. Does nothing where there are `problems` already; what is found is added to them."""
    conditions = space.conditions()
    if problems or len(conditions) < 2:
        return {}
    found: dict[str, str] = {}
    for condition in conditions:
        try:
            found |= _hash_by_name(method, {**values, **condition}, seeds[0], data_dir)
        except UserError as error:
            problems += [f"Under the condition {named(condition)}: {problem}" for problem in error.problems]
    return {"datasets": found} if "dataset" in space.vary else {}


def _hash_by_name(method: str, values: Mapping[str, Value], seed: int, data_dir: str | None) -> dict[str, str]:
    """The hash of the data set by its name, once the federation of these values was built."""
    import torch

    from trainables import data, registry
    from trainables.simulation import federated_data

    settings = registry.possible(method, {**values, "precision": "fp32", "executor": "loop"}).federation
    federated_data.build(settings, seed, torch.device("cpu"), data_dir)
    name = str(values["dataset"])
    return {name: data.load(name, data_dir).hash}
