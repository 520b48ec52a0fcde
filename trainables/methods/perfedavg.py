"""Per-FedAvg: an initial model from which one step on a client's data leads far.

Fallah, Mokhtari, Ozdaglar: Personalized Federated Learning with Theoretical Guarantees: A Model-Agnostic Meta-Learning
Approach, NeurIPS 2020, Algorithm 1.

    client   w_i ← w;  I_c times, with three parts B₁, B₂, B₃ of a batch and L(w; B) the mean cross-entropy on B:
             w' = w_i - α ∇L(w_i; B₁),      g = ∇L(w'; B₂)
             fo   w_i ← w_i - β g
             hf   w_i ← w_i - β (g - α d),   d = [∇L(w_i + δ g; B₃) - ∇L(w_i - δ g; B₃)] / (2 δ)
    server   w ← Σ_i n_i w_i / Σ_i n_i                       over the round's clients
    measured w_i' ← w;  adapt_steps times:  w_i' ← w_i' - α ∇L(w_i'; B)         on batches of the client's training data

    α   alpha      β   lr      δ   delta      I_c   local_steps      fo, hf   variant: first-order, Hessian-free

batch_size counts all parts: fo divides a batch in two, hf in three (PFLlib draws two parts of its 10, which is a batch
of 20 here: so in the spaces `partition` and `rounds`; `personal` has 10 like all methods, two parts of 5). A batch with
fewer samples than parts is used whole for each. The loss that is recorded is L(w'; B₂). α = 0 is FedAvg, on whole
batches.

Differs from the paper: clients are weighed by size (the paper: equally); their local accuracy is that of the server's
new model after its step, as in PFLlib, whose batch for that step is one part and not all of them. Running statistics
follow every pass. PFLlib's α is its β, and its clients make their local epochs twice in every round, so that one of its
epochs is local_epochs: 2 here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from search_spaces.parameter import choice, integer, real
from trainables.building_blocks.losses import added
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalTraining, Objective
from trainables.method import Limit, Method, Personal
from trainables.methods import fedavg
from trainables.params import unpack
from trainables.rng import Rng
from trainables.wire import Params, Payload

#: `(w, x, y) -> (∇L, L)`
Gradient = Callable[[Params, Tensor, Tensor], tuple[Params, Tensor]]


@dataclass(frozen=True)
class Config(LocalTraining):
    """Local meta-training, and the step that adapts a model."""

    alpha: float = real(
        0.01,
        low=0.0,
        high=10.0,
        log=True,
        symbol="α",
        doc="Learning rate of the step that adapts the model to a client.",
        source="Per-FedAvg Alg. 1",
        tune=(1e-3, 0.3),
    )
    variant: str = choice(
        "fo",
        ("fo", "hf"),
        doc="The gradient through the adapting step: first-order, or with a Hessian-free product.",
        source="Per-FedAvg Sec. 5",
        tune=True,
    )
    delta: float = real(
        1e-3,
        low=1e-6,
        high=1.0,
        log=True,
        symbol="δ",
        doc="Length of the difference that stands for the Hessian's product (hf).",
        source="Per-FedAvg Sec. 5",
    )
    adapt_steps: int = integer(
        1, low=1, high=100, doc="Steps that adapt the model before it is measured.", source="Per-FedAvg Sec. 5"
    )


def job(config: Config, fed: Federation, payload: Payload, client_state: None, data: ClientData, rng: Rng) -> LocalJob:
    """Trains the received model for what one step makes of it."""
    module, received = fed.network(), unpack("model", payload)
    if config.alpha == 0:
        return LocalJob(module, received, fedavg.returned)
    return LocalJob(module, received, fedavg.returned, partial(meta_objective, config))


def meta_objective(config: Config) -> Objective:
    """A loss with the value L(w'; B₂) and the variant's direction as its gradient."""

    def objective(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        parameters = dict(module.named_parameters())
        w = {name: parameter.detach() for name, parameter in parameters.items()}
        direction, loss = meta_direction(config, partial(_gradient, module), w, x, y)
        return added(loss.detach(), list(parameters.values()), [direction[name] for name in parameters])

    return objective


def meta_direction(config: Config, gradient: Gradient, w: Params, x: Tensor, y: Tensor) -> tuple[Params, Tensor]:
    """What β multiplies in Algorithm 1, and L(w'; B₂), for the batch x `(B, ...)`, y `(B,)`."""
    parts = 2 if config.variant == "fo" else 3
    xs, ys = (t.tensor_split(parts) if len(x) >= parts else (t,) * parts for t in (x, y))
    inner, _ = gradient(w, xs[0], ys[0])
    g, loss = gradient(moved(w, -config.alpha, inner), xs[1], ys[1])
    if config.variant == "fo":
        return g, loss
    ahead, _ = gradient(moved(w, config.delta, g), xs[2], ys[2])
    behind, _ = gradient(moved(w, -config.delta, g), xs[2], ys[2])
    factor = config.alpha / (2 * config.delta)
    return {name: g[name] - factor * (ahead[name] - behind[name]) for name in g}, loss


def moved(w: Params, length: float, direction: Params) -> Params:
    """`w + length · direction`."""
    return {name: tensor + length * direction[name] for name, tensor in w.items()}


def _gradient(module: nn.Module, w: Params, x: Tensor, y: Tensor) -> tuple[Params, Tensor]:
    def loss_of(w: Params) -> Tensor:
        logits: Tensor = functional_call(module, w, (x,))
        return F.cross_entropy(logits, y)

    return grad_and_value(loss_of)(w)


def adapting(config: Config) -> Config | None:
    """The local training that adapts a model: plain SGD at rate α; None where α is 0."""
    if config.alpha == 0:
        return None
    return replace(
        config, lr=config.alpha, local_steps=config.adapt_steps, local_epochs=0, momentum=0.0, weight_decay=0.0
    )


METHOD = Method(
    name="perfedavg",
    title="Per-FedAvg",
    reference="Fallah et al., NeurIPS 2020",
    family="personalised",
    Config=Config,
    State=fedavg.State,
    init=fedavg.init,
    download=fedavg.download,
    job=job,
    server=fedavg.server,
    one_pass=True,
    personal=Personal(adapting, fedavg.job),
    limits=(Limit({"alpha": 0}, equals="fedavg"),),
)
