"""What a round's models are worth: global and local accuracy, fairness over clients, and their validation twins.

The global model is run once over the test set and once over the validation share; every per-client number follows from
those predictions. A local model is run on its client's own share only. No gradient, few large batches of equal size
(models normalise with batch statistics, so a small last batch would be measured differently).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.federation import Federation
from trainables.method import Params
from trainables.params import put
from trainables.split import FederatedData, Part

_BATCH = 1024


@torch.inference_mode()
def logits_of(module: nn.Module, data: FederatedData, part: Part, positions: Tensor) -> Tensor:
    """Logits `(n, C)` of the samples of `part` at `positions`, in evaluation mode."""
    module.eval()
    chunks = -(-len(positions) // _BATCH)
    return torch.cat([module(data.batch(part, chunk)) for chunk in positions.tensor_split(chunks)])


def global_metrics(fed: Federation, data: FederatedData, model: Params) -> tuple[dict[str, float], list[float]]:
    """Metrics of the global model (test set and `val_` twins) and the per-client accuracies on the test side.

    A client's accuracy `a_k` is taken on its own test samples where clients keep some, else on the test set reweighted
    to the client's label mix: `a_k = Σ_y n_k^y/n_k · accuracy on class y` over the classes the test side has."""
    module = fed.network()
    put(module, model)
    metrics: dict[str, float] = {}
    per_client = torch.zeros(0)
    for prefix, part, own in (("val_", data.validation, None), ("", data.test, data.own_test)):
        if part is None:
            continue
        logits = logits_of(module, data, part, torch.arange(len(part.indices)))
        y = part.y.to(logits.device)
        right = (logits.argmax(dim=1) == y).double().cpu()
        per_client = torch.stack([right[o].mean() for o in own]) if own else label_mix_accuracy(right, part.y, data.counts)
        weights = torch.tensor([len(o) for o in own], dtype=torch.float64) if own else data.counts.sum(dim=1).double()
        metrics |= {
            f"{prefix}global_accuracy": float(right.mean()),
            f"{prefix}global_loss": float(F.cross_entropy(logits, y)),
        } | {prefix + name: value for name, value in fairness(per_client, weights).items()}
    return metrics, per_client.tolist()


def label_mix_accuracy(right: Tensor, y: Tensor, counts: Tensor) -> Tensor:
    """Per-client accuracy `(N,)` of predictions that are `right` `(n,)` on labels `y` `(n,)`, reweighted to `counts` `(N, C)`.

    Classes without a measured sample are left out of a client's mix."""
    seen = torch.bincount(y, minlength=counts.shape[1]).double()
    hits = torch.zeros_like(seen).index_add_(0, y, right)
    mix = counts.double() * (seen > 0)
    return (mix @ (hits / seen.clamp(min=1))) / mix.sum(dim=1).clamp(min=1)


def fairness(accuracies: Tensor, weights: Tensor) -> dict[str, float]:
    """FedKF Sec. III: `amp = Σ w_k a_k / Σ w_k`, `fm` = population variance of the a_k, `wlp = min_k a_k`."""
    return {
        "amp": float((weights * accuracies).sum() / weights.sum()),
        "fm": float(accuracies.var(correction=0)),
        "wlp": float(accuracies.min()),
    }


def local_metrics(fed: Federation, data: FederatedData, models: Mapping[int, Params]) -> tuple[dict[str, float], list[float | None]]:
    """Local accuracy (test and validation) of the clients that trained, and the vector over all clients (None: did not train).

    Each model runs on its client's even share of the samples, at its client's width; the mean is weighted by n_i."""
    metrics: dict[str, float] = {}
    vector: list[float | None] = [None] * fed.clients
    for prefix, part in (("val_", data.validation), ("", data.test)):
        if part is None:
            continue
        vector = [None] * fed.clients
        for client, model in sorted(models.items()):
            share = data.own_test[client] if not prefix and data.own_test else part.shares[client]
            if not len(share):
                continue
            module = fed.network(fed.widths[client])
            put(module, model)
            logits = logits_of(module, data, part, share)
            vector[client] = float((logits.argmax(dim=1).cpu() == part.y[share]).double().mean())
        metrics[f"{prefix}local_accuracy"] = weighted_mean(vector, fed.sizes)
    return metrics, vector


def weighted_mean(values: Sequence[float | None], weights: Sequence[int]) -> float:
    """Mean over the entries that are there; `nan` where none is."""
    present = [(v, w) for v, w in zip(values, weights, strict=True) if v is not None]
    total = sum(w for _, w in present)
    return sum(v * w for v, w in present) / total if total else float("nan")
