"""SCAFFOLD and MOON, three rounds: what holds clients on a common course, and what they keep for it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from tests.trainables.methods.replays.actual import assert_close, assert_equal, assert_step, unpacked, world
from tests.trainables.methods.replays.networks import cnn, cnn_features, head
from tests.trainables.methods.replays.plain import (
    Params,
    Sgd,
    ce,
    drawn_batches,
    gradients,
    sgd_steps,
    watched,
    weighted_mean,
)
from tests.trainables.methods.replays.test_replay_averages import COHORTS, by_size


def test_scaffold(toy: Path) -> None:
    """The gradient is corrected by hand in every step; client 3 manages all steps, momentum and decay come after."""
    scaffold = world("scaffold", toy, server_lr=0.6, local_steps=3)
    c, model = scaffold.config, dict(scaffold.start.model)
    common = {name: torch.zeros_like(value) for name, value in model.items()}
    own = {i: dict(common) for i in range(4)}
    for played in scaffold.play((*COHORTS, (0, 3))):
        before, control, trained, changes = model, common, list[Params](), list[Params]()
        for i, result in played.results.items():
            assert_equal(unpacked("model", played.payloads[i]), before, f"model sent to {i}")
            assert_equal(unpacked("control", played.payloads[i]), control, f"control sent to {i}")
            data, rng = scaffold.clients[i], scaffold.client_rng(played.number, i)
            w, losses, sgd = dict(before), list[float](), Sgd(c.lr, c.momentum, c.weight_decay)
            for chosen in drawn_batches(data, c.local_steps, c.batch_size, rng.torch("batches")):
                here = watched(w)
                loss = ce(cnn(here, data.batch(chosen)[0]), data.batch(chosen)[1])
                losses.append(float(loss.detach()))
                found = gradients(loss, here)
                sgd.step(w, {name: found[name] - own[i][name] + control[name] for name in found})
            new = {name: own[i][name] - control[name] + (before[name] - w[name]) / (3 * c.lr) for name in w}
            changes.append({name: new[name] - own[i][name] for name in new})
            own[i] = new
            trained.append(w)
            assert_step(unpacked("model", result.upload), w, before, f"upload of {i}")
            assert_equal(unpacked("control", result.upload), changes[-1], f"change of c_{i}")
            assert_equal(result.client_state.control, new, f"c_{i}")
            assert result.loss is not None
            assert_close(result.loss, sum(losses) / len(losses), f"loss of {i}")
        mean = weighted_mean(trained, [1.0] * len(trained))
        model = {name: before[name] + 0.6 * (mean[name] - before[name]) for name in before}
        common = {name: control[name] + sum(change[name] for change in changes) / 4 for name in control}
        assert_step(played.after.model, model, before, f"model after round {played.number}")
        assert_step(played.after.control, common, control, f"c after round {played.number}")


def test_moon(toy: Path) -> None:
    """The contrastive term is computed in every round, also where both frozen models are one and it is log 2."""
    moon = world("moon", toy, mu=2.0, tau=0.3, local_steps=3)
    c, model, previous = moon.config, dict(moon.start.model), dict[int, Params]()
    for played in moon.play((*COHORTS, (0, 2))):
        before, trained = model, dict[int, Params]()
        for i, result in played.results.items():
            last = previous.get(i, before)

            def loss_of(p: Params, x: Tensor, y: Tensor, kept: Params = last, sent: Params = before) -> Tensor:
                z = cnn_features(p, x)
                near, far = (torch.exp(cosine(z, cnn_features(other, x)) / 0.3) for other in (sent, kept))
                return ce(head(p, z), y) - 2.0 * torch.log(near / (near + far)).sum() / len(y)

            data, rng = moon.clients[i], moon.client_rng(played.number, i)
            drawn = drawn_batches(data, c.local_steps, c.batch_size, rng.torch("batches"))
            trained[i], losses = sgd_steps(before, data, drawn, loss_of, Sgd(c.lr, c.momentum, c.weight_decay))
            assert_equal(unpacked("model", played.payloads[i]), before, f"model sent to {i}")
            assert_step(unpacked("model", result.upload), trained[i], before, f"upload of {i}")
            kept = {name: value for name, value in trained[i].items() if not name.startswith("head.")}
            assert_equal(result.client_state.previous, kept, f"kept by {i}")
            assert result.loss is not None
            assert_close(result.loss, sum(losses) / len(losses), f"loss of {i}")
        previous |= trained
        model = by_size(moon, trained)
        assert_step(played.after.model, model, before, f"model after round {played.number}")


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """`a·b / (‖a‖ ‖b‖)` of rows."""
    return (a * b).sum(dim=1) / torch.sqrt((a * a).sum(dim=1) * (b * b).sum(dim=1))
