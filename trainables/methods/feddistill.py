"""FedDistill (federated distillation, FD): clients share their mean logits of every class.

Jeong, Oh, Kim, Park, Bennis, Kim: Communication-Efficient On-Device Machine Learning: Federated Distillation and
Augmentation under Non-IID Private Data, 2018.

    client   I_c times:  w_i ← w_i - η ∇ [ CE(f_i(x), y) + γ CE(softmax(F̄_i^y), f_i(x)) ]
             F_i^j ← mean of f_i(x) over client i's samples of class j
    server   F̄_i^j ← mean of F_k^j over the clients k ≠ i that hold class j

    w_i      client i's own model, kept from round to round           γ   gamma
    F̄_i^j    a class that no other client holds has none; its samples are not distilled

One vector of C logits per class that a client holds goes up; there is no global model. Clients may have two
architectures, see `trainables.building_blocks.mixed_architectures`.

Differs from the paper: F_i^j is of the trained model over all of the client's samples, the paper sums along the steps,
as HtFLlib does; a client that was not drawn counts with its last report, where HtFLlib's mean is over the reports of
one round alone. With exclude_own off a client's own logits are in its mean, as in HtFLlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import flag, real
from trainables.building_blocks import mixed_architectures as mixed
from trainables.building_blocks import prototypes
from trainables.building_blocks.mixed_architectures import MixedArchitectures
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, Objective, cross_entropy
from trainables.method import Limit, Method, no_global_model
from trainables.params import put
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload


@dataclass(frozen=True)
class Config(MixedArchitectures):
    """The distillation's weight, and whose logits a client learns from."""

    gamma: float = real(
        1.0,
        low=0.0,
        high=1e3,
        log=True,
        symbol="γ",
        doc="Weight of the cross-entropy with the others' mean logits.",
        source="HtFLlib",
        tune=(0.01, 10.0),
    )
    exclude_own: bool = flag(True, doc="A client's own logits are left out of the means it receives.", source="FD")


@dataclass(frozen=True)
class State:
    """After `round` rounds: the last report of every client that took part, mean logits `(C,)` by class."""

    round: int
    reports: dict[int, dict[int, Tensor]]


@dataclass(frozen=True)
class ClientState:
    """A client's own model `w_i`."""

    model: Params


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """No report yet."""
    return State(0, {})


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """F̄_i, of the classes that have one; nothing where nothing is distilled."""
    if config.gamma == 0:
        return {}
    others = [report for k, report in sorted(state.reports.items()) if not (config.exclude_own and k == client)]
    means = prototypes.pooled((report, dict.fromkeys(report, 1.0)) for report in others)
    return {f"logits/{j}": mean for j, mean in means.items()}


def job(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> LocalJob:
    """Trains the client's own model, taught by the others' mean logits; uploads its own ones."""
    name = mixed.name_of(config, fed, data.client)
    module = mixed.network(fed, name)
    start = mixed.initial_model(fed, name) if client_state is None else client_state.model

    def finish(model: Params, trained: LocalResult) -> ClientResult:
        put(module, model)
        own = prototypes.owned("logits", prototypes.class_logits(module, data), data.label_counts())
        return ClientResult(upload=own, client_state=ClientState(model), model=model, loss=trained.loss)

    received = prototypes.by_class("logits", payload)
    return LocalJob(module, start, finish, partial(objective, config.gamma, fed.classes), (received,))


def objective(gamma: float, classes: int, means: Mapping[int, Tensor]) -> Objective:
    """`CE(f(x), y) + γ CE(softmax(F̄^y), f(x))` with the mean logits `(C,)` of the classes that have some; plain
    cross-entropy where none has."""
    if not means:
        return cross_entropy
    absent = torch.zeros_like(next(iter(means.values())))
    table = torch.stack([means.get(j, absent) for j in range(classes)])
    # Made where they are used: no numbers of the processor may enter a step that is recorded as a CUDA graph.
    one, zero = absent.new_ones(()), absent.new_zeros(())
    valid = torch.stack([one if j in means else zero for j in range(classes)])

    def loss(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        logits = module(x)
        return F.cross_entropy(logits, y) + gamma * taught(logits, table[y], valid[y])

    return loss


def taught(logits: Tensor, targets: Tensor, valid: Tensor) -> Tensor:
    """`mean_b CE(softmax(F̄_b), u_b)`, 0 for samples where `valid` `(B,)` is 0. Logits u and targets F̄ are `(B, C)`."""
    rows = -(F.softmax(targets.detach(), dim=1) * F.log_softmax(logits, dim=1)).sum(dim=1)
    return (valid * rows).mean()


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """Remembers the reports; what a client is sent is made of the others' ones."""
    return State(state.round + 1, state.reports | {u.client: prototypes.by_class("logits", u.payload) for u in uploads})


METHOD = Method(
    name="feddistill",
    title="FedDistill",
    reference="Jeong et al., 2018",
    family="any architecture, shared logits",
    Config=Config,
    State=State,
    ClientState=ClientState,
    init=init,
    download=download,
    job=job,
    server=server,
    global_model=no_global_model,
    architectures=mixed.architectures,
    client_network=mixed.client_network,
    limits=(Limit({"gamma": 0, "nu": 0}, equals="local", other=mixed.LOCAL),),
)
