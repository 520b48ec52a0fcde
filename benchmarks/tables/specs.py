"""The tables, declared: what is searched, how configurations are drawn, over how many seeds and rounds.

FedKF's and the mixed table use `rotated_digits` and the small network `lenet_code`, of which a round costs about as
much as on `digits` (0.35 s of one core for 20 steps of 32). On `digits` most settings of FedAvg reach the ceiling
within twelve rounds: four that were tried, with three seeds each, had mean test accuracies of 91.2, 94.9, 95.1 and
95.2 %. On `rotated_digits` the same four had 55.4, 63.6, 52.1 and 59.6 %, each seed within six points of its mean:
differences as large as the noise, as in a real search. FedAvg's own table, the largest, has the same data with `mlp`,
of which a round costs 0.07 s: after twelve rounds its first ten configurations lie between 10 and 57 %. DFRD's keep
`digits` and the network of the demo, where they are far below the ceiling (70 %).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from benchmarks.tables import points
from search_spaces import presets
from search_spaces.dimension import Dimension
from search_spaces.metrics import twin
from search_spaces.parameter import Parameter, Value, canonical
from search_spaces.space import Space
from trainables import registry

#: Seeds of tables: those of no final run, and of no search whose --seed is below 500,000.
FIRST_SEED = 500_000_000


@dataclass(frozen=True)
class Spec:
    """One table. `methods`: method and the preset whose parameters are searched; several make a space that chooses
    among methods, with parameters of the same name shared."""

    name: str
    title: str
    methods: tuple[tuple[str, str], ...]
    configurations: int
    seeds: int
    rounds: int
    draw: Literal["sobol", "random", "grid"] = "sobol"
    values: Mapping[str, Value] = field(default_factory=dict)
    metric: str = "val_global_accuracy"
    #: Metrics that are recorded beside it, each with its twin on test data: for searches of several objectives.
    also: tuple[str, ...] = ()
    #: Keys that every method of a mixed space has, searched once for all of them.
    shared: tuple[str, ...] = ()
    #: A second stage: so many configurations, the best by the mean of the last round over `seeds`, get so many further
    #: seeds, the same for all of them.
    best: int = 0
    further: int = 0

    @property
    def method(self) -> str:
        return self.methods[0][0] if len(self.methods) == 1 else "several"

    @cached_property
    def space(self) -> Space:
        """What is searched."""
        found = {method: presets.load(method, name, registry.declared(method)) for method, name in self.methods}
        if len(found) == 1:
            return next(iter(found.values()))
        first = next(iter(found.values()))
        names = tuple(found)
        children = {
            method: tuple(d for key, d in space.search.items() if key not in self.shared)
            for method, space in found.items()
        }
        choice = Parameter(
            "method",
            "choice",
            names[0],
            "The federated method.",
            options=names,
            children={method: tuple(d.parameter for d in dimensions) for method, dimensions in children.items()},
        )
        searched = {"method": Dimension(choice, options=names, children=children)}
        searched |= {key: first.search[key] for key in self.shared}
        return Space(self.name, "several", searched, title=self.title, source="ours", fix=dict(first.fix))

    @property
    def seed_numbers(self) -> tuple[int, ...]:
        """The seeds of all configurations, in the order in which they are recorded."""
        return tuple(FIRST_SEED + k for k in range(self.seeds))

    @property
    def further_seeds(self) -> tuple[int, ...]:
        """Those of the second stage."""
        return tuple(FIRST_SEED + k for k in range(self.seeds, self.seeds + self.further))

    def points(self, count: int | None = None) -> list[dict[str, Value]]:
        """The configurations, or the first `count` of them."""
        count = self.configurations if count is None else count
        if self.draw == "grid":
            return self.space.grid_points()[:count]
        return {"sobol": points.sobol, "random": points.random}[self.draw](self.space, count)

    @property
    def others(self) -> tuple[str, ...]:
        """The metrics of `also` and their twins."""
        return tuple(name for metric in self.also for name in (metric, twin(metric)))

    def settings(self) -> dict[str, Value]:
        """Every parameter that is not searched: what the preset fixes, its small profile, and this table's values."""
        method, name = self.methods[0]
        space = presets.load(method, name, registry.declared(method))
        known = {key for m, _ in self.methods for key in registry.declared(m)}
        small = {key: value for key, value in space.profiles.get("small", {}).items() if canonical(key) in known}
        together: dict[str, Any] = {**space.fix, **small, **self.values, "rounds": self.rounds}
        searched = {dimension.key for _, dimension in self.space.dimensions()}
        return {key: value for key, value in together.items() if canonical(key) not in {canonical(k) for k in searched}}

    def federation(self, values: Mapping[str, Value]) -> tuple[str, dict[str, Value]]:
        """The method and every parameter of a configuration, as the simulation takes them. Raises `UserError` where
        they are impossible together."""
        rest = dict(values)
        method = str(rest.pop("method", self.methods[0][0]))
        return method, registry.resolve(method, self.settings() | rest)


#: Accuracy of the clients' own models on their own data, and that of the global model where it is worst.
_FAIRNESS = ("val_local_accuracy", "val_wlp")

_SMALL: dict[str, Value] = {"dataset": "rotated_digits", "model": "lenet_code"}

SPECS = {
    spec.name: spec
    for spec in (
        Spec(
            "fedavg",
            "FedAvg, local training",
            (("fedavg", "default"),),
            150,
            8,
            12,
            values={"dataset": "rotated_digits", "model": "mlp"},
            also=_FAIRNESS,
        ),
        Spec("dfrd_alpha_lambda", "DFRD, α × λ", (("dfrd", "alpha_lambda"),), 30, 12, 8, draw="grid"),
        Spec("dfrd_full", "DFRD, everything that is tuned", (("dfrd", "full"),), 60, 5, 8),
        Spec(
            "fedkf",
            "FedKF, loss weights and learning rates",
            (("fedkf", "default"),),
            50,
            4,
            10,
            values=_SMALL,
            also=_FAIRNESS,
        ),
        Spec(
            "mixed",
            "FedAvg, FedProx, FedGKD or q-FFL",
            (("fedprox", "default"), ("fedgkd", "default"), ("qffl", "default"), ("fedavg", "default")),
            100,
            5,
            12,
            values=_SMALL,
            also=_FAIRNESS,
            shared=("lr",),
        ),
        Spec(
            "mnist",
            "FedAvg, local training, on real images",
            (("fedavg", "default"),),
            150,
            3,
            8,
            values={"dataset": "mnist_5k", "model": "mlp"},
            best=30,
            further=13,
        ),
    )
}
