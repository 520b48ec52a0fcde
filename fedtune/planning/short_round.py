"""The cost of a round that is too long to be timed, from parts of it.

Each of a round's three phases is cut short in its own way, and what is left out is added in proportion. How much of a
phase is timed follows from what the least of it took: the more, the less is concluded.

    clients      a client of every architecture takes one step and then some more; a client's time is a part of its own
                 and a part per step. A step that is long is taken with a smaller batch, and where the part of its own
                 grows with the client's samples, the client has fewer
    server       it gets as many uploads as fit, takes only a few steps (parameters with `work`), and these with fewer
                 samples where one is long. How much more a whole round computes is counted, not timed: multiply-adds
                 and operations, with few steps and few samples in each
    evaluation   it measures the models on a few images, and on some more; of clients that are alike, one's
"""

from __future__ import annotations

import copy
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from fedtune.planning.timed_federations import intervals, share_of_rounds
from search_spaces.parameter import Value

if TYPE_CHECKING:
    from trainables.federation import ClientData, Federation
    from trainables.simulation.federated_data import Part
    from trainables.simulation.rounds import Simulation
    from trainables.wire import ClientResult, Params

#: What is concluded from parts may be wrong by so much of itself.
ERROR = 0.25
#: Seconds that are timed of all clients, of a server, of the evaluation of its models and of that of the clients'; the
#: least of each is timed however long it takes.
CLIENTS, SERVER, EVALUATION = 1.0, 1.2, 0.6
#: The server gets the uploads of at most so many clients. Where more take part, half of it tells what each adds.
MOST = 10
#: Clients are timed for one step and for at most this many. A step takes this part of a client's least, or more.
STEPS, LEAST_STEP = 32, 10
#: The least batch of a client, and the fewest samples that it has; the least batch of a server.
BATCH, DATA, SERVER_BATCH = 2, 32, 8
#: Models are measured on at most so many images of each set, and then on twice as many, and each client's model on so
#: many of its own share; at least on so many.
IMAGES, OWN_IMAGES, LEAST_IMAGES = 128, 64, 8
#: So many samples are in a step of the server whose work is counted.
SAMPLES = 2
#: An operation costs as much time as about so many multiply-adds, beside those that it does.
OPERATION = 250_000

#: Seconds of what was timed, by what was computed.
Known = dict[tuple[object, ...], float]


def concluded(
    simulation: Simulation,
    values: Mapping[str, Value],
    clock: Callable[[], float] = time.process_time,
    known: Known | None = None,
) -> float:
    """The average seconds of a round of a simulation that has not begun, from parts of a round. The simulation stays as
    it is.

    known: what other configurations have told, on the same device; what computes the same is not timed again."""
    from trainables.models.precision import arithmetic

    with arithmetic(simulation.fed.precision):
        return ShortRound(simulation, values, clock, {} if known is None else known).seconds()


def taking_part(values: Mapping[str, Value]) -> int:
    """How many clients take part in a round."""
    clients = values["active_clients"] or values["clients"]
    assert isinstance(clients, int)
    return clients


@dataclass(frozen=True)
class ClientPart:
    """So many first steps of a client's round, with batches of so many samples, by a client that has so many."""

    steps: int
    batch: int
    samples: int


@dataclass(frozen=True)
class ClientWork:
    """What a client's round computes, in multiply-adds: a part of its own, which may grow with its samples, and steps,
    which grow with their batch."""

    fixed: float
    per_sample: float
    fixed_step: float
    per_image: float

    @property
    def grows(self) -> bool:
        """Whether the part of its own does."""
        return self.per_sample > 0

    def own(self, samples: float) -> float:
        """Its own part, of a client with so many samples."""
        return self.fixed + self.per_sample * samples

    def step(self, batch: float) -> float:
        """A step with so many images."""
        return self.fixed_step + self.per_image * batch


@dataclass(frozen=True)
class ServerPart:
    """A server's round with so many uploads, and with so many samples in each of its steps, or fewer where it takes
    fewer."""

    uploads: int
    samples: int


class Counts(NamedTuple):
    """What was computed."""

    multiply_adds: float
    operations: float

    def work(self, larger: float = 1.0) -> float:
        """In multiply-adds, where each operation does so many times as many."""
        return self.multiply_adds * larger + self.operations * OPERATION


