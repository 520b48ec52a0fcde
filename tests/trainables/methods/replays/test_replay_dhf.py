"""DHF, two rounds: prototypes, mixed heads, and the global model's training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
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
from tests.trainables.methods.replays.networks import CLASSES, head
from tests.trainables.methods.replays.phases import Batch, alternate
from tests.trainables.methods.replays.plain import (
    Params,
    Sgd,
    ce,
    ce_rows,
    diversity,
    drawn_batches,
    gathered,
    held_counts,
    kl,
    label_shares,
    mean_square,
    sgd_steps,
)
from tests.trainables.methods.replays.test_replay_dfrd import SERVER
from trainables import models

DHF: dict[str, Any] = SERVER | {
    "omega": 0.1,
    "lambda": 1.4,
    "tau": 0.6,
    "lambda_div": 0.8,
    "lambda_eff": 0.7,
    "alpha": 1.3,
    "nu": 0.5,
    "model": "cnn2",
    "deep_model": "cnn3",
    "server_model": "cnn3",
    "batch_size": 20,
}

CASES: dict[str, dict[str, Any]] = {
    "always": {"gme_interval": 1},
    "seldom": {"gme_interval": 2, "diversity_norm": "mean_abs_images", "proto_norm": "l2", "kl_direction": "literal"},
    "last": {"gme_interval": 100, "rounds": 2, "head_mixing": False},
}


@pytest.mark.parametrize("case", CASES)
def test_dhf(case: str, toy: Path) -> None:
    dhf = world("dhf", toy, **DHF | CASES[case])
    c = dhf.config
    # Every second client has the deep model.
    own = {i: initial_model(dhf, "cnn3" if i % 2 else "cnn2") for i in range(4)}
    prototypes, mixed = dict[int, Tensor](), dict[int, Params]()
    model, generator = dict(dhf.start.model), dict(dhf.start.generator)
    # Nobody in round 1 has samples of class 2, which so has no prototype in round 2.
    for played in dhf.play(((2, 3), (0, 1, 3))):
        asked = played.number % c.gme_interval == 0 or (case == "last" and played.number == 2)
        means, heads = dict[int, dict[int, Tensor]](), dict[int, Params]()
        for i, result in played.results.items():
            sent = unpacked("prototype", played.payloads[i])
            assert_equal(sent, by_name(prototypes), f"prototypes sent to {i}")
            assert_equal(unpacked("head", played.payloads[i]), mixed.get(i, {}), f"head sent to {i}")
            start = own[i] | {f"head.{name}": value for name, value in mixed.get(i, {}).items()}
            own[i], means[i] = trained(dhf, played, i, start, prototypes)
            assert_step(client_state(result).model, own[i], start, f"model kept by {i}")
            heads[i] = {name[5:]: value for name, value in own[i].items() if name.startswith("head.")}
            assert_uploaded(dhf, i, result.upload, own[i], means[i], asked)
            assert_equal(unpacked("head", result.upload), heads[i], f"head of {i}", 1e-2)
        prototypes |= merged(dhf, means)
        if c.head_mixing:
            mixed |= mixed_heads(dhf, means, heads)
        valid = played.after.valid.nonzero().flatten().tolist()
        assert_equal(by_name({j: played.after.prototypes[j] for j in valid}), by_name(prototypes), "prototypes", 1e-2)
        assert played.after.heads.keys() == mixed.keys()
        for i, value in mixed.items():
            assert_equal(played.after.heads[i], value, f"mixed head of {i}", 1e-2)
        if asked:
            before, before_generator = model, generator
            model, generator = enhanced(dhf, played, [own[i] for i in played.results], generator, model, prototypes)
            assert_step(played.after.model, model, before, f"ω after round {played.number}")
            assert_step(played.after.generator, generator, before_generator, f"generator after round {played.number}")
        assert_equal(dhf.method.global_model(c, dhf.fed, played.after) or {}, model, "global model")


def by_name(prototypes: dict[int, Tensor]) -> Params:
    """Prototypes under the names of a payload."""
    return {str(j): value for j, value in prototypes.items()}


def assert_uploaded(dhf: World, i: int, upload: Params, model: Params, means: dict[int, Tensor], asked: bool) -> None:
    """That a client uploaded its prototypes, the counts of the classes it holds and, where asked, all but the head."""
    assert_equal(unpacked("prototype", upload), by_name(means), f"prototypes of {i}", 1e-2)
    counts = held_counts(dhf.clients[i], CLASSES)
    assert {int(j): int(n) for j, n in unpacked("count", upload).items()} == {j: int(counts[j]) for j in means}
    rest = {name: value for name, value in model.items() if not name.startswith("head.")}
    assert_equal(unpacked("model", upload), rest if asked else {}, f"rest of {i}", 1e-2)


def initial_model(dhf: World, name: str) -> Params:
    """First weights, the same on every client of one architecture."""
    module = dhf.fed.cached(("the replay's own", name), lambda: models.build(name, dhf.fed.shape, dhf.fed.classes))
    models.initialise(module, dhf.fed.rng.torch("init"))
    return {key: value.detach().clone() for key, value in module.named_parameters()}


def features(p: Params, x: Tensor) -> Tensor:
    """cnn2 (two convolutions 5×5) and cnn3 (three 3×3) on 8×8 images: ReLU, max-pool 2, at the end linear 512, ReLU."""
    i = 0
    while f"convs.{i}.weight" in p:
        x = torch.relu(F.conv2d(x, p[f"convs.{i}.weight"], p[f"convs.{i}.bias"], padding="same"))
        x = F.max_pool2d(x, 2) if min(x.shape[2:]) >= 2 else x
        i += 1
    return torch.relu(x.flatten(1) @ p["fc.weight"].t() + p["fc.bias"])


def trained(
    dhf: World, played: Round, i: int, start: Params, prototypes: dict[int, Tensor]
) -> tuple[Params, dict[int, Tensor]]:
    """Eqs. (5), (6): the client's model after one pass over its data, and its prototypes."""
    c, data = dhf.config, dhf.clients[i]

    def loss_of(p: Params, x: Tensor, y: Tensor) -> Tensor:
        found = features(p, x)
        rows = []
        for row, label in zip(found, y.tolist(), strict=True):
            if label in prototypes:
                apart = ((row - prototypes[label]) ** 2).sum()
                rows.append(torch.sqrt(apart) if c.proto_norm == "l2" else apart / len(row))
        near = sum(rows) / len(y) if rows else torch.zeros(())
        return ce(head(p, found), y) + c.lambda_ * near

    batch = min(c.batch_size, len(data.y))
    drawn = drawn_batches(data, len(data.y) // batch, batch, dhf.client_rng(played.number, i).torch("batches"))
    model, losses = sgd_steps(start, data, drawn, loss_of, Sgd(c.lr, c.momentum, c.weight_decay))
    assert_close(played.results[i].loss or 0.0, sum(losses) / len(losses), f"loss of {i}")
    found = features(model, data.batch(torch.arange(len(data.y)))[0])
    return model, {
        j: (found[data.y == j].sum(dim=0) / int((data.y == j).sum()))
        for j in range(CLASSES)
        if int((data.y == j).sum())
    }


def counts_of(dhf: World, clients: list[int]) -> list[Tensor]:
    """|D_k^j|."""
    return [held_counts(dhf.clients[i], CLASSES) for i in clients]


def merged(dhf: World, means: dict[int, dict[int, Tensor]]) -> dict[int, Tensor]:
    """Eq. (7) for the classes that somebody reports."""
    counts = {i: held_counts(dhf.clients[i], CLASSES) for i in means}
    found = {}
    for j in range(CLASSES):
        holders = [i for i in means if j in means[i]]
        if holders:
            found[j] = sum(int(counts[i][j]) * means[i][j] for i in holders) / sum(int(counts[i][j]) for i in holders)
    return found  # type: ignore[return-value]


def mixed_heads(dhf: World, means: dict[int, dict[int, Tensor]], heads: dict[int, Params]) -> dict[int, Params]:
    """Eqs. (8)-(10)."""
    mixed = {}
    for k, own in means.items():
        counts = held_counts(dhf.clients[k], CLASSES)
        losses = []
        for other in heads.values():
            rows = {
                j: ce_rows((mean @ other["weight"].t() + other["bias"])[None], torch.tensor([j]))
                for j, mean in own.items()
            }
            losses.append(sum(int(counts[j]) / int(counts.sum()) * float(row) for j, row in rows.items()))
        powers = [float(torch.exp(torch.tensor(-dhf.config.tau * loss))) for loss in losses]
        mixed[k] = {
            name: sum(power / sum(powers) * h[name] for power, h in zip(powers, heads.values(), strict=True))
            for name in ("weight", "bias")
        }
    return mixed  # type: ignore[return-value]


def enhanced(
    dhf: World, played: Round, teachers: list[Params], generator: Params, model: Params, prototypes: dict[int, Tensor]
) -> tuple[Params, Params]:
    """Eqs. (11)-(16): ω and the generator's weights. Labels are uniform over classes that the round's clients hold."""
    c = dhf.config
    counts = counts_of(dhf, list(played.results))
    tau, shares = label_shares(counts)
    p_y = (shares > 0).double() / int((shares > 0).sum())
    table = torch.stack([prototypes.get(j, torch.zeros(512)) for j in range(CLASSES)])

    def ensembles(batch: Batch) -> tuple[Tensor, Tensor]:
        each = [features(teacher, batch.seen) for teacher in teachers]
        logits = [head(teacher, v) for teacher, v in zip(teachers, each, strict=True)]
        return gathered(each, tau[:, batch.y]), gathered(logits, tau[:, batch.y])

    def generator_loss(batch: Batch, w: Params, theta: Params) -> Tensor:
        v_t, u_t = ensembles(batch)
        v_s = features(theta, batch.seen).detach()
        u_s = head(theta, v_s)
        l_trans = -kl(u_s, u_t, c.kd_temperature) - mean_square(v_s, v_t)
        apart = diversity(batch.s, batch.z, 1 if c.diversity_norm == "mean_abs_images" else 2)
        return mean_square(v_t, table[batch.y]) + c.lambda_div * apart + c.lambda_eff * l_trans

    def student_loss(batch: Batch, theta: Params) -> Tensor:
        (v_t, u_t), v_s = ensembles(batch), features(theta, batch.seen)
        pair = (u_t, head(theta, v_s)) if c.kl_direction == "teacher_first" else (head(theta, v_s), u_t)
        return kl(*pair, c.kd_temperature) + c.alpha * mean_square(v_s, v_t)

    return alternate(dhf, model, generator, p_y, dhf.server_rng(played.number), generator_loss, student_loss)
