"""What a search would cost, from a few rounds that are measured here, or from the first steps of one.

Where rounds are long, each of a round's three phases is cut short in its own way, and what is left out is added in
proportion.

    clients      a client of every architecture takes one step and then some more; a client's time is a part of its own
                 and a part per step
    server       it gets as many uploads as in a whole round, but takes only a few steps (parameters with `work`). How
                 much more a whole round computes is counted, not timed: multiply-adds and operations, with few steps
                 and few samples in each
    evaluation   it measures the models on a few images, and on some more
"""

from __future__ import annotations

import copy
import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fedtune.machine import resources
from fedtune.planning.timed_federations import as_a_trial, intervals, share_of_rounds, typical
from fedtune.record.experiment import Experiment
from search_spaces.parameter import Value
from search_spaces.run_folder import FIXED

if TYPE_CHECKING:
    from fedtune.planning.plan import Plan
    from trainables.federation import ClientData, Federation
    from trainables.simulation.rounds import Simulation
    from trainables.wire import ClientResult, Params

#: How many seconds an estimate counts for planning and for starting Ray and the first workers (`benchmarks/cases/
#: start.py` has some 5 to the first round), and how many more where workers do not fork: on GPUs and on a cluster.
START_UP, SPAWNED = 6.0, 4.0
#: Rounds of which the three that are timed would take longer than so many seconds are not timed as they are.
PATIENCE = 5.0
#: What is concluded from first steps may be wrong by so much of itself.
ERROR = 0.25
#: The server gets the uploads of at most so many clients. Where more take part, half of it tells what each adds.
MOST = 10
#: Clients are timed for one step and for this many.
STEPS = 3
#: Models are measured on so many images of each set, and each client's model on so many of its own share.
IMAGES, OWN_IMAGES = 128, 16
#: So many samples are in a step of the server whose work is counted.
SAMPLES = 2
#: An operation costs as much time as about so many multiply-adds, beside those that it does.
OPERATION = 250_000


@dataclass(frozen=True)
class Estimate:
    """What a search would cost; times in seconds."""

    plan: Plan
    round_seconds: float
    at_most: float
    rounds: int = field(default=0)
    #: By what share of itself the cost of a round may be wrong, where it is concluded from a round's first steps.
    error: float = 0.0


@dataclass(frozen=True)
class RoundCost:
    """The average seconds of a round, and by what share of them that may be wrong where it is concluded."""

    seconds: float
    error: float = 0.0


def estimate(planned: Plan) -> Estimate:
    """What a round of one configuration in the middle of the space costs here, for one seed; see `timed_cost`. Work
    that is not done in every round counts in proportion."""
    e = planned.experiment
    # The GPUs may be those of other machines of a cluster.
    device = "cuda" if e.gpus_per_trial and (e.address is None or resources.machine().gpus) else "cpu"
    cost = timed_cost(e.method, planned.middle, e.seeds[0], device=device, threads=e.threads, data_dir=e.data_dir)
    whole = e.seed_rounds // (e.rounds * e.each)
    spawned = SPAWNED if e.gpus_per_trial or e.address is not None else 0.0
    at_most = START_UP + spawned + turns(e, whole) * e.rounds * e.each * cost.seconds
    at_most = min(at_most, e.time) if e.time is not None else at_most
    return Estimate(planned, cost.seconds, at_most, e.seed_rounds, cost.error)


def turns(e: Experiment, whole: int) -> int:
    """After how many times a trial's duration so many trials have ended, where all take equally long and none is
    stopped: each waits for a slot, and in the fixed order for the trials that it sees."""
    ended = [0] * e.taken
    for number in range(e.taken, e.taken + whole):
        waits = e.looks_back and e.order == FIXED
        before = [number - e.concurrency, *([e.seen(number) - 1] if waits else [])]
        ended.append(1 + max((ended[other] for other in before if other >= 0), default=0))
    return ended[-1] if ended else 0


def timed_cost(
    method: str,
    values: Mapping[str, Value],
    seed: int,
    *,
    device: str,
    threads: int,
    data_dir: str | None,
    known: Known | None = None,
) -> RoundCost:
    """What a round of one seed costs with these `values`, which are complete. Three rounds are run now where they take
    no longer than `PATIENCE`, and where clients are trained as one program, of which no part tells the whole.

    known: what other configurations have told, on the same device; what computes the same is not timed again."""
    from trainables import registry
    from trainables.simulation.replicates import Replicates

    with as_a_trial(threads):
        short = registry.possible(method, {**values, "rounds": 2})
        federation = Replicates(method, short, (seed,), device=device, data_dir=data_dir)
        simulation = federation.simulations[0]
        if simulation.executor != "vmap":
            seconds = concluded(simulation, values, _clock(device, threads), known)
            if 3 * seconds > PATIENCE:
                return RoundCost(seconds, ERROR)
        return RoundCost(typical(federation, values, PATIENCE)[0])


