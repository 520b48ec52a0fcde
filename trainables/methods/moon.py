"""MOON: model-contrastive federated learning.

Li, He, Song: Model-Contrastive Federated Learning, CVPR 2021, Algorithm 1.

    z, z_g, z_p   F(x; w_i),  F(x; w),  F(x; w_i^prev)       features of the current, the received, the previous model
    ℓ_con    -log [ e^(sim(z, z_g)/τ) / (e^(sim(z, z_g)/τ) + e^(sim(z, z_p)/τ)) ]        sim: the cosine
    client   w_i ← w;  I_c times:  w_i ← w_i - η ∇ [ CE(f(x; w_i), y) + μ ℓ_con ];      w_i^prev ← w_i
    server   w ← Σ_i n_i w_i / Σ_i n_i                       over the round's clients

    w_i^prev   what client i trained in its last round, kept by it; w before its first      μ   mu      τ   tau
    η   lr      I_c   local_steps

ℓ_con is a mean over the batch. In a client's first round it is log 2 and moves nothing: it is counted, not computed.

Differs from the paper: features are those that the classifier reads (as in PFLlib; the paper adds a projection of two
layers to the network). A client that is first drawn late has nothing to be held off; in PFLlib that is the initial
model. Frozen models are in evaluation mode, which matters with running statistics only. μ is 1, the default of the
authors' code and their best on CIFAR-100 and Tiny-ImageNet; on CIFAR-10 their best is 5, which the space `partition`
takes for it. PFLlib leaves μ at 0, and τ at 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from search_spaces.parameter import real
from trainables.building_blocks.model_cache import ModelCache, caching, oca_limit
from trainables.building_blocks.split_model import body_module, body_of
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, Objective
from trainables.method import Limit, Method
from trainables.methods import fedavg
from trainables.models import Model
from trainables.params import unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload


@dataclass(frozen=True)
class Config(ModelCache):
    """Local training and the contrastive term."""

    mu: float = real(
        1.0,
        low=0.0,
        high=1000.0,
        log=True,
        symbol="μ",
        doc="Weight of the contrastive loss.",
        source="MOON Eq. 4, Sec. 4.1",
        tune=(0.1, 10.0),
    )
    tau: float = real(
        0.5,
        low=1e-3,
        high=100.0,
        log=True,
        symbol="τ",
        doc="Temperature of the contrastive loss.",
        source="MOON Eq. 3, Sec. 4.1",
        tune=(0.1, 2.0),
    )


@dataclass(frozen=True)
class ClientState:
    """The extractor of the model that the client trained last, `w_i^prev`."""

    previous: Params


def job(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> LocalJob:
    """Trains the received model, its features drawn to the received model's and off the previous one's."""
    module, received = fed.network(), unpack("model", payload)
    if config.mu == 0:
        return LocalJob(module, received, fedavg.returned)
    if client_state is None:
        return LocalJob(module, received, _returned_and_kept, partial(uncontrasted_cross_entropy, config))
    frozen = body_module(fed, "frozen").eval()
    objective = partial(contrasting_cross_entropy, config, frozen)
    return LocalJob(module, received, _returned_and_kept, objective, (body_of(received), client_state.previous))


def _returned_and_kept(model: Params, trained: LocalResult) -> ClientResult:
    return replace(fedavg.returned(model, trained), client_state=ClientState(body_of(model)))


def uncontrasted_cross_entropy(config: Config) -> Objective:
    """`CE + μ ℓ_con` where both frozen models are one, whatever it is."""

    def objective(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(module(x), y) + config.mu * math.log(2)

    return objective


def contrasting_cross_entropy(config: Config, frozen: nn.Module, received: Params, previous: Params) -> Objective:
    """`CE + μ ℓ_con` of a model; `frozen` gives the features of the two extractors' parameters."""

    def objective(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        assert isinstance(module, Model)
        features = module.features(x)
        with torch.no_grad():
            z_g, z_p = (functional_call(frozen, extractor, (x,)) for extractor in (received, previous))
        loss = F.cross_entropy(module.head(features), y)
        return loss + config.mu * contrastive_loss(features, z_g, z_p, config.tau)

    return objective


def contrastive_loss(z: Tensor, z_g: Tensor, z_p: Tensor, tau: float) -> Tensor:
    """ℓ_con, Eq. (3): the mean over a batch of features `(B, p)`."""
    similar = torch.stack([F.cosine_similarity(z, other, dim=1) for other in (z_g, z_p)], dim=1) / tau
    return -F.log_softmax(similar, dim=1)[:, 0].mean()


METHOD = caching(
    Method(
        name="moon",
        title="MOON",
        reference="Li et al., CVPR 2021",
        family="one global model",
        Config=Config,
        State=fedavg.State,
        ClientState=ClientState,
        init=fedavg.init,
        download=fedavg.download,
        job=job,
        server=fedavg.server,
        one_pass=True,
        limits=(
            Limit({"mu": 0}, equals="fedavg"),
            oca_limit({"mu": 0}),
        ),
    )
)
