"""FedFomo: personalised federated learning with first order model optimization.

Zhang, Sapra, Fidler, Yeung, Alvarez: Personalized Federated Learning with First Order Model Optimization, ICLR 2021.

    server   sends client i the models w_m of M other clients m: with probability ε_t a random one, else that of the
             highest affinity p_im of those left;    p_im ← p_im + ρ_im of the clients' uploads
             ε_t = max(0, ε - ε_d (t-1)) in round t, from which those of round t+1 are chosen
    client   ρ_im = (L_i(v_i) - L_i(w_m)) / (‖w_m - v_i‖ + 1e-5),    r_im = max(0, ρ_im) / Σ_m max(0, ρ_im)   (3)
             w_i ← v_i + Σ_m r_im (w_m - v_i);   v_i ← w_i;   I_c times:  w_i ← w_i - η ∇ CE(f(x; w_i), y)     (2)

    w_i   client i's own model, kept from round to round       M   peers         ε, ε_d   epsilon, epsilon_decay
    v_i   baseline: start     the model that i's last training began from; m is i itself as well, not only the M others
                    trained   w_i, what that training made of it
    L_i   mean cross-entropy on the client's validation share, val_ratio of its training samples, always the same ones,
          that it does not train on

The other clients' models are counted as what they cost, apart as well: bytes_down_peers. The client's model and its ρ
of others go up. In round 1 nothing is sent, everybody starts from the common initial model; where a client is sent no
model it goes on from its own. There is no global model.

Differs from the paper: ε falls by a fixed amount per round and places are drawn one by one, and beside the M others'
the client's own model is always among those it chooses from, as in the authors' code; with val_ratio 0, or of a client
with one sample, L_i is of the samples that are trained on. PFLlib draws nobody at random (no ε), its affinities begin
as the identity, so that a client's own model takes one of the M places, and with baseline start a client for which no
model is better (all ρ ≤ 0) goes on from w_i, where the paper's (2) is back at v_i; its L_i is a mean over batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from search_spaces.parameter import choice, integer, real
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, LocalTraining
from trainables.method import Limit, Method, no_global_model
from trainables.models import Model, is_statistic
from trainables.params import pack, put, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload

#: Added to the distance between two models, which may be one model.
NEAR = 1e-5
_BATCH = 1024


@dataclass(frozen=True)
class Config(LocalTraining):
    """Local training, and which other models a client hears of."""

    peers: int = integer(
        5,
        low=0,
        high=1000,
        symbol="M",
        doc="Other clients' models that a client is sent.",
        source="PFLlib",
        tune=(1, 10),
    )
    val_ratio: float = real(
        0.2,
        low=0.0,
        high=0.5,
        doc="Share of a client's training samples that other models are judged by and that it does not train on.",
        source="FedFomo code",
        tune=(0.05, 0.5),
    )
    epsilon: float = real(
        0.3,
        low=0.0,
        high=1.0,
        symbol="ε",
        doc="Probability that a place goes to a random client's model, in the first round.",
        source="FedFomo code",
        tune=True,
    )
    epsilon_decay: float = real(
        0.05, low=0.0, high=1.0, symbol="ε_d", doc="What that probability falls by per round.", source="FedFomo code"
    )
    baseline: str = choice(
        "start",
        ("start", "trained"),
        symbol="v",
        doc="What models are judged against and moved to from: where the client's last training began, or its result.",
        source="FedFomo Eqs. 2, 3; its code",
    )


@dataclass(frozen=True)
class State:
    """After `round` rounds: the last model of every client that took part, the affinities p by client and other client,
    and whose models each client is sent next."""

    round: int
    models: dict[int, Params]
    affinity: dict[int, dict[int, float]]
    chosen: dict[int, tuple[int, ...]]


@dataclass(frozen=True)
class ClientState:
    """A client's own model w_i, and the one that its training began from; empty where the baseline is w_i."""

    model: Params
    start: Params


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """Nobody has a model to share yet."""
    return State(0, {}, {}, {})


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """The models of the other clients that were chosen for this one."""
    payload: Payload = {}
    for other in state.chosen.get(client, ()):
        payload |= pack(f"peer{other}", state.models[other])
    return payload


def job(
    config: Config, fed: Federation, payload: Payload, client_state: ClientState | None, data: ClientData, rng: Rng
) -> LocalJob:
    """Moves the client's own model towards those that serve it better, and trains it; uploads it, and how well the
    others serve."""
    known = client_state if client_state is not None else ClientState(fed.initial_params(), {})
    training, validation = split(config, fed, data)
    numbers = sorted({int(key.partition("/")[0].removeprefix("peer")) for key in payload})
    peers = [unpack(f"peer{number}", payload) for number in numbers]
    start, served = moved_from(fed, known, peers, validation)

    def finish(model: Params, trained: LocalResult) -> ClientResult:
        told = {f"affinity/{m}": served[k].clone() for k, m in enumerate(numbers)}
        return ClientResult(
            upload=pack("model", model) | told,
            client_state=ClientState(model, start if config.baseline == "start" else {}),
            model=model,
            loss=trained.loss,
        )

    return LocalJob(fed.network(), start, finish, data=training)


