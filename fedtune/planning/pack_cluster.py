"""`--slots auto` on a cluster: one machine of each kind is measured, as `pack_auto.py` measures this one.

Where trials run on GPUs, machines are of one kind whose GPUs are, and what a trial gets is a part of a GPU by its kind.
Where they run on cores, all are of one kind: what a trial gets is a number of cores, measured on a machine with the
number of cores that most of the cluster's cores are in. Threads are the same everywhere, as they change the last bits
of sums; they are chosen on the kind with the fewest cores for each GPU, so that they fit on the others.

A machine is measured by an actor of Ray there, to which Ray gives what it takes: one GPU and its part of the cores, or
all cores. Its versions and its data set are those of a trial there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fedtune.console import progress
from fedtune.console.busy import busy
from fedtune.execution.retries import Cause, cause
from fedtune.machine import cluster, resources
from fedtune.machine.cluster import Node
from fedtune.options import SearchRequest
from fedtune.planning import pack_auto
from fedtune.planning.pack_auto import Packed, Sample
from fedtune.planning.timed_federations import PATIENCE, Federations, Footprint, OutOfMemory
from fedtune.record.experiment import Experiment
from search_spaces.errors import UserError
from search_spaces.parameter import Value
from search_spaces.versions import installed

#: Seconds for a machine to be free, and for the start of a process there.
WAIT = 120.0


class Measured(NamedTuple):
    """What was measured on the machine that stands for a kind of them."""

    node: Node
    table: list[Sample]
    #: Why it ended there.
    full: str
    footprint: Footprint
    #: Of the machine, before.
    load: float

    @property
    def best(self) -> Sample:
        return pack_auto.pick(self.table)


def packed(e: Experiment, middle: Mapping[str, Value], asked: SearchRequest) -> Packed:
    """Measures a configuration in the `middle` of the space on one machine of each kind. Raises `UserError` where it
    does not run, no cluster can be joined, or a machine is not free."""
    cluster.check_address(e.address)
    with (
        busy(progress.style(asked.plain, asked.quiet), "joining the cluster") as say,
        cluster.joined(e.address, trials=1, cpus=0.0, gpus=asked.gpus_per_trial or 0.0),
    ):
        nodes = cluster.nodes()
        on_gpus = asked.gpus_per_trial != 0 and any(node.machine.gpus for node in nodes)
        e = dataclasses.replace(e, gpus_per_trial=(asked.gpus_per_trial or 1.0) if on_gpus else 0.0)
        measured: list[Measured] = []
        for node in one_of_each(nodes, on_gpus):
            bounds = pack_auto.limits(e, asked, node.machine)
            if measured:
                threads = measured[0].best.threads
                most = min(bounds.most, max(1, bounds.cores // threads))
                bounds = dataclasses.replace(bounds, most=most, threads=threads)
            say(f"starting a federation on {node.host}")
            with there(node, e, middle, bounds.cores) as federations:
                ask = pack_auto.asking(federations, e.rounds, say, f" on {node.host}")
                table, full = pack_auto.explore(ask, bounds, lambda timed=federations: timed.fit)  # type: ignore[misc]
                measured.append(Measured(node, table, full, federations.footprint, federations.load))
    return settled(e, asked, measured, nodes)


def one_of_each(nodes: Sequence[Node], on_gpus: bool) -> list[Node]:
    """The machines that are measured, that with the fewest cores for each GPU first. Raises `UserError` where trials
    could not be asked onto one of several kinds of GPU."""
    nodes = [node for node in nodes if node.machine.cores]
    if not on_gpus:
        of = Counter[int]()
        for node in nodes:
            of[node.machine.cores] += node.machine.cores
        if not of:
            raise UserError("No machine of the cluster has a core for trials. Start Ray there with --num-cpus.")
        cores = max(of, key=lambda cores: (of[cores], cores))
        return [node for node in nodes if node.machine.cores == cores][:1]
    found: dict[str, Node] = {}
    for node in nodes:
        if node.machine.gpus:
            found.setdefault(node.kind, node)
    if len(found) > 1 and "" in found:
        raise UserError(
            f"--slots auto measures one machine of each kind of GPU, and Ray knows no kind of the GPUs of "
            f"{found[''].host}. Start Ray there with `--resources='{{\"{cluster.KIND}NAME\": 1}}'`, or give a number "
            f"of slots and --per-trial."
        )
    if not found:
        raise UserError("No machine with a GPU has a core for trials. Give --per-trial gpus=0 to run them on cores.")
    return sorted(found.values(), key=lambda node: (node.machine.cores // node.machine.gpus, node.kind))


def settled(e: Experiment, asked: SearchRequest, measured: Sequence[Measured], nodes: Sequence[Node]) -> Packed:
    """The experiment with what was best on each kind, and the reasons. nodes: all machines."""
    threads = measured[0].best.threads
    cpus = asked.cpus_per_trial
    if cpus is None:
        cpus = min(cores_of_each(one, threads, on_gpus=e.gpus_per_trial > 0) for one in measured)
    by_kind = {}
    if e.gpus_per_trial:
        by_kind = {one.node.kind: asked.gpus_per_trial or resources.part(one.best.trials) for one in measured}
    share = max(by_kind.values(), default=0.0)
    room = sum(
        resources.room_on(node.machine.cores, node.machine.gpus, cpus, by_kind.get(node.kind, share)) for node in nodes
    )
    at_once = max(1, min(room, pack_auto.most_at_once(e)))
    experiment = dataclasses.replace(
        e,
        concurrency=at_once,
        cpus_per_trial=cpus,
        gpus_per_trial=share,
        gpus_by_kind=by_kind if len(set(by_kind.values())) > 1 else {},
        threads=threads,
    )
    lines = [line for one in measured for line in _lines(one, nodes)]
    gpus = [experiment.gpus_in_words] if share else []
    parts = [f"{cpus:g} core{'s' * (cpus != 1)}", *gpus, f"{threads} thread{'s' * (threads > 1)}"]
    facts = {
        "concurrency": at_once,
        "threads": threads,
        "cpus_per_trial": cpus,
        "gpus_per_trial": share,
        "kinds": [
            {
                "host": one.node.host,
                "cores": one.node.machine.cores,
                "gpus": one.node.machine.gpus,
                "gpu": one.node.kind,
                "gpus_per_trial": by_kind.get(one.node.kind, 0.0),
                "why": pack_auto.reason(one.best, one.table, one.full),
                **pack_auto.recorded(one.table, one.footprint, one.load),
            }
            for one in measured
        ],
    }
    return Packed(experiment, facts, [*lines, f"Slots: {at_once} × ({', '.join(parts)})."])


def cores_of_each(one: Measured, threads: int, *, on_gpus: bool) -> float:
    """The cores of a trial where as many run at once as was best there. On cores nothing else bounds how many do, so
    they share all of them; on GPUs a part of one does, and a trial has a core for each thread, as far as there are."""
    machine = one.node.machine
    if on_gpus:
        each = min(float(threads), machine.cores / (one.best.trials * machine.gpus))
    else:
        each = machine.cores / one.best.trials
    return math.floor(each * 10_000) / 10_000  # as Ray counts


def _lines(one: Measured, nodes: Sequence[Node]) -> list[str]:
    """What was measured on a machine, and for how many it stands."""
    node, (cores, gpus, _) = one.node, one.node.machine
    on = f" and one of {gpus} GPU{'s' * (gpus > 1)}{f', {node.kind}' if node.kind else ''}" if gpus else ""
    alike = sum(bool(other.machine.gpus) and other.kind == node.kind for other in nodes)
    stands = f", for {alike} machines" if gpus and alike > 1 else ""
    return [
        f"Measured on {node.host} ({cores} cores{on}){stands}:",
        *pack_auto.in_lines(one.table, one.best, one.footprint),
        f"  {pack_auto.reason(one.best, one.table, one.full)}",
        *pack_auto.busy_before(one.load, cores),
    ]


# -- federations on another machine ------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """What an actor says of federations that it has timed."""

    #: Rounds per second, all together; None where they did not fit into memory.
    per_second: float | None
    surcharge: float
    footprint: Footprint
    #: How many fit into memory.
    fit: int
    #: Why they do not run.
    problems: Sequence[str] = ()


class Timer:
    """Times federations on one machine: an actor of Ray's."""

    federations = Federations

    def begin(
        self, home: str, versions: Mapping[str, str], data: tuple[str, str | None] | None, **order: Any
    ) -> tuple[float, Sequence[str]]:
        """Gets the data set (its name, and the folder given) from the actor `home` where it is not here, and is told
        what is to be run. Returns the machine's load, and what is wrong with this machine."""
        from trainables.tune import ask
        from trainables.worker.environment import Environment
        from trainables.worker.home import bring

        load = os.getloadavg()[0]
        try:
            Environment(versions=versions).check_versions()
            if data is not None:
                bring(functools.partial(ask, home), *data)
        except UserError as error:
            return load, error.problems
        self._timed = self.federations(**order)
        return load, ()

    def time(self, count: int, threads: int) -> Answer:
        """As `Federations.time`."""
        timed = self._timed
        try:
            per_second: float | None = timed.time(count, threads)
        except OutOfMemory:
            per_second = None
        except UserError as error:
            return Answer(None, 1.0, timed.footprint, 0, error.problems)
        return Answer(per_second, timed.surcharge, timed.footprint, pack_auto.fit(timed.footprint))

    def end(self) -> None:
        """Ends their processes."""
        self._timed.__exit__(None, None, None)


