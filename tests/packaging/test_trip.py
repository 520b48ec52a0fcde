"""scripts/trip.py: which functions a parameter's value passes from the command line to the loss."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_trip_ends_at_the_loss_and_is_no_longer_than_it_was() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "trip.py"), "--list"], capture_output=True, text=True, check=True
    )
    *functions, handed, through = done.stdout.splitlines()
    assert any(line.endswith("fedtune/commands/search.py:command") for line in functions[:5])
    assert functions[-1].endswith(".student_loss")
    counts = [int(n) for n in re.findall(r"\d+", f"{handed} {through}")]
    # Who needs another function on the way raises these, and says in the commit why.
    assert all(count <= most for count, most in zip(counts, (131, 183, 48, 51), strict=True)), done.stdout
