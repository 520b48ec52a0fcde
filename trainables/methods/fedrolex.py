"""FedRolex: rolling extraction of width-scaled sub-models.

Alam, Liu, Yan, Zhang: FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model Extraction,
NeurIPS 2022.

    K_i,t     k = ⌈R_i n⌉ consecutive channels of every layer from offset t-1 (roll = forward) or 1-t (backward),
              wrapping around
    client    θ_i ← θ[K_i,t];  I_c times:  θ_i ← θ_i - η ∇ CE(f(x; θ_i), y)      outputs of convolutions times 1/R_i
    server    θ[l,k] ← Σ_(i: k ∈ K_i,t) p_i θ_i[l,k] / Σ_(i: k ∈ K_i,t) p_i   DFRD Eq. (1); kept where no client held it

    R_i   width budget (1/2)^min(σ, ⌊ρ i/N⌋)      p_i   n_i (agg_weight = samples) or 1
    n     channels of the layer                    t     round, from 1

Differs from the paper: no overlap option and no periodic shuffling of channels; models are evaluated with the
statistics of the batch, as said of HeteroFL. The window moves forward as in the paper, while its code moves it backward
(roll). For clients of one width the two are the same up to the names of channels. For unequal widths they are not: all
windows of a round begin at one channel, which forward leaves every window in the next round, and backward stays in all
that are wider than one channel. As a base of DFRD, FedFTG and DENSE the window moves forward.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from search_spaces.parameter import choice
from trainables.building_blocks.partial_training import PartialTraining, partial_training
from trainables.building_blocks.submodels import Channels, choose
from trainables.federation import Federation


@dataclass(frozen=True)
class Config(PartialTraining):
    """The direction of the window, on top of what every width-based method has."""

    roll: str = choice(
        "forward",
        ("forward", "backward"),
        doc="Where the window of channels moves from round to round: the paper's direction, or its code's.",
        source="FedRolex Sec. 3; FedRolex code",
    )


def channels(fed: Federation, round_: int, client: int, roll: str = "forward") -> Channels:
    """K_i,t: k consecutive ones of each group's n channels. The window starts at t-1 (backward: at 1-t) in round
    t = 1, 2, … and wraps around."""
    offset = round_ - 1 if roll == "forward" else 1 - round_

    def rolling(group: str, n: int, k: int) -> Tensor:
        return (torch.arange(k) + offset) % n

    return choose(fed, client, rolling)


METHOD = partial_training(
    "fedrolex",
    "FedRolex",
    "Alam et al., NeurIPS 2022",
    lambda config, fed, round_, client: channels(fed, round_, client, config.roll),
    Config,
)
