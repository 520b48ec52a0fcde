"""Class prototypes: a client's own, how they cross the wire, prediction by the nearest one; and what DHF's server makes
of them, global prototypes and heads mixed by how they serve a client. Numbers of equations are DHF's.

Tables over the round's S clients and C classes: `own` prototypes `(S, C, p)`, `counts` `(S, C)` of samples (0: the
client does not hold the class; its prototype is then ignored). Sums run in float64. Nothing here has a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import integer
from trainables.building_blocks.parameter_kinds import sgd_lr
from trainables.federation import ClientData, Federation
from trainables.kernels.optimisers import SGD
from trainables.kernels.recorded_steps import recorded
from trainables.models import Model
from trainables.params import WeightedSum, unpack
from trainables.rng import Rng
from trainables.wire import Params, Payload

_BATCH = 1024


def class_means(module: Model, data: ClientData) -> Tensor:
    """`C_k^j = 1/|D_k^j| Σ φ_k(x)` over a client's samples of class j, in evaluation mode: `(C, p)`, 0 for classes it
    lacks (Eq. 6)."""
    return _means(module, module.features, module.feature_width, data)


def class_logits(module: Model, data: ClientData) -> Tensor:
    """The mean of the model's logits over a client's samples of each class, in evaluation mode: `(C, C)`, rows of
    classes it lacks 0."""
    return _means(module, module, data.classes, data)


@torch.no_grad()
def _means(module: Model, run: Callable[[Tensor], Tensor], width: int, data: ClientData) -> Tensor:
    module.eval()
    total = torch.zeros(data.classes, width, dtype=torch.float64, device=data.device)
    for chosen in torch.arange(len(data)).tensor_split(-(-len(data) // _BATCH)):
        x, y = data.batch(chosen)
        total += F.one_hot(y, data.classes).T.double() @ run(x).double()
    return (total / data.label_counts().clamp(min=1).to(total)[:, None]).float()


def owned(prefix: str, rows: Tensor, counts: Tensor) -> Payload:
    """The rows `(C, ...)` of the classes that a client holds (`counts` `(C,)` above 0), as entries `prefix/j` of its
    upload."""
    return {f"{prefix}/{j}": rows[j].clone() for j in counts.nonzero().flatten().tolist()}


def by_class(prefix: str, payload: Mapping[str, Tensor]) -> dict[int, Tensor]:
    """The entries `prefix/j` of a payload by class j."""
    return {int(j): row for j, row in unpack(prefix, payload).items()}


def pooled(reports: Iterable[tuple[Mapping[int, Tensor], Mapping[int, float]]]) -> dict[int, Tensor]:
    """For every class that somebody reports: the mean of its reports, weighted by the reporters' weights of that class,
    which stand beside each report. No report is kept."""
    sums: dict[int, WeightedSum] = {}
    for report, weights in reports:
        for j, row in report.items():
            sums.setdefault(j, WeightedSum()).add({"": row}, weights[j])
    return {j: sums[j].mean()[""] for j in sorted(sums)}


class NearestPrototype(nn.Module):
    """A model that predicts the class whose prototype lies nearest to its features; `valid` says which classes have
    one."""

    prototypes: Tensor
    valid: Tensor

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("prototypes", torch.zeros(model.classes, model.feature_width))
        self.register_buffer("valid", torch.zeros(model.classes, dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        """`-‖φ(x) - C^j‖` as logits `(B, C)`; a class without a prototype is never predicted."""
        apart = torch.cdist(self.model.features(x), self.prototypes, compute_mode="donot_use_mm_for_euclid_dist")
        return (-apart).masked_fill(~self.valid, -torch.inf)


def with_prototypes(model: Params, known: Mapping[int, Tensor], classes: int) -> Params:
    """The state of a `NearestPrototype` of a model with these weights and the prototypes `(p,)` that are `known`."""
    absent = torch.zeros_like(next(iter(known.values())))
    return {
        **{f"model.{name}": tensor for name, tensor in model.items()},
        "prototypes": torch.stack([known.get(j, absent) for j in range(classes)]),
        "valid": torch.tensor([j in known for j in range(classes)]),
    }


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


@dataclass(frozen=True)
class PrototypePasses:
    """What a server learns from the round's prototypes: rate and length of its SGD.

    It passes over (prototype, class) pairs in random order. Each prototype counts once, whatever the number of samples
    it is the mean of. Orders are drawn before the first step."""

    server_lr: float = sgd_lr(0.01, symbol="η_s", doc="Learning rate of the server's SGD.", source="HtFLlib")
    server_epochs: int = integer(
        100,
        low=0,
        high=1000,
        symbol="E_s",
        doc="Passes of the server over the round's prototypes.",
        source="HtFLlib",
        tune=(10, 1000),
        work="steps",
    )
    server_batch_size: int = integer(
        10, low=1, high=4096, log=True, symbol="B_s", doc="Prototypes per step of the server.", source="HtFLlib"
    )


def labelled(payloads: Sequence[Mapping[str, Tensor]], fed: Federation) -> tuple[Tensor, Tensor]:
    """All prototypes of the round's uploads `(n, p)` and their classes `(n,)`, client by client."""
    reports = [by_class("prototype", payload) for payload in payloads]
    rows = [prototype for report in reports for prototype in report.values()]
    return torch.stack(rows), torch.tensor([j for report in reports for j in report]).to(fed.device)


def passes(config: PrototypePasses, samples: int, fed: Federation, rng: Rng) -> Iterator[Tensor]:
    """Places `(batch,)` of the prototypes of one step after the other; the last batch of a pass may be smaller."""
    generator = rng.torch("prototypes")
    orders = [torch.randperm(samples, generator=generator) for _ in range(config.server_epochs)]
    for order in torch.stack(orders).to(fed.device) if orders else ():
        yield from order.split(config.server_batch_size)


def learn(
    config: PrototypePasses,
    rows: Tensor,
    labels: Tensor,
    module: nn.Module,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    fed: Federation,
    rng: Rng,
) -> None:
    """The server's SGD steps on `module` along `loss_of` of prototypes `(B, p)` and their classes `(B,)`, drawn from
    all, `(n, p)` and `(n,)`. Steps on batches of each size are recorded by themselves."""
    optimiser = SGD(module.parameters(), lr=config.server_lr)

    def step(rows: Tensor, labels: Tensor) -> None:
        optimiser.zero_grad(set_to_none=True)
        loss_of(rows, labels).backward()
        optimiser.step()

    whole, rest = divmod(len(rows), config.server_batch_size)
    in_a_pass = {config.server_batch_size: whole, rest: 1}
    taken = {
        size: recorded(step, lambda: module.state_dict().values(), fed.record, times * config.server_epochs)
        for size, times in in_a_pass.items()
    }
    for chosen in passes(config, len(rows), fed, rng):
        taken[len(chosen)](rows[chosen], labels[chosen])