class ShortRound:
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
        #: The chosen clients, those together whose models are of one architecture and width.
        self.groups = self._alike()
        #: Of each group the client that stands for it, and what it hands back.
        self.one_of = [group[len(group) // 2] for group in self.groups]
        self.results: dict[int, ClientResult] = {}
        #: What measuring all models computes.
        self.measured = Counts(0, 0)
        #: Of the server, by numbers of steps, uploads and whether the round is the last one.
        self.served: dict[tuple[object, ...], Counts] = {}

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

    def _timed(self, run: Callable[[], Any], *computed: object) -> float:
        """Seconds of a run; it is not run where one is known that `computed` the same."""
        if computed not in self.known:
            begun = self.clock()
            run()
            self.known[computed] = self.clock() - begun
        return self.known[computed]

    # -- clients

    def _work(self, client: ClientData, training: Any = None) -> float:
        """The samples that a client computes with in a round, or in this training."""
        config = training or self.simulation.config
        batch: int = min(config.batch_size, len(client))
        return self._steps(config, client) * batch

    @staticmethod
    def _steps(config: Any, client: ClientData) -> int:
        """The steps of a client's round; see `trainables.local.draw_batches`."""
        passes, batch = config.local_epochs, min(config.batch_size, len(client))
        return int(passes * max(1, len(client) // batch) if passes else config.local_steps)

    def _alike(self) -> list[list[int]]:
        groups: dict[tuple[object, ...], list[int]] = {}
        for client in self.clients:
            network = self.method.client_network(self.simulation.config, self.fed, client)
            shapes = tuple((name, tensor.shape) for name, tensor in network.state_dict().items())
            groups.setdefault(shapes, []).append(client)
        return list(groups.values())

    def _federation(self, last: bool) -> Federation:
        """The federation, whose next round is the last one planned or not."""
        return replace(self.fed, rounds=self.simulation.progress.round + 1 if last else 1_000_000)

    def _client(self, client: int, part: ClientPart, *, last: bool = False) -> ClientResult:
        """What a client makes of a part of its round."""
        s = self.simulation
        data, config = s.data.clients[client].some(part.samples), replace(s.config, batch_size=part.batch)
        planned = max(part.steps, self._steps(config, data))
        config = replace(config, local_steps=planned, local_epochs=0)
        data = replace(data, step_share=part.steps / planned)
        fed = self._federation(last)
        payload = self.method.download(s.config, fed, s.progress.state, client)
        rng = self.fed.rng.child("round", s.progress.round + 1, "client", client)
        return self.method.client(config, fed, payload, s.progress.client_states.get(client), data, rng)

    def _whole(self, client: int) -> ClientPart:
        data = self.simulation.data.clients[client]
        config = self.simulation.config
        return ClientPart(self._steps(config, data), min(config.batch_size, len(data)), len(data))

    def _least(self, client: int) -> ClientPart:
        whole = self._whole(client)
        return ClientPart(1, min(BATCH, whole.batch), min(DATA, whole.samples))

    def _first_round(self) -> None:
        """A round with the least of one client of each group, and with the fewest steps of the server."""
        for group, client in zip(self.groups, self.one_of, strict=True):
            one = self._client(client, self._least(client), last=True)
            self.results |= dict.fromkeys(group, one)
        s = self.simulation
        state = self._serve(self._fewest(), ServerPart(len(self.clients), SAMPLES), last=True)
        kept = {client: r.client_state for client, r in self.results.items() if r.client_state is not None}
        s.progress = replace(s.progress, round=1, state=state, client_states=kept)

    def _clients(self) -> float:
        """Seconds of all clients of a round: each has a part of its own, and a part per sample of its steps."""
        clients, own, steps = self.simulation.data.clients, [], []
        for group, client in zip(self.groups, self.one_of, strict=True):
            of_its_own, step = self._of_client(client, group, CLIENTS / len(self.groups))
            own += [of_its_own] * len(group)
            steps += [step / self._whole(client).batch * self._work(clients[c]) for c in group]
        slow, manages = self.simulation.settings.stragglers, self.simulation.settings.straggler_work
        chosen = statistics.fmean(self._work(clients[c]) for c in self.clients)
        work = statistics.fmean(map(self._work, clients)) / chosen * (1 - slow + slow * manages)
        return self.taking_part * (max(0.0, statistics.fmean(own)) + statistics.fmean(steps) * work)

    def _of_client(self, client: int, group: Sequence[int], allowed: float) -> tuple[float, float]:
        """Seconds of this client's own part, if it had as many samples as the mean of its group, and of one of its
        steps; some `allowed` ones are timed."""
        whole, least = self._whole(client), self._least(client)
        work = self._client_work(client, least)

        def timed(part: ClientPart) -> float:
            return self._timed(partial(self._client, client, part), "client", work, part)

        once, twice = timed(least), timed(replace(least, steps=2))
        step = max(twice - once, once / LEAST_STEP)
        own = max(0.0, once - step)
        samples = whole.samples
        if work.grows and 2 * own * work.own(samples) > allowed * work.own(least.samples):
            fit = least.samples * allowed / (2 * own)
            samples = min(samples, max(least.samples, int(fit)))
        left = max(0.0, allowed - own * work.own(samples) / work.own(least.samples))
        step *= whole.batch / least.batch
        steps = max(2, int(min(STEPS, left / step - 1 if step else STEPS)))
        batch = whole.batch
        if (1 + steps) * step > left:
            batch = max(least.batch, int(batch * left / ((1 + steps) * step)))
        part = ClientPart(1, batch, max(batch, least.samples) if work.grows else whole.samples)
        once, more = timed(part), timed(replace(part, steps=steps))
        step = max(0.0, more - once) / (steps - 1)
        if work.grows:
            part = replace(part, samples=max(batch, samples))
        own, mean = timed(part) - step, statistics.fmean(len(self.simulation.data.clients[c]) for c in group)
        larger = work.own(mean) / work.own(part.samples) if work.grows else 1.0
        return own * larger, step * work.step(whole.batch) / work.step(batch)

    def _client_work(self, client: int, least: ClientPart) -> ClientWork:
        """What this client's round computes, from the least of it and from that with two steps, twice the batch and
        twice the samples."""

        def counted(part: ClientPart) -> float:
            return _counted(partial(self._client, client, part)).work()

        once = counted(least)
        step = counted(replace(least, steps=2)) - once
        per_image = max(0.0, counted(replace(least, batch=2 * least.batch)) - once) / least.batch
        per_sample = max(0.0, counted(replace(least, samples=2 * least.samples)) - once) / least.samples
        return ClientWork(
            max(0.0, once - step - per_sample * least.samples),
            per_sample,
            max(0.0, step - per_image * least.batch),
            per_image,
        )

    # -- server

    def _named(self, *work: str) -> dict[str, int]:
        """The method's parameters that count so the server's work, by the name of their field, with their values."""
        from trainables import registry

        found = {p.name: self.values[key] for key, p in registry.declared(self.method.name).items() if p.work in work}
        return {name: value for name, value in found.items() if isinstance(value, int)}

    def _many(self, *work: str) -> dict[str, int]:
        """The counts, of steps and alternations or as given, that are worth cutting short."""
        return {name: n for name, n in self._named(*(work or ("alternations", "steps"))).items() if n > 2}

    def _fewest(self) -> dict[str, int]:
        return dict.fromkeys(self._many(), 1)

    def _few_samples(self, most: int) -> dict[str, int]:
        return {name: min(most, samples) for name, samples in self._named("samples").items()}

    def _serve(self, steps: Mapping[str, int], part: ServerPart, *, last: bool) -> Any:
        """The state that the server makes of the uploads of the first of the chosen clients, with so many steps."""
        from trainables.wire import Upload

        s = self.simulation
        uploads = [Upload(client, self.results[client].upload) for client in self.clients[: part.uploads]]
        rng = self.fed.rng.child("round", s.progress.round + 1, "server")
        config = replace(s.config, **steps, **self._few_samples(part.samples))
        return self.method.server(config, self._federation(last), s.progress.state, uploads, rng)

    def _server(self, *, last: bool) -> float:
        """Seconds of the server in a round: those with the fewest steps, times how much more a whole round computes.

        It is timed with two uploads and few samples, then with as many of both as take no longer than is allowed. Where
        that is less than all samples, what more of them took is added for the rest."""
        steps, samples = self._fewest(), max(self._named("samples").values(), default=1)
        all_, few = min(self.taking_part, len(self.clients)), min(2, len(self.clients))

        def work(part: ServerPart) -> float:
            return self._computed(steps, part, last)

        def timed(part: ServerPart) -> float:
            return self._timed(partial(self._serve, steps, part, last=last), "server", work(part), part)

        least = ServerPart(few, min(SERVER_BATCH, samples))
        once, whole = timed(least), self._computed(self._many(), ServerPart(self.taking_part, samples), last)
        if not work(least):
            return once  # a server without a model computes nothing
        for part in (ServerPart(all_, samples), ServerPart(few, samples)):
            if once * work(part) <= SERVER * work(least):
                return timed(part) * whole / work(part)
        fit = int(least.samples * SERVER / once)
        some = replace(least, samples=min(samples, max(least.samples, fit)))
        more, part = timed(some), replace(least, samples=samples)
        if some.samples < 2 * least.samples:
            return more * whole / work(some)
        return _extended(once, more, least.samples, some.samples, samples) * whole / work(part)

    def _computed(self, steps: Mapping[str, int], part: ServerPart, last: bool) -> float:
        """What the server computes with so many of the steps and alternations that are cut short, in multiply-adds.

        The count is linear in each number of steps, and what alternates is done anew in each alternation, so it follows
        from those with one of each, and with two of one of them. Of more uploads than are counted it follows from what
        the latter half of these adds."""
        counted = self._tell_all()
        if part.uploads > counted:
            all_, half = (self._computed(steps, replace(part, uploads=n), last) for n in (counted, counted // 2))
            return all_ + (part.uploads - counted) * (all_ - half) / (counted - counted // 2)
        few, named = self._few_samples(SAMPLES), self._named("samples")
        larger = max((min(value, part.samples) / few[name] for name, value in named.items()), default=1.0)

        def work(**changed: int) -> float:
            chosen = {**dict.fromkeys(steps, 1), **changed}
            key = (tuple(chosen.items()), part.uploads, last)
            if key not in self.served:
                self.served[key] = _counted(partial(self._serve, chosen, ServerPart(part.uploads, SAMPLES), last=last))
            return self.served[key].work(larger)

        alternations = {name: n for name, n in steps.items() if name in self._many("alternations")}
        found, turns = work(), math.prod(alternations.values())
        for name, n in steps.items():
            if n > 1:
                found += (n - 1) * (work(**{name: 2}) - work()) * (1 if name in alternations else turns)
        return found

    def _tell_all(self) -> int:
        """The uploads of how many clients tell what those of all compute on the server: two where clients' whole models
        teach on images and are alike, unless narrow ones are laid together, else those of all that were chosen."""
        from trainables.building_blocks.teachers import WIDEST

        wide = self.fed.widths[self.clients[0]] > WIDEST
        teach_apart = len(self.groups) == 1 and wide and self._named("alternations")
        return min(2, len(self.clients)) if teach_apart else len(self.clients)

    def _keeps_model(self) -> bool:
        """Whether the server's model stays what it is in a round without work that is done at intervals. It is not
        measured again then."""
        from trainables.params import is_same, versions

        s = self.simulation
        before = s.global_model()
        state = self._serve(self._fewest(), ServerPart(len(self.clients), SAMPLES), last=False)
        after = self.method.global_model(s.config, self.fed, state)
        return before is not None and after is not None and is_same(versions(before), versions(after))

    # -- evaluation

    def _evaluation(self) -> tuple[float, float]:
        """Seconds of measuring the server's models on all images, and the clients' on theirs. What an image adds is
        what more of them took; and where clients fine-tune a model for this, likewise what a step adds."""
        s = self.simulation
        # A round measures on the test set, or only the last one does, which is then as many images less in each.
        every = s.measures_test(s.progress.round)
        parts = [part for part in (s.data.validation, s.data.test if every else None) if part is not None]
        at_end = 0.0 if every else share_of_rounds(self.values, self.values["rounds"])
        some = {client: self.results[client] for client in self.one_of}
        short = self._shortened(LEAST_IMAGES, LEAST_IMAGES, 1)
        self.measured = _counted(partial(short.evaluate, some))  # the first time takes longer

        def of_all(images: float) -> float:
            return sum(min(images, len(part.indices)) for part in parts)

        server = self._growing(
            lambda images: self._measure({}, images, LEAST_IMAGES),
            of_all,
            of_all(math.inf) + at_end * len(s.data.test.indices),
            IMAGES,
            EVALUATION,
        )
        models = {client: r.model for client, r in self.results.items() if r.model is not None}
        if models and self.method.measures_virtual(s.config) and not self._is_global(models):
            server *= 2
        own = sum(
            len(group) * self._of_clients_model(client, group, parts, at_end)
            for group, client in zip(self.groups, self.one_of, strict=True)
        )
        return server, own * self.taking_part / len(self.clients)

    def _of_clients_model(self, client: int, group: Sequence[int], parts: Sequence[Part], at_end: float) -> float:
        """Seconds of measuring the model of this client, which stands for those of its group, on a share as large as
        the mean of theirs."""
        s, result = self.simulation, {client: self.results[client]}
        none = self._measure({}, LEAST_IMAGES, LEAST_IMAGES)

        def measured(images: int, steps: int = 1) -> float:
            return self._measure(result, LEAST_IMAGES, images, steps) - none

        def of_share(images: float) -> float:
            return sum(min(images, len((p.own or p.shares)[client])) for p in parts)

        of_test = s.data.test.own or s.data.test.shares
        mean = statistics.fmean(
            sum(len((p.own or p.shares)[c]) for p in parts) + at_end * len(of_test[c]) for c in group
        )
        seconds = self._growing(measured, of_share, mean, OWN_IMAGES, EVALUATION / len(self.groups))
        training = self.method.personal.training(s.config) if self.method.personal is not None else None
        if training is not None:
            own = min(training.batch_size, len(s.data.clients[client]))
            planned = statistics.fmean(self._work(s.data.clients[c], training) for c in group) / own
            if planned > 1:
                seconds += (planned - 1) * max(0.0, measured(LEAST_IMAGES, 2) - measured(LEAST_IMAGES))
        return max(0.0, seconds)

    @staticmethod
    def _growing(
        seconds: Callable[[int], float], taken: Callable[[float], float], all_: float, most: int, allowed: float
    ) -> float:
        """The seconds of `all_` samples, of which `taken(images)` are measured in `seconds(images)`: of as many as fit,
        `most` at most, and of twice as many."""
        once = seconds(LEAST_IMAGES)
        images = most
        if 3 * once * most > allowed * LEAST_IMAGES:
            images = min(most, max(LEAST_IMAGES, int(LEAST_IMAGES * allowed / (3 * once))))
        few, some = taken(images), taken(2 * images)
        once = seconds(images)
        return _extended(once, seconds(2 * images) if some > few else once, few, some, all_)

    def _is_global(self, models: Mapping[int, Params]) -> bool:
        """Whether the clients' average is the global model, which is then measured once for both."""
        from trainables.params import average, equal

        model = self.simulation.global_model()
        virtual = average((m, self.fed.sizes[client]) for client, m in sorted(models.items()))
        return model is not None and self.taking_part == self.fed.clients and equal(virtual, model)

    def _measure(self, results: Mapping[int, ClientResult], images: int, own: int, steps: int = 1) -> float:
        """Seconds of measuring the models of these clients, and the server's, as `_shortened` has it."""
        short, whose = self._shortened(images, own, steps), tuple(self.one_of.index(client) for client in results)
        return self._timed(partial(short.evaluate, results), "measure", self.measured, whose, images, own, steps)

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


def _counted(run: Callable[[], Any]) -> Counts:
    """What a run computes."""
    from trainables.work import counting

    with counting() as found:
        run()
    return Counts(found.multiply_adds, found.operations)


def _extended(once: float, more: float, few: float, some: float, all_: float) -> float:
    """The seconds of `all_` where `few` take `once` and `some` take `more`."""
    return once + max(0.0, more - once) * (all_ - few) / (some - few) if some > few else once


def _spread(work: Sequence[float], count: int) -> list[int]:
    """So many clients, spread evenly over those in the order of their `work`; in ascending order."""
    order = sorted(range(len(work)), key=lambda client: (work[client], client))
    return sorted(order[(2 * i + 1) * len(order) // (2 * count)] for i in range(count))
