"""The surroundings of a Ray of our own: who may talk to it, and what it must not hear of.

Ray's servers listen on the loopback device, where every user of the machine can reach them, and whoever may talk to
them can run code as this user. So each Ray of our own asks for a token, which is random, and which stands in a file
that only this user can read. Environment variables by which Ray would join another cluster, share a database with it or
take another token do not hold for it; they hold for `--address`, and again when our Ray has ended.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TOKEN = "token"
#: What a Ray of our own must not hear of: other clusters, their databases, ports, jobs and tokens.
_OTHERS = (
    "RAY_ADDRESS",
    "RAY_REDIS_ADDRESS",
    "RAY_GCS_SERVER_PORT",
    "RAY_JOB_CONFIG_JSON_ENV_VAR",
    "RAY_AUTH_TOKEN",
    "RAY_ENABLE_K8S_TOKEN_AUTH",
)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
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
    _read_again()
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
    _read_again()


def _read_again() -> None:
    """Ray keeps what it once read of these variables and of the token's file. (The variables first: a token that must
    be there and is not would end the process.)"""
    _raylet().Config.initialize("")
    _raylet().AuthenticationTokenLoader.instance().reset_cache()


def _raylet() -> Any:
    """Ray's compiled part, which has no types."""
    return importlib.import_module("ray._raylet")
