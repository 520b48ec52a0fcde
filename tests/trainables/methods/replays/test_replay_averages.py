"""FedAvg, FedProx, q-FFL and FedGKD, three rounds or more: local training, the server's step, T1's cached models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from tests.trainables.methods.replays.actual import (
    Round,
    World,
    assert_close,
    assert_equal,
    assert_step,
    slowed,
    unpacked,
    world,
)
from tests.trainables.methods.replays.networks import cnn
from tests.trainables.methods.replays.plain import Loss, Params, Sgd, ce, drawn_batches, kl, sgd_steps, weighted_mean

COHORTS = ((0, 2, 3), (0, 1, 3), (1, 2, 3))


def steps(played_world: World, played: Round, i: int, start: Params, loss_of: Loss) -> tuple[Params, float]:
    """A client's steps from `start`: the trained model and the mean loss."""
    c, data = played_world.config, played_world.clients[i]
    drawn = drawn_batches(data, c.local_steps, c.batch_size, played_world.client_rng(played.number, i).torch("batches"))
    model, losses = sgd_steps(start, data, drawn, loss_of, Sgd(c.lr, c.momentum, c.weight_decay))
    return model, sum(losses) / len(losses)


def assert_uploads(
    played_world: World, played: Round, model: Params, loss_of: Callable[[Params, Tensor, Tensor], Tensor]
) -> dict[int, Params]:
    """That every client was sent `model` and sent back what the steps make of it; what they make of it."""
    trained = {}
    for i, result in played.results.items():
        assert_equal(unpacked("model", played.payloads[i]), model, f"model sent to {i}")
        trained[i], loss = steps(played_world, played, i, model, loss_of)
        assert_step(unpacked("model", result.upload), trained[i], model, f"upload of {i}")
        assert result.model is not None and result.loss is not None
        assert_equal(result.model, trained[i], f"model of {i}")
        assert_close(result.loss, loss, f"loss of {i}")
    return trained


def by_size(played_world: World, models: dict[int, Params]) -> Params:
    """`Σ_i n_i w_i / Σ_i n_i`."""
    return weighted_mean(list(models.values()), [len(played_world.clients[i].y) for i in models])


def plain_loss(p: Params, x: Tensor, y: Tensor) -> Tensor:
    return ce(cnn(p, x), y)


@pytest.mark.parametrize("cache", ["off", "skip", "w0"])
def test_fedavg(cache: str, toy: Path) -> None:
    values: dict[str, Any] = {} if cache == "off" else {"readout": "oca", "cache_init": cache}
    fedavg = slowed(world("fedavg", toy, local_steps=4, **values), 2, 0.5)
    model = initial = dict(fedavg.start.model)
    latest = dict.fromkeys(range(4), initial) if cache == "w0" else {}
    for played in fedavg.play(((0, 2), (0, 3), (1, 2, 3))):
        before = model
        trained = assert_uploads(fedavg, played, model, plain_loss)
        model = by_size(fedavg, trained)
        latest |= trained
        assert_step(played.after.model, model, before, f"model after round {played.number}")
        shown = fedavg.method.global_model(fedavg.config, fedavg.fed, played.after)
        assert_step(
            shown or {},
            model if cache == "off" else by_size(fedavg, latest),
            before,
            f"global model after round {played.number}",
        )


def test_fedprox(toy: Path) -> None:
    fedprox = world("fedprox", toy, mu=0.8, local_steps=3)
    model = dict(fedprox.start.model)
    for played in fedprox.play(COHORTS):
        before = model

        def loss_of(p: Params, x: Tensor, y: Tensor, anchor: Params = before) -> Tensor:
            return plain_loss(p, x, y) + 0.8 / 2 * sum(((p[name] - anchor[name]) ** 2).sum() for name in p)

        model = by_size(fedprox, assert_uploads(fedprox, played, model, loss_of))
        assert_step(played.after.model, model, before, f"model after round {played.number}")


def test_qffl(toy: Path) -> None:
    """The step as Algorithm 2 prints it, with the gradients Δw_k and the curvatures h_k."""
    q = 0.7
    qffl = world("qffl", toy, q=q)
    lr, model = qffl.config.lr, dict(qffl.start.model)
    for played in qffl.play(COHORTS):
        before = model
        trained = assert_uploads(qffl, played, model, plain_loss)
        moves, curvatures = [], []
        for i, own in trained.items():
            data = qffl.clients[i]
            x, y = data.batch(data.y.argsort(stable=True))
            loss = float(plain_loss(before, x, y))
            assert_close(float(played.results[i].upload["loss"]), loss, f"F of {i}")
            loss += 1e-10
            gradient = {name: (before[name] - own[name]) / lr for name in own}
            squared = sum(float((g**2).sum()) for g in gradient.values())
            moves.append({name: loss**q * g for name, g in gradient.items()})
            curvatures.append(q * loss ** (q - 1) * squared + loss**q / lr)
        model = {name: before[name] - sum(move[name] for move in moves) / sum(curvatures) for name in before}
        assert_step(played.after.model, model, before, f"model after round {played.number}")


@pytest.mark.parametrize(
    ("teacher", "wait", "direction"), [("average", True, "teacher_first"), ("vote", False, "literal")]
)
def test_fedgkd(teacher: str, wait: bool, direction: str, toy: Path) -> None:
    """Two past models teach, from round 3 on or as soon as there is one; the initial model is not among them."""
    fedgkd = world(
        "fedgkd",
        toy,
        gamma=0.9,
        buffer=2,
        teacher=teacher,
        wait_for_buffer=wait,
        kd_temperature=2.0,
        kl_direction=direction,
    )
    model, past = dict(fedgkd.start.model), list[Params]()
    for played in fedgkd.play((*COHORTS, (0, 1, 2))):
        before, teachers = model, past[-2:]

        def loss_of(p: Params, x: Tensor, y: Tensor, teachers: list[Params] = teachers) -> Tensor:
            logits = cnn(p, x)
            if len(teachers) < (2 if wait else 1):
                return ce(logits, y)
            if teacher == "average":
                taught = cnn(weighted_mean(teachers, [1.0] * len(teachers)), x)
            else:
                taught = sum(cnn(one, x) for one in teachers) / len(teachers)  # type: ignore[assignment]
            return ce(logits, y) + 0.9 / 2 * (
                kl(taught, logits, 2.0) if direction == "teacher_first" else kl(logits, taught, 2.0)
            )

        model = by_size(fedgkd, assert_uploads(fedgkd, played, model, loss_of))
        past.append(model)
        assert_step(played.after.model, model, before, f"model after round {played.number}")