def taking_part(values: Mapping[str, Value]) -> int:
    """How many clients take part in a round."""
    clients = values["active_clients"] or values["clients"]
    assert isinstance(clients, int)
    return clients


def _clock(device: str, threads: int) -> Callable[[], float]:
    """Seconds of computing where that is what one thread of a processor does: beside other work the clock on the wall
    would say more than a round costs."""
    import torch

    if device == "cpu":
        return time.process_time if threads == 1 else time.perf_counter

    def finished() -> float:
        torch.cuda.synchronize()
        return time.perf_counter()

    return finished


# -- a round cut short ---------------------------------------------------------------------------------------------


#: Seconds of what was timed, by what was computed.
Known = dict[tuple[object, ...], float]


def concluded(
    simulation: Simulation,
    values: Mapping[str, Value],
    clock: Callable[[], float] = time.process_time,
    known: Known | None = None,
) -> float:
    """The average seconds of a round of a simulation that has not begun, from a round's first steps. The simulation
    stays as it is."""
    return _ShortRound(simulation, values, clock, {} if known is None else known).seconds()


class _ShortRound:
    """The parts of a simulation's round, each cut short and timed by itself.

    Most methods do less in their first round, so one is run before anything is timed, with a step of a client of every
    architecture, whose upload then stands for those of all clients like it."""

    def __init__(
        self, simulation: Simulation, values: Mapping[str, Value], clock: Callable[[], float], known: Known
    ) -> None:
        self.simulation, self.values, self.clock, self.known = copy.copy(simulation), values, clock, known
        self.method, self.fed = simulation.method, simulation.fed
        self.taking_part = taking_part(values)
        self.clients = _spread([self._work(client) for client in simulation.data.clients], min(self.taking_part, MOST))
        self.results: dict[int, ClientResult] = {}
        #: What a step of a client computes, by the first client of its group; and what measuring all models does.
        self.computed: dict[int, tuple[float, int]] = {}
        self.measured = 0.0, 0
        #: Of the server, by numbers of steps, uploads and whether the round is the last one.
        self.served: dict[tuple[object, ...], float] = {}

    def seconds(self) -> float:
        """Seconds of a round, with what is not done in every round in proportion."""
        apart = intervals(self.values)
        self._first_round()
        clients, server = self._clients(), self._server(last=False)
        every = share_of_rounds(self.values, self.values.get("eval_every", 1))
        changes = every
        if apart:  # all that is done at intervals is done in the last round
            seldom = share_of_rounds(self.values, min(apart))
            server += max(0.0, self._server(last=True) - server) * seldom
            changes = min(every, seldom) if self._keeps_model() else every
        of_server, own = self._evaluation()
        return clients + server + of_server * changes + own * every

    # -- clients

    def _work(self, client: ClientData) -> float:
        """The samples that a client computes with in a round."""
        batch: int = min(self.simulation.config.batch_size, len(client))
        return self._steps(self.simulation.config, client) * batch

    @staticmethod
    def _steps(config: Any, client: ClientData) -> int:
        """The steps of a client's round; see `trainables.local.draw_batches`."""
        passes, batch = config.local_epochs, min(config.batch_size, len(client))
        return int(passes * max(1, len(client) // batch) if passes else config.local_steps)

    def _alike(self) -> list[list[int]]:
        """The chosen clients, those together whose models are of one architecture and width."""
        groups: dict[tuple[object, ...], list[int]] = {}
        for client in self.clients:
            network = self.method.client_network(self.simulation.config, self.fed, client)
            shapes = tuple((name, tensor.shape) for name, tensor in network.state_dict().items())
            groups.setdefault(shapes, []).append(client)
        return list(groups.values())

    def _federation(self, last: bool) -> Federation:
        """The federation, whose next round is the last one planned or not."""
        return replace(self.fed, rounds=self.simulation.progress.round + 1 if last else 1_000_000)

    def _client(self, client: int, steps: int, *, last: bool = False) -> ClientResult:
        """What a client makes of the first so many steps of its round."""
        s, data = self.simulation, self.simulation.data.clients[client]
        data = replace(data, step_share=min(1.0, steps / self._steps(s.config, data)))
        fed = self._federation(last)
        payload = self.method.download(s.config, fed, s.progress.state, client)
        rng = self.fed.rng.child("round", s.progress.round + 1, "client", client)
        return self.method.client(s.config, fed, payload, s.progress.client_states.get(client), data, rng)

    def _first_round(self) -> None:
        """A round with a step of one client of each group, and with the fewest steps of the server."""
        from trainables.work import counting

        for group in self._alike():
            with counting() as counted:
                one = self._client(group[len(group) // 2], 1, last=True)
            self.results |= dict.fromkeys(group, one)
            self.computed[group[0]] = counted.multiply_adds, counted.operations
        state = self._serve({**self._fewest(), **self._few_samples()}, last=True)
        kept = {client: r.client_state for client, r in self.results.items() if r.client_state is not None}
        s = self.simulation
        s.progress = replace(s.progress, round=1, state=state, client_states=kept)

    def _clients(self) -> float:
        """Seconds of all clients of a round: each has a part of its own, and a part per sample of its steps."""
        data, own, per_sample = self.simulation.data.clients, [], []
        for group in self._alike():
            client = group[len(group) // 2]
            planned = self._steps(self.simulation.config, data[client])
            some = min(STEPS, planned)
            once, more = (
                self._timed(lambda: self._client(client, steps), "client", steps, self.computed[group[0]])  # noqa: B023
                for steps in (1, some)
            )
            step = max(0.0, more - once) / max(1, some - 1)
            batch = min(self.simulation.config.batch_size, len(data[client]))
            own += [once - step] * len(group)
            per_sample += [step / batch] * len(group)
        slow, manages = self.simulation.settings.stragglers, self.simulation.settings.straggler_work
        work = statistics.fmean(self._work(client) for client in data) * (1 - slow + slow * manages)
        return self.taking_part * (max(0.0, statistics.fmean(own)) + statistics.fmean(per_sample) * work)

    # -- server

    def _named(self, work: str) -> dict[str, int]:
        """The method's parameters that count so the server's work, by the name of their field, with their values."""
        from trainables import registry

        found = {p.name: self.values[key] for key, p in registry.declared(self.method.name).items() if p.work == work}
        return {name: value for name, value in found.items() if isinstance(value, int)}

    def _many(self) -> dict[str, int]:
        """The counts of steps that are worth cutting short."""
        return {name: steps for name, steps in self._named("steps").items() if steps > 2}

    def _few_samples(self) -> dict[str, int]:
        return {name: min(SAMPLES, samples) for name, samples in self._named("samples").items()}

    def _fewest(self) -> dict[str, int]:
        return dict.fromkeys(self._many(), 1)

    def _serve(self, changed: Mapping[str, int], *, last: bool, clients: int | None = None) -> Any:
        """The state that the server makes of the uploads of the first `clients` of those that were chosen."""
        from trainables.wire import Upload

        s = self.simulation
        uploads = [Upload(client, self.results[client].upload) for client in self.clients[:clients]]
        rng = self.fed.rng.child("round", s.progress.round + 1, "server")
        config = replace(s.config, **changed)
        return self.method.server(config, self._federation(last), s.progress.state, uploads, rng)

    def _server(self, *, last: bool) -> float:
        """Seconds of the server in a round: those with the fewest steps, times how much more a whole round computes.

        It is timed with two uploads; with as many as there are where that takes no longer than a second."""
        few, all_ = min(2, len(self.clients)), len(self.clients)
        whole = self._computed(self._many(), all_, last)
        if self.taking_part > all_:
            half = all_ // 2
            whole += (self.taking_part - all_) * (whole - self._computed(self._many(), half, last)) / (all_ - half)
        timed, at_all = (self._computed(self._fewest(), clients, last) for clients in (few, all_))
        seconds = self._shortest_server(few, timed, last)
        if few < all_ and seconds * at_all < timed:
            seconds, timed = self._shortest_server(all_, at_all, last), at_all
        return seconds * whole / timed if timed else seconds  # a server without a model computes nothing

    def _shortest_server(self, clients: int, computed: float, last: bool) -> float:
        """Seconds of the server with the fewest steps, and so many uploads."""
        return self._timed(lambda: self._serve(self._fewest(), last=last, clients=clients), "server", computed)

    def _computed(self, steps: Mapping[str, int], clients: int, last: bool) -> float:
        """What the server computes with so many steps and uploads, counted in multiply-adds.

        The count is linear in each number of steps, so it follows from those with 1 and with 2 of each:
        `u(n) = (2 - n) u(1) + (n - 1) u(2)`, and likewise in several at once."""
        samples = self._few_samples()
        larger = max((value / samples[name] for name, value in self._named("samples").items()), default=1.0)
        from trainables.work import counting

        found = 0.0
        for corner in itertools.product((1, 2), repeat=len(steps)):
            weight = math.prod(2 - n if at == 1 else n - 1 for at, n in zip(corner, steps.values(), strict=True))
            if weight:
                changed = dict(zip(steps, corner, strict=True))
                key = (tuple(changed.items()), clients, last)
                if key not in self.served:
                    with counting() as counted:
                        self._serve({**changed, **samples}, last=last, clients=clients)
                    self.served[key] = counted.multiply_adds * larger + counted.operations * OPERATION
                found += weight * self.served[key]
        return found

    def _keeps_model(self) -> bool:
        """Whether the server's model stays what it is in a round without work that is done at intervals. It is not
        measured again then."""
        from trainables.params import is_same, versions

        s = self.simulation
        before = s.global_model()
        after = self.method.global_model(s.config, self.fed, self._serve(self._fewest(), last=False))
        return before is not None and after is not None and is_same(versions(before), versions(after))

    # -- evaluation

    def _evaluation(self) -> tuple[float, float]:
        """Seconds of measuring the server's models on all images, and the clients' on theirs. What an image adds is
        what more of them took; and where clients fine-tune a model for this, likewise what a step adds."""
        from trainables.work import counting

        s, method = self.simulation, self.method
        # A round measures on the test set, or only the last one does, which is then as many images less in each.
        every = s.measures_test(s.progress.round)
        parts = [part for part in (s.data.validation, s.data.test if every else None) if part is not None]
        at_end = 0.0 if every else share_of_rounds(self.values, self.values["rounds"])
        results, fewer = self.results, OWN_IMAGES
        with counting() as counted:  # the first time takes longer
            self._shortened(IMAGES, fewer, 1).evaluate(results)
        self.measured = counted.multiply_adds, counted.operations

        few, more, all_ = (sum(min(n, len(p.indices)) for p in parts) for n in (IMAGES, 2 * IMAGES, math.inf))
        all_ += at_end * len(s.data.test.indices)
        once = self._measure({}, IMAGES, fewer)
        server = _extended(once, self._measure({}, 2 * IMAGES, fewer) if more > few else once, few, more, all_)
        models = {client: r.model for client, r in results.items() if r.model is not None}
        if models and method.measures_virtual(s.config) and not self._is_global(models):
            server *= 2

        shares = [[p.own[c] if p.own else p.shares[c] for c in self.clients] for p in parts]
        few, more, all_ = (
            sum(min(n, len(share)) for own in shares for share in own) for n in (fewer, 2 * fewer, math.inf)
        )
        of_test = s.data.test.own or s.data.test.shares
        all_ += at_end * sum(len(of_test[client]) for client in self.clients)
        none, once = self._measure({}, fewer, fewer), self._measure(results, fewer, fewer)
        own = _extended(once, self._measure(results, fewer, 2 * fewer) if more > few else once, few, more, all_) - none
        training = method.personal.training(s.config) if method.personal is not None else None
        if training is not None:
            planned = statistics.fmean(self._steps(training, s.data.clients[client]) for client in self.clients)
            if planned > 1:
                own += (planned - 1) * max(0.0, self._measure(results, fewer, fewer, 2) - once)
        return server, max(0.0, own) * self.taking_part / len(self.clients)

    def _is_global(self, models: Mapping[int, Params]) -> bool:
        """Whether the clients' average is the global model, which is then measured once for both."""
        from trainables.params import average, equal

        model = self.simulation.global_model()
        virtual = average((m, self.fed.sizes[client]) for client, m in sorted(models.items()))
        return model is not None and self.taking_part == self.fed.clients and equal(virtual, model)

    def _measure(self, results: Mapping[int, ClientResult], images: int, own: int, steps: int = 1) -> float:
        """Seconds of measuring the models of these clients, and the server's, as `_shortened` has it."""
        short = self._shortened(images, own, steps)
        return self._timed(lambda: short.evaluate(results), "measure", self.measured, len(results), images, own, steps)

    def _shortened(self, images: int, own: int, steps: int) -> Simulation:
        """The simulation with so many images of each set, so many of each client's own among these, and so many steps
        of a client's fine-tuning."""
        s, personal = copy.copy(self.simulation), self.method.personal
        training = personal.training(s.config) if personal is not None else None
        clients = s.data.clients
        if training is not None:
            clients = tuple(replace(c, step_share=min(1.0, steps / self._steps(training, c))) for c in clients)
        validation = None if s.data.validation is None else s.data.validation.some(images, own)
        s.remembered = []
        s.data = replace(s.data, clients=clients, validation=validation, test=s.data.test.some(images, own))
        return s

    def _timed(self, run: Callable[[], Any], *computed: object) -> float:
        """Seconds of a run; it is not run where one is known that `computed` the same."""
        if computed not in self.known:
            begun = self.clock()
            run()
            self.known[computed] = self.clock() - begun
        return self.known[computed]


def _extended(once: float, more: float, few: float, some: float, all_: float) -> float:
    """The seconds of `all_` where `few` take `once` and `some` take `more`."""
    return once + max(0.0, more - once) * (all_ - few) / (some - few) if some > few else once


def _spread(work: Sequence[float], count: int) -> list[int]:
    """So many clients, spread evenly over those in the order of their `work`; in ascending order."""
    order = sorted(range(len(work)), key=lambda client: (work[client], client))
    return sorted(order[(2 * i + 1) * len(order) // (2 * count)] for i in range(count))
