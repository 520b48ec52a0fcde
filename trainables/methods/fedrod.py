"""FedRoD: one body with two heads, a generic one that is shared and a personal one.

Chen, Chao: On Bridging Generic and Personalized Federated Learning for Image Classification, ICLR 2022.

    z = F(x; θ_i),    u = D(z; φ_i)  generic logits,    v = D(sg[z]; ψ_i)  personal ones,    sg: without gradient
    L_bsm    CE(u + γ log n_i^y, y)                          balanced softmax; classes that client i lacks are left out
    L_p      CE(sg[u] + v, y)
    client   (θ_i, φ_i) ← (θ, φ);  I_c times:  (θ_i, φ_i, ψ_i) ← (θ_i, φ_i, ψ_i) - η ∇ [ L_bsm + L_p ]
    server   (θ, φ) ← Σ_i n_i (θ_i, φ_i) / Σ_i n_i           over the round's clients

    n_i^y   samples of class y that client i holds; they stay with it      γ   gamma      η   lr      I_c   local_steps
    ψ_i     personal head, kept by client i and never sent, at first the initial generic one

The global model answers u, a client's local one u + v. With γ = 0 the generic part is FedAvg's, though not the local
model. The loss that is recorded is L_bsm.

Differs from the paper: the personal head is linear and trained like the rest (the paper also makes it by a
hypernetwork, which is not built; PFLlib, whose conventions DHF's tables follow, has none either). There is no rate of
the personal head's own: it has the η of the rest, as in PFLlib. n_i^y counts all samples; PFLlib counts those of one
pass in whole batches, without what a shuffle leaves for the end. Both losses are minimised in one step, which is the
paper's as neither reaches what the other moves.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import real
from trainables.building_blocks.split_model import HEAD, head_module, head_of
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, LocalTraining, Objective
from trainables.method import Method
from trainables.methods import fedavg
from trainables.models import Model
from trainables.params import pack, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload

#: Prefix of the personal head's parameters in a client's model; all others are named as in the shared model.
PERSONAL = "personal."


@dataclass(frozen=True)
class Config(LocalTraining):
    """Local training and the balancing of the softmax."""

    gamma: float = real(
        1.0,
        low=0.0,
        high=10.0,
        symbol="γ",
        doc="Strength of the balanced softmax; 0 is the plain one.",
        source="FedRoD, balanced risk; its code",
        tune=(0.0, 2.0),
    )


@dataclass(frozen=True)
class ClientState:
    """A client's personal head `ψ_i`, named as the generic one."""

    head: Params


class TwoHeads(nn.Module):
    """A model and a second head beside its own; called, it answers the sum of both heads' logits `(B, C)`."""

    def __init__(self, model: Model, personal: nn.Module) -> None:
        super().__init__()
        # The model's parts are this module's own, so that parameters have the names that they have in the model.
        for name, part in model.named_children():
            self.add_module(name, part)
        self.add_module(PERSONAL.removesuffix("."), personal)
        self._of = (model, personal)  # a tuple, so that no part is registered twice

    def logits(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The generic and the personal logits; of the latter the features have no gradient."""
        model, personal = self._of
        features = model.features(x)
        return model.head(features), personal(features.detach())

    def forward(self, x: Tensor) -> Tensor:
        """`u + v`."""
        generic, own = self.logits(x)
        return generic + own


def client_network(config: Config, fed: Federation, client: int) -> TwoHeads:
    """The module of every client's local model."""
    return fed.cached("FedRoD's heads", lambda: TwoHeads(fed.network(role="two heads"), head_module(fed, "personal")))


def around(model: Model) -> TwoHeads:
    """The module of a client's model around any model."""
    return TwoHeads(model, copy.deepcopy(model.head))


def job(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> LocalJob:
    """Trains the received model and, on its features, the client's own head."""
    own = client_state.head if client_state is not None else head_of(fed.initial_params())
    start = unpack("model", payload) | {PERSONAL + name.removeprefix(HEAD): tensor for name, tensor in own.items()}
    prior = log_prior(config.gamma, data.label_counts()).to(data.device)
    return LocalJob(client_network(config, fed, data.client), start, _shared_and_kept, both_heads, (prior,))


def _shared_and_kept(model: Params, trained: LocalResult) -> ClientResult:
    """Body and generic head are uploaded, the personal head stays."""
    shared = {name: tensor for name, tensor in model.items() if not name.startswith(PERSONAL)}
    own = {HEAD + name.removeprefix(PERSONAL): model[name] for name in model if name not in shared}
    return ClientResult(upload=pack("model", shared), client_state=ClientState(own), model=model, loss=trained.loss)


def log_prior(gamma: float, counts: Tensor) -> Tensor:
    """`γ log n^y` `(C,)` of counts `(C,)`: -∞ for classes without samples, which leaves them out; 0 where γ is 0."""
    if gamma == 0:
        return torch.zeros(counts.shape)
    return gamma * counts.to(torch.get_default_dtype()).log()


def both_heads(prior: Tensor) -> Objective:
    """`L_bsm + L_p` of a `TwoHeads`, with the value of L_bsm."""

    def objective(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        assert isinstance(module, TwoHeads)
        generic, own = module.logits(x)
        personal = F.cross_entropy(generic.detach() + own, y)
        return F.cross_entropy(generic + prior, y) + (personal - personal.detach())

    return objective


METHOD = Method(
    name="fedrod",
    title="FedRoD",
    reference="Chen and Chao, ICLR 2022",
    family="personalised",
    Config=Config,
    State=fedavg.State,
    ClientState=ClientState,
    init=fedavg.init,
    download=fedavg.download,
    job=job,
    server=fedavg.server,
    one_pass=True,
    client_network=client_network,
    around=around,
)
