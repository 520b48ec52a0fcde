"""FedGKD: global knowledge distillation from past global models.

Yao, Pan, Dai, Wan, Ding, Jin, Xu, Sun: Local-Global Knowledge Distillation in Heterogeneous Federated Learning with
Non-IID Data, 2021.

    server   w_t ← Σ_i n_i w_i / Σ_i n_i                     over the round's clients
    teacher  average: f(x; w̄),  w̄ = 1/M Σ_m w_(t-m);    vote: 1/M Σ_m f(x; w_(t-m));      m = 0..M-1
    client   w_i ← w_t;  I_c times:
             w_i ← w_i - η ∇ [ CE(f(x; w_i), y) + γ/2 KL(softmax(teacher(x)/T) ‖ softmax(f(x; w_i)/T)) ]

    γ   gamma      M   buffer      T   kd_temperature      η   lr      I_c   local_steps

A client is sent w_t and w̄, with vote w_t and all M models; while nothing is distilled, only w_t.

Differs from the paper: distillation waits for M aggregated models, as in FedKF's code (wait_for_buffer off: it starts
with those there are); vote averages logits with equal weights, as in that code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from search_spaces.parameter import choice, flag, integer, real
from trainables.building_blocks.losses import kd_kl
from trainables.building_blocks.model_cache import Cache, ModelCache, caching, oca_limit
from trainables.building_blocks.parameter_kinds import temperature
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, Objective
from trainables.method import Limit, Method
from trainables.methods import fedavg
from trainables.params import average, pack, unpack
from trainables.rng import Rng
from trainables.wire import Params, Payload, Upload


@dataclass(frozen=True)
class Config(ModelCache):
    """Local training, the distillation and its teacher."""

    gamma: float = real(
        0.2,
        low=0.0,
        high=100.0,
        log=True,
        symbol="γ",
        doc="Weight of the distillation; its half multiplies the KL.",
        source="FedGKD Eq. 5; FedKF Sec. VI-A",
        tune=(1e-3, 10.0),
    )
    buffer: int = integer(
        5, low=1, high=100, symbol="M", doc="Past global models that teach.", source="FedGKD Sec. 4", tune=(1, 10)
    )
    teacher: str = choice(
        "average",
        ("average", "vote"),
        doc="The mean of the past models' weights, or of their logits.",
        source="FedGKD, FedGKD-VOTE",
        tune=True,
    )
    wait_for_buffer: bool = flag(True, doc="Distil only once M models exist.", source="FedKF code")
    kd_temperature: float = temperature(
        1.0, symbol="T", doc="Temperature of both softmaxes in the KL.", source="FedKF code"
    )
    kl_direction: str = choice(
        "teacher_first", ("teacher_first", "literal"), doc="Position of the teacher in the KL.", source="FedKF code"
    )


@dataclass(frozen=True)
class State:
    """The global model `w_t`, the last (at most M) aggregated models, oldest first, and the cache of T1 if it is
    kept."""

    model: Params
    past: tuple[Params, ...]
    cache: Cache | None = None


def init(config: Config, fed: Federation, rng: Rng) -> State:
    """Draws the initial model, which is not among the teachers."""
    return State(fed.initial_params(), ())


def download(config: Config, fed: Federation, state: State, client: int) -> Payload:
    """The global model and, once there is something to distil, the teacher: one averaged model, or M."""
    payload = pack("model", state.model)
    needed = config.buffer if config.wait_for_buffer else 1
    if config.gamma == 0 or len(state.past) < needed:
        return payload
    if config.teacher == "average":
        return payload | pack("teacher0", average((past, 1.0) for past in state.past))
    for place, past in enumerate(state.past):
        payload |= pack(f"teacher{place}", past)
    return payload


def job(config: Config, fed: Federation, payload: Payload, client_state: None, data: ClientData, rng: Rng) -> LocalJob:
    """Trains the received model, taught by what else was received."""
    received = unpack("model", payload)
    teachers = {name: tensor for name, tensor in payload.items() if name.startswith("teacher")}
    if not teachers:
        return LocalJob(fed.network(), received, fedavg.returned)
    fed.network(role="teacher")  # built now: nothing may be drawn within a vectorised program
    return LocalJob(fed.network(), received, fedavg.returned, partial(_taught, config, fed), (teachers,))


def _taught(config: Config, fed: Federation, teachers: Params) -> Objective:
    return distilling_cross_entropy(config, frozen_teachers(fed, teachers))


def frozen_teachers(fed: Federation, payload: Mapping[str, Tensor]) -> list[Callable[[Tensor], Tensor]]:
    """The payload's teachers, images to logits, in evaluation mode; none where none was sent."""
    module = fed.network(role="teacher").eval()
    teachers: list[Callable[[Tensor], Tensor]] = []
    while params := unpack(f"teacher{len(teachers)}", payload):
        teachers.append(partial(functional_call, module, params))
    return teachers


def distilling_cross_entropy(config: Config, teachers: Sequence[Callable[[Tensor], Tensor]]) -> Objective:
    """`CE + γ/2 KL(teacher ‖ student)` on the same batch; several teachers' logits are averaged."""

    def objective(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        logits = module(x)
        with torch.no_grad():
            taught = torch.stack([teacher(x) for teacher in teachers]).mean(dim=0)
        return F.cross_entropy(logits, y) + config.gamma / 2 * kd_kl(
            logits, taught, config.kd_temperature, config.kl_direction
        )

    return objective


def server(config: Config, fed: Federation, state: State, uploads: Sequence[Upload], rng: Rng) -> State:
    """FedAvg's average, remembered among the last M."""
    model = average((unpack("model", u.payload), fed.sizes[u.client]) for u in uploads)
    return State(model, (*state.past, model)[-config.buffer :] if config.gamma > 0 else ())


METHOD = caching(
    Method(
        name="fedgkd",
        title="FedGKD",
        reference="Yao et al., 2021",
        family="one global model",
        Config=Config,
        State=State,
        init=init,
        download=download,
        job=job,
        server=server,
        one_pass=True,
        limits=(
            Limit({"gamma": 0}, equals="fedavg"),
            oca_limit({"gamma": 0}),
            Limit({"buffer": 1}, equals="fedgkd", other={"buffer": 1, "teacher": "vote"}),
        ),
    )
)
