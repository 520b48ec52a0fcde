"""FedNova: updates are normalised by the clients' work before they are averaged.

Wang, Liu, Liang, Joshi, Poor: Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization,
NeurIPS 2020.

    client   w_i ← w;  τ_i times:  w_i ← w_i - η ∇ CE(f(x; w_i), y);      a_i ← accumulated weight of its gradients
    server   d_i = (w - w_i) / a_i,      p_i = n_i / Σ_j n_j
             w ← w - (Σ_i p_i a_i) Σ_i p_i d_i               over the round's clients

    a_i   τ_i for plain SGD; with momentum ρ:  [τ_i - ρ (1 - ρ^τ_i)/(1 - ρ)] / (1 - ρ)
    τ_i   the steps that client i made: local_epochs passes over its data, less where it is slow
    η     lr      ρ   momentum      n_i   training samples of client i

The server's step is an average in which the old model takes part, and is computed as one (a = Σ_i p_i a_i):

    w ← Σ_i c_i w_i + (1 - Σ_i c_i) w,      c_i = p_i a / a_i

Where all a_i are equal it is FedAvg's. So passes are counted in epochs here by default, of which large clients' hold
more steps.

Differs from the paper: no momentum on the server. Weight decay counts as part of the gradient, and running statistics
are averaged as in FedAvg.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from search_spaces.parameter import other_default
from trainables.building_blocks.server_optimiser import weights
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, LocalTraining, count_steps
from trainables.method import Limit, Method
from trainables.methods import fedavg
from trainables.params import WeightedSum, pack, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload, ahead


@dataclass(frozen=True)
class Config(LocalTraining):
    """Local training, counted in passes over a client's data."""

    local_epochs: int = other_default(
        LocalTraining,
        "local_epochs",
        2,
        doc="Passes over the client's data per round; 0 uses local_steps, the same for all, which is FedAvg.",
        source="FedNova, experiments",
        tune=(1, 5),
    )


def job(config: Config, fed: Federation, payload: Payload, client_state: None, data: ClientData, rng: Rng) -> LocalJob:
    """Trains the received model; uploads it with a_i."""

    def finish(model: Params, trained: LocalResult) -> ClientResult:
        return ClientResult(upload=pack("model", model) | work, model=model, loss=trained.loss)

    steps = count_steps(config, len(data), data.step_share)
    work = {"work": torch.tensor(accumulated(steps, config.momentum), dtype=torch.float64)}
    return LocalJob(fed.network(), unpack("model", payload), finish, ahead=work)


def accumulated(steps: int, momentum: float) -> float:
    """‖a_i‖₁: how often the gradients of `steps` steps of SGD enter the update, in all."""
    if momentum == 0:
        return float(steps)
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def server(config: Config, fed: Federation, state: fedavg.State, uploads: Sequence[Upload], rng: Rng) -> fedavg.State:
    """The normalised average of the weights, and the average of all else."""
    known = ahead(uploads)
    sizes, work = [fed.sizes[u.client] for u in known], [float(u.payload["work"]) for u in known]
    counts = shares(sizes, work)
    moved = set(weights(state.model))
    normalised, averaged = WeightedSum(), WeightedSum()
    for upload, size, count in zip(uploads, sizes, counts, strict=True):
        model = unpack("model", upload.payload)
        normalised.add({name: tensor for name, tensor in model.items() if name in moved}, count)
        if len(moved) < len(model):
            averaged.add({name: tensor for name, tensor in model.items() if name not in moved}, size)
    normalised.add({name: state.model[name] for name in moved}, sum(sizes) - sum(counts))
    found = normalised.mean() | (averaged.mean() if len(moved) < len(state.model) else {})
    return fedavg.State({name: found[name] for name in state.model})


def shares(sizes: Sequence[int], work: Sequence[float]) -> list[float]:
    """`n c_i` of the clients' n_i and a_i, n = Σ_i n_i: n_i where all a_i are equal."""
    total, first = sum(sizes), work[0]
    # Written from the first a_i on, so that equal ones have themselves as mean, to the bit.
    mean = first + sum(n * (a - first) for n, a in zip(sizes, work, strict=True)) / total
    return [n * (mean / a) for n, a in zip(sizes, work, strict=True)]


METHOD = Method(
    name="fednova",
    title="FedNova",
    reference="Wang et al., NeurIPS 2020",
    family="one global model",
    Config=Config,
    State=fedavg.State,
    init=fedavg.init,
    download=fedavg.download,
    job=job,
    server=server,
    one_pass=True,
    limits=(
        Limit({"local_epochs": 0}, equals="fedavg"),
        Limit({"local_epochs": 0, "momentum": 0.9}, equals="fedavg", other={"momentum": 0.9}),
    ),
)
