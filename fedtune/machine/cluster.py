"""Starts a Ray of our own for as long as a search runs, or joins a cluster that is there already.

A Ray of our own is alone: it listens on the loopback device only, asks for a token (`alone.py`), keeps its sockets and
logs in a private folder (`private_folder.py`), and neither joins nor hears of a cluster that runs beside it. It prints
nothing. Most of the time it takes to start is spent on imports: two to three CPU-seconds in each process that
simulates. So those processes import as soon as they start and only once, and this process imports what it needs at the
same time.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedtune.machine import resources
from fedtune.machine.address import cannot_join
from fedtune.machine.alone import alone, with_the_users_token
from fedtune.machine.private_folder import RAY, private_folder
from fedtune.machine.servers import NotStarted
from fedtune.record.run_directory import absolute
from search_spaces.errors import Shown, UserError, sentence, short

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
OBJECT_STORE = 100 << 20
#: Ray prints nothing.
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
#: Settings of Ray's servers. A trial's process imports the engine as soon as it starts. Ray is not to start processes
#: in advance: Tune gives its processes an environment of their own and so could not use them, and they would import
#: everything for nothing.
SERVERS = {"preload_python_modules": ["trainables.tune"], "prestart_worker_first_driver": False}


@contextlib.contextmanager
def joined(address: str | None, *, trials: int, cpus: float, gpus: float) -> Iterator[Path]:
    """A Ray of our own, or the cluster at `address`, for so many `trials` at once with so many cores and GPUs each;
    silent, without dashboard. One that was joined already stays so. Gives a private folder for what Ray Tune writes."""
    os.environ.update({key: value for key, value in ENVIRONMENT.items() if key not in os.environ})
    os.environ.update({name: _absolute(os.environ[name]) for name in PATHS if name in os.environ})
    # Ray starts the process of one trial at a time unless told otherwise, and drops one that is still starting as soon
    # as another falls free: short trials would then take turns in a single process.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(trials)
    for name in ("ray", "ray.tune", "ray.train", "ray.widgets", "ray._private"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    import ray

    with private_folder() as folder:
        if ray.is_initialized():
            _check_gpus(ray, gpus)  # what a Ray of our own has was checked when the search was planned
            yield folder
        elif address is None:
            with started(folder, cores=max(resources.cores(), round(trials * cpus)), with_gpus=gpus > 0):
                yield folder
        else:
            with _connected(ray, address):
                _check_gpus(ray, gpus)
                yield folder


def _absolute(paths: str) -> str:
    """Paths separated as in PATH."""
    return os.pathsep.join(str(absolute(path)) for path in paths.split(os.pathsep) if path)


@contextlib.contextmanager
def _connected(ray: Any, address: str) -> Iterator[None]:
    """Joins the cluster at `address`. Raises `UserError` where that is not possible."""
    with with_the_users_token():
        try:
            with _sigterm_as_before():
                ray.init(address=address, **QUIET)
        except Exception as error:
            raise UserError(cannot_join(address, f"{type(error).__name__}: {error}")) from error
        try:
            yield
        finally:
            ray.shutdown()


@contextlib.contextmanager
def started(folder: Path, *, cores: int, with_gpus: bool, **more: Any) -> Iterator[None]:
    """Starts a Ray of our own, which keeps its files in `folder` and is given `more`. Raises `NotStarted` where it does
    not start: a server died, took too long, or had no memory."""
    import ray

    gpus: dict[str, Any] = {} if with_gpus else {"num_gpus": 0}
    # Python puts the folder in which a process starts first on its path. Ray's processes start where Ray does, so Ray
    # is started in an empty folder and not among the user's files, which may hold an `analysis.py` of their own.
    empty, own = folder / "empty", folder / RAY
    for place in (empty, own):
        place.mkdir(mode=0o700)
    # While Ray's servers start, this process imports what it will need.
    importing = threading.Thread(target=_import_ahead)
    importing.start()
    with alone(folder):
        try:
            with _told(), contextlib.chdir(empty), _on_loopback(), _sigterm_as_before():
                ray.init(
                    address="local",
                    num_cpus=cores,
                    include_dashboard=False,
                    object_store_memory=OBJECT_STORE,
                    _temp_dir=str(own),
                    _system_config=SERVERS,
                    **gpus,
                    **more,
                    **QUIET,
                )
            importing.join()
            yield
        finally:
            ray.shutdown()


def _import_ahead() -> None:
    """Imports what trials need; why it could not is told where it is needed."""
    with contextlib.suppress(Exception):
        importlib.import_module("trainables.tune")


@contextlib.contextmanager
def _on_loopback() -> Iterator[None]:
    """Inside, a Ray that starts has the address of the loopback device. Ray reads RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER for
    this when it is imported, which in a program that imported it before is too early for us."""
    from ray._private import ray_constants

    before = ray_constants.ENABLE_RAY_CLUSTER
    ray_constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        ray_constants.ENABLE_RAY_CLUSTER = before


@contextlib.contextmanager
def _sigterm_as_before() -> Iterator[None]:
    """Ray handles SIGTERM from its start on, by raising `SystemExit` wherever its start has got to. Inside, that is an
    interrupt as any other; afterwards the handler of before is there again."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit as error:
        raise KeyboardInterrupt from error
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Makes a `NotStarted` of whatever Ray says while it starts; it has no error of its own for that."""
    try:
        yield
    except Exception as error:
        lines = str(error).strip().splitlines()
        why = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
        raise NotStarted(
            f"Ray did not start ({short(why.rstrip(' .:'))}). Look whether this machine has free memory and room in "
            f"/dev/shm and {tempfile.gettempdir()}."
        ) from error


def largest_machine() -> tuple[float, float]:
    """Cores and GPUs of the largest machine of the Ray that was joined."""
    import ray

    api: Any = ray  # parts of it are not typed
    nodes = [node["Resources"] for node in api.nodes() if node["Alive"]]
    return max(node.get("CPU", 0.0) for node in nodes), max(node.get("GPU", 0.0) for node in nodes)


def _check_gpus(ray: Any, gpus: float) -> None:
    """Raises `UserError` where a trial is to have more GPUs than the cluster has."""
    there = ray.cluster_resources()
    if gpus > there.get("GPU", 0):
        raise UserError(
            sentence(
                "gpus-per-trial",
                f"at most {there.get('GPU', 0):g}, the GPUs of the cluster",
                Shown(f"{gpus:g}"),
            )
        )
