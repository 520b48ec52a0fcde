"""FedGen, three rounds, as clients are guided from the second on: local training, the average, the generator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainables.methods.replays.actual import (
    Round,
    World,
    assert_adam,
    assert_close,
    assert_equal,
    assert_step,
    client_state,
    unpacked,
    world,
)
from tests.trainables.methods.replays.crossed import noise as noise_of
from tests.trainables.methods.replays.crossed import part
from tests.trainables.methods.replays.networks import CLASSES, features_of, head, learn
from tests.trainables.methods.replays.plain import (
    Adam,
    Params,
    Sgd,
    ce,
    ce_rows,
    drawn_batches,
    drawn_counts,
    gathered,
    kl,
    label_shares,
    pairs,
    sgd_steps,
    weighted_mean,
)
from tests.trainables.methods.replays.test_replay_prototypes import DEEP_AND_NOT, first_models, logits_of

FEDGEN: dict[str, Any] = {
    "gen_alpha": 1.5,
    "gen_beta": 0.8,
    "gen_decay": 0.9,
    "guided_steps": 1,
    "guide_batch_size": 7,
    "kd_temperature": 2.0,
    "gen_steps": 3,
    "gen_lr": 3e-3,
    "gen_lr_decay": 0.8,
    "gen_weight_decay": 1e-3,
    "div_weight": 0.7,
    "noise_dim": 6,
    "gen_hidden": 32,
    "server_batch_size": 12,
}

CASES = {
    "full": {"share": "full", "teacher": "losses", "label_draw": "seen"},
    "head": {
        "share": "head",
        "teacher": "logits",
        "label_draw": "counts",
        "counter_window": "cumulative",
        "diversity_norm": "mean_sq",
        "noise": "uniform",
        "guide_scale": "ratio",
        "gen_decay_from": 1,
    },
    "mixed": {"share": "head", **DEEP_AND_NOT},
}


@pytest.mark.parametrize("case", CASES)
def test_fedgen(case: str, toy: Path) -> None:
    fedgen = world("fedgen", toy, **FEDGEN | CASES[case])
    c, initial = fedgen.config, fedgen.fed.initial_params()
    full = c.share == "full"
    shared = initial if full else part(initial, of_head=True)
    first = first_models(fedgen) if case == "mixed" else dict.fromkeys(range(4), initial)
    bodies = {i: part(model, of_head=False) for i, model in first.items()}
    drawn_so_far: dict[int, list[Tensor]] = {i: [] for i in range(4)}
    generator, p_y = dict(fedgen.start.generator), torch.full((CLASSES,), 1 / CLASSES)
    adam = Adam(c.gen_lr, decay=c.gen_weight_decay)
    # Nobody in round 1 has samples of class 0.
    for played in fedgen.play(((0, 2), (0, 1, 3), (0, 1, 2))):
        uploads, counts = [], []
        for i, result in played.results.items():
            start = shared if full else shared | bodies[i]
            assert_equal(unpacked("model", played.payloads[i]), shared, f"model sent to {i}")
            model, data_loss, drawn = trained(fedgen, played, i, start, generator, p_y)
            drawn_so_far[i] = (drawn_so_far[i] if c.counter_window == "cumulative" else []) + drawn
            sent = model if full else part(model, of_head=True)
            counts.append(drawn_counts(fedgen.clients[i], drawn_so_far[i], CLASSES))
            assert_step(unpacked("model", result.upload), sent, shared, f"upload of {i}")
            assert torch.equal(result.upload["label_counts"], counts[-1])
            assert result.model is not None and result.loss is not None
            assert_step(result.model, model, start, f"model of {i}")
            assert_close(result.loss, data_loss, f"loss of {i}")
            if not full:
                bodies[i] = part(model, of_head=False)
                assert_equal(client_state(result).body, bodies[i], f"extractor kept by {i}")
            uploads.append(sent)
        sizes = [len(fedgen.clients[i].y) for i in played.results]
        before, before_shared = generator, shared
        shared = weighted_mean(uploads, sizes)
        tau, by_counts = label_shares(counts)
        seen = [float(share > 0) for share in by_counts]
        p_y = by_counts if c.label_draw == "counts" else torch.tensor(seen) / sum(seen)
        generator = taught(fedgen, played, uploads, sizes, tau, p_y, generator, adam)
        assert_step(played.after.model, shared, before_shared, f"model after round {played.number}")
        assert_step(played.after.generator, generator, before, f"generator after round {played.number}")
        assert_adam(played.after.adam, adam.kept(), f"Adam after round {played.number}")
        assert_equal({"p(y)": played.after.label_probabilities}, {"p(y)": p_y}, f"p(y) after round {played.number}")


def trained(
    fedgen: World, played: Round, i: int, start: Params, generator: Params, p_y: Tensor
) -> tuple[Params, float, list[Tensor]]:
    """The client's model, the mean cross-entropy on data, and the batches drawn."""
    c, data, rng = fedgen.config, fedgen.clients[i], fedgen.client_rng(played.number, i)
    same, free, labels = (rng.child("guide").torch(name) for name in ("noise", "free noise", "free labels"))
    past = played.number - (1 if c.gen_decay_from == 1 else 0)
    a, b = (weight * c.gen_decay**past for weight in (c.gen_alpha, c.gen_beta))
    if c.guide_scale == "ratio":
        assert c.guide_batch_size != c.batch_size
        a = a * c.guide_batch_size / c.batch_size
    on_data: list[float] = []

    def loss_of(p: Params, x: Tensor, y: Tensor) -> Tensor:
        logits = logits_of(p, x)
        loss = ce(logits, y)
        on_data.append(float(loss.detach()))
        if played.number == 1 or len(on_data) > c.guided_steps:
            return loss
        free_y = torch.multinomial(p_y, c.guide_batch_size, replacement=True, generator=labels)
        guide = head(p, features_of(generator, noise_of(c, len(free_y), free), free_y, False))
        teacher = head(p, features_of(generator, noise_of(c, len(y), same), y, False)).detach()
        return loss + a * ce(guide, free_y) + b * kl(teacher, logits, c.kd_temperature)

    drawn = drawn_batches(data, c.local_steps, c.batch_size, rng.torch("batches"))
    model, _ = sgd_steps(start, data, drawn, loss_of, Sgd(c.lr, c.momentum, c.weight_decay))
    return model, sum(on_data) / len(on_data), drawn


