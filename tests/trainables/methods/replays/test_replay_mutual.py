"""FML and FedKD, two rounds: a client's own model and its copy of the shared one teach each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.trainables.methods.replays.actual import (
    Round,
    World,
    assert_close,
    assert_equal,
    assert_step,
    client_state,
    unpacked,
    world,
)
from tests.trainables.methods.replays.networks import head
from tests.trainables.methods.replays.plain import (
    Params,
    Sgd,
    ce,
    drawn_batches,
    gradients,
    kl,
    mean_square,
    watched,
    weighted_mean,
)
from tests.trainables.methods.replays.test_replay_dhf import features, initial_model
from tests.trainables.methods.replays.test_replay_prototypes import MIXED, architecture
from trainables import models

COHORTS = ((0, 2, 3), (0, 1, 3))
#: `(own model, shared model, other weights, x, y) -> L_f, L_g`
Losses = Callable[[Params, Params, Params, Tensor, Tensor], tuple[Tensor, Tensor]]


def shared_model(played: World) -> Params:
    """The first weights of g, of another draw than those of the clients' models."""
    name, fed = played.config.shared_model, played.fed
    module = fed.cached(("the replay's own", name), lambda: models.build(name, fed.shape, fed.classes))
    models.initialise(module, played.fed.rng.torch("init", "shared"))
    return {key: value.detach().clone() for key, value in module.named_parameters()}


