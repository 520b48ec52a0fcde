"""Class prototypes and what DHF's server makes of them: global prototypes, and heads mixed by how they serve a client.

Tables over the round's S clients and C classes: `own` prototypes `(S, C, p)`, `counts` `(S, C)` of samples (0: the
client does not hold the class; its prototype is then ignored). Sums run in float64. Nothing here has a gradient.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.federation import ClientData
from trainables.models import Model

_BATCH = 1024


@torch.no_grad()
def class_means(module: Model, data: ClientData) -> Tensor:
    """`C_k^j = 1/|D_k^j| Σ φ_k(x)` over a client's samples of class j, in evaluation mode: `(C, p)`, 0 for classes it
    lacks (Eq. 6)."""
    module.eval()
    total = torch.zeros(data.classes, module.feature_width, dtype=torch.float64, device=data.device)
    for chosen in torch.arange(len(data)).tensor_split(-(-len(data) // _BATCH)):
        x, y = data.batch(chosen)
        total += F.one_hot(y, data.classes).T.double() @ module.features(x).double()
    return (total / data.label_counts().clamp(min=1).to(total)[:, None]).float()


def merge(old: Tensor, valid: Tensor, own: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. (7): `C̄^j = Σ_k |D_k^j|/|D^j| C_k^j`, |D^j| summed over the round's clients; a class nobody reported keeps
    `old` `(C, p)`.

    Also returns which classes have a prototype now, given which had one (`valid`, boolean `(C,)`)."""
    counts = counts.to(own.device, torch.float64)
    total = counts.sum(dim=0)
    mean = torch.einsum("sc,scp->cp", counts, own.double()) / total[:, None]  # 0/0 is not taken below
    return torch.where(total[:, None] > 0, mean.to(old.dtype), old), valid | (total > 0)


def head_losses(own: Tensor, counts: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Eq. (8): `w_(k,i) = Σ_j |D_k^j|/|D_k| CE(h_i(C_k^j), j)` over the classes that client k holds: `(S, S)`, row k,
    column i.

    weight, bias: the clients' linear heads, `(S, C, p)` and `(S, C)`."""
    counts = counts.to(own.device, torch.float64)
    share = counts / counts.sum(dim=1, keepdim=True)
    rows = []
    for prototypes, mix in zip(own.double(), share, strict=True):
        logits = torch.einsum("jp,icp->ijc", prototypes, weight.double()) + bias[:, None]
        rows.append((mix * -F.log_softmax(logits, dim=2).diagonal(dim1=1, dim2=2)).sum(dim=1))
    return torch.stack(rows)


def head_weights(losses: Tensor, tau: float) -> Tensor:
    """Eq. (9): `w'_(k,i) = exp(-τ w_(k,i)) / Σ_i' exp(-τ w_(k,i'))`; rows sum to 1, and are uniform for τ = 0."""
    return torch.softmax(-tau * losses, dim=1)


def mix(weights: Tensor, heads: Tensor) -> Tensor:
    """Eq. (10): `h'_k = Σ_i w'_(k,i) h_i` of parameters `(S, ...)`."""
    return torch.einsum("ki,i...->k...", weights, heads.double()).to(heads.dtype)