def taught(
    fedgen: World,
    played: Round,
    uploads: list[Params],
    sizes: list[int],
    tau: Tensor,
    p_y: Tensor,
    start: Params,
    adam: Adam,
) -> Params:
    """The generator after its steps; its Adam goes on from round to round, with a learning rate that falls."""
    c, rng, generator = fedgen.config, fedgen.server_rng(played.number), dict(start)
    adam.lr = c.gen_lr * c.gen_lr_decay ** (played.number - 1)
    noise, labels = rng.torch("noise"), rng.torch("labels")
    for _ in range(c.gen_steps):
        z = noise_of(c, c.server_batch_size, noise)
        y = torch.multinomial(p_y, c.server_batch_size, replacement=True, generator=labels)

        def loss_of(here: Params, z: Tensor = z, y: Tensor = y) -> Tensor:
            g = features_of(here, z, y, True)
            logits = [head(d, g) for d in uploads]
            if c.teacher == "losses":
                loss = gathered([ce_rows(u, y).unsqueeze(1) for u in logits], tau[:, y]).sum() / len(y)
            else:
                shares = torch.tensor(sizes, dtype=torch.float32) / sum(sizes)  # handed on in single precision
                loss = ce(sum(share * u for share, u in zip(shares, logits, strict=True)), y)  # type: ignore[arg-type]
            apart = pairs(g, power=1 if c.diversity_norm == "mean_abs" else 2)
            return loss + c.div_weight * torch.exp(-(apart * pairs(z)).sum() / len(y) ** 2)

        learn(generator, adam, loss_of)
    return generator
