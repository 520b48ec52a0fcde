"""How long the two ways are that a reader follows: a parameter's value from the command line to the loss
(scripts/trip.py), and the search loop."""

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
    assert functions[-1].endswith("dfrd.py:student_loss")
    counts = [int(n) for n in re.findall(r"\d+", f"{handed} {through}")]
    # Who needs another function on the way raises these, and says in the commit why.
    assert all(count <= most for count, most in zip(counts, (128, 177, 30, 30), strict=True)), done.stdout


def test_the_search_loop_is_read_in_five_files_and_a_thousand_lines() -> None:
    """As docs/how-it-fits.md says. Who needs more says in the commit what a reader gains."""
    files = ("execution/driver", "execution/ray_session", "execution/queue", "decisions/proposals", "decisions/history")
    lines = [len((ROOT / "fedtune" / f"{name}.py").read_text(encoding="utf-8").splitlines()) for name in files]
    assert sum(lines) < 1000, dict(zip(files, lines, strict=True))
