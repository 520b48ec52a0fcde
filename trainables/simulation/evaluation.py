"""How good a round's models are: global and local accuracy and fairness over clients, on the validation share and the
test set.

The global model is run once over the test set and once over the validation share; every per-client number follows from
those predictions. A local model is run on its client's own share only. No gradient, few large batches of equal size
(models may normalise with batch statistics, so a small last batch would be measured differently).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.federation import Federation
from trainables.own_metrics import Measure
from trainables.simulation.federated_data import FederatedData, Part

_BATCH = 1024


@torch.inference_mode()
def logits_of(module: nn.Module, data: FederatedData, part: Part, positions: Tensor) -> Tensor:
    """Logits `(n, C)` of the samples of `part` at `positions`, in evaluation mode."""
    module.eval()
    chunks = -(-len(positions) // _BATCH)
    return torch.cat([module(data.batch(part, chunk)) for chunk in positions.tensor_split(chunks)])


class GlobalMetrics(NamedTuple):
    """What was measured of a global model."""

    #: On the test set, and on the validation share as `val_…`.
    metrics: dict[str, float]
    #: Per client, on the test side; none where it is not measured.
    accuracies: list[float]
    #: By the prefix of the metrics, the class that each sample is taken for, `(n,)`.
    taken: dict[str, Tensor]


def global_metrics(
    module: nn.Module, data: FederatedData, measures: Sequence[Measure] = (), test: bool = True
) -> GlobalMetrics:
    """Metrics of a global model, on the test set where `test` says so, the user's own `measures` among them.

    `module` holds the model's weights. A client's accuracy `a_k` is taken on its own measured samples where clients
    keep some, else on all of them reweighted to the client's label mix: `a_k = Σ_y n_k^y/n_k · accuracy on class y`. A
    client too small to keep a sample, or none of whose classes is measured, has no accuracy (nan) and no part in AMP,
    FM and WLP."""
    metrics: dict[str, float] = {}
    taken: dict[str, Tensor] = {}
    per_client = torch.zeros(0)
    for prefix, part in _parts(data, test):
        logits = logits_of(module, data, part, torch.arange(len(part.indices)))
        y = part.y.to(logits.device)
        taken[prefix] = logits.argmax(dim=1).cpu()
        right = (taken[prefix] == part.y).double()
        if part.own:
            per_client = torch.stack([right[o].mean() for o in part.own])
            weights = torch.tensor([len(o) for o in part.own], dtype=torch.float64)
            metrics[f"{prefix}p_acc_global"] = float(right.mean())
        else:
            per_client, weights = label_mix_accuracy(right, part.y, data.counts), data.counts.sum(dim=1).double()
        metrics |= {
            f"{prefix}global_accuracy": float(right.mean()),
            f"{prefix}global_loss": float(F.cross_entropy(logits, y)),
        }
        measured = per_client.isfinite()
        metrics |= {prefix + name: value for name, value in fairness(per_client[measured], weights[measured]).items()}
        metrics |= {prefix + measure.name: measure(logits, part.y) for measure in measures}
    return GlobalMetrics(metrics, per_client.tolist() if test else [], taken)


def accuracy(module: nn.Module, data: FederatedData, name: str, test: bool = True) -> dict[str, float]:
    """Plain accuracy of `module` on the test set, where `test` says so, and the validation share, as `name` and
    `val_name`."""
    return {
        prefix + name: float(
            (logits_of(module, data, part, torch.arange(len(part.indices))).argmax(dim=1).cpu() == part.y)
            .double()
            .mean()
        )
        for prefix, part in _parts(data, test)
    }


def confusion(data: FederatedData, taken: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """How many samples of class i are `taken` (`GlobalMetrics`) for class j, `(C, C)`: of the `validation` share and of
    the `test` set, as far as they were measured."""
    classes = data.counts.shape[1]
    found: dict[str, Tensor] = {}
    for prefix, part in _parts(data, "" in taken):
        counts = torch.bincount(classes * part.y.cpu() + taken[prefix], minlength=classes**2)
        found["validation" if prefix else "test"] = counts.view(classes, classes)
    return found


def _parts(data: FederatedData, test: bool) -> list[tuple[str, Part]]:
    """The validation share, if there is one, then the test set, if it is asked for, with the prefix of their
    metrics."""
    parts = (("val_", data.validation), ("", data.test if test else None))
    return [(prefix, part) for prefix, part in parts if part is not None]


def label_mix_accuracy(right: Tensor, y: Tensor, counts: Tensor) -> Tensor:
    """Per-client accuracy `(N,)` of predictions that are `right` `(n,)` on labels `y` `(n,)`, reweighted to `counts`
    `(N, C)`.

    Classes without a measured sample are left out of a client's mix; nan where that leaves none."""
    seen = torch.bincount(y, minlength=counts.shape[1]).double()
    hits = torch.zeros_like(seen).index_add_(0, y, right)
    mix = counts.double() * (seen > 0)
    return (mix @ (hits / seen.clamp(min=1))) / mix.sum(dim=1)


