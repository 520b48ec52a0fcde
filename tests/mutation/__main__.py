"""The command line: `python -m tests.mutation --help`."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time

from tests.mutation import operators
from tests.mutation.operators import Mutant
from tests.mutation.report import Survivors, Tried, report
from tests.mutation.selection import ROOT, files
from tests.mutation.trials import broken, prepare, try_all
from tests.mutation.written import written


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="Mutation testing.")
    parser.add_argument("files", nargs="*", help="a file, or the beginning of its path; default: all")
    parser.add_argument("--sample", type=int, default=0, help="so many of either kind, drawn by --seed; default: all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="forks at a time")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--no-written", action="store_true", help="leave out the mutants written by hand")
    which.add_argument("--written", action="store_true", help="try only those")
    return parser.parse_args()


def sampled(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """`count` mutants, each drawn by its own name: a change of one file leaves the sample of the others as it is."""
    drawn = set(sorted(mutants, key=lambda m: hashlib.sha256(f"{seed} {m.id}".encode()).digest())[:count])
    return [mutant for mutant in mutants if mutant in drawn]


def main() -> int:
    options = arguments()
    os.chdir(ROOT)
    every = [m for file in files() for m in operators.mutants(file, (ROOT / file).read_text(encoding="utf-8"))]
    wanted = tuple(options.files) or ("",)
    named = [] if options.written else [m for m in every if m.file.startswith(wanted)]
    made = sampled(named, options.sample, options.seed) if options.sample else named
    by_hand = [] if options.no_written else [m for m in written() if m.file.startswith(wanted)]
    by_hand = sampled(by_hand, options.sample, options.seed) if options.sample else by_hand
    how = f", a sample drawn with seed {options.seed} of {len(named)}" if options.sample else ""
    print(f"{len(made)} mutants{how}, and {len(by_hand)} written by hand.", flush=True)
    sources = {m.file: (ROOT / m.file).read_text(encoding="utf-8") for m in [*made, *by_hand]}
    prepare()
    tried, last, total = [], time.monotonic(), len(made) + len(by_hand)
    for mutant, answer in try_all([(m, sources[m.file]) for m in [*by_hand, *made]], options.workers):
        tried.append(Tried(mutant, sources[mutant.file], answer))
        if time.monotonic() - last > 10 or len(tried) == total:
            last = time.monotonic()
            print(f"{len(tried)}/{total} tried", file=sys.stderr, flush=True)
    if failing := broken([t.answer["killer"] for t in tried if "killer" in t.answer]):
        print("These tests fail without a mutant, so what they say of one is worth nothing:\n" + "\n".join(failing))
        return 2
    part = bool(options.sample or options.files or options.written)
    return report(tried, Survivors.read(), every, sampled=part)


if __name__ == "__main__":
    sys.exit(main())
