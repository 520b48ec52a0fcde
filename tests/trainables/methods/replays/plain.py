"""Losses, optimisers and draws, written out: nothing here calls the package under test.

Logits are `(B, C)`, labels `(B,)`; parameters are dictionaries of tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import torch
from torch import Generator, Tensor

Params = dict[str, Tensor]
#: `(params, x, y) -> loss`
Loss = Callable[[Params, Tensor, Tensor], Tensor]


class Samples(Protocol):
    """One client's samples."""

    y: Tensor
    step_share: float

    def batch(self, chosen: Tensor) -> tuple[Tensor, Tensor]: ...


# -- losses ------------------------------------------------------------------------------------------------------------


def log_softmax(logits: Tensor) -> Tensor:
    """`u_c - log Σ_c' exp u_c'`."""
    return logits - torch.logsumexp(logits, dim=1, keepdim=True)


def ce_rows(logits: Tensor, y: Tensor) -> Tensor:
    """`-log softmax(u)_y` per sample."""
    return -log_softmax(logits)[torch.arange(len(y)), y]


def ce(logits: Tensor, y: Tensor) -> Tensor:
    """The batch's mean cross-entropy."""
    return ce_rows(logits, y).sum() / len(y)


def kl_rows(target: Tensor, other: Tensor, temperature: float = 1.0) -> Tensor:
    """`Σ_c p_c (log p_c - log q_c)` per sample, p of `target` and q of `other`, at a temperature."""
    log_p, log_q = log_softmax(target / temperature), log_softmax(other / temperature)
    return (torch.exp(log_p) * (log_p - log_q)).sum(dim=1)


def kl(target: Tensor, other: Tensor, temperature: float = 1.0) -> Tensor:
    """The batch's mean of `kl_rows`."""
    return kl_rows(target, other, temperature).sum() / len(target)


def mean_square(a: Tensor, b: Tensor) -> Tensor:
    """Mean over all entries of `(a - b)²`."""
    return ((a - b) ** 2).sum() / a.numel()


def pairs(rows: Tensor, power: int = 2) -> Tensor:
    """`mean_i |v_ji - v_ki|^power` of all pairs of rows, `(B, B)`."""
    flat = rows.reshape(len(rows), -1)
    apart = flat.unsqueeze(1) - flat.unsqueeze(0)
    return (apart.abs() if power == 1 else apart * apart).sum(dim=2) / flat.shape[1]


def diversity(made: Tensor, condition: Tensor, power: int = 2) -> Tensor:
    """`exp(-mean_jk d(made_j, made_k) d(condition_j, condition_k))` with mean squares as distances, between what is
    made mean `power`-th powers."""
    return torch.exp(-(pairs(made, power) * pairs(condition)).sum() / len(made) ** 2)


# -- optimisers --------------------------------------------------------------------------------------------------------


class Sgd:
    """`v ← m v + (g + λ w)`, `w ← w - η v`; the first v is the first gradient."""

    def __init__(self, lr: float, momentum: float = 0.0, decay: float = 0.0) -> None:
        self.lr, self.momentum, self.decay = lr, momentum, decay
        self.velocity: Params = {}

    def step(self, params: Params, gradients: Mapping[str, Tensor]) -> None:
        """Replaces the tensors in `params`."""
        for name, g in gradients.items():
            g = g + self.decay * params[name]
            self.velocity[name] = self.momentum * self.velocity[name] + g if name in self.velocity else g
            params[name] = params[name] - self.lr * self.velocity[name]


class Adam:
    """`m ← b₁ m + (1-b₁) g`, `v ← b₂ v + (1-b₂) g²`, `w ← w - η (m/(1-b₁^t)) / (√(v/(1-b₂^t)) + ε)`; g has `λ w`."""

    def __init__(self, lr: float, betas: tuple[float, float] = (0.9, 0.999), decay: float = 0.0) -> None:
        self.lr, self.betas, self.decay = lr, betas, decay
        self.count, self.first, self.second = 0, Params(), Params()

    def step(self, params: Params, gradients: Mapping[str, Tensor]) -> None:
        """Replaces the tensors in `params`."""
        self.count += 1
        b1, b2 = self.betas
        for name, g in gradients.items():
            g = g + self.decay * params[name]
            self.first[name] = b1 * self.first.get(name, torch.zeros_like(g)) + (1 - b1) * g
            self.second[name] = b2 * self.second.get(name, torch.zeros_like(g)) + (1 - b2) * g * g
            mean, square = self.first[name] / (1 - b1**self.count), self.second[name] / (1 - b2**self.count)
            params[name] = params[name] - self.lr * mean / (torch.sqrt(square) + 1e-8)

    def kept(self) -> Params:
        """The state under PyTorch's names."""
        named = {"exp_avg": self.first, "exp_avg_sq": self.second}
        return {f"{name}/{key}": value[name] for key, value in named.items() for name in value} | {
            f"{name}/step": torch.tensor(float(self.count), dtype=torch.float32) for name in self.first
        }


