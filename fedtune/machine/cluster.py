"""Starts a Ray of our own for as long as a search runs, or joins a cluster that is there already.

A Ray of our own prints nothing and listens on the loopback device only. Most of the time it takes to start is spent on
imports: two to three CPU-seconds in each process that simulates. So those processes import as soon as they start and
only once, this process imports what it needs at the same time, and servers that nothing here asks are left out
(`ray_patch.py`).
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

from fedtune.machine import resources
from fedtune.machine.ray_patch import without_unused_servers
from fedtune.record.run_directory import absolute
from search_spaces.errors import Shown, UserError, sentence

#: Set before Ray is imported; each is explained by what it switches off.
ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",  # the old output can be silenced
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # result.json, progress.csv, tensorboard files
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",  # Ray's snapshots of the search
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
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
def joined(address: str | None, *, trials: int, cpus: float, gpus: float) -> Iterator[None]:
    """A Ray of our own, or the cluster at `address`, for so many `trials` at once with so many cores and GPUs each;
    silent, without dashboard. One that was joined already stays so."""
    os.environ.update({key: value for key, value in ENVIRONMENT.items() if key not in os.environ})
    os.environ.update({name: _absolute(os.environ[name]) for name in PATHS if name in os.environ})
    # Ray starts the process of one trial at a time unless told otherwise, and drops one that is still starting as soon
    # as another falls free: short trials would then take turns in a single process.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(trials)
    if address is None:
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        # Despite its name this holds everywhere: Ray's servers then listen on the loopback device only, not on every
        # network.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    for name in ("ray", "ray.tune", "ray.train", "ray._private"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    import ray

    mine = not ray.is_initialized()
    # Python puts the folder in which a process starts first on its path. Ray's processes start where Ray does, so Ray
    # is started in an empty folder and not among the user's files, which may hold an `analysis.py` of their own.
    with tempfile.TemporaryDirectory(prefix="fedtune-ray-", ignore_cleanup_errors=True) as empty:
        try:
            if mine:
                with contextlib.chdir(empty):
                    if address is None:
                        _start(ray, cores=max(resources.cores(), round(trials * cpus)), with_gpus=gpus > 0)
                    else:
                        _connect(ray, address)
            if not mine or address is not None:
                _check_gpus(ray, gpus)  # what a Ray of our own has was checked when the search was planned
            yield
        finally:
            if mine:
                ray.shutdown()


def _absolute(paths: str) -> str:
    """Paths separated as in PATH."""
    return os.pathsep.join(str(absolute(path)) for path in paths.split(os.pathsep) if path)


def _connect(ray: Any, address: str) -> None:
    """Joins the cluster at `address`. Raises `UserError` where none answers."""
    try:
        ray.init(address=address, **QUIET)
    except Exception as error:
        raise UserError(f"No Ray cluster answers at {address!r} (--address): {str(error).splitlines()[0]}") from error


def _start(ray: Any, *, cores: int, with_gpus: bool) -> None:
    """Starts a Ray of our own."""
    gpus: dict[str, Any] = {} if with_gpus else {"num_gpus": 0}
    # While Ray's servers start, this process imports what it will need.
    importing = threading.Thread(target=importlib.import_module, args=("trainables.tune",))
    importing.start()
    with without_unused_servers():
        ray.init(
            num_cpus=cores,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE,
            _system_config=SERVERS,
            **gpus,
            **QUIET,
        )
    importing.join()


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
