"""FedTGP: trainable global prototypes with adaptive-margin-enhanced contrastive learning.

Zhang, Liu, Hua, Cao: FedTGP: Trainable Global Prototypes with Adaptive-Margin-Enhanced Contrastive Learning for Data
and Model Heterogeneity in Federated Learning, AAAI 2024.

    client   as FedProto's, with T^j in place of C̄^j
    server   T^j = F(e^j),   F: p → p → ReLU → p
             E_s times, over all C_i^j of the round in random order, batches of B_s: SGD of e and F at rate η_s on
             - log [ exp(-(‖C_i^j - T^j‖ + δ)) / ( exp(-(‖C_i^j - T^j‖ + δ)) + Σ_(j'≠j) exp(-‖C_i^j - T^j'‖) ) ]
    δ        min( max_j min_(j'≠j) ‖C̄^j - C̄^j'‖, m ),   C̄^j the plain mean of the round's prototypes of class j
    predict  argmin_j ‖φ_i(x) - T^j‖; before round 2, by the client's own C_i^j

    e^j   trained vector of class j, from N(0, I)   m    margin_cap       E_s   server_epochs       η_s   server_lr
    λ     lambda, of FedProto's client              B_s  server_batch_size

Prototypes go up, those of all classes come down; there is no global model. Clients may have two architectures, see
`trainables.building_blocks.mixed_architectures`.

Differs from the paper: δ is m where the round's clients hold one class alone, as in the authors' code. HtFLlib's
prototypes are of the model as it was before the round's training, because the trained one is saved only afterwards, and
leave the last incomplete batch out; here they are of the trained model and all samples. Its server_lr is lr.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import other_default, real
from trainables import models
from trainables.building_blocks import mixed_architectures as mixed
from trainables.building_blocks import prototypes
from trainables.building_blocks.prototypes import PrototypePasses, labelled, learn
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob
from trainables.method import Limit, Method, no_global_model
from trainables.methods import fedproto
from trainables.methods.fedproto import ClientState, PrototypeTraining
from trainables.params import put, take
from trainables.rng import Rng, normal_
from trainables.wire import Params, Payload, Upload


@dataclass(frozen=True)
class Config(PrototypePasses, PrototypeTraining):
    """FedProto's client, and the training of the prototypes."""

    lambda_: float = other_default(PrototypeTraining, "lambda_", 10.0, source="FedTGP code", tune=(0.1, 100))
    margin_cap: float = real(
        100.0,
        low=0.0,
        high=1e6,
        log=True,
        symbol="m",
        doc="The most that a prototype's own class is moved away by.",
        source="FedTGP code",
        tune=(1.0, 1000.0),
    )


@dataclass(frozen=True)
class State:
    """After `round` rounds: what prototypes are made of (e and F), and the prototypes T `(p,)` by class, none before
    round 2."""

    round: int
    network: Params
    prototypes: dict[int, Tensor]


class TrainablePrototypes(nn.Module):
    """T^j = F(e^j) of all classes."""

    def __init__(self, classes: int, width: int) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(classes, width)
        self.layers = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self) -> Tensor:
        """`(C, p)`."""
        made: Tensor = self.layers(self.embeddings.weight)
        return made


def _network(fed: Federation) -> TrainablePrototypes:
    width = fed.network().feature_width
    return fed.cached(("trainable prototypes",), lambda: TrainablePrototypes(fed.classes, width))


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """Draws e and F; no prototype is sent yet."""
    module, generator = _network(fed), fed.rng.torch("init", "prototypes")
    normal_(module.embeddings.weight, 0.0, 1.0, generator)
    models.initialise(module.layers, generator)
    return State(0, take(module), {})


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """The prototypes of all classes, once they have been trained."""
    return {f"prototype/{j}": prototype for j, prototype in state.prototypes.items()}


def job(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> LocalJob:
    """FedProto's job; no counts are sent."""
    return fedproto.training(config, fed, payload, client_state, data, counted=False)


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """Trains the prototypes to be near those of the round's clients of their class, and far from the others."""
    module = _network(fed)
    put(module, state.network)
    rows, labels = labelled([u.payload for u in uploads], fed)
    margin = adaptive_margin(_means(uploads), config.margin_cap)

    def loss_of(rows: Tensor, labels: Tensor) -> Tensor:
        return contrastive_loss(rows, labels, module(), margin)

    learn(config, rows, labels, module, loss_of, fed, rng)
    with torch.no_grad():
        made = module()
    return State(state.round + 1, take(module), {j: made[j].clone() for j in range(fed.classes)})


def _means(uploads: Sequence[Upload]) -> Tensor:
    """C̄ `(classes held, p)`."""
    reports = [prototypes.by_class("prototype", u.payload) for u in uploads]
    return torch.stack(list(prototypes.pooled((own, dict.fromkeys(own, 1.0)) for own in reports).values()))


def distances(rows: Tensor, others: Tensor) -> Tensor:
    """Euclidean distances `(n, m)` of rows `(n, p)` and `(m, p)`, of differences formed explicitly: the gradient of a
    distance of 0 is 0."""
    apart: Tensor = torch.linalg.vector_norm(rows[:, None] - others[None], dim=2)
    return apart


def adaptive_margin(means: Tensor, cap: float) -> Tensor:
    """`δ = min(max_j min_(j'≠j) ‖C̄^j - C̄^j'‖, cap)` of the classes' means `(n, p)`; the cap for a single class."""
    if len(means) < 2:
        return means.new_full((), cap)
    itself = torch.eye(len(means), dtype=torch.bool, device=means.device)
    return distances(means, means).masked_fill(itself, torch.inf).min(dim=1).values.max().clamp(max=cap)


def contrastive_loss(rows: Tensor, labels: Tensor, made: Tensor, margin: Tensor) -> Tensor:
    """The mean over clients' prototypes `(B, p)` of classes `(B,)`, against `made` T `(C, p)`; see above."""
    apart = distances(rows, made) + margin * F.one_hot(labels, len(made))
    return F.cross_entropy(-apart, labels)


METHOD = Method(
    name="fedtgp",
    title="FedTGP",
    reference="Zhang et al., AAAI 2024",
    family="any architecture, shared prototypes",
    Config=Config,
    State=State,
    ClientState=ClientState,
    init=init,
    download=download,
    job=job,
    server=server,
    recordable_server=True,
    global_model=no_global_model,
    architectures=mixed.architectures,
    client_network=fedproto.client_network,
    around=prototypes.NearestPrototype,
    limits=(Limit({"lambda": 0, "predict": "head", "nu": 0}, equals="local", other=mixed.LOCAL),),
)
