"""FML and FedKD against HtFLlib's: a client's own model, of one of two architectures, and its copy of a shared one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.trainables.methods.published_code.mixed import agrees_but_for, batches, htfllib, moved
from tests.trainables.methods.replays.actual import Round, World, assert_step, client_state
from tests.trainables.methods.replays.networks import CLASSES, head
from tests.trainables.methods.replays.plain import Params, gradients, watched
from tests.trainables.methods.replays.test_replay_dhf import features
from tests.trainables.methods.replays.test_replay_mutual import COHORTS, first_map, multiplied, shared_model
from tests.trainables.methods.replays.test_replay_prototypes import first_models

#: `(own model f, shared model g, map W, x, y) -> L_f, L_g`
Losses = Callable[[Params, Params, Params, Tensor, Tensor], tuple[Tensor, Tensor]]
#: HtFLlib's own steps that no setting gives, and what then differs first.
FML = {"both losses move both models": "own model of 0"}
KD = FML | {
    "KL over classes, too": "own model of 0",
    "clips gradients": "(own model|copy|map) of",
    "truncates the model": "upload of 0",
    "truncates kernel by kernel": "upload of 0",
    "truncates where it saves nothing": "upload of 0",
    "no part of what needs all values": "upload of 0",
}
#: The energy in the first round at which a step shows; the others do at any. All are tried with the method's own steps.
ENERGY = {"truncates where it saves nothing": 0.999, "no part of what needs all values": 1.0}
LOW = 0.55


def kl(learner: Tensor, teacher: Tensor) -> Tensor:
    """The mean over the batch and the classes, as `torch.nn.KLDivLoss()` is by default."""
    return F.kl_div(F.log_softmax(learner, dim=1), F.softmax(teacher, dim=1), reduction="batchmean") / CLASSES


def clipped(found: Params) -> Params:
    """The gradients of one model, no longer together than 10."""
    norm = float(torch.sqrt(sum(((g**2).sum() for g in found.values()), torch.zeros(()))))
    return {name: g * min(1.0, 10 / (norm + 1e-6)) for name, g in found.items()}


def joined(*models: Params) -> Params:
    """The tensors of several models under names of their own."""
    return {f"{k} {name}": value for k, model in enumerate(models) for name, value in model.items()}


def mutual(
    played: World, round_: Round, i: int, models: tuple[Params, ...], losses: Losses, lr: float, theirs: str | None
) -> tuple[Params, ...]:
    """f, g and W after the client's batches. In HtFLlib both losses are propagated back to both models; else what
    teaches is a constant in each loss."""
    for chosen in batches(played, round_, i):
        x, y = played.clients[i].batch(chosen)
        f, g, w = (watched(model) for model in models)
        if theirs in FML:
            of_own, of_shared = losses(f, g, w, x, y)
            found = gradients(of_own + of_shared, joined(f, g, w))
        else:
            still_f, still_g, still_w = models
            of_own, of_shared = losses(f, still_g, still_w, x, y)[0], losses(still_f, g, w, x, y)[1]
            found = gradients(of_own, joined(f, {}, {})) | gradients(of_shared, joined({}, g, w))
        own = [{name: found[f"{k} {name}"] for name in model} for k, model in enumerate(models)]
        if theirs == "clips gradients":
            own = [clipped(mine) for mine in own]
        models = tuple(moved(model, mine, lr) for model, mine in zip(models, own, strict=True))
    return models


@pytest.mark.parametrize("theirs", [None, *FML])
def test_fml(theirs: str | None, toy: Path) -> None:
    """system/flcore/clients/clientfml.py at cae12a2 and servers/serverfml.py at 686ed4d.

    HtFLlib's KL is divided by the C classes as well. With α = β that is a setting: its losses are s times ours with
    s = α + (1-α)/C, share α/s and rate s η. In the loop on purpose: a teacher is constant. No gradient here is so long
    that HtFLlib would clip it; `test_fedkd` has some."""
    alpha = 0.4
    s = alpha + (1 - alpha) / CLASSES
    fml = htfllib("fml", toy, alpha=alpha / s, beta=alpha / s, lr=0.05 * s, shared_model="cnn3")

    def losses(f: Params, g: Params, _: Params, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        u, v = head(f, features(f, x)), head(g, features(g, x))
        return (
            alpha * F.cross_entropy(u, y) + (1 - alpha) * kl(u, v),
            alpha * F.cross_entropy(v, y) + (1 - alpha) * kl(v, u),
        )

    with agrees_but_for(theirs, FML):
        replay_fml(fml, losses, 0.05, theirs)


def test_fml_of_two_shares(toy: Path) -> None:
    """The same files with α ≠ β. In the loop on purpose: a teacher is constant, and the KL is not divided by C."""
    fml = htfllib("fml", toy, alpha=0.7, beta=0.3, shared_model="cnn3")

    def losses(f: Params, g: Params, _: Params, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        u, v = head(f, features(f, x)), head(g, features(g, x))
        return (
            0.7 * F.cross_entropy(u, y) + 0.3 * CLASSES * kl(u, v),
            0.3 * F.cross_entropy(v, y) + 0.7 * CLASSES * kl(v, u),
        )

    replay_fml(fml, losses, 0.05, None)


def replay_fml(fml: World, losses: Losses, lr: float, theirs: str | None) -> None:
    own, shared = first_models(fml), shared_model(fml)
    for played in fml.play(COHORTS):
        copies = []
        for i, result in played.results.items():
            start = own[i]
            own[i], copy, _ = mutual(fml, played, i, (start, shared, {}), losses, lr, theirs)
            assert_step(client_state(result).model, own[i], start, f"own model of {i}")
            assert_step(dict(result.others["shared"]), copy, shared, f"copy of {i}")
            copies.append(copy)
        before = shared
        shared = {name: torch.stack([copy[name] for copy in copies]).mean(dim=0) for name in shared}
        assert_step(played.after.model, shared, before, f"shared model after round {played.number}")


@pytest.mark.parametrize(
    ("theirs", "energy"),
    [*((None, energy) for energy in (LOW, *ENERGY.values())), *((name, ENERGY.get(name, LOW)) for name in KD)],
)
def test_fedkd(theirs: str | None, energy: float, toy: Path) -> None:
    """system/flcore/clients/clientkd.py and servers/serverkd.py at 686ed4d.

    mentee_lr is lr, kd_weight is 1. In the loop on purpose: what teaches is constant and so is the sum of the
    cross-entropies; the KL is not divided by C; gradients are not clipped; what is truncated is the change and not the
    model, a convolution's as one matrix, by singular values of which all may be kept, and only where that saves
    numbers."""
    sent = {"energy_start": energy, "energy_end": 0.9, "rounds": 5}
    kd = htfllib("fedkd", toy, batch_size=8, lr=0.1, mentee_lr=0.1, **sent)
    scale = 1 if theirs == "KL over classes, too" else CLASSES

    def losses(f: Params, g: Params, w: Params, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        h_f, h_g = features(f, x), features(g, x)
        u, v = head(f, h_f), head(g, h_g)
        of_own, of_shared, apart = F.cross_entropy(u, y), F.cross_entropy(v, y), F.mse_loss(h_f, h_g @ w["map"].T)
        total = of_own + of_shared if theirs in FML else (of_own + of_shared).detach()
        return of_own + (scale * kl(u, v) + apart) / total, of_shared + (scale * kl(v, u) + apart) / total

    with agrees_but_for(theirs, KD):
        replay_fedkd(kd, losses, energy, theirs)


def replay_fedkd(kd: World, losses: Losses, first: float, theirs: str | None) -> None:
    own, shared = first_models(kd), shared_model(kd)
    maps: dict[int, Params] = {i: {"map": first_map(kd)} for i in own}
    nothing = {name: torch.zeros_like(value) for name, value in shared.items()}
    for played in kd.play(COHORTS):
        energy = first + (0.9 - first) * (played.number - 1) / 5
        sent = []
        for i, result in played.results.items():
            start = own[i], shared, maps[i]
            own[i], copy, maps[i] = mutual(kd, played, i, start, losses, 0.1, theirs)
            assert_step(client_state(result).model, own[i], start[0], f"own model of {i}")
            assert_step({"map": client_state(result).map["weight"]}, maps[i], start[2], f"map of {i}")
            assert_step(dict(result.others["shared"]), copy, shared, f"copy of {i}")
            sent.append(recovered(copy, shared, energy, theirs))
            assert_step(multiplied(result.upload, shared), sent[-1], nothing, f"upload of {i}")
        mean = {name: shared[name] + torch.stack([change[name] for change in sent]).mean(dim=0) for name in shared}
        before, change = shared, recovered(mean, shared, energy, theirs)
        shared = {name: value + change[name] for name, value in shared.items()}
        assert_step(played.after.model, shared, before, f"shared model after round {played.number}")


def recovered(model: Params, received: Params, energy: float, theirs: str | None) -> Params:
    """What a receiver learns of a model's change, of truncated factors."""
    if theirs == "truncates the model":
        return {name: truncated(value, energy, theirs) - received[name] for name, value in model.items()}
    return {name: truncated(value - received[name], energy, theirs) for name, value in model.items()}


def truncated(value: Tensor, energy: float, theirs: str | None) -> Tensor:
    """The part of a tensor in its first singular values, the fewest with more than this share of the squares' sum.

    HtFLlib's rule asks all counts but the last, which is that of all values, and then keeps none."""
    if value.dim() < 2:
        return value
    matrix = value.numpy() if theirs == "truncates kernel by kernel" else value.flatten(1).numpy()
    u, s, v = np.linalg.svd(matrix, full_matrices=False)
    squares = np.cumsum((s**2).reshape(-1, s.shape[-1]).sum(axis=0))
    enough = [k for k in range(1, len(squares)) if squares[k - 1] > energy * squares[-1]]
    kept = enough[0] if enough else (0 if theirs == "no part of what needs all values" else len(squares))
    numbers = kept * (value.shape[0] + value[0].numel() + 1)
    if numbers >= value.numel() and theirs != "truncates where it saves nothing":
        return value
    part: Any = (u[..., :kept] * s[..., None, :kept]) @ v[..., :kept, :]
    return torch.from_numpy(part).view(value.shape)
