"""FedFTG, two rounds: the base, and the generator's and the student's phases with losses taken per client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainables.methods.replays.actual import Round, World, assert_step, world
from tests.trainables.methods.replays.networks import CLASSES, cnn
from tests.trainables.methods.replays.phases import Batch, Part, alternate, averaged, trained_parts
from tests.trainables.methods.replays.plain import (
    Params,
    ce_rows,
    drawn_counts,
    held_counts,
    kl_rows,
    label_shares,
    pairs,
)
from tests.trainables.methods.replays.test_replay_dfrd import SERVER

CASES: dict[str, dict[str, Any]] = {
    "fedavg": {"base": "fedavg", "kl_norm": "batch"},
    "feddropout": {
        "base": "feddropout",
        "rho": 3,
        "label_weighting": "dynamic",
        "discrepancy": "l1",
        "kl_norm": "classes",
        "kl_direction": "literal",
        "beta_div": 0.6,
        "merge_op": "add",
        "renormalise_synthetic": True,
        "diversity_norm": "mean_abs_images",
        "share_noise": True,
    },
}


@pytest.mark.parametrize("case", CASES)
def test_fedftg(case: str, toy: Path) -> None:
    fedftg = world("fedftg", toy, **SERVER | {"beta_md": 0.8, "beta_div": 1.3} | CASES[case])
    c = fedftg.config
    model, generator = dict(fedftg.start.model), dict(fedftg.start.generator)
    for played in fedftg.play():
        parts = trained_parts(fedftg, played, model, CASES[case]["base"], CASES[case].get("rho", 0))
        static = c.label_weighting == "static"
        counts = {
            i: held_counts(fedftg.clients[i], CLASSES)
            if static
            else drawn_counts(fedftg.clients[i], part.drawn, CLASSES)
            for i, part in parts.items()
        }
        for i, n in counts.items():
            assert torch.equal(played.results[i].upload["label_counts"], n)
        before, before_generator = model, generator
        model, generator = served(fedftg, played, model, generator, parts, list(counts.values()))
        assert_step(played.after.model, model, before, f"model after round {played.number}")
        assert_step(played.after.generator, generator, before_generator, f"generator after round {played.number}")


def served(
    fedftg: World, played: Round, model: Params, generator: Params, parts: dict[int, Part], counts: list[Tensor]
) -> tuple[Params, Params]:
    """θ and w after the server's part of the round."""
    c = fedftg.config
    tau, p_y = label_shares(counts)
    teachers = [part.trained for part in parts.values()]
    divisor = CLASSES if c.kl_norm == "classes" else 1

    def weighted(rows: list[Tensor], y: Tensor) -> Tensor:
        """`Σ_i mean_b τ_(i,y) rows_(i,b)`."""
        return sum((tau[i, y] * row).sum() / len(y) for i, row in enumerate(rows))  # type: ignore[return-value]

    def generator_loss(batch: Batch, w: Params, theta: Params) -> Tensor:
        student, each = cnn(theta, batch.seen), [cnn(teacher, batch.seen) for teacher in teachers]
        if c.discrepancy == "l1":
            apart = [(student - u.detach()).abs().sum(dim=1) / CLASSES for u in each]
        else:
            apart = [kl_rows(student.detach(), u, c.kd_temperature) / divisor for u in each]
        right = weighted([ce_rows(u, batch.y) for u in each], batch.y)
        return right - c.beta_md * weighted(apart, batch.y) + c.beta_div * torch.exp(-apart_in(batch))

    def apart_in(batch: Batch) -> Tensor:
        """`mean_jk d(s_j, s_k) d(z_j, z_k)`."""
        images = pairs(batch.s, power=1 if c.diversity_norm == "mean_abs_images" else 2)
        return (images * pairs(batch.z)).sum() / len(batch.y) ** 2

    def student_loss(batch: Batch, theta: Params) -> Tensor:
        student, each = cnn(theta, batch.seen), [cnn(teacher, batch.seen) for teacher in teachers]
        sides = [(u, student) if c.kl_direction == "teacher_first" else (student, u) for u in each]
        return weighted([kl_rows(a, b, c.kd_temperature) / divisor for a, b in sides], batch.y)

    start = averaged(fedftg, model, parts)
    return alternate(fedftg, start, generator, p_y, fedftg.server_rng(played.number), generator_loss, student_loss)
