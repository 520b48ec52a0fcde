"""The Ray on which trials run: one of our own (`private_ray.py`), or the cluster that is there at an address.

Whether the cluster at an address can be joined is found out before anything is created. Ray waits for minutes at an
address where nothing answers, and says so in lines of its own. So first a plain connection is tried, and then another
process joins the cluster, which is ended when it takes too long. What it is told decides: the versions, the token, and
whether this machine is part of the cluster.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from fedtune.machine import fork_server, mps, resources
from fedtune.machine.private_ray import QUIET, sigterm_as_before, started, with_the_users_token
from fedtune.machine.resources import Machine
from fedtune.record.run_directory import absolute
from search_spaces import files
from search_spaces.errors import Shown, UserError, sentence
from search_spaces.run_folder import LOG

#: Set before Ray is imported; each is explained by what it switches off.
ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",  # the old output can be silenced
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # result.json, progress.csv, tensorboard files
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # we have one of our own
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # Ray's snapshots of the search
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    # What Ray's servers report would be printed, but for lines that this expression matches: all of them.
    "RAY_DEDUP_LOGS": "1",
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the default to come, without its warning
    "RAY_worker_niceness": "0",  # or trials would get 1/25 of a core beside anything else that runs
    # Freed memory is kept: training allocates the same sizes over and over (measured: 1.1 to 1.3 times faster).
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(2 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}
#: Environment variables that hold paths. A user may have given them relative to the current directory; trials'
#: processes run in another.
PATHS = ("FEDTUNE_CACHE", "FEDTUNE_METHODS")
#: How the name of a resource begins that says of which kind a machine's GPUs are.
KIND = "accelerator_type:"
#: Of parts of a GPU that are the same whatever its kind.
_SAME: Mapping[str, float] = MappingProxyType({})
#: Seconds for a connection, and for joining.
CONNECT, JOIN = 3.0, 24.0
#: Seconds for the fork servers of a cluster to start, and to end.
_STARTING, _ENDING = 10.0, 5.0
#: Seconds for a file that is being written for another machine.
RELEASE = 60.0
#: Seconds for the end of a log, of which a process has to be started on its machine.
ANSWER = 20.0
#: For so many seconds it is taken for true that a cluster can be joined and what its machines have.
_TRUE_FOR = 60.0
#: What the process does that tries to join; it tells what the machines have. It asks the cluster a question before: a
#: wrong token is refused at once there, and after 20 s by Ray's own way of joining, which does not say why.
_TRY = """
import json, sys, ray
from ray._private.services import canonicalize_bootstrap_address
from ray._raylet import GcsClient
from fedtune.machine.cluster import nodes
from fedtune.machine.private_ray import with_the_users_token
with with_the_users_token():
    GcsClient(address=canonicalize_bootstrap_address(sys.argv[1])).internal_kv_get(b"session_name", b"session")
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
    found = [node.machine for node in nodes()]
    ray.shutdown()
