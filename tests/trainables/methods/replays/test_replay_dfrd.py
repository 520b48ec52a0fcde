"""DFRD, two rounds: local training, the base, the generator's and the student's phases, and the moving average."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainables.methods.replays.actual import Round, World, assert_equal, assert_step, world
from tests.trainables.methods.replays.networks import CLASSES, cnn
from tests.trainables.methods.replays.phases import Batch, Draws, Part, alternate, averaged, made, trained_parts
from tests.trainables.methods.replays.plain import (
    Params,
    ce,
    diversity,
    drawn_counts,
    gathered,
    held_counts,
    kl,
    kl_rows,
    label_shares,
)

SERVER: dict[str, Any] = {
    "server_iters": 2,
    "gen_steps": 2,
    "distill_steps": 2,
    "server_batch_size": 10,
    "noise_dim": 8,
    "gen_lr": 5e-3,
    "kd_temperature": 2.0,
    "distill_lr": 0.05,
    "distill_momentum": 0.5,
    "distill_weight_decay": 1e-3,
}
DFRD: dict[str, Any] = SERVER | {"alpha": 0.7, "lambda": 0.6, "beta_tran": 0.8, "beta_div": 1.3, "use_ema": True}

CASES = {
    "fedavg": {"base": "fedavg", "label_weighting": "dynamic"},
    "fedrolex": {
        "base": "fedrolex",
        "rho": 3,
        "label_weighting": "static",
        "label_smoothing_count": 1,
        "transferability": "disagree",
        "beta_div": 0.6,
        "merge_op": "cat",
        "ema_update": "before_distillation",
        "renormalise_synthetic": True,
    },
    "heterofl": {
        "base": "heterofl",
        "rho": 3,
        "transferability": "all",
        "tran_grad": "both",
        "diversity_norm": "mean_abs_images",
        "beta_ey": 0.5,
        "embed_norm_scale": 0.5,
        "resample_noise": False,
        "reset_optim_each_phase": True,
    },
}


@pytest.mark.parametrize("case", CASES)
def test_dfrd(case: str, toy: Path) -> None:
    dfrd = world("dfrd", toy, **DFRD | CASES[case])
    model, generator = dict(dfrd.start.model), dict(dfrd.start.generator)
    average = dict(generator)
    for played in dfrd.play():
        parts = trained_parts(dfrd, played, model, CASES[case]["base"], CASES[case].get("rho", 0))
        counts = {i: counted(dfrd, i, part) for i, part in parts.items()}
        for i, n in counts.items():
            assert torch.equal(played.results[i].upload["label_counts"], n)
        before = {"model": model, "generator": generator, "ema": average}
        model, generator, average = served(dfrd, played, model, generator, average, parts, list(counts.values()))
        for name, value in {"model": model, "generator": generator, "ema": average}.items():
            assert_step(getattr(played.after, name), value, before[name], f"{name} after round {played.number}")
        shown = dfrd.method.global_model(dfrd.config, dfrd.fed, played.after)
        assert shown is not None
        assert_equal(shown, model, "global model")


def counted(dfrd: World, client: int, part: Part) -> Tensor:
    """n_i^y."""
    data = dfrd.clients[client]
    counts = (
        held_counts(data, CLASSES)
        if dfrd.config.label_weighting == "static"
        else drawn_counts(data, part.drawn, CLASSES)
    )
    return counts + dfrd.config.label_smoothing_count


def served(
    dfrd: World,
    played: Round,
    model: Params,
    generator: Params,
    average: Params,
    parts: dict[int, Part],
    counts: list[Tensor],
) -> tuple[Params, Params, Params]:
    """θ, w and w̃ after the server's part of the round."""
    c, rng = dfrd.config, dfrd.server_rng(played.number)
    tau, p_y = label_shares(counts)
    teachers = [part.trained for part in parts.values()]
    for_average = Draws(c, p_y, rng, "ema")
    selected = []

    def ensemble(batch: Batch) -> Tensor:
        return gathered([cnn(teacher, batch.seen) for teacher in teachers], tau[:, batch.y])

    def generator_loss(batch: Batch, w: Params, theta: Params) -> Tensor:
        u_t, u_s = ensemble(batch), cnn(theta, batch.seen)  # θ itself is not moved here
        epsilon = torch.tensor(
            [float(transferred(c.transferability, t, s, y)) for t, s, y in zip(u_t, u_s, batch.y, strict=True)]
        )
        selected.append(float(epsilon.sum()))
        transfer = -(
            epsilon * kl_rows(u_s if c.tran_grad == "both" else u_s.detach(), u_t, c.kd_temperature)
        ).sum() / len(epsilon)
        loss = ce(u_t, batch.y) + c.beta_tran * transfer
        loss = loss + c.beta_div * diversity(batch.s, batch.h, 1 if c.diversity_norm == "mean_abs_images" else 2)
        if c.beta_ey > 0:
            lengths = torch.sqrt((w["embedding.weight"][batch.y] ** 2).sum(dim=1))
            loss = loss + c.beta_ey * torch.relu(lengths - c.embed_norm_scale * c.noise_dim**0.5).sum() / len(lengths)
        return loss

    def student_loss(batch: Batch, theta: Params) -> Tensor:
        averaged_images = made(dfrd, averages[-1], for_average.next(), False)
        return distilled(batch, theta) + c.alpha * distilled(averaged_images, theta)

    def distilled(batch: Batch, theta: Params) -> Tensor:
        return kl(ensemble(batch), cnn(theta, batch.seen), c.kd_temperature)

    def between(iteration: int, w: Params) -> None:
        for_average.phase()
        if iteration == 0 and c.ema_update == "before_distillation":
            averages.append(moved(average, w, c.lambda_))

    averages = [average]
    theta, w = alternate(dfrd, averaged(dfrd, model, parts), generator, p_y, rng, generator_loss, student_loss, between)
    assert sum(selected) > 0, "no sample counts in L_tran"
    return theta, w, averages[-1] if c.ema_update == "before_distillation" else moved(average, w, c.lambda_)


def transferred(rule: str, u_t: Tensor, u_s: Tensor, y: Tensor) -> bool:
    """ε of one sample."""
    teacher, student = int(u_t.argmax()), int(u_s.argmax())
    return {"all": True, "disagree": student != teacher, "targeted": teacher == int(y) and student != int(y)}[rule]


def moved(old: Params, new: Params, momentum: float) -> Params:
    """`w̃ ← λ w̃ + (1-λ) w`, integers of the new one."""
    return {
        name: momentum * old[name] + (1 - momentum) * value if value.is_floating_point() else value
        for name, value in new.items()
    }
