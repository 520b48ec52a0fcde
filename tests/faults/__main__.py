"""`python -m tests.faults`; see the package."""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.faults import mounts, table
from tests.faults.registry import Case, Impossible, cases
from tests.faults.scene import Stock
from tests.faults.table import Tried


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="The fault campaign.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the faults, and what must come of them")
    commands.add_parser("page", help="write the tables of docs/faults.md")
    run = commands.add_parser("run", help="try all of them, or some")
    run.add_argument("words", nargs="*", metavar="WORD", help="only cases whose names hold one of these; default: all")
    run.add_argument("--seed", type=int, default=None, help="of the random moments; default: another one every time")
    run.add_argument("--short", action="store_true", help="a few of each kind, in about a minute")
    chosen = parser.parse_args()
    if chosen.command == "list":
        for one in cases():
            print(f"{one.name}: {one.expected}")
        return 0
    if chosen.command == "page":
        from tests.faults import page

        page.record()
        return 0
    wanted = [one for one in cases() if one.short or not chosen.short]
    wanted = [one for one in wanted if not chosen.words or any(word in one.name for word in chosen.words)]
    if not wanted:
        print(f"No case has a name that holds {' or '.join(chosen.words)}.", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that nothing is left behind
    mounts.entered()
    return campaign(wanted, secrets.randbelow(10**6) if chosen.seed is None else chosen.seed)


def campaign(wanted: list[Case], seed: int) -> int:
    """Tries the cases one after another, and prints the table. Returns the exit code (`table.code`)."""
    print(f"Seed {seed}: SEED={seed} tries the same moments again. {mounts.described()}", flush=True)
    print(f"\n{table.head()}", flush=True)
    began = time.monotonic()
    # A short path: those of Ray's sockets may not be long.
    folder = Path(tempfile.mkdtemp(prefix="f-", dir="/tmp"))
    tried = []
    try:
        stock = Stock(folder, seed)
        for one in wanted:
            tried.append(attempt(one, stock))
            print(table.line(tried[-1]), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{table.totals(tried)} {(time.monotonic() - began) / 60:.1f} minutes, seed {seed}.")
    if told := table.incomplete(tried):
        print(told)
    return table.code(tried)


def attempt(one: Case, stock: Stock) -> Tried:
    """Tries a case. What it raises is what came of it: a case that fails must not hide the others."""
    stock.prepare(one.needs)
    began = time.monotonic()
    why, got = "", None
    with stock.scene(one.name) as scene:
        try:
            got = one.make(scene)
        except Impossible as error:
            why = table.attempt_failed(error)
        except Exception as error:
            got = f"{type(error).__name__}: {error}"
            if "FEDTUNE_FAULTS_DEBUG" in os.environ:
                traceback.print_exc()
    return Tried(one, got, time.monotonic() - began, why)


if __name__ == "__main__":
    sys.exit(main())