def watched(params: Mapping[str, Tensor], names: Iterable[str] | None = None) -> Params:
    """Copies of `params` of which those in `names` (else all floating-point ones) collect a gradient."""
    chosen = {name for name, value in params.items() if value.is_floating_point()} if names is None else set(names)
    return {name: value.detach().clone().requires_grad_(name in chosen) for name, value in params.items()}


def gradients(loss: Tensor, params: Mapping[str, Tensor]) -> Params:
    """The loss's gradient in every tensor of `params` that collects one and is used."""
    names = [name for name, value in params.items() if value.requires_grad]
    found = torch.autograd.grad(loss, [params[name] for name in names], allow_unused=True)
    return {name: g for name, g in zip(names, found, strict=True) if g is not None}


# -- clients -----------------------------------------------------------------------------------------------------------


def drawn_batches(data: Samples, steps: int, batch_size: int, random: Generator) -> list[Tensor]:
    """Shuffles of the client's samples laid end to end, cut into `steps` (times the client's share) batches."""
    samples = len(data.y)
    batch, steps = min(batch_size, samples), max(1, round(data.step_share * steps))
    order: list[int] = []
    while len(order) < steps * batch:
        order += torch.randperm(samples, generator=random).tolist()
    return [torch.tensor(order[i * batch : (i + 1) * batch]) for i in range(steps)]


def sgd_steps(
    start: Mapping[str, Tensor], data: Samples, drawn: Sequence[Tensor], loss_of: Loss, optimiser: Sgd
) -> tuple[Params, list[float]]:
    """A client's steps on `loss_of`: the trained parameters and the loss of each step."""
    params, losses = dict(start), []
    for chosen in drawn:
        x, y = data.batch(chosen)
        here = watched(params)
        loss = loss_of(here, x, y)
        losses.append(float(loss.detach()))
        optimiser.step(params, gradients(loss, here))
    return params, losses


def drawn_counts(data: Samples, drawn: Sequence[Tensor], classes: int) -> Tensor:
    """n_i^y: how many different samples of each class were drawn."""
    seen = sorted({int(i) for chosen in drawn for i in chosen})
    return torch.tensor([sum(int(data.y[i]) == c for i in seen) for c in range(classes)])


def held_counts(data: Samples, classes: int) -> Tensor:
    """n_i^y: how many samples of each class the client holds."""
    return torch.tensor([int((data.y == c).sum()) for c in range(classes)])


# -- servers -----------------------------------------------------------------------------------------------------------


def weighted_mean(many: Sequence[Mapping[str, Tensor]], weights: Sequence[float]) -> Params:
    """`Σ_i a_i w_i / Σ_i a_i`; integers are the first one's."""
    return {
        name: sum(a * p[name] for a, p in zip(weights, many, strict=True)) / sum(weights)
        if value.is_floating_point()
        else value
        for name, value in many[0].items()
    }


def label_shares(counts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """`τ_(i,y) = n_i^y / Σ_j n_j^y` `(S, C)` and `p(y)` `(C,)`. A class without samples is never drawn;
    its shares are equal."""
    table = torch.stack(list(counts)).double()
    total = table.sum(dim=0)
    tau = torch.full_like(table, 1 / len(table))
    for c in range(table.shape[1]):
        if total[c] > 0:
            tau[:, c] = table[:, c] / total[c]
    return tau, total / total.sum()


def gathered(terms: Sequence[Tensor], weights: Tensor) -> Tensor:
    """`Σ_i weight_(i,b) term_(i,b)` of S terms `(B, …)` and weights `(S, B)`."""
    return sum(weights[i].unsqueeze(1) * term for i, term in enumerate(terms))  # type: ignore[return-value]
