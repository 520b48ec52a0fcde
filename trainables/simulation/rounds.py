"""The only round loop: choose the cohort, download, run the clients, server, evaluate.

It knows no method by name and no Ray. One `Simulation` is one federation of one seed; its `Progress` is all that
changes from round to round, so saving it and loading it elsewhere continues bit for bit.
"""

from __future__ import annotations

import copy
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from search_spaces import client_columns, own_files
from search_spaces import kept_images as kept
from search_spaces.errors import UserError
from search_spaces.metrics import METRICS
from search_spaces.parameter import Value
from trainables import own_metrics, registry
from trainables.federation import ClientData, FederationConfig
from trainables.kernels.recorded_steps import CudaGraphs
from trainables.local import LocalJob
from trainables.local import trained as trained_alone
from trainables.method import Method, stackable
from trainables.models.precision import arithmetic
from trainables.params import WeightedSum, count_bytes, equal, is_same, put, versions
from trainables.rng import Rng
from trainables.simulation import attack, evaluation, executors, federated_data, kept_images
from trainables.simulation.checkpoint import from_tree, page_out, to_tree
from trainables.simulation.cuda_graphs import Graphs
from trainables.simulation.executors import Task, train_stacked
from trainables.wire import ClientResult, OnePass, Params, Payload, Upload
from trainables.worker.process import is_out_of_memory
from trainables.worker.rounds_jsonl import Row as Row

Done = TypeVar("Done")

#: What was measured of a global model, beside its `versions` and whether the test set was.
Remembered = tuple[tuple[tuple[str, Tensor, int], ...] | None, bool, evaluation.GlobalMetrics]


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


#: The fields of `Progress` that hold something large of each client, and of what type it is.
OF_CLIENTS: dict[str, Callable[[Method], Any]] = {
    "client_states": lambda method: method.ClientState,
    "personal": lambda method: None,
}


@dataclass(frozen=True)
class Cohort:
    """The clients of one round in ascending order, and the share of its steps that each manages (0: its upload is
    lost)."""

    clients: tuple[int, ...]
    step_shares: tuple[float, ...]


@dataclass(frozen=True)
class _ClientCall:
    """One client's part in a round: what a method's `client` is given besides the configuration and the federation."""

    payload: Payload
    client_state: Any
    data: ClientData
    rng: Rng
    #: What it trains, where that was made before its turn.
    job: LocalJob | None = None


@dataclass
class Trained:
    """What the clients of a round have handed back, by client in their order."""

    results: dict[int, ClientResult]
    #: Bytes that were sent to them, by the names under which they are counted.
    down: Counter[str]
    #: How long they took.
    seconds: float = 0.0


class _Returned:
    """What the record and the next round need of what the clients of a round have handed back."""

    def __init__(self, up: Mapping[str, int]) -> None:
        """up: no bytes, by the names under which they are counted."""
        self.up = Counter(up)
        self.sent: set[str] = set()
        self.client_states: dict[int, Any] = {}
        #: What clients measured themselves, by client.
        self.numbers: dict[int, Mapping[str, float | None]] = {}

    def add(self, s: Simulation, client: int, result: ClientResult) -> None:
        """Takes in the result of the next client of `s`."""
        self.up.update(s._bytes("bytes_up", result.upload))
        self.sent |= attack.sent(s.method.client_network(s.config, s.fed, client), result.upload)
        if result.client_state is not None:
            before, now = s.progress.client_states.get(client), result.client_state
            if before is not None and s.read_back.pop(client, None) is before:
                page_out(to_tree(before))
            # What changed is told by identity (`trainables.simulation.client_files`). A method must change nothing in
            # place (`trainables.method`); what one of the user's own hands back that did so is saved all the same.
            self.client_states[client] = copy.copy(now) if now is before else now
            s.keeps(self.client_states[client])
        self.numbers[client] = {"train_loss": result.loss} | dict(result.metrics)


