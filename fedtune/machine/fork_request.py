"""Asks the fork server for a process that Ray starts: `python -I -S fork_request.py SOCKET COMMAND…`, where COMMAND is
what follows `python` in Ray's own command.

Where the fork server does not answer, or cannot give what is asked for, it becomes that process itself. It is a program
of its own that imports nearly nothing, as to import what a package imports would take longer than the fork.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence

#: What a fork answers that goes on.
TAKEN = b"1"
#: Ray's program that sets up what another process is to find, and how it is told.
_SETUP, _CONTEXT, _LANGUAGE = "setup_worker.py", "--serialized-runtime-env-context=", "--language=PYTHON"


def main(address: str, *command: str) -> None:
    """Hands the process that is asked for to a fork, or becomes it."""
    found = forkable(command, os.environ)
    if found is None or not _is_taken(address, [*found, os.getcwd()]):
        os.execv(sys.executable, [sys.executable, *command])


def forkable(command: Sequence[str], environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]] | None:
    """What a fork is to run: a program with its arguments, and its environment. None where a process is asked for that
    is to find more than variables: files, containers, another Python."""
    if os.path.basename(command[0]) != _SETUP:
        return list(command), dict(environment)
    rest, variables = [], {}
    for one in command[1:]:
        if one.startswith(_CONTEXT):
            context = {name: value for name, value in json.loads(one.removeprefix(_CONTEXT)).items() if value}
            variables = context.pop("env_vars", {})
            if context not in ({}, {"py_executable": sys.executable}):
                return None
        elif one != _LANGUAGE:
            rest.append(one)
    if not rest or rest[0].startswith("-"):
        return None
    return rest, {**environment, **{name: os.path.expandvars(value) for name, value in variables.items()}}


def _is_taken(address: str, asked: list[object]) -> bool:
    """Whether a fork goes on as the process that is asked for. It prints where this process does."""
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(address)
            sent = json.dumps(asked).encode() + b"\n"
            socket.send_fds(server, [sent[:1]], [1, 2])
            server.sendall(sent[1:])
            return server.recv(1) == TAKEN
    except OSError:
        return False


if __name__ == "__main__":
    main(*sys.argv[1:])
