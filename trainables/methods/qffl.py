"""q-FFL, solved by q-FedAvg: clients that do badly count for more.

Li, Sanjabi, Beirami, Smith: Fair Resource Allocation in Federated Learning, ICLR 2020, Algorithm 2.

    client   F_k ← mean CE(f(x; w), y) over all its samples, of the received w;   w_k ← w after I_c steps of SGD
    server   Δw_k = (w - w_k) / η
             Δ_k  = F_k^q Δw_k,      h_k = q F_k^(q-1) ‖Δw_k‖² + F_k^q / η
             w ← w - Σ_k Δ_k / Σ_k h_k                       over the round's clients

    q   q      η   lr      I_c   local_steps

The server's step is an average in which the old model takes part, and is computed as one (η h_k = a_k + b_k):

    w ← (Σ_k a_k w_k + b w) / (Σ_k a_k + b),      a_k = F_k^q,      b = q/η Σ_k F_k^(q-1) ‖w - w_k‖²

All F_k are divided by the largest power first, which changes nothing but keeps large q finite. With q = 0 the loss is
not sent and the step is FedAvg's with equal weights.

Differs from the paper: clients are drawn uniformly (the paper draws them by size); 1e-10 is added to F_k, as in its
code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from search_spaces.parameter import real
from trainables.building_blocks.model_cache import ModelCache, caching
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult
from trainables.method import Limit, Method
from trainables.methods import fedavg
from trainables.models import is_statistic
from trainables.params import WeightedSum, average, pack, put, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload, ahead

#: Added to a client's loss, which is raised to the power q - 1.
EPSILON = 1e-10
#: Samples evaluated at once.
_BATCH = 1024


@dataclass(frozen=True)
class Config(ModelCache):
    """Local training and the fairness exponent."""

    q: float = real(
        1e-4,
        low=0.0,
        high=100.0,
        log=True,
        symbol="q",
        doc="Fairness: how much more a client of high loss counts.",
        source="q-FFL Eq. 2; FedKF Sec. VI-A",
        tune=(1e-5, 10.0),
    )


def job(config: Config, fed: Federation, payload: Payload, client_state: None, data: ClientData, rng: Rng) -> LocalJob:
    """Measures the received model on all samples, trains it, uploads both."""
    module, received = fed.network(), unpack("model", payload)
    put(module, received)
    loss = {"loss": mean_loss(module, data, rng)} if config.q > 0 else {}

    def finish(model: Params, trained: LocalResult) -> ClientResult:
        return ClientResult(upload=pack("model", model) | loss, model=model, loss=trained.loss)

    return LocalJob(module, received, finish, ahead=loss)


@torch.no_grad()
def mean_loss(module: nn.Module, data: ClientData, rng: Rng) -> Tensor:
    """F_k: the mean cross-entropy of `module` over all of the client's samples, a scalar; evaluation mode, random order
    (models may normalise with batch statistics, so a batch must not hold one class)."""
    module.eval()
    order = torch.randperm(len(data), generator=rng.torch("loss order"))
    batches = [data.batch(chosen) for chosen in order.tensor_split(-(-len(data) // _BATCH))]
    return torch.cat([F.cross_entropy(module(x), y, reduction="none") for x, y in batches]).mean()


def server(config: Config, fed: Federation, state: fedavg.State, uploads: Sequence[Upload], rng: Rng) -> fedavg.State:
    """The step of Algorithm 2."""
    losses = [float(u.payload["loss"]) for u in ahead(uploads)] if config.q > 0 else []
    models = (unpack("model", u.payload) for u in uploads)
    return fedavg.State(fair_step(config.q, config.lr, state.model, models, losses))


def fair_step(q: float, lr: float, old: Params, models: Iterable[Params], losses: Sequence[float]) -> Params:
    """The new global model from the old one, the clients' models and F_k (not needed where q is 0). Running statistics
    move as the weights do. Goes over the models once, and keeps none."""
    if q == 0:
        return average((model, 1.0) for model in models)
    measured = torch.tensor(losses, dtype=torch.float64) + EPSILON
    weights = (measured / measured.max()) ** q
    found, apart = WeightedSum(), []
    for model, weight in zip(models, weights.tolist(), strict=True):
        found.add(model, weight)
        apart.append(_squared_distance(old, model))
    stays = q / lr * (weights / measured * torch.stack(apart)).sum()
    found.add(old, float(stays))
    return found.mean()


def _squared_distance(a: Params, b: Params) -> Tensor:
    """`‖a - b‖²` over the weights, in float64 on the CPU. Running statistics have no gradient and do not count."""
    terms = [(a[k].double() - b[k].double()).square().sum() for k in a if not is_statistic(k)]
    return torch.stack(terms).cpu().sum()


METHOD = caching(
    Method(
        name="qffl",
        title="q-FFL",
        reference="Li et al., ICLR 2020",
        family="one global model",
        Config=Config,
        State=fedavg.State,
        init=fedavg.init,
        download=fedavg.download,
        job=job,
        server=server,
        one_pass=True,
        # FedAvg weighs clients by size: the two agree where all are of one size.
        limits=(Limit({"q": 0, "partition": "iid"}, equals="fedavg", other={"partition": "iid"}),),
    )
)
