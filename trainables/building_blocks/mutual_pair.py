"""Two models that a client trains on the same batches, each teaching the other: its own one, f, and its copy of a
shared one, g.

Both steps are one step on L_f + L_g, as what a model teaches is detached: so the pair is one training job, trained by
one SGD. Whether g is more precious to the server than f is each method's own; f never leaves the client.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from search_spaces.parameter import choice
from trainables import models
from trainables.building_blocks import mixed_architectures as mixed
from trainables.building_blocks.mixed_architectures import WIDE, MixedArchitectures
from trainables.federation import Federation, FederationConfig
from trainables.models import Model
from trainables.params import take
from trainables.wire import Params


@dataclass(frozen=True)
class MutualTraining(MixedArchitectures):
    """The shared model beside the clients' own ones."""

    shared_model: str = choice(
        "cnn2", WIDE, doc="The model that clients share, beside their own ones.", source="HtFLlib"
    )


class Pair(nn.Module):
    """The client's `private` model f and its copy g of the `shared` one."""

    def __init__(self, private: Model, shared: Model) -> None:
        super().__init__()
        self.private, self.shared = private, shared


def parts(config: MutualTraining, fed: Federation, client: int) -> tuple[Model, Model]:
    """The modules of a client's two models, which are other objects even where both have one architecture."""
    return (
        mixed.client_network(config, fed, client, role="private"),
        mixed.network(fed, config.shared_model, role="shared"),
    )


def pair(config: MutualTraining, fed: Federation, client: int) -> Pair:
    """The module in which a client trains both; clients of one architecture have one."""
    key = ("pair", mixed.name_of(config, fed, client), config.shared_model)
    return fed.cached(key, lambda: Pair(*parts(config, fed, client)))


def joined(**named: Params) -> Params:
    """The parts' parameters as one module's, `part.name`."""
    return {f"{part}.{name}": tensor for part, params in named.items() for name, tensor in params.items()}


def part(name: str, params: Params) -> Params:
    """The parameters of one part, without its name."""
    return {key.removeprefix(f"{name}."): tensor for key, tensor in params.items() if key.startswith(f"{name}.")}


def both(own: Tensor, other: Tensor, share: float = 1.0) -> Tensor:
    """A loss whose value is `own`, L_f, and whose gradient is that of `own + share · other`: the recorded training loss
    is the client's own model's."""
    return own + share * (other - other.detach())


def initial_shared(config: MutualTraining, fed: Federation) -> Params:
    """The first weights of g: others than those of clients' own models, as two equal models have nothing to teach."""
    module = mixed.network(fed, config.shared_model)
    models.initialise(module, fed.rng.torch("init", "shared"))
    return take(module)


def architectures(config: MutualTraining, federation: FederationConfig) -> tuple[str, ...]:
    """The clients' two models and the shared one."""
    return config.model, config.deep_model, config.shared_model


def shared_network(config: MutualTraining, fed: Federation, client: int = 0) -> Model:
    """The module of the shared model, with which every client's copy is measured too."""
    return mixed.network(fed, config.shared_model)
