"""Clients of two architectures, as in DHF's Table 2: a share ν of them has the deep model, the others the federation's.

    client i has deep_model   where ⌊(i+1) ν⌋ > ⌊i ν⌋,   else model                   ν  nu

All models here have features of width 512 and one linear layer as head, so that prototypes and heads can be exchanged.
With ν = 0 all clients have `model`, as in DHF's Table 1.

`MixedArchitectures` is for methods that are made for any architecture: their data, lengths and rates default to DHF's
own federation, so that they are compared in one setting. `DeepClients` is for methods that are made for one
architecture and allow two: by default ν is 0 and the federation is everybody's.
"""

from __future__ import annotations

from dataclasses import dataclass

from search_spaces.errors import sentence
from search_spaces.parameter import choice, other_default, real
from trainables import models
from trainables.data.partition import RECIPES
from trainables.federation import Federation, FederationConfig
from trainables.local import LocalTraining
from trainables.models import Model
from trainables.params import take
from trainables.wire import Params

#: Models with features of width 512 and one linear layer as head, which is what lets heads and prototypes be exchanged.
WIDE = ("cnn", "cnn2", "cnn3", "resnet10")


#: With these values local training is in DHF's federation, for the limits of methods that then share nothing.
LOCAL = {"model": "cnn2", "partition": "dir_pfl", "client_test_fraction": 0.25}


@dataclass(frozen=True)
class DeepClients(LocalTraining):
    """Who has the deep model beside the federation's: nobody, unless ν says so."""

    nu: float = real(
        0.0,
        low=0.0,
        high=1.0,
        symbol="ν",
        doc="Share of the clients with the deep model.",
        source="DHF Sec. 5",
        condition=True,
    )
    deep_model: str = choice("cnn3", WIDE, doc="The deep clients' model.", source="DHF Sec. 5")


@dataclass(frozen=True)
class MixedArchitectures(DeepClients):
    """Every second client has the deep model, in DHF's federation."""

    nu: float = other_default(DeepClients, "nu", 0.5)
    model: str = choice("cnn2", WIDE, doc="The model of the other clients.", source="DHF Sec. 5")
    partition: str = choice(
        "dir_pfl",
        tuple(RECIPES),
        doc="How samples are dealt to clients; dir_pfl deals training and test set.",
        source="DHF Sec. 5",
    )
    client_test_fraction: float = real(
        0.25, low=0.05, high=0.5, doc="Share of its own samples a client keeps for testing.", source="DHF Sec. 5"
    )
    lr: float = other_default(LocalTraining, "lr", 0.005, tune=(1e-4, 0.1))
    local_epochs: int = other_default(LocalTraining, "local_epochs", 1, source="DHF Sec. 5")
    batch_size: int = other_default(LocalTraining, "batch_size", 10, source="DHF Sec. 5")


def name_of(config: DeepClients, fed: Federation, client: int) -> str:
    """The name of a client's model. The deep clients are spread evenly over the numbers, as partitions follow them."""
    deep = int((client + 1) * config.nu + 1e-9) > int(client * config.nu + 1e-9)
    return config.deep_model if deep else fed.model


def network(fed: Federation, name: str, role: str = "") -> Model:
    """The module of the model `name`, to be loaded with `params.put` before use. Two at once need two roles."""
    if name == fed.model:
        return fed.network(role=role)
    return fed.cached(("network", name, role), lambda: fed.built(name))


def client_network(config: DeepClients, fed: Federation, client: int, role: str = "") -> Model:
    """The module of a client's architecture."""
    return network(fed, name_of(config, fed, client), role)


def architectures(config: MixedArchitectures, federation: FederationConfig) -> tuple[str, ...]:
    """The clients' two models."""
    return config.model, config.deep_model


def trained_models(config: DeepClients, federation: FederationConfig) -> tuple[str, ...]:
    """The federation's model, and the deep one where ν says that clients have it."""
    return (federation.model, config.deep_model) if config.nu > 0 else (federation.model,)


def one_architecture(config: DeepClients) -> bool:
    """Whether ν gives all clients the same model."""
    return config.nu in (0.0, 1.0)


def unequal_heads(config: DeepClients, federation: FederationConfig) -> list[str]:
    """A sentence where the federation's model has no head that deep clients could share."""
    if config.nu == 0 or federation.model in WIDE:
        return []
    must = f"one of {', '.join(WIDE)} when nu is above 0, as heads of one shape are shared"
    return [sentence("model", must, federation.model, fix="Use --set model=cnn2.")]


def initial_model(fed: Federation, name: str) -> Params:
    """The first weights of the model `name`, drawn from the seed: the same for all clients that have it."""
    module = network(fed, name)
    models.initialise(module, fed.rng.torch("init"))
    return take(module)