def taught_by_each_other(
    played: World, round_: Round, i: int, own: Params, shared: Params, more: Params, rate: float, losses: Losses
) -> tuple[Params, Params, Params]:
    """The client's models (and other weights, which learn with g) after one pass over its data: two optimisers, each
    on its own loss."""
    c, data = played.config, played.clients[i]
    batch = min(c.batch_size, len(data.y))
    drawn = drawn_batches(data, len(data.y) // batch, batch, played.client_rng(round_.number, i).torch("batches"))
    of_own, of_shared = Sgd(c.lr, c.momentum), Sgd(rate, c.momentum)
    own, shared, more, values = dict(own), dict(shared), dict(more), []
    for chosen in drawn:
        x, y = data.batch(chosen)
        f, g, w = watched(own), watched(shared), watched(more)
        l_f, _ = losses(f, dict(shared), dict(more), x, y)
        _, l_g = losses(dict(own), g, w, x, y)
        values.append(float(l_f.detach()))
        step_f, step_g = gradients(l_f, f), gradients(l_g, {f"g.{k}": v for k, v in g.items()} | w)
        of_own.step(own, step_f)
        joint = {f"g.{k}": v for k, v in shared.items()} | more
        of_shared.step(joint, step_g)
        shared = {k[2:]: v for k, v in joint.items() if k.startswith("g.")}
        more = {k: v for k, v in joint.items() if not k.startswith("g.")}
    assert_close(round_.results[i].loss or 0.0, sum(values) / len(values), f"loss of {i}")
    return own, shared, more


def logits(p: Params, x: Tensor) -> Tensor:
    return head(p, features(p, x))


def test_fml(toy: Path) -> None:
    fml = world("fml", toy, **MIXED, alpha=0.7, beta=0.4, shared_model="cnn3", weight_decay=0.0)
    own = {i: initial_model(fml, architecture(i)) for i in range(4)}
    shared = shared_model(fml)

    def losses(f: Params, g: Params, _: Params, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        u, v = logits(f, x), logits(g, x)
        return 0.7 * ce(u, y) + 0.3 * kl(v, u), 0.4 * ce(v, y) + 0.6 * kl(u, v)

    for played in fml.play(COHORTS):
        copies = []
        for i, result in played.results.items():
            assert_equal(unpacked("model", played.payloads[i]), shared, f"g sent to {i}")
            start = own[i]
            own[i], copy, _ = taught_by_each_other(fml, played, i, start, shared, {}, fml.config.lr, losses)
            assert_step(client_state(result).model, own[i], start, f"model kept by {i}")
            assert_equal(result.model or {}, own[i], f"model of {i}")
            assert_step(unpacked("model", result.upload), copy, shared, f"g of {i}")
            assert_equal(dict(result.others["shared"]), copy, f"g measured of {i}")
            copies.append(copy)
        before, shared = shared, weighted_mean(copies, [1.0] * len(copies))
        assert_step(played.after.model, shared, before, f"g after round {played.number}")
        assert_equal(fml.method.global_model(fml.config, fml.fed, played.after) or {}, shared, "global model")


def truncated(change: Tensor, energy: float) -> Tensor:
    """A tensor with the fewest singular values that keep this share of its energy; as it is, where that saves
    nothing."""
    matrix = change.reshape(len(change), -1)
    left, values, right = np.linalg.svd(matrix.numpy(), full_matrices=False)
    kept = next(k for k in range(1, len(values) + 1) if (values[:k] ** 2).sum() >= energy * (values**2).sum())
    if kept * (matrix.shape[0] + matrix.shape[1] + 1) >= matrix.numel():
        return change
    return torch.from_numpy(left[:, :kept] @ np.diag(values[:kept]) @ right[:kept]).view(change.shape)


def multiplied(payload: Params, like: Params) -> Params:
    """The tensors of a payload's factors and of what it holds whole."""
    u, s, v, whole = (unpacked(prefix, payload) for prefix in ("u", "s", "v", "model"))
    found = {name: (u[name] @ torch.diag(s[name]) @ v[name]).view(like[name].shape) for name in u}
    return {name: (found | whole)[name] for name in like}


def test_fedkd(toy: Path) -> None:
    more = {"kd_weight": 1.3, "mentee_lr": 0.08, "energy_start": 0.6, "energy_end": 0.9, "weight_decay": 0.0}
    kd = world("fedkd", toy, **MIXED, **more, rounds=5)
    own, shared = {i: initial_model(kd, architecture(i)) for i in range(4)}, shared_model(kd)
    maps = {i: {"map": first_map(kd)} for i in range(4)}

    def losses(f: Params, g: Params, w: Params, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        h_f, h_g = features(f, x), features(g, x)
        u, v = head(f, h_f), head(g, h_g)
        c = float((ce(u, y) + ce(v, y)).detach())
        apart = mean_square(h_f, h_g @ w["map"].t())
        return ce(u, y) + 1.3 * (kl(v, u) + apart) / c, ce(v, y) + 1.3 * (kl(u, v) + apart) / c

    last, update = set[int](), Params()
    for played in kd.play((*COHORTS, (0, 2))):
        energy = 0.6 + 0.3 * (played.number - 1) / 5
        changes = []
        for i, result in played.results.items():
            sent = played.payloads[i]
            assert float(sent["energy"]) == pytest.approx(energy, rel=1e-12)
            if i in last:
                assert not unpacked("whole", sent), f"{i} was sent the whole model and not the update"
                assert_equal(multiplied(sent, shared), update, f"update sent to {i}", 1e-2)
            else:
                assert_equal(unpacked("whole", sent), shared, f"g sent to {i}")
            start = own[i], maps[i]
            own[i], copy, maps[i] = taught_by_each_other(kd, played, i, own[i], shared, maps[i], 0.08, losses)
            assert_step(client_state(result).model, own[i], start[0], f"mentor of {i}")
            assert_step({"map": client_state(result).map["weight"]}, maps[i], start[1], f"map of {i}")
            assert_step(dict(result.others["shared"]), copy, shared, f"mentee of {i}")
            changes.append({name: truncated(value - shared[name], energy) for name, value in copy.items()})
            assert_step(
                multiplied(result.upload, shared), changes[-1], {k: 0 * v for k, v in shared.items()}, f"upload of {i}"
            )
            assert unpacked("u", result.upload)  # or nothing was truncated
        mean = weighted_mean(changes, [1.0] * len(changes))
        update = {name: truncated(value, energy) for name, value in mean.items()}
        before, shared = shared, {name: value + update[name] for name, value in shared.items()}
        assert_step(played.after.model, shared, before, f"g after round {played.number}")
        last = set(played.results)


def first_map(played: World) -> Tensor:
    """W's first value, the same on every client: U(-1/√p, 1/√p)."""
    return torch.empty(512, 512).uniform_(-(512**-0.5), 512**-0.5, generator=played.fed.rng.torch("init", "map"))
