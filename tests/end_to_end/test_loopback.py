"""The processes of a search: none may be reachable from another machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.end_to_end.cli import started
from tests.faults.processes import below

pytestmark = pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="reads Linux' /proc")

#: Loopback as the kernel writes it: 127.0.0.1, the same inside IPv6, ::1.
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
LISTEN = "0A"


def family(pid: int) -> list[int]:
    """`pid` and all that descend from it."""
    return [pid, *below(pid)]


def listening() -> dict[str, str]:
    """Address by socket inode, of every listening TCP socket."""
    rows = [
        line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return {row[9]: row[1].split(":")[0] for row in rows if row[3] == LISTEN}


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def addresses(pid: int) -> set[str]:
    """Addresses that the processes of `pid` listen at."""
    by_inode, found = listening(), set()
    for process in family(pid):
        try:
            links = [os.readlink(f"/proc/{process}/fd/{fd}") for fd in os.listdir(f"/proc/{process}/fd")]
        except OSError:
            continue
        found |= {by_inode[link[8:-1]] for link in links if link.startswith("socket:[") and link[8:-1] in by_inode}
    return found


def test_a_search_listens_on_the_loopback_device_only(toy: Path, tmp_path: Path) -> None:
    budget = ("--trials", 2, "--rounds", 2, "--sampler", "random", "--set", "clients=3")
    search = started("search", "fedavg", "--dataset", toy, *budget, "--name", "ports", cwd=tmp_path)
    seen: set[str] = set()
    commands = ""
    while search.poll() is None:
        seen |= addresses(search.pid)
        commands += " ".join(map(command_line, family(search.pid)))
        time.sleep(0.3)
    assert search.returncode == 0
    assert seen, "no listening socket was seen, so this test looked at the wrong processes"
    assert seen <= LOOPBACK
    assert "/raylet/raylet" in commands