class _Distant:
    """Federations on another machine, as `pack_auto.Timed`."""

    def __init__(self, node: Node, load: float, ask: Callable[..., Any]) -> None:
        self._node, self.load, self._ask = node, load, ask
        self.footprint, self.surcharge, self.fit = Footprint(0, 0), 1.0, 0

    def time(self, count: int, threads: int) -> float:
        answer: Answer = self._ask("time", count, threads)
        if answer.problems:
            raise UserError(*(f"On {self._node.host}: {problem}" for problem in answer.problems))
        if answer.per_second is None:
            raise OutOfMemory
        if not self.footprint.resident:
            self.footprint, self.surcharge, self.fit = answer.footprint, answer.surcharge, answer.fit
        return answer.per_second


@contextlib.contextmanager
def there(node: Node, e: Experiment, middle: Mapping[str, Value], cores: int) -> Iterator[_Distant]:
    """Federations on that machine, on one of its GPUs if they need one, with so many cores. Raises `UserError` where it
    is not free, or cannot run them."""
    import ray

    from trainables.worker.environment import COMPUTE

    api: Any = ray  # parts of it are not typed
    on_gpu = e.gpus_per_trial > 0
    actor = cluster.on(node.id, Timer, num_cpus=cores, num_gpus=1 if on_gpu else 0)

    def ask(what: str, *given: Any, within: float = 2 * PATIENCE, **named: Any) -> Any:
        try:
            return api.get(getattr(actor, what).remote(*given, **named), timeout=within)
        except ray.exceptions.GetTimeoutError:
            raise UserError(
                f"--slots auto has waited {within / 60:.0f} minutes for {node.host}, of which it needs {cores} cores"
                + (" and a GPU" if on_gpu else "")
                + " for itself. Begin when nothing else of the cluster's runs there, or give a number of slots."
            ) from None
        except ray.exceptions.RayError as error:
            if cause(str(error), crashed=False, memory_kill=False) is Cause.MEMORY:
                raise OutOfMemory from None
            raise UserError(
                f"--slots auto could not measure on {node.host} ({str(error).strip().splitlines()[-1]}). Give a number "
                "of slots."
            ) from error

    dataset = middle.get("dataset")
    named = None if dataset is None else str(dataset)
    name = f"fedtune-{secrets.token_hex(8)}"
    home = cluster.run_home(name, [], [] if named is None else [named], e.data_dir)
    try:
        ask("__ray_ready__", within=WAIT)
        load, problems = ask(
            "begin",
            name,
            installed(COMPUTE),
            None if named is None else (named, e.data_dir),
            method=e.method,
            values=dict(middle),
            seeds=list(e.seeds),
            device="cuda" if on_gpu else "cpu",
            data_dir=e.data_dir,
        )
        if problems:
            raise UserError(*problems)
        yield _Distant(node, load, ask)
        ask("end", within=WAIT)
    finally:
        api.kill(actor)
        api.kill(home)
