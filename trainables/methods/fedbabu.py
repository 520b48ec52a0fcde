"""FedBABU: the body is trained together, the head only where a client fine-tunes.

Oh, Kim, Yun: FedBABU: Toward Enhanced Representation for Federated Image Classification, ICLR 2022.

    client   θ_i ← θ;  I_c times:  θ_i ← θ_i - η ∇_θ CE(D(F(x; θ_i); φ), y)
    server   θ ← Σ_i n_i θ_i / Σ_i n_i                       over the round's clients
    measured (θ_i', φ_i') ← (θ, φ);  E_f passes:  (θ_i', φ_i') ← (θ_i', φ_i') - η ∇ CE(D(F(x; θ_i'); φ_i'), y)

    θ   body (extractor), shared               η     lr             E_f   finetune_epochs
    φ   head, as it was drawn, never trained   I_c   local_steps

Only bodies cross the wire: everybody draws the common initial head from the federation's seed. The global model is θ
with that head. A client fine-tunes the server's new θ on its training data whenever models are measured; nothing of
that reaches the next round. finetune_epochs 0 leaves it out, and measures what the client has trained.

Differs from the paper: fine-tuning runs at every measurement, so that searches can stop early (the paper does it once,
after the last round). It starts from the average, as in the paper; PFLlib starts from what each client trained last.
PFLlib makes ten passes, which the space `partition` takes for DHF's table; the default here is five.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from search_spaces.parameter import choice, integer
from trainables.building_blocks.server_optimiser import by_size
from trainables.building_blocks.split_model import body_of, head_of, partly_trained
from trainables.federation import ClientData, Federation
from trainables.local import LocalJob, LocalResult, LocalTraining
from trainables.method import Limit, Method, Personal
from trainables.methods import fedavg
from trainables.params import pack, unpack
from trainables.rng import Rng
from trainables.wire import ClientResult, Params, Payload, Upload


@dataclass(frozen=True)
class Config(LocalTraining):
    """Local training of the body, and the fine-tuning."""

    frozen: str = choice(
        "head", ("head", "none"), doc="What clients leave as it is while they train together.", source="FedBABU Alg. 1"
    )
    finetune_epochs: int = integer(
        5,
        low=0,
        high=100,
        symbol="E_f",
        doc="Passes over the client's data before its model is measured; 0 measures the trained one.",
        source="FedBABU, personalisation",
        tune=(1, 20),
    )
    finetune_part: str = choice(
        "full",
        ("full", "head", "body"),
        doc="What fine-tuning moves.",
        source="FedBABU, personalisation",
        tune=("full", "head"),
    )


def _sent(config: Config, model: Params) -> Params:
    """The part of a model that crosses the wire."""
    return body_of(model) if config.frozen == "head" else model


def _completed(fed: Federation, sent: Params) -> Params:
    """A model of what was sent: with the common initial head where none was."""
    return sent if head_of(sent) else sent | head_of(fed.initial_params())


def download(config: Config, fed: Federation, state: fedavg.State, client: int) -> Payload:
    """The body θ; with nothing frozen the whole model."""
    return pack("model", _sent(config, state.model))


def job(config: Config, fed: Federation, payload: Payload, client_state: None, data: ClientData, rng: Rng) -> LocalJob:
    """Trains the received body under the head as it was drawn."""
    module = partly_trained(fed, "body" if config.frozen == "head" else "full")

    def finish(model: Params, trained: LocalResult) -> ClientResult:
        return ClientResult(upload=pack("model", _sent(config, model)), model=model, loss=trained.loss)

    return LocalJob(module, _completed(fed, unpack("model", payload)), finish)


def fine_tuning(config: Config) -> Config | None:
    """The local training of the fine-tuning; None where there is none."""
    return replace(config, local_epochs=config.finetune_epochs) if config.finetune_epochs else None


def fine_tuned(
    config: Config, fed: Federation, payload: Payload, client_state: None, data: ClientData, rng: Rng
) -> LocalJob:
    """Trains what the server sends now, body and head."""
    module = partly_trained(fed, config.finetune_part)
    return LocalJob(module, _completed(fed, unpack("model", payload)), fedavg.returned)


def server(config: Config, fed: Federation, state: fedavg.State, uploads: Sequence[Upload], rng: Rng) -> fedavg.State:
    """The average of the bodies, with the head as it was."""
    return fedavg.State(state.model | by_size(fed, uploads))


METHOD = Method(
    name="fedbabu",
    title="FedBABU",
    reference="Oh et al., ICLR 2022",
    family="shared features, personal head",
    Config=Config,
    State=fedavg.State,
    init=fedavg.init,
    download=download,
    job=job,
    server=server,
    one_pass=True,
    personal=Personal(fine_tuning, fine_tuned),
    limits=(Limit({"frozen": "none", "finetune_epochs": 0}, equals="fedavg"),),
)
