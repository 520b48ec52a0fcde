"""`make fuzz`, or

python -m tests.fuzz run --inputs 5000 --seed 18          # the table; exit code 1 where an input breaks the rule
python -m tests.fuzz again .fuzz/0003                     # one input that was kept: what is wrong, what it printed
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from pathlib import Path

from tests.fuzz.campaign import campaign, drive, replay

KEPT = Path(".fuzz")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--inputs", type=int, default=5000)
    run.add_argument("--seed", type=int, default=None)
    run.add_argument("--stage", type=Path, help="keep the real runs that inputs are made from here, for the next time")
    again = commands.add_parser("again")
    again.add_argument("place", type=Path)
    asked = parser.parse_args()
    if asked.command == "again":
        wrong, outcome = replay(asked.place)
        print(f"exit code {outcome.code} after {outcome.seconds:.1f} s\n{outcome.out[-3000:]}{outcome.err[-6000:]}")
        print("\n".join(wrong) or "The rule holds.")
        return int(bool(wrong))
    seed = random.SystemRandom().randrange(10**6) if asked.seed is None else asked.seed
    print(f"{asked.inputs} inputs with the seed {seed}", flush=True)
    shutil.rmtree(KEPT, ignore_errors=True)
    started = time.monotonic()
    with campaign(KEPT, asked.stage) as made:
        drive(made, asked.inputs, seed, lambda text: print(text, flush=True))
        print("\n".join(made.lines()))
    print(f"{time.monotonic() - started:.0f} s")
    if made.found:
        print(f"Try one again with: python -m tests.fuzz again {made.found[0][2]}")
    return int(bool(made.found))


if __name__ == "__main__":
    sys.exit(main())
