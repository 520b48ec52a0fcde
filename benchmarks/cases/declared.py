"""How soon and how long a search keeps declared slots busy, through Ray."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from benchmarks.cases.search import search
from benchmarks.measure import say
from benchmarks.results import Case, Goal
from benchmarks.search_process import tree

TITLE = "Declared slots"
TEXT = """
A search whose Ray was started with more cores than there are (`ray start --head --num-cpus=N`), four equal trials for each. The trials are stand-ins
that sleep, so slots cost no processor; all else does: N processes that import PyTorch start on the cores that there are. *All slots* is from the first
trial's beginning until so many run; *busy* the part of the slots' time that trials are under way, from the first trial's beginning until the last one
begins; *over the ideal* the whole call, with the start of its process, over four trials one after the other.
"""
#: Slots, trials of each, their rounds and the seconds of a round.
SIZES, EACH, ROUNDS, SECONDS = (4, 16), 4, 10, 3.0
QUICK_SIZES, QUICK_ROUNDS, QUICK_SECONDS = (3,), 2, 0.2
NODE = "import sys; from ray.scripts.scripts import cli; cli(['start', '--block', *sys.argv[1:]])"


def run(quick: bool) -> Case:
    case = Case("declared", TITLE, TEXT, quick=quick)
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if quick else (ROUNDS, SECONDS)
    rows = []
    for slots in QUICK_SIZES if quick else SIZES:
        with tempfile.TemporaryDirectory(prefix="fedtune-bench-") as made, cluster(slots, Path(made)) as address:
            diary, started = Path(made) / "diary.jsonl", time.time()
            options = {"trials": EACH * slots, "rounds": rounds, "name": "declared", "address": address}
            asked = {"sleep": seconds, "diary": str(diary), "options": options}
            search(f"declared, {slots} slots", Path(made), **asked)
            took = time.time() - started
            notes = [tuple(json.loads(line)[:2]) for line in diary.read_text().splitlines()]
        until_all, busy = occupied(notes, slots)
        over = took / (EACH * rounds * seconds)
        rows.append([slots, EACH * slots, until_all, busy, took, over])
        case.goals.append(Goal(f"Busy while trials are left, {slots} declared slots", 95, busy, unit=" %"))
        case.goals.append(
            Goal(f"Four equal trials a slot, {slots} slots, over the ideal", 1.1, over, least=False, unit="×")
        )
        say(f"  {slots} slots: all after {until_all:.1f} s, busy {busy:.1f} %, {over:.2f} times the ideal")
    columns = ("slots", "trials", "all slots, s", "busy, %", "whole call, s", "over the ideal")
    case.table(f"Trials of {rounds * seconds:.3g} s", columns, rows)
    return case


def occupied(notes: list[tuple[str, float]], slots: int) -> tuple[float, float]:
    """From what stand-ins noted: the seconds from the first trial's beginning until trials run on all slots, and the
    part of the slots' time in per cent that passes in trials from then on until the last one begins."""
    begun = sorted(when for what, when in notes if what == "begin")
    ended = sorted(when for what, when in notes if what == "end")
    first, last = begun[0], begun[-1]
    until_all = next((when for when in begun if running(begun, ended, when) >= slots), float("nan")) - first
    under_way = sum(last - when for when in begun) - sum(last - when for when in ended if when < last)
    return until_all, 100 * under_way / (slots * (last - first))


def running(begun: list[float], ended: list[float], now: float) -> int:
    """How many trials run."""
    return sum(when <= now for when in begun) - sum(when < now for when in ended)


@contextlib.contextmanager
def cluster(cores: int, folder: Path) -> Iterator[str]:
    """A Ray of one machine that has declared so many cores, and its address."""
    settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16), "RAY_worker_niceness": "0"}
    with mock.patch.dict(os.environ, settings), tempfile.TemporaryDirectory(prefix="ft", dir="/tmp") as place:
        words = ("--head", "--port", "0", "--num-cpus", str(cores), "--include-dashboard", "false")
        words += ("--temp-dir", place, "--disable-usage-stats", "--node-ip-address", "127.0.0.1")
        with (folder / "ray.txt").open("w") as said:
            node = subprocess.Popen([sys.executable, "-c", NODE, *words], stdout=said, stderr=subprocess.STDOUT)
        try:
            noted, deadline = Path(place) / "ray_current_cluster", time.monotonic() + 300
            while not (noted.exists() and noted.read_text().strip()):
                if node.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"Ray did not start:\n{(folder / 'ray.txt').read_text()}")
                time.sleep(0.2)
            yield noted.read_text().strip()
        finally:
            for pid in tree(node.pid):  # (`ray stop` would end every Ray of the machine)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            node.wait()
