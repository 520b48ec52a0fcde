"""DENSE, two rounds: the clients' batch statistics, the base (or none), the generator's and the student's phases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainables.methods.replays.actual import (
    Round,
    World,
    assert_equal,
    assert_step,
    client_state,
    unpacked,
    world,
)
from tests.trainables.methods.replays.networks import CLASSES, cnn, cnn_features, head, statistics
from tests.trainables.methods.replays.phases import Batch, alternate, averaged, trained_parts
from tests.trainables.methods.replays.plain import Params, ce, kl, kl_rows
from tests.trainables.methods.replays.submodels import width
from tests.trainables.methods.replays.test_replay_dfrd import SERVER

CASES: dict[str, dict[str, Any]] = {
    "fedrolex": {"base": "fedrolex", "rho": 3, "merge_op": "none", "squared_temperature": True, "kd_temperature": 3.0},
    "none": {"base": "none", "rho": 1, "merge_op": "ncat", "bn_norm": "mean", "renormalise_synthetic": True},
    "dfdg": {"base": "heterofl", "rho": 3, "adversarial": "dfdg", "share_noise": True},
}


@pytest.mark.parametrize("case", CASES)
def test_dense(case: str, toy: Path) -> None:
    dense = world("dense", toy, **SERVER | {"beta_bn": 0.8, "beta_adv": 1.3, "bn_momentum": 0.3} | CASES[case])
    c, base, rho = dense.config, CASES[case]["base"], CASES[case]["rho"]
    model, generator = dict(dense.start.model), dict(dense.start.generator)
    own: dict[int, Params] = {}
    for played in dense.play():
        sent = base != "none" or played.number == 1
        # In data-free mode a client that joins late is sent nothing and draws its own weights.
        for i in set(played.results) - set(own):
            own[i] = dense.fed.initial_params("late", i, width=width(i, 4, rho))
        reported: dict[int, dict[str, Tensor]] = {i: {} for i in played.results}

        def watch(i: int, entering: list[Tensor], reported: dict[int, dict[str, Tensor]] = reported) -> None:
            for name, now in measured(entering).items():
                reported[i][name] = (
                    c.bn_momentum * reported[i][name] + (1 - c.bn_momentum) * now if name in reported[i] else now
                )

        parts = trained_parts(dense, played, model, base, rho, None if sent else own, watch)
        for i, part in parts.items():
            assert_equal(unpacked("statistics", played.results[i].upload), reported[i], f"statistics of {i}")
            if base == "none":
                assert_equal(client_state(played.results[i]).model, part.trained, f"model kept by {i}")
            own[i] = part.trained
        before, before_generator = model, generator
        start = model if base == "none" else averaged(dense, model, parts)
        model, generator = served(
            dense, played, start, generator, [part.trained for part in parts.values()], list(reported.values())
        )
        assert_step(played.after.model, model, before, f"model after round {played.number}")
        assert_step(played.after.generator, generator, before_generator, f"generator after round {played.number}")


def served(
    dense: World, played: Round, start: Params, generator: Params, teachers: list[Params], reported: list[Params]
) -> tuple[Params, Params]:
    """θ and w after the alternations that begin at `start`."""
    c = dense.config
    factor = c.kd_temperature**2 if c.squared_temperature else 1.0
    selected: list[int] = []

    def mean_of(logits: list[Tensor]) -> Tensor:
        return sum(logits) / len(logits)  # type: ignore[return-value]

    def generator_loss(batch: Batch, w: Params, theta: Params) -> Tensor:
        logits, distances = [], []
        for teacher, own in zip(teachers, reported, strict=True):
            entering: list[Tensor] = []
            logits.append(head(teacher, cnn_features(teacher, batch.seen, 1.0, entering)))
            apart = [((value - own[name]) ** 2).sum().sqrt() for name, value in measured(entering).items()]
            distances.append(sum(apart) / (3 if c.bn_norm == "mean" else 1))
        u_t, u_s = mean_of(logits), cnn(theta, batch.seen)
        if c.adversarial == "dfdg":
            counted = (u_t.argmax(dim=1) == batch.y) ^ (u_s.argmax(dim=1) == batch.y)
            selected.append(int(counted.sum()))
            rows, divisor = kl_rows(u_s.detach(), u_t, c.kd_temperature), max(1, selected[-1])
        else:
            counted, divisor = u_t.argmax(dim=1) != u_s.argmax(dim=1), len(batch.y)
            rows = kl_rows(u_t, u_s, c.kd_temperature)
        l_adv = -(counted * rows).sum() / divisor * factor
        return ce(u_t, batch.y) + c.beta_bn * mean_of(distances) + c.beta_adv * l_adv

    def student_loss(batch: Batch, theta: Params) -> Tensor:
        u_t = mean_of([cnn(teacher, batch.seen) for teacher in teachers])
        return factor * kl(u_t, cnn(theta, batch.seen), c.kd_temperature)

    uniform = torch.full((CLASSES,), 1 / CLASSES)
    done = alternate(dense, start, generator, uniform, dense.server_rng(played.number), generator_loss, student_loss)
    assert c.adversarial != "dfdg" or any(1 < n < c.server_batch_size for n in selected), "ε does not select"
    return done


def measured(entering: list[Tensor]) -> dict[str, Tensor]:
    """Mean and population variance per channel of what enters each layer."""
    found = {}
    for layer, x in enumerate(entering):
        found[f"norms.{layer}.mean"], found[f"norms.{layer}.var"] = statistics(x)
    return found