def split(config: Config, fed: Federation, data: ClientData) -> tuple[ClientData, ClientData]:
    """What a client trains on and what it judges models by: the same samples in every round, at least one each; all of
    them for both where val_ratio is 0 or there is one sample."""
    if config.val_ratio == 0 or len(data) == 1:
        return data, data
    order = torch.from_numpy(fed.rng.child("fedfomo").numpy("validation", data.client).permutation(len(data)))
    count = max(1, round(config.val_ratio * len(data)))  # at most half, as val_ratio is
    kept, held = order[count:].sort().values, order[:count].sort().values
    return tuple(replace(data, indices=data.indices[at], y=data.y[at]) for at in (kept, held))  # type: ignore[return-value]


def moved_from(
    fed: Federation, known: ClientState, peers: Sequence[Params], validation: ClientData
) -> tuple[Params, Tensor]:
    """What the client trains next, and ρ of the peers, `(M,)`: Eqs. (2) and (3)."""
    if not peers:
        return known.model, torch.zeros(0)
    baseline, judged = (known.start, [*peers, known.model]) if known.start else (known.model, list(peers))
    served = affinities(fed, baseline, judged, validation)
    return moved(baseline, judged, weights(served)), served[: len(peers)]


def affinities(fed: Federation, baseline: Params, judged: Sequence[Params], validation: ClientData) -> Tensor:
    """ρ of the judged models, `(M,)`."""
    module = fed.network()
    before = loss_of(module, baseline, validation)
    return torch.stack([(before - loss_of(module, w, validation)) / (distance(baseline, w) + NEAR) for w in judged])


@torch.no_grad()
def loss_of(module: Model, params: Params, data: ClientData) -> Tensor:
    """L_i: the mean cross-entropy of a model on `data`, in evaluation mode."""
    put(module, params)
    module.eval()
    total = torch.zeros((), device=data.device)
    for chosen in torch.arange(len(data)).tensor_split(-(-len(data) // _BATCH)):
        x, y = data.batch(chosen)
        total = total + F.cross_entropy(module(x), y, reduction="sum")
    return total / len(data)


def distance(one: Params, other: Params) -> Tensor:
    """`‖w_m - w_i‖` over trained parameters."""
    names = [name for name, tensor in one.items() if tensor.is_floating_point() and not is_statistic(name)]
    return torch.stack([(other[name] - one[name]).square().sum() for name in names]).sum().sqrt()


def weights(served: Tensor) -> Tensor:
    """r of ρ, `(M,)`: sums to 1, or to 0 where no model serves better."""
    better = served.clamp(min=0.0)
    total = better.sum()
    return torch.where(total > 0, better / torch.where(total > 0, total, 1.0), better)


def moved(own: Params, peers: Sequence[Params], shares: Tensor) -> Params:
    """`w + Σ_m r_m (w_m - w)`; integer buffers are the client's own."""
    return {
        name: tensor
        + torch.stack([share * (peer[name] - tensor) for share, peer in zip(shares, peers, strict=True)]).sum(dim=0)
        if tensor.is_floating_point()
        else tensor
        for name, tensor in own.items()
    }


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """Keeps models and affinities, and chooses whose models everybody is sent next."""
    models = state.models | {u.client: unpack("model", u.payload) for u in uploads}
    affinity = state.affinity | {
        u.client: _raised(state.affinity.get(u.client, {}), unpack("affinity", u.payload)) for u in uploads
    }
    chance = max(0.0, config.epsilon - config.epsilon_decay * state.round)
    chosen = {
        i: choose(config.peers, chance, [k for k in sorted(models) if k != i], affinity.get(i, {}), rng.child(i))
        for i in range(fed.clients)
    }
    return State(state.round + 1, models, affinity, chosen)


def _raised(known: Mapping[int, float], told: Mapping[str, Tensor]) -> dict[int, float]:
    if not told:
        return dict(known)
    values = torch.stack(list(told.values())).tolist()
    return dict(known) | {int(m): known.get(int(m), 0.0) + value for m, value in zip(told, values, strict=True)}


def choose(
    places: int, chance: float, others: Sequence[int], affinity: Mapping[int, float], rng: Rng
) -> tuple[int, ...]:
    """Whose models a client is sent: place by place a random one with this `chance`, else the one of the highest
    affinity of those left (0 where nothing is known; ties in random order)."""
    draws = rng.numpy("peers")
    left = sorted(draws.permutation(others).tolist(), key=lambda m: -affinity.get(m, 0.0))
    found = [
        left.pop(int(draws.integers(len(left))) if draws.random() < chance else 0)
        for _ in range(min(places, len(left)))
    ]
    return tuple(sorted(found))


METHOD = Method(
    name="fedfomo",
    title="FedFomo",
    reference="Zhang et al., ICLR 2021",
    family="personalised, one model per client",
    Config=Config,
    State=State,
    ClientState=ClientState,
    init=init,
    download=download,
    job=job,
    server=server,
    global_model=no_global_model,
    traffic={"peers": ("peer",)},
    limits=(Limit({"peers": 0, "val_ratio": 0}, equals="local"),),
)