class _ClientModels:
    """What is measured of the models that the clients of round `round_` have trained, one client after the other, so
    that none of the models need be kept."""

    def __init__(self, simulation: Simulation, round_: int) -> None:
        self._simulation, self._round = simulation, round_
        method, config = simulation.method, simulation.config
        self._tunes = method.personal is not None and method.personal.training(config) is not None
        self.cohort: list[int] = []
        #: How long it took to measure, where that was between the clients' training.
        self.seconds = 0.0
        #: Those of the cohort that have trained a model, and the sum of these models where their average is measured.
        self.trained: list[int] = []
        self.sum = WeightedSum() if method.measures_virtual(config) else None
        #: By client what was measured of its model, and of its other models by their names.
        self.main: dict[int, Mapping[str, evaluation.Measured]] = {}
        self.others: dict[str, dict[int, Mapping[str, evaluation.Measured]]] = {n: {} for n in method.other_networks}

    def add(self, client: int, result: ClientResult) -> None:
        """Measures what the next client of the cohort has trained."""
        s = self._simulation
        self.cohort.append(client)
        if result.model is not None:
            self.trained.append(client)
            if not self._tunes:
                self.measure(client, result.model)
            if self.sum is not None:
                self.sum.add(result.model, s.fed.sizes[client])
        for name, found in self.others.items():
            if name in result.others:
                module = s._loaded(result.others[name], client, name)
                found[client] = evaluation.measured(module, s.data, client, test=s.measures_test(self._round))

    def measure(self, client: int, model: Params) -> None:
        """Measures the model that predicts for `client`, and keeps it where clients' own models are kept."""
        s = self._simulation
        test = s.measures_test(self._round)
        self.main[client] = evaluation.measured(s._loaded(model, client), s.data, client, s.measures, test)
        if s.keeps_personal:
            # Copies: a cohort that is trained as one program has its weights in one tensor, all of which a checkpoint
            # would hold for each client.
            copy = {name: tensor.detach().clone() for name, tensor in model.items()}
            now = s.progress
            s.progress = replace(
                now, personal=now.personal | {client: copy}, measured_in=now.measured_in | {client: self._round}
            )
            s.keeps(copy)


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
        self.fed = replace(self.fed, precision=executors.arithmetic(self.settings, self.method, self.config, self.fed))
        if problems := registry.kind_problems(self.method, self.config, self.settings, self.fed.kind):
            raise UserError(*problems)
        self.measures = own_metrics.measures(self.settings.own_metrics, self.fed.classes)
        executors.check(self.settings.executor, device)
        self.executor = executors.chosen(self.settings, self.method, self.config, self.fed)
        #: The recorded steps of clients, and those of the server, which last for a round; None where there are none.
        records = self.executor == "graph" and stackable(self.method, self.config)
        self.graphs = Graphs(self.config) if records else None
        self.server_graphs: CudaGraphs | None = None
        if executors.records_server(self.settings, self.method, self.fed):
            self.server_graphs = CudaGraphs()
            self.fed = replace(self.fed, record=self.server_graphs)
        #: Whether clients' own models are kept, where the method has such.
        self.keeps_personal = False
        #: Whether images are kept, and those of the last evaluated round (`trainables.simulation.kept_images`).
        self.keeps_images, self.kept_images = False, kept_images.Arrays()
        #: Whether a trial may end early after a round, which is then measured as a last round is.
        self.may_end: Callable[[int], bool] = lambda round_: False
        #: By round whether it is measured on the test set. (A clock may answer `may_end`, and is asked once.)
        self._tested: dict[int, bool] = {}
        #: By client the state that was read back from a file, which may be mapped from there.
        self.read_back: dict[int, Any] = {}
        #: Told of everything that a client keeps from now on; may put something else in its place (`take`).
        self.keeps: Callable[[Any], None] = lambda held: None
        #: By client the states of the round that is under way.
        self.under_way: dict[int, Any] = {}
        #: The global models of the last evaluated round, with what was measured of them.
        self.remembered: list[Remembered] = []
        rng = self.fed.rng.child("init")
        self.progress = Progress(0, self.method.init(self.config, self.fed, rng), {})

    def run_round(self, trained: Trained | BaseException | None = None) -> Row:
        """Runs the next round and returns its line of the record. trained: as of `exchange`."""
        with arithmetic(self.fed.precision):
            if not self.goes_one_by_one():
                return self._measured(*self.exchange(trained))
            models = _ClientModels(self, self.progress.round + 1)
            row, _ = self.exchange(models=models)
            return self._finished(row, partial(self._evaluate, models), models.seconds)

    def _measured(self, row: Row, results: Mapping[int, ClientResult]) -> Row:
        """The complete line of the round that `exchange` has run: `row` with the metrics of its models."""
        measured = self._finished(row, partial(self.evaluate, results))
        self.kept_images = self._images(results) if self.keeps_images and self._evaluates(self.progress.round) else {}
        return measured

    def _finished(self, row: Row, evaluate: Callable[[], Row], before: float = 0.0) -> Row:
        """`row` with what `evaluate` finds where the round is evaluated, which took `before` seconds already."""
        served = _now(self.fed.device)
        t = self.progress.round
        if self.settings.precision == "auto":
            row |= {"precision": self.fed.precision}
        if self.settings.executor == "auto" and self.executor != "loop":
            row |= {"executor": self.executor}
        if self.settings.executor == "auto" and self.server_graphs is not None:
            row |= {"server_executor": "graph"}
        if self._evaluates(t):
            row |= evaluate()
        if t == self.settings.rounds and self.settings.attack_images:
            row["psnr"] = attack.mean_psnr(self.leaks(self.settings.attack_images))
        row |= self._to_target(t, row)
        took = before + _now(self.fed.device) - served
        row |= {"seconds_evaluation": took, "seconds": row["seconds_client"] + row["seconds_server"] + took}
        return {key: _finite(value) for key, value in row.items()}

    def goes_one_by_one(self) -> bool:
        """Whether nothing needs what all clients of a round hand back at once."""
        return self.executor != "vmap" and not self.keeps_images and self.method.reads_once(self.config)

    def _evaluates(self, t: int) -> bool:
        return t % self.settings.eval_every == 0 or t == self.settings.rounds

    def measures_test(self, t: int) -> bool:
        """Whether round `t` is measured on the test set too, if it is evaluated: where a trial may end before the next
        evaluation it is the last one."""
        if t not in self._tested:
            until = range(t, min(t + self.settings.eval_every, self.settings.rounds))
            ends = self.settings.eval_test == "end" and t < self.settings.rounds
            self._tested[t] = not ends or any(map(self.may_end, until))
        return self._tested[t]

    def planned(self, row: Row) -> Row:
        """A row of an earlier session without what the round would not be measured on now that more rounds are planned:
        a round that was the last one, on the test set."""
        if self.measures_test(row["round"]):
            return row
        return {key: value for key, value in row.items() if f"val_{key}" not in row and key not in client_columns.NAMES}

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

    def exchange(
        self, trained: Trained | BaseException | None = None, models: _ClientModels | None = None
    ) -> tuple[Row, dict[int, ClientResult]]:
        """Runs the next round without measuring its models; returns the start of its row and the clients' results.

        trained: what the clients have handed back already, as they were trained together with those of others
        (`trained_together`). models: the clients go one by one, and what they hand back is measured there and not
        returned."""
        t, device, returned = self.progress.round + 1, self.fed.device, _Returned(self._bytes("bytes_up", {}))
        self.under_way = returned.client_states
        with arithmetic(self.fed.precision):
            uploads: Sequence[Upload]
            if models is not None:
                trained = Trained({}, Counter(self._bytes("bytes_down", {})))
                uploads = self._one_by_one(trained, returned, models)
            else:
                trained = self._trained() if trained is None else trained
                if isinstance(trained, BaseException):
                    raise trained
                uploads = [Upload(client, result.upload) for client, result in trained.results.items()]
            started, rng = _now(device), self.fed.rng.child("round", t, "server")
            try:
                state = self.method.server(self.config, self.fed, self.progress.state, uploads, rng)
                if isinstance(uploads, OnePass):
                    uploads.exhaust()
                served = _now(device) - started - (0.0 if models is None else trained.seconds + models.seconds)
            finally:
                if self.server_graphs is not None:  # which the device has gone through by now
                    self.server_graphs.release()
            for client, result in trained.results.items():
                returned.add(self, client, result)
        now = self.progress
        self.progress = replace(
            now,
            round=t,
            state=state,
            client_states=now.client_states | returned.client_states,
            sent=tuple(sorted(returned.sent.union(now.sent))),
        )
        self.under_way = {}
        row: Row = {"round": t, "seed": self.fed.seed} | returned.up | trained.down
        row |= self._client_means(returned.numbers) | {"seconds_client": trained.seconds, "seconds_server": served}
        return row, trained.results

    def _trained(self) -> Trained | BaseException:
        """What the next round's clients hand back."""
        if self.executor == "vmap":
            return trained_together([self])[self]
        started, down = _now(self.fed.device), Counter(self._bytes("bytes_down", {}))
        results = {call.data.client: self._client(call) for call in self._clients(self._cohort(), down)}
        return Trained(results, down, _now(self.fed.device) - started)

    def _one_by_one(self, trained: Trained, returned: _Returned, models: _ClientModels) -> OnePass:
        """The uploads for a server that goes over them once: each client trains when the server asks for its upload, is
        measured, and what it has handed back is let go of: two uploads are there at most."""
        cohort, device, evaluates = self._cohort(), self.fed.device, self._evaluates(self.progress.round + 1)
        calls: Iterable[_ClientCall] = self._clients(cohort, trained.down)

        def ahead() -> list[Upload]:
            nonlocal calls
            started = _now(device)
            jobs = [(call, self._job(call)) for call in calls]
            calls = [replace(call, job=job) for call, job in jobs]
            trained.seconds += _now(device) - started
            return [Upload(call.data.client, job.ahead) for call, job in jobs]

        def each() -> Iterator[Upload]:
            started = _now(device)
            for call in calls:
                client, result = call.data.client, self._client(call)
                ended = _now(device)
                trained.seconds += ended - started
                returned.add(self, client, result)
                if evaluates:
                    models.add(client, result)
                models.seconds += _now(device) - ended
                yield Upload(client, result.upload)
                del result
                started = _now(device)

        return OnePass(sum(share > 0 for share in cohort.step_shares), each(), ahead)

    def _tasks(self, down: Counter[str]) -> dict[int, Task]:
        """What the next round's clients train, by client; counts what is sent to them."""
        return {call.data.client: self._task(call) for call in self._clients(self._cohort(), down)}

    def _cohort(self) -> Cohort:
        """The clients of the next round."""
        return choose_cohort(self.settings, self.fed.rng, self.progress.round + 1)

    def _clients(self, cohort: Cohort, down: Counter[str]) -> Iterator[_ClientCall]:
        """The next round's clients as their turns come, without those whose upload is lost; counts what is sent to
        them."""
        t = self.progress.round + 1
        for client, step_share in zip(cohort.clients, cohort.step_shares, strict=True):
            payload = self.method.download(self.config, self.fed, self.progress.state, client)
            down.update(self._bytes("bytes_down", payload))
            if step_share > 0:
                data = federated_data.with_step_share(self.data.clients[client], step_share)
                rng = self.fed.rng.child("round", t, "client", client)
                yield _ClientCall(payload, self.progress.client_states.get(client), data, rng)

    def _job(self, call: _ClientCall) -> LocalJob:
        """What a client trains."""
        assert self.method.job is not None
        if call.job is not None:
            return call.job
        return self.method.job(self.config, self.fed, call.payload, call.client_state, call.data, call.rng)

    def _task(self, call: _ClientCall) -> Task:
        """What a client trains, and on what."""
        job = self._job(call)
        return Task(self.config, job, job.data or call.data, call.rng)

    def _client(self, call: _ClientCall) -> ClientResult:
        """What a client hands back after its training."""
        if self.graphs is not None:
            return self.graphs.train(self._task(call))
        if call.job is not None:
            return trained_alone(self.config, call.job, call.data, call.rng)
        return self.method.client(self.config, self.fed, call.payload, call.client_state, call.data, call.rng)

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

    def _client_means(self, per_client: Mapping[int, Mapping[str, float | None]]) -> Row:
        """What clients measured themselves, averaged by client size."""
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
        models = _ClientModels(self, self.progress.round)
        for client, result in results.items():
            models.add(client, result)
        return self._evaluate(models)

    def _evaluate(self, models: _ClientModels) -> Row:
        """Metrics of the global model and of those of the clients."""
        row: Row = {}
        model, test = self.global_model(), self.measures_test(self.progress.round)
        before, self.remembered = self.remembered, []
        if model is not None:
            found = self._global_metrics(model, before)
            row |= {"client_accuracy": list(found.accuracies)} | found.metrics
        if self.method.readouts is not None:
            for name, readout in self.method.readouts(self.config, self.fed, self.progress.state).items():
                metrics = self._global_metrics(readout, before).metrics
                row |= {
                    key: value for metric, value in metrics.items() if (key := _of_readout(name, metric)) in METRICS
                }
        for client, tuned in (self._fine_tuned(models.cohort) or {}).items():
            models.measure(client, tuned)
        if models.main:
            metrics, row["local_accuracies"] = evaluation.local_metrics(
                self.fed, self.data, models.main, self.measures, test
            )
            row |= metrics
        if models.trained and models.sum is not None:
            virtual = models.sum.mean()
            if model is not None and equal(
                virtual, model
            ):  # all clients were there and the server does no more: measured above
                row |= {
                    f"{prefix}g_acc_virtual": row[f"{prefix}global_accuracy"]
                    for prefix in ("val_", "")
                    if f"{prefix}global_accuracy" in row
                }
            else:
                row |= evaluation.accuracy(self._loaded(virtual, models.trained[0]), self.data, "g_acc_virtual", test)
        for name, others in models.others.items():
            if others:
                metrics, _ = evaluation.local_metrics(self.fed, self.data, others, test=test)
                row |= {_of_readout(name, metric): value for metric, value in metrics.items()}
        return row if test else {key: value for key, value in row.items() if key not in client_columns.NAMES}

    def _global_metrics(self, params: Params, before: Sequence[Remembered]) -> evaluation.GlobalMetrics:
        """The metrics of a global model. One that was measured in this round or the one `before` is not measured
        again: a method may keep its model for several rounds, or have it as a readout too."""
        now, test = versions(params), self.measures_test(self.progress.round)
        known = (found for seen, tested, found in (*self.remembered, *before) if tested == test and is_same(seen, now))
        metrics = next(known, None)
        if metrics is None:
            metrics = evaluation.global_metrics(self._loaded(params), self.data, self.measures, test)
        self.remembered.append((now, test, metrics))
        return metrics

    def _fine_tuned(self, cohort: Sequence[int]) -> dict[int, Params] | None:
        """What the clients of the cohort make of the server's model to be measured; None: no more than they have
        trained."""
        now, clients = self.progress, [self.data.clients[c] for c in cohort]
        return executors.fine_tuned(
            self.method, self.config, self.fed, now.round, now.state, now.client_states, clients, self.executor
        )

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
        """Rounds and bytes until the target was reached, null before; on the test set only where every evaluation
        measures on it."""
        if self.settings.target <= 0:
            return {}
        prefixes = ("val_", "") if self.settings.eval_test == "every" else ("val_",)
        now = self.progress
        spent = now.traffic + row["bytes_up"] + row["bytes_down"]
        rounds, sent = dict(now.reached), dict(now.reached_bytes)
        for prefix in prefixes:
            if row.get(prefix + self.settings.target_metric, -math.inf) >= self.settings.target:
                rounds.setdefault(prefix, t)
                sent.setdefault(prefix, spent)
        self.progress = replace(now, reached=rounds, traffic=spent, reached_bytes=sent)
        return {
            f"{prefix}{name}_to_target": found.get(prefix)
            for prefix in prefixes
            for name, found in (("rounds", rounds), ("bytes", sent))
        }

    def global_model(self) -> Params | None:
        """The model behind global accuracy, None where the method has none."""
        return self.method.global_model(self.config, self.fed, self.progress.state)

    def confusion(self) -> dict[str, Tensor] | None:
        """What the global model takes the samples of each class for (`evaluation.confusion`), None where there is no
        such model."""
        params = self.global_model()
        if params is None:
            return None
        with arithmetic(self.fed.precision):
            return evaluation.confusion(self.data, self._global_metrics(params, ()).taken)

    def save(self) -> Any:
        """The progress as a tree for `checkpoint.save`, without what `of_clients` returns."""
        return to_tree(replace(self.progress, client_states={}, personal={}))

    def of_clients(self) -> dict[tuple[str, int], Any]:
        """What the progress holds of each client that takes space, by its field and the client."""
        now = self.progress
        held = {(name, client): held for name in OF_CLIENTS for client, held in getattr(now, name).items()}
        return held | {("client_states", client): state for client, state in self.under_way.items()}

    def load(self, tree: Any) -> None:
        """Continues from a tree that `save` made, once `take` has put in what was kept of the clients."""
        progress = from_tree(Progress, tree)
        self.progress = replace(progress, state=from_tree(self.method.State, progress.state))

    def take(self, found: Mapping[tuple[str, int], Any]) -> None:
        """Puts trees of what `of_clients` returned in the place of what is there, or behind it."""
        held: dict[str, dict[int, Any]] = {name: dict(getattr(self.progress, name)) for name in OF_CLIENTS}
        for (name, client), tree in found.items():
            now = from_tree(OF_CLIENTS[name](self.method), tree)
            of_round = name == "client_states" and client in self.under_way
            (self.under_way if of_round else held[name])[client] = now
            if name == "client_states":
                self.read_back[client] = now
        self.progress = replace(self.progress, client_states=held["client_states"], personal=held["personal"])