def fairness(accuracies: Tensor, weights: Tensor) -> dict[str, float]:
    """FedKF Sec. III: `amp = Σ w_k a_k / Σ w_k`, `fm` = population variance of the a_k, `wlp = min_k a_k`; nan without
    clients."""
    if not len(accuracies):
        return dict.fromkeys(("amp", "fm", "wlp"), float("nan"))
    return {
        "amp": float((weights * accuracies).sum() / weights.sum()),
        "fm": float(accuracies.var(correction=0)),
        "wlp": float(accuracies.min()),
    }


@dataclass(frozen=True)
class Measured:
    """A client's model on one part of its data: how many samples it has right, of how many, and the user's own measures
    by name (None: no finite number)."""

    right: int
    samples: int
    own: Mapping[str, float | None]


def measured(
    module: nn.Module, data: FederatedData, client: int, measures: Sequence[Measure] = (), test: bool = True
) -> Mapping[str, Measured]:
    """What a client's model, held by `module`, is worth on the client's own measured samples where clients keep some,
    else on its even share, by the prefix of the metrics. A part of which the client has no sample is left out, and so
    is the test set unless `test`."""
    found: dict[str, Measured] = {}
    for prefix, part in _parts(data, test):
        share = part.own[client] if part.own else part.shares[client]
        if len(share):
            logits, y = logits_of(module, data, part, share), part.y[share]
            values = {measure.name: measure(logits, y) for measure in measures}
            own = {name: value if math.isfinite(value) else None for name, value in values.items()}
            found[prefix] = Measured(int((logits.argmax(dim=1).cpu() == y).sum()), len(share), own)
    return found


def local_metrics(
    fed: Federation,
    data: FederatedData,
    clients: Mapping[int, Mapping[str, Measured]],
    measures: Sequence[Measure] = (),
    test: bool = True,
) -> tuple[dict[str, float], list[float | None]]:
    """Local accuracy (validation, and test where `test` says so) of the clients that trained, and the vector over all
    clients on the test side (None: did not train; empty where it is not measured).

    `clients` holds what was `measured` of each one's model. The mean is weighted by n_i. With own samples `p_acc` pools
    them. The user's own `measures` are averaged likewise, over the clients for which they give a finite number."""
    metrics: dict[str, float] = {}
    vector: list[float | None] = []
    own: dict[str, float] = {}
    for prefix, part in _parts(data, test):
        found = [clients[client].get(prefix) if client in clients else None for client in range(fed.clients)]
        vector = [None if m is None else m.right / m.samples for m in found]
        metrics[f"{prefix}local_accuracy"] = weighted_mean(vector, fed.sizes)
        if part.own and any(found):
            there = [m for m in found if m is not None]
            metrics[f"{prefix}p_acc"] = sum(m.right for m in there) / sum(m.samples for m in there)
        for measure in measures:
            values = [None if m is None else m.own[measure.name] for m in found]
            own[f"{prefix}local_{measure.name}"] = weighted_mean(values, fed.sizes)
    return metrics | own, vector if test else []


def weighted_mean(values: Sequence[float | None], weights: Sequence[int]) -> float:
    """Mean over the entries that are there; `nan` where none is."""
    present = [(v, w) for v, w in zip(values, weights, strict=True) if v is not None]
    total = sum(w for _, w in present)
    return sum(v * w for v, w in present) / total if total else float("nan")
