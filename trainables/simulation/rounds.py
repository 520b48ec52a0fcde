"""The only round loop: choose the cohort, download, run the clients, server, evaluate.

It knows no method by name and no Ray. One `Simulation` is one federation of one seed; its `Progress` is all that
changes from round to round, so saving it and loading it elsewhere continues bit for bit.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from search_spaces import kept_images as kept
from search_spaces.errors import UserError
from search_spaces.metrics import METRICS
from search_spaces.parameter import Value
from trainables import own_metrics, registry
from trainables.federation import ClientData, Federation, FederationConfig
from trainables.method import Method
from trainables.params import average, count_bytes, equal, is_same, put, versions
from trainables.rng import Rng
from trainables.simulation import attack, evaluation, executors, federated_data, kept_images
from trainables.simulation.checkpoint import from_tree, to_tree
from trainables.simulation.cuda_graphs import Graphs
from trainables.simulation.executors import Task, train_stacked
from trainables.wire import ClientResult, Params, Payload, Upload
from trainables.worker.rounds_jsonl import Row as Row

#: What `trainables.simulation.evaluation.global_metrics` returns, and that beside the `versions` of what was measured.
GlobalMetrics = tuple[dict[str, float], list[float]]
Remembered = tuple[tuple[tuple[str, Tensor, int], ...] | None, GlobalMetrics]


@dataclass(frozen=True)
class Progress:
    """What a simulation has reached: completed rounds, the server's state, the states of clients that keep one."""

    round: int
    state: Any
    client_states: dict[int, Any]
    #: First round in which the target was reached, by prefix of its metric; see `target` in `FederationConfig`.
    reached: dict[str, int] = field(default_factory=dict)
    #: Bytes sent up and down in all rounds so far, and until the target was reached, by the same prefix.
    traffic: int = 0
    reached_bytes: dict[str, int] = field(default_factory=dict)
    #: By client its own model as it was measured last, and in which round; only where these are kept.
    personal: dict[int, Any] = field(default_factory=dict)
    measured_in: dict[int, int] = field(default_factory=dict)
    #: What clients have uploaded so far, sorted; see `trainables.simulation.attack.sent`.
    sent: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cohort:
    """The clients of one round in ascending order, and the share of its steps that each manages (0: its upload is
    lost)."""

    clients: tuple[int, ...]
    step_shares: tuple[float, ...]


@dataclass(frozen=True)
class _ClientCall:
    """One client's part in a round: the arguments of a method's `client`."""

    config: Any
    fed: Federation
    payload: Payload
    client_state: Any
    data: ClientData
    rng: Rng


