"""What a paper holds equal between the methods of one of its tables, for the named spaces and for docs/results.md.

One list: `tests/search_spaces/test_equal_terms.py` holds the named spaces to it, `tests/packaging/test_results.py` the
runs behind docs/results.md. A method that does not declare a parameter is not asked for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from trainables.building_blocks.mixed_architectures import MixedArchitectures
from trainables.building_blocks.partial_training import PartialTraining
from trainables.building_blocks.server_distillation import ServerDistillation
from trainables.federation import FederationConfig
from trainables.local import LocalTraining


def _declared(*configs: Any) -> frozenset[str]:
    return frozenset(f.name for config in configs for f in fields(config))


#: Data, clients, partition, models, and everybody's local training.
LOCAL = _declared(FederationConfig, LocalTraining)
#: Server-side distillation: lengths, rates, batches, temperature, noise, merge operator, and the sub-models' settings.
SERVER = _declared(ServerDistillation, PartialTraining)
#: Who has which model where clients have two architectures.
MIXED = _declared(MixedArchitectures)
#: Generators of features, as FedMD-CG's App. E.1 sets them for all methods.
FEATURES = frozenset(
    {"noise", "noise_dim", "gen_lr", "gen_weight_decay", "server_lr", "server_steps", "server_batch_size"}
    | {"kd_temperature_client", "kd_temperature_server", "diversity_norm", "server_kl_norm"}
)


#: The methods of DHF's Tables 1 and 2 that can be tuned on the same terms, and Local Training.
PERSONAL = (
    *("local", "fedavg", "fedprox", "fedgen", "scaffold", "moon", "perfedavg", "fedfomo", "fedrod", "fedbabu", "ditto"),
    *("fedamp", "fedphp", "fedproto", "dhf", "lgfedavg", "feddistill", "fml", "fedkd", "fedgh", "fedtgp"),
)


@dataclass(frozen=True)
class Difference:
    """A value that a space has instead of what the other spaces of its table have, and why."""

    space: str
    key: str
    value: Any
    reason: str


@dataclass(frozen=True)
class Table:
    """One table of a paper: the named spaces behind it, the runs of docs/results.md behind ours (a pattern of names,
    whose group tells apart what is not compared), the parameters that the paper holds equal, the conditions that are
    the table's where a space has others too, and what differs by a method's own definition."""

    source: str
    spaces: tuple[str, ...]
    runs: str
    held: frozenset[str]
    at: Mapping[str, Any] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()


def _halves(space: str) -> Difference:
    return Difference(
        space,
        "batch_size",
        20,
        "Per-FedAvg adapts on one half of a batch and takes the gradient on the other; PFLlib makes two halves of 10",
    )


def _rates(space: str, **rates: float) -> tuple[Difference, ...]:
    """The rate of the distillation on digits, which one search finds for each method with the same budget."""
    reason = "found by the search before the tables of docs/results.md, six rates for each method"
    return tuple(Difference(f"{method}/{space}", "distill_lr", rate, reason) for method, rate in rates.items())


TABLES = (
    Table(
        "DFRD, Table 1",
        ("fedavg/omega", "dense/omega", "fedftg/omega", "dfrd/omega"),
        r"t1-.*",
        LOCAL | SERVER,
        differences=_rates("omega", dense=0.01, fedftg=1.0, dfrd=0.03),
    ),
    Table(
        "DFRD, Table 1, data-free rows",
        ("dense/data_free", "fedftg/data_free", "dfrd/data_free"),
        "",
        LOCAL | SERVER,
        differences=_rates("data_free", dense=1.0, fedftg=3.0, dfrd=0.3),
    ),
    Table(
        "DFRD, Table 2",
        ("heterofl/rho", "feddropout/rho", "fedrolex/rho", "dense/rho", "fedftg/rho", "dfrd/rho"),
        r"t2-.*",
        LOCAL | SERVER,
        differences=_rates("rho", dense=0.3, fedftg=1.0, dfrd=0.1),
    ),
    Table("the search before Tables 1 and 2", ("dense/rates", "fedftg/rates", "dfrd/rates"), "", LOCAL | SERVER),
    Table("DFRD, Table 11", ("fedrolex/clients", "dfrd/clients"), "", LOCAL | SERVER),
    Table("DFRD, Table 12", ("fedrolex/active_clients", "dfrd/active_clients"), "", LOCAL | SERVER),
    Table("DFRD, Fig. 5", (), r"fedrolex-(?:dfrd-)?(\d+)", LOCAL | SERVER),
    Table(
        "FedKF, Tables V to VII and XII",
        tuple(f"{m}/fairness" for m in ("fedavg", "fedprox", "fedgkd", "qffl", "fedgen", "fedkf")),
        r"fair-.*-([\d.]+)",
        LOCAL,
    ),
    Table(
        "FedMD-CG, Tables 1 and 6 to 8",
        (
            "fedavg/omega_dir_client",
            *(f"{m}/omega" for m in ("local", "fedper", "lgfedavg", "fedgen", "fedcg", "fedmdcg")),
        ),
        r"md-.*",
        LOCAL | FEATURES,
    ),
    Table("FedMD-CG, Table 3", ("fedcg/aggregation", "fedmdcg/aggregation"), "", LOCAL | FEATURES),
    Table(
        "DHF, Table 1",
        (
            *(f"{m}/partition" for m in ("fedavg", "scaffold", "fedprox", "moon", "perfedavg", "fedfomo", "fedrod")),
            *(f"{m}/partition" for m in ("fedbabu", "ditto", "fedamp", "fedphp")),
            *("fedgen/partition_full", "fedproto/partition_nu", "dhf/partition_nu"),
        ),
        r"p-.*-(pathological|dir_pfl)",
        LOCAL | MIXED,
        at={"nu": 0},
        differences=(
            _halves("perfedavg/partition"),
            Difference(
                "fedbabu/partition",
                "eval_every",
                50,
                "FedBABU fine-tunes for every measurement, which costs ten rounds; its paper does it once, at the end",
            ),
        ),
    ),
    Table(
        "DHF, Table 2",
        (
            *(f"{m}/partition" for m in ("lgfedavg", "fedgen", "feddistill", "fml", "fedkd", "fedgh", "fedtgp")),
            *("fedproto/partition_nu", "dhf/partition_nu"),
        ),
        "",
        LOCAL | MIXED,
        at={"nu": 0.5},
    ),
    Table(
        "DHF, Table 4",
        tuple(
            f"{m}/rounds" for m in ("ditto", "fedamp", "fedfomo", "fedphp", "fedproto", "fedrod", "perfedavg", "dhf")
        ),
        "",
        LOCAL | MIXED,
        differences=(_halves("perfedavg/rounds"),),
    ),
    Table(
        "DHF, Tables 1 and 2, every method tuned",
        tuple(f"{m}/personal" for m in PERSONAL),
        r"(personal|mixed)-space-.*",
        LOCAL,
    ),
    Table(
        "DFRD, Tables 1 and 2, every method tuned",
        tuple(f"{m}/tuned" for m in ("fedavg", "fedrolex", "dense", "fedftg", "dfrd")),
        r"tuned-(dfrd|widths)/.*",
        LOCAL | SERVER,
    ),
    Table("FedKF and its variant, tuned", ("fedkf/tuned",), r"tuned-kf(?:-minus)?/.*", LOCAL),
    Table("FedMD-CG's variants, tuned", ("fedmdcg/tuned",), r"tuned-md-.*", LOCAL | FEATURES),
    Table("DHF and Local Training, tuned", (), r"tuned-dhf-(pathological|dir_pfl)/.*", LOCAL | MIXED),
    Table(
        "FedMD-CG, Table 2",
        tuple(f"{m}/leak" for m in ("fedavg", "fedper", "lgfedavg", "fedgen", "fedcg", "fedmdcg")),
        r"leak-.*-(random|searched)",
        LOCAL,
    ),
)


def group(table: Table, name: str) -> str | None:
    """Which comparison of `table` a run of docs/results.md belongs to; None for a run of another table."""
    found = re.fullmatch(table.runs, name) if table.runs else None
    return None if found is None else "/".join(found.groups())


def differing(held: Iterable[str], configurations: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Of the parameters `held`, those on which configurations that have them disagree: each with its values by name."""
    found = {}
    for key in sorted(held):
        values = {name: values[key] for name, values in configurations.items() if key in values}
        if len({repr(v) for v in values.values()}) > 1:
            found[key] = values
    return found
