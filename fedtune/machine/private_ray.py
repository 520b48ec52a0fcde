"""A Ray of our own for as long as a search runs: its servers, its token, its folder, and nobody else.

It listens on the loopback device only, where every user of the machine can reach it, and whoever may talk to it can run
code as this user. So it asks for a token, which is random, and which stands in a file that only this user can read.
Environment variables by which it would join another cluster, share a database with it or take another token do not hold
for it; they hold for `--address`, and again when our Ray has ended. It prints nothing.

Its sockets, logs and token, and what Ray Tune writes, lie in a folder among the machine's temporary files, where every
user may look. So that folder is for this user alone (mode 0700) and has a name that nobody can guess. It is removed in
the end. What a killed search left is removed by the next one: a folder of this user that no process holds. A search
holds its folder by a lock on it, which the system lets go of when the process ends, however it ends.

Most of the time that Ray takes to start is spent on imports. So its processes import what they need as soon as they
start and only once, this process imports what it needs meanwhile, and those that run trials fork from a process that
has imported everything (`fork_server.py`).
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import re
import secrets
import shutil
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedtune.machine import mps
from fedtune.machine.server_watch import NotStarted
from search_spaces.errors import UserError, short

#: Bytes of memory that Ray's objects may share.
OBJECT_STORE = 100 << 20
#: Ray prints nothing.
QUIET: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}
#: Settings of Ray's servers. A trial's process imports Ray Tune as soon as it starts. Ray is not to start processes
#: in advance: Tune gives its processes an environment of their own and so could not use them, and they would import
#: everything for nothing.
SERVERS = {"preload_python_modules": ["trainables.tune"], "prestart_worker_first_driver": False}
#: What a Ray of our own must not hear of: other clusters, their databases, ports, jobs and tokens.
_OTHERS = (
    "RAY_ADDRESS",
    "RAY_REDIS_ADDRESS",
    "RAY_GCS_SERVER_PORT",
    "RAY_JOB_CONFIG_JSON_ENV_VAR",
    "RAY_AUTH_TOKEN",
    "RAY_ENABLE_K8S_TOKEN_AUTH",
)
#: What is imported while Ray's servers start: what starts trials, and what proposes their configurations.
_AHEAD = ("trainables.tune", "scipy.stats.qmc")
PREFIX = "fedtune-ray-"
#: Where Ray keeps its files in it, in a folder of its own, as it lets everybody write to the one it is given; and the
#: file of the token.
RAY, TOKEN = "r", "token"
#: Random bytes in the name, written as `_RANDOM` characters; on machines of a cluster their number in Ray follows.
_BYTES, _RANDOM = 8, 11
_NAME = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{{_RANDOM}}}(-[0-9a-f]{{8}})?")
#: The longest that Ray adds to the folder's path: that of a socket in it.
_SOCKET = len(f"/{RAY}/session_2026-12-31_23-59-59_999999_4194304/sockets/plasma_store")
#: Bytes that the path of a socket may have.
_LIMIT = 103 if sys.platform == "darwin" else 107
#: So many bytes the place of the folder may have.
LONGEST = _LIMIT - _SOCKET - len(f"/{PREFIX}") - _RANDOM


@contextlib.contextmanager
def started(folder: Path, *, cores: int, with_gpus: bool, python: Path | None = None, **more: Any) -> Iterator[None]:
    """Starts a Ray of our own, which keeps its files in `folder`, is given `more`, and starts its processes with
    `python`. Raises `NotStarted` where it does not start: a server died, took too long, or had no memory."""
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
    with _alone(folder):
        try:
            with _told(), contextlib.chdir(empty), _on_loopback(), _starting_with(python), sigterm_as_before():
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


@contextlib.contextmanager
def _starting_with(python: Path | None) -> Iterator[None]:
    """Inside, Ray takes `python` for the program with which its processes start. It looks nowhere else for that."""
    importlib.import_module("multiprocessing.spawn")  # which notes for ever what it finds there
    before = sys.executable
    sys.executable = before if python is None else str(python)
    try:
        yield
    finally:
        sys.executable = before


def _import_ahead() -> None:
    """Imports what is needed once Ray has started; why it could not is told where it is needed."""
    with contextlib.suppress(Exception):
        for name in _AHEAD:
            importlib.import_module(name)


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
def sigterm_as_before() -> Iterator[None]:
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


# -- who may talk to it, and what it must not hear of ------------------------------------------------------------------


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Inside, a Ray that starts belongs to this process alone. Its token is written to `folder`, which is private."""
    token = _write_token(folder)
    changes: dict[str, str | None] = dict.fromkeys(_OTHERS)
    changes |= {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        # Despite its name this holds everywhere: Ray's servers then listen on the loopback device only, not on every
        # network.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    }
    with _environment(changes):
        yield


@contextlib.contextmanager
def with_the_users_token() -> Iterator[None]:
    """Inside, a cluster that is joined is shown the user's own token, where there is one: that of RAY_AUTH_TOKEN,
    RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token. RAY_AUTH_MODE holds where it is set."""
    read_again()
    unset = "RAY_AUTH_MODE" not in os.environ
    has_one = unset and _raylet().AuthenticationTokenLoader.instance().has_token(ignore_auth_mode=True)
    with _environment({"RAY_AUTH_MODE": "token"} if has_one else {}):
        yield


def _write_token(folder: Path) -> Path:
    path = folder / TOKEN
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32))
    return path


