"""FedKD: communication-efficient federated learning by knowledge distillation.

Wu, Wu, Lyu, Huang, Xie: Communication-efficient federated learning via knowledge distillation, Nature Communications
2022.

    client   g_i ← g;  I_c times, on the same batch, with c = CE(f_i(x), y) + CE(g_i(x), y):
             L_f = CE(f_i(x), y) + κ [ KL(softmax(g_i(x)) ‖ softmax(f_i(x))) + mean_p (φ_f(x) - W_i φ_g(x))² ] / c
             L_g = CE(g_i(x), y) + κ [ KL(softmax(f_i(x)) ‖ softmax(g_i(x))) + mean_p (φ_f(x) - W_i φ_g(x))² ] / c
             f_i ← f_i - η ∇ L_f,     (g_i, W_i) ← (g_i, W_i) - η_g ∇ L_g
             uploads the truncated singular values of Δ_i = g_i - g, keeping E_t of its energy
    factors  Δ = U diag(s) V,   U (m, K), s (K,), V (K, n)         of a tensor: its first dimension by all others
             K = the fewest singular values with Σ_(k≤K) s_k² ≥ E_t Σ_k s_k²
    server   Δ ← 1/|S| Σ_i Δ_i, truncated at E_t as well;     g ← g + Δ               over the round's clients S
    E_t      E_start + (E_end - E_start) (t-1)/T                                       round t of T planned ones

    f_i   mentor: client i's own model, never sent     φ_f, φ_g   features     E_start, E_end   energy_start, energy_end
    g     mentee, the shared and global model          W_i        p × p map    η, η_g           lr, mentee_lr
    κ     kd_weight, 1 in the paper

Bytes are those of the factors, entries `u/name`, `s/name` and `v/name` of a payload. A tensor is sent whole, as
`model/name`, where it has one dimension, or where its factors are no fewer numbers. A client that was there in the last
round is sent the truncated Δ, any other one the whole g; all then hold the same g. Local accuracy is that of f_i,
shared_local_accuracy that of g_i; training loss is f_i's. Clients may have two architectures, see
`trainables.building_blocks.mixed_architectures`.

Differs from the paper: what teaches in a term, and c, are constants, so that each loss moves its own model alone; c is
at least 1e-8; Δ is of the round, not of one step. weight_decay acts at the rate η on g, too. HtFLlib differs in more:
both of its losses move both models, through c as well; it divides the KL by the number of classes, too, and clips
gradients at a norm of 10; mentee_lr is lr. It truncates g itself, a convolution kernel by kernel, also where the
factors are more numbers than the tensor; and a tensor that keeps the share only with all of its singular values is sent
as zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import real
from trainables import models
from trainables.building_blocks import mixed_architectures as mixed
from trainables.building_blocks import mutual_pair
from trainables.building_blocks.losses import kd_kl
from trainables.building_blocks.mutual_pair import MutualTraining, Pair
from trainables.building_blocks.parameter_kinds import sgd_lr
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, Objective
from trainables.method import Limit, Method
from trainables.models import Model
from trainables.params import WeightedSum, pack, take, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload

#: The least sum of cross-entropies that the distillation is divided by.
LEAST = 1e-8
#: Prefixes of the entries of a compressed tensor: its factors.
FACTORS = ("u", "s", "v")


@dataclass(frozen=True)
class Config(MutualTraining):
    """The distillation, the mentee's rate, and the energy that is sent."""

    kd_weight: float = real(
        1.0,
        low=0.0,
        high=100.0,
        log=True,
        symbol="κ",
        doc="Weight of both distillation terms; 0 leaves them out.",
        source="FedKD has 1",
        tune=(0.01, 10.0),
    )
    mentee_lr: float = sgd_lr(
        0.01, symbol="η_g", doc="Learning rate of the shared model and of the map.", source="HtFLlib"
    )
    energy_start: float = real(
        0.95,
        low=0.1,
        high=1.0,
        symbol="E_start",
        doc="Share of an update's energy that is sent in the first round.",
        source="FedKD Sec. Methods",
        tune=(0.8, 0.999),
    )
    energy_end: float = real(
        0.98,
        low=0.1,
        high=1.0,
        symbol="E_end",
        doc="Share that is approached in the last of the planned rounds.",
        source="FedKD Sec. Methods",
        tune=(0.8, 0.999),
    )