def trained_together(simulations: Sequence[Simulation]) -> dict[Simulation, Trained | BaseException]:
    """What the clients of the next round hand back, of every simulation whose clients are stacked (executor `vmap`):
    they are trained as one program, whatever their configurations and seeds; trials and seeds are one more batch
    dimension. The time is divided evenly. In the place of a simulation that fails is its exception.

    Where memory does not suffice for all of them, that is every one's exception; after any other failure of the common
    program each is trained by itself, to know whose it is."""
    found: dict[Simulation, Trained | BaseException] = {}
    alike: dict[str, list[Simulation]] = {}
    for s in simulations:
        if s.executor == "vmap":
            alike.setdefault(s.fed.precision, []).append(s)
    for precision, group in alike.items():
        with arithmetic(precision):
            started, device = _now(group[0].fed.device), group[0].fed.device
            downs = [Counter(s._bytes("bytes_down", {})) for s in group]
            tasks = [_attempted(s._tasks, down) for s, down in zip(group, downs, strict=True)]
            able = [own for own in tasks if not isinstance(own, BaseException)]
            together = _attempted(train_stacked, [task for own in able for task in own.values()])
            if isinstance(together, BaseException) and len(able) > 1 and not is_out_of_memory(together):
                parts = [_attempted(train_stacked, list(own.values())) for own in able]
            elif isinstance(together, BaseException):
                parts = [together] * len(able)
            else:
                done = iter(together)
                parts = [[next(done) for _ in own] for own in able]
            seconds, trained = (_now(device) - started) / len(group), iter(parts)
        for s, own, down in zip(group, tasks, downs, strict=True):
            if isinstance(own, BaseException):
                found[s] = own
            elif isinstance(results := next(trained), BaseException):
                found[s] = results
            else:
                found[s] = Trained(dict(zip(own, results, strict=True)), down, seconds)
    return found


def _attempted(work: Callable[..., Done], *given: Any) -> Done | BaseException:
    """What it returns, or the exception that it raises."""
    try:
        return work(*given)
    except own_files.RAISED as error:
        return error


def _now(device: torch.device) -> float:
    """The time in seconds, once `device` has finished: a GPU is told what to do long before it has done it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


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