@contextlib.contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Environment variables with these values, or without those that are None, until the block ends."""
    before = {name: os.environ.get(name) for name in changes}
    _set(changes)
    try:
        yield
    finally:
        _set(before)


def _set(changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    read_again()


def read_again() -> None:
    """Makes Ray read its settings in the environment anew. It keeps what it once read of these variables and of the
    token's file. (The variables first: a token that must be there and is not would end the process.)"""
    _raylet().Config.initialize("")
    _raylet().AuthenticationTokenLoader.instance().reset_cache()


def _raylet() -> Any:
    """Ray's compiled part, which has no types."""
    return importlib.import_module("ray._raylet")


# -- where its files lie -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def private_folder(folder: Path | None = None) -> Iterator[Path]:
    """A new folder, that of `unused` by default; removed when the block ends. Removes before what killed searches left.

    Raises `UserError` where there is no place for it."""
    place = chosen_place() if folder is None else folder.parent
    for left in leftovers(place):
        _remove_if_free(left)
    folder, held = _made(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def chosen_place() -> Path:
    """Where the folder is made: Ray's or the system's place for temporary files, else /tmp, where a path is short
    enough for a socket. Raises `UserError` where none of them is and may be written."""
    places = [os.environ.get("RAY_TMPDIR"), tempfile.gettempdir(), "/tmp"]
    for place in (Path(place).absolute() for place in places if place):
        if len(os.fsencode(place)) <= LONGEST and os.access(place, os.W_OK | os.X_OK):
            return place
    raise UserError(
        f"Ray needs a folder for its sockets whose path has at most {LONGEST} bytes and which may be written, got "
        f"{tempfile.gettempdir()} and /tmp. Name one in the environment variable TMPDIR."
    )


def leftovers(place: Path) -> list[Path]:
    """Folders at `place` that searches left, or that running ones have."""
    with contextlib.suppress(OSError):
        return sorted(path for path in place.iterdir() if _NAME.fullmatch(path.name))
    return []


def unused() -> Path:
    """Where a folder may be made. Raises `UserError` where there is no place for one."""
    return chosen_place() / (PREFIX + secrets.token_urlsafe(_BYTES))


def _made(wanted: Path | None) -> tuple[Path, int]:
    """The folder and the descriptor that holds it."""
    for _ in range(100):
        folder = wanted or unused()
        try:
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise UserError(
                f"{folder} cannot be made: {error.strerror or error}. Name another place in the environment variable "
                f"TMPDIR."
            ) from error
        held = _held(folder)
        # Between the two calls another search that was starting may have taken it for left behind.
        if held is not None and folder.exists():
            return folder, held
    raise UserError(f"{folder} cannot be held. Name another place in the environment variable TMPDIR.")


def _held(folder: Path) -> int | None:
    """A descriptor that holds the folder; None where it is not this user's alone, another process holds it, or it is a
    symbolic link."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        state = os.fstat(descriptor)
        if state.st_uid == os.geteuid() and not stat.S_IMODE(state.st_mode) & 0o077:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _remove_if_free(folder: Path) -> None:
    held = _held(folder)
    if held is not None:
        mps.end(folder)
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)
