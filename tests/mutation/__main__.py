"""The command line: `python -m tests.mutation run --help`."""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

from tests.mutation import operators
from tests.mutation.mutant import Mutant
from tests.mutation.processes import Answer
from tests.mutation.report import Tried, report
from tests.mutation.results import NOTICED, Results, Survivors
from tests.mutation.selection import BUDGET, Kept
from tests.mutation.targets import ROOT, files
from tests.mutation.trials import Collected, Trial, cold, collect, in_child, prepare, warm


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description="Mutation testing.")
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="which tests run which statements; takes as long as the tests")
    recording.add_argument("tests", nargs="*", help="read these again; default: all that may be asked")
    run = commands.add_parser("run", help="try the mutants")
    run.add_argument("files", nargs="*", help="a file, or the beginning of its path; default: all")
    run.add_argument("--sample", type=int, default=0, help="so many mutants, drawn by --seed; default: all")
    run.add_argument("--seed", type=int, default=0, help="of the sample")
    run.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="forks at a time")
    run.add_argument("--budget", type=float, default=BUDGET, help="seconds of tests that are asked about one mutant")
    run.add_argument("--results", type=Path, default=ROOT / ".mutants" / "results.jsonl", help="kept here")
    run.add_argument("--keep", action="store_true", help="take over what was noticed before code or tests changed")
    which = run.add_mutually_exclusive_group()
    which.add_argument("--no-written", action="store_true", help="leave out the mutants written by hand")
    which.add_argument("--written", action="store_true", help="try only those")
    return parser.parse_args()


def sampled(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """`count` mutants, each drawn by its own name: a change of one file leaves the sample of the others as it is."""
    drawn = sorted(mutants, key=lambda m: hashlib.sha256(f"{seed} {m.id}".encode()).digest())[:count]
    return [mutant for mutant in mutants if mutant in set(drawn)]


class Bar:
    """One line per hundred mutants or ten seconds, with what became of them."""

    def __init__(self, total: int, results: Results) -> None:
        self.total, self.results, self.done, self.start = total, results, 0, time.monotonic()
        self.last = self.start

    def tell(self, mutant: Mutant, answer: Answer) -> None:
        self.results.tell(mutant, answer)
        self.done += 1
        if time.monotonic() - self.last > 10 or self.done == self.total:
            self.last = time.monotonic()
            print(f"{self.done}/{self.total} tried, {self.last - self.start:.0f} s", file=self.out, flush=True)

    out = sys.stderr


def try_all(trials: list[Trial], results: Results, workers: int) -> list[str]:
    """Warm, then cold what needs it. Returns tests that fail without a mutant."""
    first = [t for t in trials if t.mutant and t.mutant.inside and t.tests and t.mutant.id not in results.answers]
    broken: list[str] = []
    if first:
        Bar.out = os.fdopen(os.dup(2), "w")  # what a fork of ours prints goes nowhere else
        broken += in_child(lambda: sorted(warm(first, Bar(len(first), results).tell, workers)))
        results.read()
    again = [
        t
        for t in trials
        if t.mutant
        and (answer := results.answers.get(t.mutant.id, {"status": "new"}))["status"] not in NOTICED
        and (answer["status"] in ("new", "unswapped") or answer.get("early"))
        and not answer.get("cold")
    ]
    bar = Bar(len(again), results)
    broken += cold(again, lambda mutant, answer: bar.tell(mutant, {**answer, "cold": True}), workers)
    return broken


def run(options: argparse.Namespace) -> int:
    sources = {file: (ROOT / file).read_text(encoding="utf-8") for file in files()}
    every = [m for file, source in sources.items() for m in operators.mutants(file, source)]
    wanted = [] if options.written else every
    named = [m for m in wanted if not options.files or m.file.startswith(tuple(options.files))]
    made = sampled(named, options.sample, options.seed) if options.sample else named
    by_hand: list[Mutant] = []
    if not options.no_written:
        from tests.mutation.written import written

        by_hand = [m for m in written() if not options.files or m.file.startswith(tuple(options.files))]
        sources |= {m.file: (ROOT / m.file).read_text(encoding="utf-8") for m in by_hand}
    how = f", a sample drawn with seed {options.seed} of {len(named)}" if options.sample else ""
    print(f"{len(made)} mutants{how}, and {len(by_hand)} written by hand.", flush=True)
    every_one = [(mutant, sources[mutant.file]) for mutant in [*by_hand, *made]]
    results = Results(options.results, keep=options.keep)
    prepare()
    asked, broken = Kept.read().choose(
        every_one,
        lambda files: Collected(**in_child(lambda: asdict(collect(files)))),
        budget=options.budget,
    )
    trials = [Trial(mutant, source, tests) for (mutant, source), tests in zip(every_one, asked, strict=True)]
    broken = broken or try_all(trials, results, options.workers)
    if broken:
        print("These tests fail without a mutant, so what they say of one is worth nothing:\n" + "\n".join(broken))
        return 2
    tried = [Tried(t.mutant, t.source, results.answers[t.mutant.id]) for t in trials if t.mutant]
    part = bool(options.sample or options.files or options.written)
    return report(tried, Survivors.read(), every, sampled=part)


def main() -> int:
    options = arguments()
    os.chdir(ROOT)
    if options.command == "record":
        from tests.mutation.record import record

        return record(options.tests)
    return run(options)


if __name__ == "__main__":
    sys.exit(main())
