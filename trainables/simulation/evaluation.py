"""How good a round's models are: global and local accuracy and fairness over clients, on the validation share and the
test set.

The global model is run once over the test set and once over the validation share; every per-client number follows from
those predictions. A local model is run on its client's own share only. No gradient, few large batches of equal size
(models may normalise with batch statistics, so a small last batch would be measured differently).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

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


def global_metrics(
    module: nn.Module, data: FederatedData, measures: Sequence[Measure] = ()
) -> tuple[dict[str, float], list[float]]:
    """Metrics of a global model (on the test set, and on the validation share as `val_…`), the user's own `measures`
    among them, and the per-client accuracies on the test side.

    `module` holds the model's weights. A client's accuracy `a_k` is taken on its own measured samples where clients
    keep some, else on all of them reweighted to the client's label mix: `a_k = Σ_y n_k^y/n_k · accuracy on class y`. A
    client too small to keep a sample, or none of whose classes is measured, has no accuracy (nan) and no part in AMP,
    FM and WLP."""
    metrics: dict[str, float] = {}
    per_client = torch.zeros(0)
    for prefix, part in _parts(data):
        logits = logits_of(module, data, part, torch.arange(len(part.indices)))
        y = part.y.to(logits.device)
        right = (logits.argmax(dim=1) == y).double().cpu()
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
    return metrics, per_client.tolist()


def accuracy(module: nn.Module, data: FederatedData, name: str) -> dict[str, float]:
    """Plain accuracy of `module` on the test set and the validation share, as `name` and `val_name`."""
    return {
        prefix + name: float(
            (logits_of(module, data, part, torch.arange(len(part.indices))).argmax(dim=1).cpu() == part.y)
            .double()
            .mean()
        )
        for prefix, part in _parts(data)
    }


def _parts(data: FederatedData) -> list[tuple[str, Part]]:
    """The validation share, if there is one, then the test set, with the prefix of their metrics."""
    return [(prefix, part) for prefix, part in (("val_", data.validation), ("", data.test)) if part is not None]


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


def local_metrics(
    fed: Federation,
    data: FederatedData,
    models: Mapping[int, Callable[[], nn.Module]],
    measures: Sequence[Measure] = (),
) -> tuple[dict[str, float], list[float | None]]:
    """Local accuracy (test and validation) of the clients that trained, and the vector over all clients (None: did not
    train).

    `models` gives each client's module, loaded, one at a time. A model runs on its client's own measured samples where
    clients keep some, else on its even share; the mean is weighted by n_i. With own samples `p_acc` pools them.
    The user's own `measures` are averaged likewise, over the clients for which they give a finite number."""
    parts = _parts(data)
    hits: dict[str, list[tuple[int, int] | None]] = {prefix: [None] * fed.clients for prefix, _ in parts}
    own: dict[str, list[float | None]] = {
        f"{prefix}local_{measure.name}": [None] * fed.clients for prefix, _ in parts for measure in measures
    }
    for client, load in sorted(models.items()):
        module = load()
        for prefix, part in parts:
            share = part.own[client] if part.own else part.shares[client]
            if len(share):
                logits = logits_of(module, data, part, share)
                right = logits.argmax(dim=1).cpu() == part.y[share]
                hits[prefix][client] = int(right.sum()), len(share)
                for measure in measures:
                    value = measure(logits, part.y[share])
                    own[f"{prefix}local_{measure.name}"][client] = value if math.isfinite(value) else None
    metrics: dict[str, float] = {}
    vector: list[float | None] = []
    for prefix, part in parts:
        vector = [None if h is None else h[0] / h[1] for h in hits[prefix]]
        metrics[f"{prefix}local_accuracy"] = weighted_mean(vector, fed.sizes)
        measured = [h for h in hits[prefix] if h is not None]
        if part.own and measured:
            metrics[f"{prefix}p_acc"] = sum(right for right, _ in measured) / sum(count for _, count in measured)
    metrics |= {name: weighted_mean(values, fed.sizes) for name, values in own.items()}
    return metrics, vector


def weighted_mean(values: Sequence[float | None], weights: Sequence[int]) -> float:
    """Mean over the entries that are there; `nan` where none is."""
    present = [(v, w) for v, w in zip(values, weights, strict=True) if v is not None]
    total = sum(w for _, w in present)
    return sum(v * w for v, w in present) / total if total else float("nan")
