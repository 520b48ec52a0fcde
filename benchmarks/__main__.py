"""`python -m benchmarks`; see the package."""

from __future__ import annotations

import argparse
import importlib
import sys
import time

from benchmarks import results
from benchmarks.cases import ORDER, OTHERS
from benchmarks.measure import OUT, say


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the cases")
    run = commands.add_parser("run", help="measure all cases, or some")
    run.add_argument("cases", nargs="*", metavar="CASE")
    run.add_argument("--quick", action="store_true", help="only try them; the figures mean nothing")
    page = commands.add_parser("page", help="make docs/performance.md of what was recorded")
    page.add_argument("--check", action="store_true", help="only say whether it is what was recorded")
    commands.add_parser("record", help="keep the results, and make docs/performance.md of them")
    commands.add_parser("explained", help="draw the pictures of the pages that explain, in docs/explained")
    for name in OTHERS:
        other = commands.add_parser(name)
        other.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    if chosen.command == "list":
        for name in (*ORDER, *OTHERS):
            print(f"{name:<13} {module(name).TITLE}")
        return 0
    if chosen.command == "run":
        unknown = [name for name in chosen.cases if name not in ORDER]
        if unknown:
            print(f"{unknown[0]} is no case; there are {', '.join(ORDER)}", file=sys.stderr)
            return 2
        return measure([*(chosen.cases or ORDER)], quick=chosen.quick)
    if chosen.command in OTHERS:
        return measure([chosen.command], quick=chosen.quick)
    from benchmarks import page as pages

    if chosen.command == "explained":
        from benchmarks import explained

        explained.write()
        return 0
    if chosen.command == "page":
        return pages.check() if chosen.check else pages.make()
    if not results.RESULTS.exists():
        print("There are no results yet. Measure with `make bench`.", file=sys.stderr)
        return 2
    return pages.record()


def module(name: str):  # type: ignore[no-untyped-def]
    """The module of a case."""
    return importlib.import_module(f"benchmarks.cases.{name}")


def measure(names: list[str], *, quick: bool) -> int:
    """Runs cases, and stores and prints what they found."""
    from benchmarks import page as pages

    path = OUT / "quick.json" if quick else results.RESULTS
    started = time.monotonic()
    for name in names:
        say(f"{module(name).TITLE} ({name})")
        case = module(name).run(quick)
        if case is None:
            return 2
        results.store(case, path)
        print(pages.terminal(case), flush=True)
    say(f"{time.monotonic() - started:.0f} s. The figures are in {path}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