class Simulation:
    """One federated training run of one method, one configuration and one seed."""

    def __init__(
        self,
        name: str,
        values: Mapping[str, Value] | registry.Configuration,
        seed: int,
        device: torch.device,
        data_dir: str | None = None,
    ) -> None:
        self.method = registry.method(name)
        configured = values if isinstance(values, registry.Configuration) else registry.configured(name, values)
        self.settings, self.config = configured.federation, configured.config
        self.fed, self.data = federated_data.build(self.settings, seed, device, data_dir)
        if problems := registry.kind_problems(self.method, self.config, self.settings, self.fed.kind):
            raise UserError(*problems)
        self.measures = own_metrics.measures(self.settings.own_metrics, self.fed.classes)
        executors.check(self.settings.executor, device)
        self.executor = executors.chosen(self.settings, self.method, self.config, self.fed)
        self.graphs = Graphs(self.config) if self.executor == "graph" else None
        #: Whether clients' own models are kept, where the method has such.
        self.keeps_personal = False
        #: Whether images are kept, and those of the last evaluated round (`trainables.simulation.kept_images`).
        self.keeps_images, self.kept_images = False, kept_images.Arrays()
        #: The global models of the last evaluated round, with what was measured of them.
        self.remembered: list[Remembered] = []
        rng = self.fed.rng.child("init")
        self.progress = Progress(0, self.method.init(self.config, self.fed, rng), {})

    def run_round(self) -> Row:
        """Runs the next round and returns its line of the record."""
        return run_together([self])[0]

    def _measured(self, row: Row, results: Mapping[int, ClientResult]) -> Row:
        """The complete line of the round that `exchange` has run: `row` with the metrics of its models."""
        served = _now(self.fed.device)
        t = self.progress.round
        if self._evaluates(t):
            row |= self.evaluate(results)
        if t == self.settings.rounds and self.settings.attack_images:
            row["psnr"] = attack.mean_psnr(self.leaks(self.settings.attack_images))
        row |= self._to_target(t, row)
        took = _now(self.fed.device) - served
        row |= {"seconds_evaluation": took, "seconds": row["seconds_client"] + row["seconds_server"] + took}
        self.kept_images = self._images(results) if self.keeps_images and self._evaluates(t) else {}
        return {key: _finite(value) for key, value in row.items()}

    def _evaluates(self, t: int) -> bool:
        return t % self.settings.eval_every == 0 or t == self.settings.rounds

    def _images(self, results: Mapping[int, ClientResult]) -> kept_images.Arrays:
        """What is kept of the round that has just ended."""
        now = self.progress
        painters = self.method.painters
        found: kept_images.Arrays = {}
        if painters is not None:
            made = dict(painters(self.config, self.fed, now.state, now.client_states))
            if (of_features := made.pop(kept.FEATURES, None)) is not None:
                found |= kept_images.projected(self.fed, self.data, of_features)
            found |= kept_images.painted(self.fed, made)
        if kept.is_plane(self.fed.shape):
            if (model := self.global_model()) is not None:
                found["plane"] = kept_images.plane(self.fed, self.data, [(self._loaded(model), 1.0)])
            local = {c: r.model for c, r in results.items() if r.model is not None}
            if local:
                asked = ((self._loaded(m, c), float(self.fed.sizes[c])) for c, m in local.items())
                found["teacher"] = kept_images.plane(self.fed, self.data, asked)
        return found

    def images_of_data(self) -> kept_images.Arrays:
        """What is kept of the training data."""
        return kept_images.of_data(self.fed, self.data)

    def exchange(self) -> tuple[Row, dict[int, ClientResult]]:
        """Runs the next round without measuring its models; returns the start of its row and the clients' results."""
        return exchange_together([self])[0]

    def _clients(self, down: Counter[str]) -> Iterator[_ClientCall]:
        """The next round's clients as their turns come, without those whose upload is lost; counts what is sent to
        them."""
        t = self.progress.round + 1
        cohort = choose_cohort(self.settings, self.fed.rng, t)
        for client, step_share in zip(cohort.clients, cohort.step_shares, strict=True):
            payload = self.method.download(self.config, self.fed, self.progress.state, client)
            down.update(self._bytes("bytes_down", payload))
            if step_share > 0:
                data = federated_data.with_step_share(self.data.clients[client], step_share)
                rng = self.fed.rng.child("round", t, "client", client)
                yield _ClientCall(self.config, self.fed, payload, self.progress.client_states.get(client), data, rng)

    def _served(self, down: Counter[str], results: dict[int, ClientResult], seconds: float) -> Row:
        """Runs the server on the clients' results, which took `seconds`, and completes the round."""
        t, started = self.progress.round + 1, _now(self.fed.device)
        uploads = [Upload(client, result.upload) for client, result in results.items()]
        state = self.method.server(
            self.config, self.fed, self.progress.state, uploads, self.fed.rng.child("round", t, "server")
        )
        served = _now(self.fed.device)
        client_states = self.progress.client_states | {
            client: result.client_state for client, result in results.items() if result.client_state is not None
        }
        sent = set(self.progress.sent).union(
            *(attack.sent(self.method.client_network(self.config, self.fed, u.client), u.payload) for u in uploads)
        )
        self.progress = replace(
            self.progress, round=t, state=state, client_states=client_states, sent=tuple(sorted(sent))
        )
        up = Counter(self._bytes("bytes_up", {}))
        for upload in uploads:
            up.update(self._bytes("bytes_up", upload.payload))
        row: Row = {"round": t, "seed": self.fed.seed} | up | down
        return row | self._client_means(results) | {"seconds_client": seconds, "seconds_server": served - started}

    def leaks(self, images: int, watch: attack.Watcher | None = None) -> list[attack.Leak]:
        """The deep-leakage attack on what clients have uploaded so far. Raises `UserError` where they hold no
        images."""
        if self.fed.kind != "images":
            raise UserError(f"{self.settings.dataset} holds {self.fed.kind}, and the attack rebuilds images.")
        c = self.settings
        return attack.attack(
            self.fed,
            self.data.clients,
            self.progress.sent,
            images=images,
            steps=c.attack_steps,
            private=c.attack_private,
            watch=watch,
        )

    def _bytes(self, direction: str, payload: Payload) -> dict[str, int]:
        """Bytes of a payload, in all and of each part that the method has counted separately."""
        parts = {
            f"{direction}_{name}": count_bytes(
                {key: tensor for key, tensor in payload.items() if key.startswith(starts)}
            )
            for name, starts in self.method.traffic.items()
        }
        return {direction: count_bytes(payload)} | parts

    def _client_means(self, results: Mapping[int, ClientResult]) -> Row:
        """What clients measured themselves, averaged by client size."""
        per_client = {c: {"train_loss": r.loss} | dict(r.metrics) for c, r in results.items()}
        names = dict.fromkeys(
            name for numbers in per_client.values() for name, value in numbers.items() if value is not None
        )
        return {
            name: evaluation.weighted_mean(
                [n.get(name) for n in per_client.values()], [self.fed.sizes[c] for c in per_client]
            )
            for name in names
        }

    def evaluate(self, results: Mapping[int, ClientResult]) -> Row:
        """Metrics of all models after a round whose clients have ended with these results."""
        models = {c: r.model for c, r in results.items() if r.model is not None}
        return self._evaluate(models, list(results)) | self._evaluate_others(results)

    def _evaluate(self, models: Mapping[int, Params], cohort: Sequence[int]) -> Row:
        """Metrics of the global model and of the local ones. `models` are what the clients of the `cohort` have
        trained."""
        row: Row = {}
        model = self.global_model()
        before, self.remembered = self.remembered, []
        if model is not None:
            metrics, row["client_accuracy"] = self._global_metrics(model, before)
            row |= metrics
        if self.method.readouts is not None:
            for name, readout in self.method.readouts(self.config, self.fed, self.progress.state).items():
                metrics, _ = self._global_metrics(readout, before)
                row |= {
                    key: value for metric, value in metrics.items() if (key := _of_readout(name, metric)) in METRICS
                }
        tuned = self._fine_tuned(cohort)
        measured = models if tuned is None else tuned
        if measured:
            self._keep_personal(measured)
            metrics, row["local_accuracies"] = evaluation.local_metrics(
                self.fed, self.data, {c: partial(self._loaded, m, c) for c, m in measured.items()}, self.measures
            )
            row |= metrics
        if models and self.method.measures_virtual(self.config):
            virtual = average((m, self.fed.sizes[c]) for c, m in sorted(models.items()))
            if model is not None and equal(
                virtual, model
            ):  # all clients were there and the server does no more: measured above
                row |= {
                    f"{prefix}g_acc_virtual": row[f"{prefix}global_accuracy"]
                    for prefix in ("val_", "")
                    if f"{prefix}global_accuracy" in row
                }
            else:
                row |= evaluation.accuracy(self._loaded(virtual, min(models)), self.data, "g_acc_virtual")
        return row

    def _global_metrics(self, params: Params, before: Sequence[Remembered]) -> GlobalMetrics:
        """The metrics of a global model. One that was measured in this round or the one `before` is not measured
        again: a method may keep its model for several rounds, or have it as a readout too."""
        now = versions(params)
        metrics = next((found for seen, found in (*self.remembered, *before) if is_same(seen, now)), None)
        if metrics is None:
            metrics = evaluation.global_metrics(self._loaded(params), self.data, self.measures)
        self.remembered.append((now, metrics))
        return metrics[0], list(metrics[1])

    def _keep_personal(self, models: Mapping[int, Params]) -> None:
        """Notes what is measured of clients. Copies: a cohort that is trained as one program has its weights in one
        tensor, all of which a checkpoint would hold for each client."""
        if not self.keeps_personal:
            return
        now = self.progress
        copies = {c: {name: tensor.detach().clone() for name, tensor in m.items()} for c, m in models.items()}
        self.progress = replace(
            now, personal=now.personal | copies, measured_in=now.measured_in | dict.fromkeys(models, now.round)
        )

    def _fine_tuned(self, cohort: Sequence[int]) -> dict[int, Params] | None:
        """What the clients of the cohort make of the server's model to be measured; None: no more than they have
        trained."""
        now, clients = self.progress, [self.data.clients[c] for c in cohort]
        return executors.fine_tuned(
            self.method, self.config, self.fed, now.round, now.state, now.client_states, clients, self.executor
        )

    def _evaluate_others(self, results: Mapping[int, ClientResult]) -> Row:
        """The local metrics of what clients have beside their main model."""
        row: Row = {}
        for name in self.method.other_networks:
            models = {c: partial(self._loaded, r.others[name], c, name) for c, r in results.items() if name in r.others}
            if models:
                metrics, _ = evaluation.local_metrics(self.fed, self.data, models)
                row |= {_of_readout(name, metric): value for metric, value in metrics.items()}
        return row

    def _loaded(self, params: Params, client: int | None = None, other: str | None = None) -> nn.Module:
        """The module of the global model, or of that client's model or its `other` one, holding `params`."""
        if client is None:
            module = self.method.global_network(self.config, self.fed)
        elif other is None:
            module = self.method.client_network(self.config, self.fed, client)
        else:
            module = self.method.other_networks[other](self.config, self.fed, client)
        put(module, params)
        return module

    def _to_target(self, t: int, row: Row) -> Row:
        """Rounds and bytes until the target was reached, null before."""
        if self.settings.target <= 0:
            return {}
        now = self.progress
        spent = now.traffic + row["bytes_up"] + row["bytes_down"]
        rounds, sent = dict(now.reached), dict(now.reached_bytes)
        for prefix in ("val_", ""):
            if row.get(prefix + self.settings.target_metric, -math.inf) >= self.settings.target:
                rounds.setdefault(prefix, t)
                sent.setdefault(prefix, spent)
        self.progress = replace(now, reached=rounds, traffic=spent, reached_bytes=sent)
        return {
            f"{prefix}{name}_to_target": found.get(prefix)
            for prefix in ("val_", "")
            for name, found in (("rounds", rounds), ("bytes", sent))
        }

    def global_model(self) -> Params | None:
        """The model behind global accuracy, None where the method has none."""
        return self.method.global_model(self.config, self.fed, self.progress.state)

    def save(self) -> Any:
        """The progress as a tree for `checkpoint.save`."""
        return to_tree(self.progress)

    def load(self, tree: Any) -> None:
        """Continues from a tree that `save` made."""
        progress = from_tree(Progress, tree)
        client_states = {
            int(client): from_tree(self.method.ClientState, client_state)
            for client, client_state in progress.client_states.items()
        }
        self.progress = replace(
            progress, state=from_tree(self.method.State, progress.state), client_states=client_states
        )


