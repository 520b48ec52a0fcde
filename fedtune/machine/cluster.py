"""A Ray of our own for as long as a search runs, or a cluster that is there already; silent and on the loopback device only.

What starting one costs is mostly imports, two to three CPU-seconds for each process that simulates. So they are made to import at
once, never twice, this process does its own share meanwhile, and servers that nothing asks are not started.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from fedtune.machine import shares
from fedtune.record.experiment import Experiment
from fedtune.record.run_directory import absolute
from search_spaces.errors import Shown, UserError, sentence

#: Set before Ray is imported; each is explained by what it switches off.
ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",                      # the old output can be silenced
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",      # result.json, progress.csv, tensorboard files
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "TUNE_GLOBAL_CHECKPOINT_S": "86400",            # Ray's snapshots of the search
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",      # the default to come, without its warning
    "RAY_worker_niceness": "0",                     # or trials would get 1/25 of a core beside anything else that runs
    # Freed memory is kept: training allocates the same sizes over and over (measured: 1.1 to 1.3 times faster).
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(2 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}
#: Named by the user, perhaps from the current directory, in which trials' processes are not.
PATHS = ("FEDTUNE_CACHE", "FEDTUNE_METHODS")
OBJECT_STORE = 100 << 20
#: Of Ray's servers. Trials' processes import the engine as they start. Ray would start processes for whatever may come, but Tune's have
#: an environment of their own and are others: the first would import everything only to be ended.
SERVERS = {"preload_python_modules": ["trainables.tune"], "prestart_worker_first_driver": False}
#: How Ray starts servers that nothing here asks: for adding machines, for a dashboard, for showing other processes' output (trials have logs
#: of their own). With them its start takes 2.9 s instead of 1.3, its end 1.4 instead of 0.3.
SPARED = ("start_monitor", "start_api_server", "start_log_monitor")


@contextlib.contextmanager
def joined(experiment: Experiment) -> Iterator[None]:
    """A Ray of our own, or the cluster at the experiment's address; silent, without dashboard. One that was joined already stays so."""
    os.environ.update({key: value for key, value in ENVIRONMENT.items() if key not in os.environ})
    os.environ.update({name: _absolute(os.environ[name]) for name in PATHS if name in os.environ})
    # Ray starts the process of one trial at a time unless told otherwise, and drops one that is still starting as soon as
    # another falls free: short trials would then take turns in a single process.
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(experiment.concurrency)
    if experiment.address is None:
        os.environ.setdefault("RAY_AUTH_MODE", "disabled")
        # Despite its name this holds everywhere: Ray's servers then listen on the loopback device only, not on every network.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    for name in ("ray", "ray.tune", "ray.train", "ray._private"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    import ray

    mine = not ray.is_initialized()
    # A process puts the folder it starts in first on its path, and Ray's start where Ray does: not among the user's files.
    with tempfile.TemporaryDirectory(prefix="fedtune-ray-", ignore_cleanup_errors=True) as empty:
        try:
            if mine:
                with contextlib.chdir(empty):
                    _start(ray, experiment)
            if not mine or experiment.address is not None:  # what a Ray of our own has was checked when the search was planned
                _check_gpus(experiment, ray.cluster_resources())
            yield
        finally:
            if mine:
                ray.shutdown()


def _absolute(paths: str) -> str:
    """Paths separated as in PATH."""
    return os.pathsep.join(str(absolute(path)) for path in paths.split(os.pathsep) if path)


def _start(ray: Any, experiment: Experiment) -> None:
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
    if experiment.address is not None:
        try:
            ray.init(address=experiment.address, **quiet)
        except Exception as error:
            raise UserError(f"No Ray cluster answers at {experiment.address!r} (--address): {str(error).splitlines()[0]}") from error
        return
    cores = max(shares.cores(), round(experiment.concurrency * experiment.cpus_per_trial))
    gpus: dict[str, Any] = {} if experiment.gpus_per_trial else {"num_gpus": 0}
    # While Ray's servers start, this process imports what it will need.
    importing = threading.Thread(target=importlib.import_module, args=("trainables.tune",))
    importing.start()
    with _fewer_servers():
        ray.init(num_cpus=cores, include_dashboard=False, object_store_memory=OBJECT_STORE, _system_config=SERVERS, **gpus, **quiet)
    importing.join()


@contextlib.contextmanager
def _fewer_servers() -> Iterator[None]:
    """Ray's start without the servers of `SPARED`, for which it has no option; where Ray is built otherwise it starts them as ever."""
    try:
        from ray._private.node import Node
    except ImportError:
        yield
        return
    before = {name: getattr(Node, name) for name in SPARED if hasattr(Node, name)}
    try:
        for name in before:
            setattr(Node, name, lambda self, *args, **more: None)
        yield
    finally:
        for name, start in before.items():
            setattr(Node, name, start)


def _check_gpus(experiment: Experiment, there: Mapping[str, float]) -> None:
    if experiment.gpus_per_trial > there.get("GPU", 0):
        raise UserError(sentence("gpus-per-trial", f"at most {there.get('GPU', 0):g}, the GPUs of the cluster", Shown(f"{experiment.gpus_per_trial:g}")))
