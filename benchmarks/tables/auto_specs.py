"""The tables on which `fedtune auto` is replayed: every method on every data set, under the same conditions.

Conditions are those that `fedtune auto` gives all methods with `--set validation_fraction=0.1` (without it, the share
of validation data follows the data): the declared defaults, with what `CONDITIONS` says, as by `--set` too. A method's
own parameters are searched, or fixed, as its preset `default` says; what that preset says of the federation or of
local training is one paper's choice and does not hold here.

On `digits` and `rotated_digits` a round of the small network `lenet_code`, with half of ten clients, takes 0.2 to 0.3 s
of one core, and FedAvg's, whose steps and batches are searched, 0.4 s on average. `blobs` with `mlp` takes 0.05 to
0.1 s; its four heaps touch, and after eight rounds configurations lie between 25 and 90 %. All 24 tables are 3456
federations, 27,648 rounds: about 1.7 core-hours. A federation lasts two seconds, and processes are started once per
table.
"""

from __future__ import annotations

from benchmarks.tables.specs import Spec
from search_spaces import presets
from search_spaces.parameter import Value, canonical, parameters
from trainables import registry
from trainables.federation import FederationConfig
from trainables.local import LocalTraining

#: The name of all of them together, and what their names begin with.
FAMILY = "auto"
#: By data set: what is set for all methods.
CONDITIONS: dict[str, dict[str, Value]] = {
    name: {"dataset": name, "model": model, "active_clients": 5}
    for name, model in (("digits", "lenet_code"), ("rotated_digits", "lenet_code"), ("blobs", "mlp"))
}
#: All of them train one global model, and a round of each costs about one of FedAvg's.
METHODS = ("fedavg", "fedprox", "scaffold", "fedgkd", "moon", "qffl", "fedyogi", "fedadam")
#: One seed is the search's, three are its fresh seeds, two are held out.
CONFIGURATIONS, SEEDS, ROUNDS = 24, 6, 8


def named(dataset: str, method: str) -> str:
    """The name of a table: where it lies below the recorded ones."""
    return f"{FAMILY}/{dataset}/{method}"


def shared(method: str, conditions: dict[str, Value]) -> dict[str, Value]:
    """`conditions`, and the declared value of all that the method's preset fixes of the federation and of local
    training."""
    declared = registry.declared(method)
    preset = presets.load(method, "default", declared)
    common = {*parameters(FederationConfig), *parameters(LocalTraining)}
    fixed = {canonical(key) for key in {**preset.fix, **preset.profiles.get("small", {})}}
    return {key: declared[key].default for key in sorted(fixed & common & set(declared))} | conditions


def spec(dataset: str, method: str) -> Spec:
    """The table of a method on a data set."""
    return Spec(
        named(dataset, method),
        f"{registry.method(method).title} on {dataset}, as fedtune auto searches it",
        ((method, "default"),),
        CONFIGURATIONS,
        SEEDS,
        ROUNDS,
        values=shared(method, CONDITIONS[dataset]),
    )


AUTO_SPECS = {one.name: one for one in (spec(dataset, method) for dataset in CONDITIONS for method in METHODS)}