@dataclass(frozen=True)
class State:
    """After `round` rounds: the mentee g, its last truncated update as it is sent, and the clients whose g lacks no
    more than that."""

    round: int
    model: Params
    update: Payload
    current: tuple[int, ...]


@dataclass(frozen=True)
class ClientState:
    """A client's mentor `f_i`, its map `W_i`, and g as it received it."""

    model: Params
    map: Params
    received: Params


class Mentoring(Pair):
    """The pair, and the map from features of g to those of f."""

    def __init__(self, private: Model, shared: Model) -> None:
        super().__init__(private, shared)
        self.map = nn.Linear(shared.feature_width, private.feature_width, bias=False)


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """Draws g."""
    return State(0, mutual_pair.initial_shared(config, fed), {}, ())


def energy(config: Config, fed: Federation, round_: int) -> float:
    """E_t of round t = 1, 2, ..."""
    return config.energy_start + (config.energy_end - config.energy_start) * (round_ - 1) / fed.rounds


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """The last update, or the whole of g, and E_t."""
    there = state.update if client in state.current else pack("whole", state.model)
    return there | {"energy": torch.tensor(energy(config, fed, state.round + 1), dtype=torch.float64)}


def job(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> LocalJob:
    """Trains mentor, mentee and map together; uploads the mentee's truncated update."""
    module = _module(config, fed, data.client)
    received = unpack("whole", payload)
    if not received:
        assert client_state is not None
        received = _added(client_state.received, _factors_of(payload))
    if client_state is None:
        own = mixed.initial_model(fed, mixed.name_of(config, fed, data.client))
        models.initialise(module.map, fed.rng.torch("init", "map"))
        mapped = take(module.map)
    else:
        own, mapped = client_state.model, client_state.map
    start = mutual_pair.joined(private=own, shared=received, map=mapped)

    def finish(trained: Params, result: LocalResult) -> ClientResult:
        own, shared, mapped = (mutual_pair.part(name, trained) for name in ("private", "shared", "map"))
        change = {name: tensor - received[name] for name, tensor in shared.items()}
        return ClientResult(
            upload=compressed(change, float(payload["energy"])),
            client_state=ClientState(own, mapped, received),
            model=own,
            others={"shared": shared},
            loss=result.loss,
        )

    return LocalJob(module, start, finish, partial(objective, config))


def _module(config: Config, fed: Federation, client: int) -> Mentoring:
    key = ("mentoring", mixed.name_of(config, fed, client), config.shared_model)
    return fed.cached(key, lambda: Mentoring(*mutual_pair.parts(config, fed, client)))


def _added(model: Params, update: Payload) -> Params:
    change = expanded(update, model)
    return {name: tensor + change[name] for name, tensor in model.items()}


def objective(config: Config) -> Objective:
    """L_f, with the gradients of both losses; those of L_g are scaled so that its steps have the mentee's rate."""

    def loss(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        assert isinstance(module, Mentoring)
        own, shared = module.private.features(x), module.shared.features(x)
        of_own, of_shared = mentoring_losses(
            config.kd_weight, own, module.map(shared), module.private.head(own), module.shared.head(shared), y
        )
        return mutual_pair.both(of_own, of_shared, config.mentee_lr / config.lr)

    return loss


def mentoring_losses(
    weight: float, own: Tensor, mapped: Tensor, own_logits: Tensor, shared_logits: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """L_f and L_g of features φ_f and W φ_g `(B, p)`, logits `(B, C)` and labels `(B,)`."""
    of_own, of_shared = F.cross_entropy(own_logits, y), F.cross_entropy(shared_logits, y)
    share = weight / (of_own + of_shared).detach().clamp(min=LEAST)
    return (
        of_own + share * (kd_kl(own_logits, shared_logits) + F.mse_loss(own, mapped.detach())),
        of_shared + share * (kd_kl(shared_logits, own_logits) + F.mse_loss(mapped, own.detach())),
    )


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """Adds the truncated mean of the updates."""
    total, clients = WeightedSum(), list[int]()
    for upload in uploads:
        total.add(expanded(upload.payload, state.model), 1.0)
        clients.append(upload.client)
    update = compressed(total.mean(), energy(config, fed, state.round + 1))
    return State(state.round + 1, _added(state.model, update), update, tuple(clients))


def compressed(params: Params, energy: float) -> Payload:
    """`params` with each matrix's energy kept up to the share `energy`, as entries of a payload."""
    spectra = {name: _spectrum(tensor.flatten(1)) for name, tensor in params.items() if tensor.dim() > 1}
    if not spectra:
        return pack("model", params)
    # Asked once for all tensors, as every answer is waited for on a GPU.
    kept = torch.stack([_rank(squares, energy) for squares, _ in spectra.values()]).tolist()
    payload: Payload = {}
    small = set()
    for (name, (squares, vectors)), k in zip(spectra.items(), kept, strict=True):
        matrix = params[name].flatten(1)
        if k * (sum(matrix.shape) + 1) < matrix.numel():
            small.add(name)
            factors = _factors(matrix, squares[:k].sqrt(), vectors[:, :k])
            payload |= {f"{factor}/{name}": tensor for factor, tensor in zip(FACTORS, factors, strict=True)}
    return payload | pack("model", {name: tensor for name, tensor in params.items() if name not in small})


def expanded(payload: Mapping[str, Tensor], shapes: Mapping[str, Tensor]) -> Params:
    """What `compressed` made, multiplied out: tensors shaped as those of the same names in `shapes`."""
    whole = unpack("model", payload)
    u, s, v = (unpack(factor, payload) for factor in FACTORS)
    return {
        name: whole[name] if name in whole else ((u[name] * s[name]) @ v[name]).view(tensor.shape)
        for name, tensor in shapes.items()
    }


def _factors_of(payload: Mapping[str, Tensor]) -> Payload:
    """The entries of a payload that `compressed` made."""
    return {key: t for key, t in payload.items() if key.partition("/")[0] in ("model", *FACTORS)}


def _spectrum(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The squares of the singular values, largest first, and the singular vectors of the shorter side as columns: the
    eigenvalues and eigenvectors of the smaller of Δ Δᵀ and Δᵀ Δ.

    In float64 they are as exact as a decomposition of Δ in float32, and take half as long."""
    exact = matrix.double()
    gram = exact @ exact.T if _is_wide(matrix) else exact.T @ exact
    # A model that diverged has no such values. Its factors are not finite, as it is not: a round says so, not LAPACK.
    squares, vectors = torch.linalg.eigh(gram.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0))
    return squares.flip(0).clamp(min=0), vectors.flip(1)


def _factors(matrix: Tensor, s: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U (m, K), s (K,) and V (K, n) of the matrix. A pair of vectors may have either sign: here the largest entry of
    each column of U is positive."""
    exact = matrix.double()
    least = torch.finfo(torch.float64).tiny  # the one value of a matrix of zeros
    others = (exact.T if _is_wide(matrix) else exact) @ vectors / s.clamp(min=least)
    u, v = (vectors, others) if _is_wide(matrix) else (others, vectors)
    sign = u.gather(0, u.abs().argmax(dim=0, keepdim=True)).sign()
    return (u * sign).to(matrix.dtype), s.to(matrix.dtype), (v * sign).T.to(matrix.dtype).contiguous()


def _is_wide(matrix: Tensor) -> bool:
    return matrix.shape[0] <= matrix.shape[1]


def _rank(squares: Tensor, energy: float) -> Tensor:
    """K, a whole number of at least 1."""
    total = squares.cumsum(dim=0)
    return 1 + (total[:-1] < energy * total[-1]).sum()


METHOD = Method(
    name="fedkd",
    title="FedKD",
    reference="Wu et al., Nature Communications 2022",
    family="any architecture, mutual learning with a shared model",
    Config=Config,
    State=State,
    ClientState=ClientState,
    init=init,
    download=download,
    job=job,
    server=server,
    one_pass=True,
    architectures=mutual_pair.architectures,
    client_network=mixed.client_network,
    global_network=mutual_pair.shared_network,
    other_networks={"shared": mutual_pair.shared_network},
    follows_plan=lambda config, rounds: config.energy_start != config.energy_end,
    limits=(Limit({"kd_weight": 0, "nu": 0}, equals="local", other=mixed.LOCAL),),
)
