"""`python -m benchmarks.tables`; see the package."""

from __future__ import annotations

import argparse
import math
import sys
import time
from pathlib import Path

from analysis import curve_table
from benchmarks.measure import OUT, say
from benchmarks.tables import record
from benchmarks.tables.lines import RECORDED, Lines
from fedtune.machine import resources
from search_spaces.errors import UserError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="what is declared, and what is recorded")
    recording = commands.add_parser("record", help="simulate what is missing, and write the tables")
    recording.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these tables only; auto is a family")
    recording.add_argument("--hours", type=float, default=math.inf, help="start no federation after so many hours")
    recording.add_argument("--configurations", type=int, help="the first so many only")
    recording.add_argument("--seeds", type=int, help="the first so many only")
    recording.add_argument("--processes", type=int, default=resources.cores(), help="one per core, unless said")
    commands.add_parser("work").add_argument("name")
    chosen = parser.parse_args()
    try:
        if chosen.command == "work":
            record.work(record.spec(chosen.name))
            return 0
        return listing(RECORDED) if chosen.command == "list" else recorded(chosen)
    except UserError as error:
        print(*error.problems, sep="\n", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted. What had ended is kept; the same command goes on.", file=sys.stderr)
        return 130


def listing(folder: Path) -> int:
    """Prints a line per table."""
    for spec in record.specs([]):
        path = folder / f"{spec.name}.npz"
        there = "not recorded"
        if path.exists():
            table = curve_table.load(path)
            shape = " × ".join(map(str, table.validation.shape))
            there = f"{shape} recorded, {path.stat().st_size / 1024:.0f} KiB"
        print(f"{spec.name:<28} {spec.configurations} × {spec.seeds} × {spec.rounds}: {there}. {spec.title}")
    return 0


def recorded(chosen: argparse.Namespace) -> int:
    """Records the tables that were asked for, one after the other."""
    deadline = time.monotonic() + 3600 * chosen.hours
    for spec in record.specs(chosen.only):
        configurations = min(chosen.configurations or spec.configurations, spec.configurations)
        seeds = min(chosen.seeds or spec.seeds, spec.seeds)
        lines = Lines(spec, OUT / "tables")
        say(f"{spec.title} ({spec.name}): {configurations} configurations, {seeds} seeds, {spec.rounds} rounds")
        table = record.record(
            lines, configurations=configurations, seeds=seeds, processes=max(1, chosen.processes), deadline=deadline
        )
        if table is None:
            say(
                f"  {spec.name}: {len(lines.curves)} federations are kept; no new table, as no further seed is complete"
            )
        else:
            say(f"  {spec.name}: {lines.table} holds {len(table.configurations)} × {len(table.seeds)} federations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