print(json.dumps(found))
"""
#: Processes that try to join and were started ahead, by the address.
_trying: dict[str, subprocess.Popen[str]] = {}
#: When what was told of the machines at an address, in the seconds of `time.monotonic`.
_told: dict[str, tuple[float, list[Machine]]] = {}
#: Ray's own limit for finding this machine among those of the cluster, in seconds, below ours.
_LIMITS = {"RAY_gcs_server_request_timeout_seconds": "12", "RAY_USAGE_STATS_ENABLED": "0"}


@contextlib.contextmanager
def ahead(address: str | None) -> Iterator[None]:
    """Inside, Ray is made ready while it is planned what it is to do: a fork server for one of our own, or an answer of
    the cluster at `address`."""
    if address is None:
        with fork_server.ahead():
            yield
        return
    if _is_address(address) and not _is_joined() and address not in _told:
        _trying[address] = _try(address)
    try:
        yield
    finally:
        if (process := _trying.pop(address, None)) is not None:
            process.kill()
            process.communicate()


@contextlib.contextmanager
def joined(
    address: str | None, *, trials: int, cpus: float, gpus: float, tell: Callable[[str], None] = lambda text: None
) -> Iterator[Path]:
    """A Ray of our own, or the cluster at `address`, for so many `trials` at once with so many cores and GPUs each;
    silent, without dashboard. One that was joined already stays so. Gives a private folder for what Ray Tune writes.
    With no cores no trials are to run, but machines are asked or measured; those of a cluster get no fork servers then.
    `tell` is told of NVIDIA's MPS, which trials of our own Ray have where they share a GPU (`mps.py`)."""
    os.environ.update({key: value for key, value in ENVIRONMENT.items() if key not in os.environ})
    os.environ.update({name: _absolute(os.environ[name]) for name in PATHS if name in os.environ})
    # Ray starts the process of one trial at a time unless told otherwise, and drops one that is still starting as soon
    # as another falls free: short trials would then take turns in a single process.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(trials)
    for name in ("ray", "ray.tune", "ray.train", "ray.widgets", "ray._private"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    import ray

    with fork_server.beside(forks=address is None and gpus <= 0 and not ray.is_initialized()) as (folder, python):
        if ray.is_initialized():
            _check_gpus(ray, gpus)  # what a Ray of our own has was checked when the search was planned
            yield folder
        elif address is None:
            cores = max(resources.cores(), round(trials * cpus))
            with (
                mps.beside(folder, gpus) as told,
                started(folder, cores=cores, with_gpus=gpus > 0, python=python),
            ):
                if told is not None:
                    tell(told)
                yield folder
        else:
            with _connected(ray, address, fork_server.elsewhere() if cpus > 0 and gpus <= 0 else None):
                _check_gpus(ray, gpus)
                yield folder


def _absolute(paths: str) -> str:
    """Paths separated as in PATH."""
    return os.pathsep.join(str(absolute(path)) for path in paths.split(os.pathsep) if path)


@contextlib.contextmanager
def _connected(ray: Any, address: str, forks: tuple[Path, dict[str, str]] | None) -> Iterator[None]:
    """Joins the cluster at `address`, with a fork server on each of its machines where `forks` says how Ray finds them.
    Raises `UserError` where the cluster cannot be joined."""
    folder, settings = forks or (None, {})
    with with_the_users_token():
        try:
            with sigterm_as_before():
                ray.init(address=address, runtime_env=settings, **QUIET)
        except Exception as error:
            raise UserError(cannot_join(address, f"{type(error).__name__}: {error}")) from error
        try:
            machines = [] if folder is None else nodes()
            servers = [on(node.id, fork_server.OfMachine, str(folder), node.id) for node in machines]
            there = [server.is_there.remote() for server in servers]  # else the first trials' processes are no forks
            if there:
                ray.wait(there, num_returns=len(there), timeout=_STARTING)
            yield
            with contextlib.suppress(ray.exceptions.RayError):  # of a machine that has none, or is gone
                ray.get([server.end.remote() for server in servers], timeout=_ENDING)
        finally:
            ray.shutdown()


class Node(NamedTuple):
    """A machine of the Ray that was joined."""

    host: str
    address: str
    machine: Machine
    #: The kind of its GPUs, as Ray names it; empty where it has none, or none that Ray knows.
    kind: str
    #: Ray's own name for it.
    id: str


class Slots(NamedTuple):
    """For how many trials at once a machine has room. `Run.provenance` holds this under these names."""

    host: str
    address: str
    cores: int
    gpus: int
    gpu: str
    slots: int


def nodes() -> list[Node]:
    """Every machine of the Ray that was joined, in the order of their names."""
    import ray

    api: Any = ray  # parts of it are not typed
    found = []
    for node in api.nodes():
        if node["Alive"]:
            has = node["Resources"]
            kinds = (name.removeprefix(KIND) for name in has if name.startswith(KIND))
            machine = Machine(int(has.get("CPU", 0)), int(has.get("GPU", 0)))
            found.append(
                Node(node["NodeManagerHostname"], node["NodeManagerAddress"], machine, next(kinds, ""), node["NodeID"])
            )
    return sorted(found)


def inspector(node: Node) -> Any:
    """An `Inspector` on that machine, an actor of Ray."""
    import ray

    from fedtune.machine import inspection
    from search_spaces import versions

    api: Any = ray  # parts of it are not typed
    for module in (inspection, versions):
        api.cloudpickle.register_pickle_by_value(module)
    return on(node.id, inspection.Inspector)


def on(node: str, actor: type, *given: object, num_cpus: float = 0, **options: Any) -> Any:
    """A new actor of Ray on the machine of that id, made of what is `given`. options: Ray's, such as its name."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    api: Any = ray  # parts of it are not typed
    there = NodeAffinitySchedulingStrategy(node, soft=False)
    return api.remote(actor).options(num_cpus=num_cpus, scheduling_strategy=there, **options).remote(*given)


def kind_of(node: str) -> str | None:
    """The kind of the GPUs of a machine by Ray's name for it; None where it is not there any more."""
    return next((one.kind for one in nodes() if one.id == node), None)


def cards() -> dict[str, int]:
    """MiB of memory of a GPU by its kind, each measured on one machine that has such: its smallest GPU's, as its driver
    says. A kind of which no driver says anything is left out."""
    import ray

    api: Any = ray  # parts of it are not typed
    asked = {node.kind: inspector(node).gpus.remote() for node in reversed(nodes()) if node.machine.gpus}
    found = {}
    for kind, answer in asked.items():
        with contextlib.suppress(Exception):  # the machine is lost, or says nothing within a minute
            sizes = [int(line.rpartition(",")[2].split()[0]) for line in api.get(answer, timeout=60)]
            found[kind] = min(sizes)
    return found


def run_home(name: str, runs: Sequence[str], datasets: Sequence[str], data_dir: str | None) -> Any:
    """An actor of this name on this machine that writes the trials' folders of these runs, and gives data sets, for
    machines that do not see them. It lives as long as what is returned."""
    import ray

    from trainables.worker.home import Home

    api: Any = ray  # parts of it are not typed
    given = list(runs), list(datasets), data_dir, os.environ.get("FEDTUNE_CACHE")
    # Trials that send at the same time wait for the disk, not for one another.
    return on(api.get_runtime_context().get_node_id(), Home, *given, name=name, max_concurrency=8)


def release(home: Any, folder: Path) -> None:
    """Lets the actor write no more to the folder of a trial whose process is gone, not even what it was sent before. It
    waits for that, so that it cannot meet the process which goes on with the trial.

    What the process last wrote to its log, as it does when it crashes, is brought home where its machine answers.
    Raises `OSError` where the disk refuses."""
    import ray

    api: Any = ray  # parts of it are not typed
    with contextlib.suppress(ray.exceptions.RayError):  # the actor is lost, and its trials will say so; or the machine
        at = api.get(home.release.remote(str(folder)), timeout=RELEASE)
        there = next((node for node in nodes() if at is not None and node.id == at[0]), None)
        if there is not None:
            with os.fdopen(files.open_plain(folder / LOG, os.O_WRONLY | os.O_APPEND), "ab") as log:
                asked = inspector(there).rest.remote(f"{at[1]}/{LOG}", log.seek(0, os.SEEK_END))
                log.write(api.get(asked, timeout=ANSWER))


def slot_map(cpus: float, gpus: float, by_kind: Mapping[str, float] = _SAME) -> list[Slots]:
    """For how many trials with so many cores and GPUs each the machines of the Ray that was joined have room, machine
    by machine. by_kind: in place of `gpus`, for machines whose GPUs are of these kinds."""
    return [
        Slots(
            host,
            address,
            machine.cores,
            machine.gpus,
            kind,
            resources.room_on(machine.cores, machine.gpus, cpus, by_kind.get(kind, gpus)),
        )
        for host, address, machine, kind, _ in nodes()
    ]


def told(slots: Sequence[Slots], gpus: float, by_kind: Mapping[str, float] = _SAME) -> str:
    """A sentence for a slot map of trials that have so many `gpus` each, or what `by_kind` says."""
    parts = [
        f"{sum(one.slots for one in same)} on {_named([one.host for one in same])}"
        + _of_gpus(same[0], by_kind.get(same[0].gpu, gpus))
        for same in _alike(slots)
    ]
    total = sum(one.slots for one in slots)
    return f"There is room for {total} trial{'s' * (total != 1)} at once: {', '.join(parts)}."


def _alike(slots: Sequence[Slots]) -> list[list[Slots]]:
    """Machines with the same cores, GPUs and slots together."""
    found: dict[tuple[Any, ...], list[Slots]] = {}
    for one in slots:
        found.setdefault(one[2:], []).append(one)
    return list(found.values())


def _named(hosts: Sequence[str]) -> str:
    return " and ".join(hosts) if len(hosts) <= 2 else f"{len(hosts)} machines ({hosts[0]} … {hosts[-1]})"


def _of_gpus(one: Slots, gpus: float) -> str:
    """On which GPUs of a machine the slots are."""
    if not one.gpus:
        return " (no GPU)" if gpus > 0 else ""
    if gpus <= 0:
        return ""
    which, on = ("GPU 0", "it") if one.gpus == 1 else (f"GPUs 0-{one.gpus - 1}", "each")
    most = int(1 / gpus + 1e-9)
    how = f"{gpus:g} for each trial" if gpus > 1 else f"{most} trial{'s' * (most > 1)} on {on}"
    return f" ({', '.join(filter(None, (which, how, one.gpu)))})"


def _check_gpus(ray: Any, gpus: float) -> None:
    """Raises `UserError` where a trial is to have more GPUs than the cluster has."""
    there = ray.cluster_resources()
    if gpus > there.get("GPU", 0):
        raise UserError(
            sentence(
                "gpus of a trial",
                f"at most {there.get('GPU', 0):g}, the GPUs of the cluster",
                Shown(f"{gpus:g}"),
            )
        )


# -- whether a cluster can be joined -----------------------------------------------------------------------------------


def check_address(address: str | None) -> None:
    """Raises `UserError` where no cluster can be joined at `address`, within `CONNECT` + `JOIN` seconds. None is a Ray
    of our own, and a Ray that this process has joined already is taken as it is."""
    if address is not None:
        machines(address)


def machines(address: str) -> Sequence[Machine]:
    """What each machine of the cluster at `address` has, or has had within the last minute. Raises as
    `check_address`."""
    if _is_joined():
        return [node.machine for node in nodes()]
    if address == "local" or "://" in address or not _is_address(address):
        raise UserError(
            sentence(
                "address",
                "the HOST:PORT at which a Ray cluster was started, or auto",
                address,
                "--address",
                "Leave it out to search on this machine alone.",
            )
        )
    if address != "auto":
        _connect(address)
    asked, found = _told.get(address, (-math.inf, []))
    if time.monotonic() > asked + _TRUE_FOR:
        found = [Machine(*one) for one in json.loads(_join(address))]
        _told[address] = time.monotonic(), found
    return found


def cannot_join(address: str, why: str) -> str:
    """The sentence for what Ray says where it cannot join."""
    text = " ".join(why.split())
    if "AuthenticationError" in text or "InvalidAuthToken" in text:
        return (
            f"The Ray cluster at {address!r} (--address) asks for another token. Set RAY_AUTH_MODE=token, and "
            f"RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the token that it was started with."
        )
    if "No node info found" in text:
        return (
            f"This machine is not part of the Ray cluster at {address!r} (--address). Run the command on one of its "
            f"machines, or add this one with `ray start --address`."
        )
    return f"No Ray cluster can be joined at {address!r} (--address): {text[:300].rstrip('.')}."


def _is_joined() -> bool:
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _is_address(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return address == "auto" or bool(host) and port.isdecimal() and 0 < int(port) < 65536


def _connect(address: str) -> None:
    """Raises `UserError` where nothing listens."""
    from ray._private.services import resolve_ip_for_localhost

    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    why = ""
    for place in dict.fromkeys((host, resolve_ip_for_localhost(host))):  # Ray itself takes the second one
        try:
            with contextlib.closing(socket.create_connection((place, int(port)), timeout=CONNECT)):
                return
        except OSError as error:
            why = error.strerror or str(error)
    raise UserError(_nothing_there(address, why))


def _nothing_there(address: str, why: str) -> str:
    return (
        f"No Ray cluster answers at {address!r} (--address): {why}. Start one there with `ray start --head`, or leave "
        f"--address out to search on this machine alone."
    )


def _join(address: str) -> str:
    """What another process tells that has joined. Raises `UserError` where it cannot."""
    with _trying.pop(address, None) or _try(address) as process:
        try:
            told, said = process.communicate(timeout=JOIN)
        except subprocess.TimeoutExpired as error:
            raise UserError(_nothing_there(address, f"no answer within {JOIN:.0f} s")) from error
        finally:
            process.kill()
    if process.returncode:
        raise UserError(cannot_join(address, _said(said)))
    return told.splitlines()[-1]


def _try(address: str) -> subprocess.Popen[str]:
    """A process that tries to join."""
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _TRY, address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **_LIMITS, "PYTHONPATH": path},
    )


def _said(output: str) -> str:
    """What the exception at the end of a traceback says."""
    lines = output.strip().splitlines() or ["it gave no reason"]
    last = max((n for n, line in enumerate(lines) if line and not line.startswith((" ", "["))), default=0)
    return " ".join(lines[last:])