def run_together(simulations: Sequence[Simulation]) -> list[Row]:
    """The next round of several simulations of one configuration, a line of the record for each; see
    `exchange_together`."""
    exchanged = exchange_together(simulations)
    return [
        simulation._measured(row, results) for simulation, (row, results) in zip(simulations, exchanged, strict=True)
    ]


def exchange_together(simulations: Sequence[Simulation]) -> list[tuple[Row, dict[int, ClientResult]]]:
    """The next round of several simulations of one configuration, without measuring their models.

    Stacked clients (executor `vmap`) are trained across simulations, so that seeds are one more batch dimension; the
    time of all clients is then divided evenly. In a loop the simulations follow one another."""
    method, stacked = simulations[0].method, simulations[0].executor == "vmap"
    if len(simulations) > 1 and not stacked:
        return [one for simulation in simulations for one in exchange_together([simulation])]
    started = _now(simulations[0].fed.device)
    downs = [Counter(s._bytes("bytes_down", {})) for s in simulations]
    clients = (simulation._clients(down) for simulation, down in zip(simulations, downs, strict=True))
    if stacked:
        calls = [list(iterator) for iterator in clients]
        done = iter(train_stacked(simulations[0].config, [_task(method, call) for call in chain(*calls)]))
        results = [{call.data.client: next(done) for call in own} for own in calls]
    else:
        graphs = simulations[0].graphs
        results = [{call.data.client: _client(method, call, graphs) for call in own} for own in clients]
    seconds = (_now(simulations[0].fed.device) - started) / len(simulations)
    return [(s._served(down, done, seconds), done) for s, down, done in zip(simulations, downs, results, strict=True)]


