"""T1 of FedKF: the server remembers every client's latest model and averages over all of them, not over one round's.

Zhou, Lei, Yang, Shi, Zhang, Shi: Handling Data Heterogeneity in Federated Learning via Knowledge Distillation and
Fusion, IEEE Internet of Things Journal 2023, Algorithm 1 lines 7, 9 and 10.

    ŵ_k ← w_k                          for the round's clients k ∈ S
    ŵ   ← Σ_k n_k ŵ_k / Σ_k n_k        over all clients ("OCA", overall clients aggregated)
    w   ← the method's own model       over the round's clients ("ACA", active clients aggregated)

Clients go on receiving w. Any method whose clients upload whole models can be given the cache by wrapping its record,
`METHOD = caching(Method(...))`; its Config extends `ModelCache` and its State has a field `cache: Cache | None = None`.

Differs from the paper: clients never drawn so far are left out of ŵ, as in the authors' code; cache_init w0 counts
them with the initial model, as in the paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from search_spaces.parameter import choice, flag
from trainables.federation import Federation
from trainables.local import LocalTraining
from trainables.method import Limit, Method
from trainables.params import average, unpack
from trainables.rng import Rng
from trainables.wire import Params, Upload


@dataclass(frozen=True)
class Readout(LocalTraining):
    """Which of the two averages is the global model; both are measured."""

    readout: str = choice(
        "aca",
        ("aca", "oca"),
        names={"aca": "without T1", "oca": "with T1"},
        doc="The global model: the method's own average over the round's clients (aca), "
        "or that over every client's latest model (oca).",
        source="FedKF Sec. VI-A",
    )
    cache_init: str = choice(
        "skip",
        ("skip", "w0"),
        doc="Clients never drawn so far: left out of oca, or counted with the initial model.",
        source="FedKF code; Alg. 1",
    )


@dataclass(frozen=True)
class ModelCache(Readout):
    """The cache as an option of an averaging method."""

    model_cache: bool = flag(
        False,
        doc="The server keeps every client's latest model, and both averages are recorded; readout oca implies it.",
        source="FedKF Table XII",
    )


@dataclass(frozen=True)
class Cache:
    """`latest` is ŵ_k by client, of those seen so far; `overall` is ŵ."""

    latest: dict[int, Params]
    overall: Params


def remember(config: Readout, fed: Federation, cache: Cache | None, uploads: Sequence[Upload]) -> Cache:
    """The cache after a round with these uploads."""
    latest = dict(cache.latest) if cache is not None else {}
    latest |= {u.client: unpack("model", u.payload) for u in uploads}
    seen = range(fed.clients) if config.cache_init == "w0" else sorted(latest)
    initial = fed.initial_params() if len(latest) < len(seen) else {}
    return Cache(latest, average((latest.get(k, initial), fed.sizes[k]) for k in seen))


def chosen(config: Readout, model: Params, cache: Cache | None) -> Params:
    """The global model under this configuration; the method's own before the first round."""
    return model if cache is None or config.readout == "aca" else cache.overall


def both(model: Params, cache: Cache | None) -> Mapping[str, Params]:
    """The two averages by name; none where no cache is kept."""
    return {} if cache is None else {"aca": model, "oca": cache.overall}


def caching(method: Method) -> Method:
    """`method` with T1 as an option, declared by its `ModelCache`; while that is off the method is what it was."""

    def server(config: ModelCache, fed: Federation, state: Any, uploads: Sequence[Upload], rng: Rng) -> Any:
        after = method.server(config, fed, state, uploads, rng)
        return replace(after, cache=remember(config, fed, state.cache, uploads)) if keeps(config) else after

    def keeps(config: ModelCache) -> bool:
        return config.model_cache or config.readout == "oca"

    def one_pass(config: ModelCache) -> bool:
        return method.reads_once(config) and not keeps(config)

    def global_model(config: ModelCache, fed: Federation, state: Any) -> Params:
        return chosen(config, _own(config, fed, state), state.cache)

    def readouts(config: ModelCache, fed: Federation, state: Any) -> Mapping[str, Params]:
        return both(_own(config, fed, state), state.cache)

    def _own(config: ModelCache, fed: Federation, state: Any) -> Params:
        model = method.global_model(config, fed, state)
        assert model is not None
        return model

    return replace(method, server=server, global_model=global_model, readouts=readouts, one_pass=one_pass)


def oca_limit(values: Mapping[str, object], **more: object) -> Limit:
    """With these values a caching method is FedAvg with T1, where some of the clients take part in a round."""
    cached = {"readout": "oca", **more, "active_clients": 2}
    return Limit({**values, **cached}, equals="fedavg", other=cached)
