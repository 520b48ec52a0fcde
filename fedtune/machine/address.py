"""Whether a Ray cluster can be joined at the address that a user names, found out before anything is created.

Ray waits for minutes at an address where nothing answers, and says so in lines of its own. So first a plain connection
is tried, and then another process joins the cluster, which is ended when it takes too long. What it is told decides:
the versions, the token, and whether this machine is part of the cluster.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys

from search_spaces.errors import UserError, sentence

#: Seconds for a connection, and for joining.
CONNECT, JOIN = 3.0, 24.0
#: What the other process does. It asks the cluster a question before it joins: a wrong token is refused at once there,
#: and after 20 s by Ray's own way of joining, which does not say why.
_TRY = """
import sys, ray
from ray._private.services import canonicalize_bootstrap_address
from ray._raylet import GcsClient
from fedtune.machine.alone import with_the_users_token
with with_the_users_token():
    GcsClient(address=canonicalize_bootstrap_address(sys.argv[1])).internal_kv_get(b"session_name", b"session")
    ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
    ray.shutdown()
"""
#: Ray's own limit for finding this machine among those of the cluster, in seconds, below ours.
_LIMITS = {"RAY_gcs_server_request_timeout_seconds": "12", "RAY_USAGE_STATS_ENABLED": "0"}


def check_address(address: str | None) -> None:
    """Raises `UserError` where no cluster can be joined at `address`, within `CONNECT` + `JOIN` seconds. None is a Ray
    of our own, and a Ray that this process has joined already is taken as it is."""
    if address is None or _is_joined():
        return
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
    _join(address)


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


def _join(address: str) -> None:
    """Raises `UserError` where another process cannot join."""
    try:
        tried = subprocess.run(
            [sys.executable, "-P", "-c", _TRY, address],
            capture_output=True,
            text=True,
            timeout=JOIN,
            check=False,
            env={**os.environ, **_LIMITS, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(_nothing_there(address, f"no answer within {JOIN:.0f} s")) from error
    if tried.returncode:
        raise UserError(cannot_join(address, _said(tried.stderr)))


def _said(output: str) -> str:
    """What the exception at the end of a traceback says."""
    lines = output.strip().splitlines() or ["it gave no reason"]
    last = max((n for n, line in enumerate(lines) if line and not line.startswith((" ", "["))), default=0)
    return " ".join(lines[last:])