def _now(device: torch.device) -> float:
    """The time in seconds, once `device` has finished: a GPU is told what to do long before it has done it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _task(method: Method, call: _ClientCall) -> Task:
    assert method.job is not None
    job = method.job(call.config, call.fed, call.payload, call.client_state, call.data, call.rng)
    return Task(job, job.data or call.data, call.rng)


def _client(method: Method, call: _ClientCall, graphs: Graphs | None) -> ClientResult:
    if graphs is not None:
        return graphs.train(_task(method, call))
    return method.client(call.config, call.fed, call.payload, call.client_state, call.data, call.rng)


def choose_cohort(settings: FederationConfig, rng: Any, round_: int) -> Cohort:
    """The clients of round `round_`: `active_clients` drawn without replacement, each slow with probability
    `stragglers`.

    At least one client always returns: where all would be lost, the first one drawn is not."""
    active = settings.active_clients or settings.clients
    draws = rng.child("cohort", round_).numpy()
    order = draws.permutation(settings.clients)[:active]
    slow = draws.random(active) < settings.stragglers
    step_shares = [settings.straggler_work if s else 1.0 for s in slow]
    if not any(step_shares):
        step_shares[0] = 1.0
    pairs = sorted(zip(order.tolist(), step_shares, strict=True))
    return Cohort(tuple(c for c, _ in pairs), tuple(w for _, w in pairs))


def _of_readout(name: str, metric: str) -> str:
    """`val_amp` of the readout `oca` is `val_oca_amp`."""
    return f"val_{name}_{metric.removeprefix('val_')}" if metric.startswith("val_") else f"{name}_{metric}"


def _finite(value: Any) -> Any:
    """JSON has no NaN: a number that is not finite is recorded as null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
