"""What FedMD-CG and FedCG have in common, as plain loops: the server's distillation, and the G+D loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tests.trainables.methods.replays.networks import features_of, head, learn
from tests.trainables.methods.replays.plain import Adam, Params, ce, gathered, kl, kl_rows, weighted_mean
from trainables.rng import Rng


def part(params: Mapping[str, Tensor], of_head: bool) -> Params:
    """A model's classifier D, or its extractor F."""
    return {name: value for name, value in params.items() if name.startswith("head.") is of_head}


def noise(config: Any, samples: int, random: torch.Generator) -> Tensor:
    """z of the configured distribution."""
    return (torch.randn if config.noise == "normal" else torch.rand)(samples, config.noise_dim, generator=random)


def aggregated(
    config: Any,
    generators: Sequence[Params],
    heads: Sequence[Params],
    sizes: Sequence[int],
    tau: Tensor,
    p_y: Tensor,
    rng: Rng,
) -> tuple[Params, Params]:
    """[G, D]: the averages by n_i, then `server_agg`. One pass of G per step; the G_i are in evaluation mode."""
    average = weighted_mean(generators, sizes) | weighted_mean(heads, sizes)
    if config.server_agg in ("kd", "kdc"):
        adam, temperature = Adam(config.server_lr, decay=config.gen_weight_decay), config.kd_temperature_server
        samples = config.server_steps * config.server_batch_size
        zs = noise(config, samples, rng.torch("noise")).split(config.server_batch_size)
        ys = torch.multinomial(p_y, samples, replacement=True, generator=rng.torch("labels")).split(
            config.server_batch_size
        )
        for z, y in zip(zs, ys, strict=True):
            made = [features_of(g, z, y, False) for g in generators]
            rho = [head(d, g) for d, g in zip(heads, made, strict=True)]

            def loss_of(
                here: Params, z: Tensor = z, y: Tensor = y, made: list[Tensor] = made, rho: list[Tensor] = rho
            ) -> Tensor:
                own = features_of(here, z, y, True)
                if config.server_agg == "kd":
                    shares = torch.tensor(sizes, dtype=torch.float32) / sum(sizes)  # handed on in single precision
                    loss = kl(
                        sum(share * r for share, r in zip(shares, rho, strict=True)), head(here, own), temperature
                    )  # type: ignore[arg-type]
                else:
                    first = [kl_rows(r, head(here, own), temperature) for r in rho]
                    second = [kl_rows(r, head(here, g), temperature) for r, g in zip(rho, made, strict=True)]
                    third = [kl_rows(r, head(d, own), temperature) for r, d in zip(rho, heads, strict=True)]
                    rows = [(a + b + c).unsqueeze(1) for a, b, c in zip(first, second, third, strict=True)]
                    loss = gathered(rows, tau[:, y]).sum() / len(y)
                return loss / tau.shape[1] if config.server_kl_norm == "element" else loss

            learn(average, adam, loss_of)
    return part(average, of_head=False), part(average, of_head=True)


def agreement(config: Any, generator: Params, classifier: Params, y: Tensor, random: torch.Generator) -> float:
    """`CE(D_i(G_i(z, y)), y)` on 256 of a client's labels, G_i in evaluation mode."""
    labels = y[torch.randint(len(y), (256,), generator=random)]
    made = features_of(generator, noise(config, 256, random), labels, False)
    return float(ce(head(classifier, made), labels))
