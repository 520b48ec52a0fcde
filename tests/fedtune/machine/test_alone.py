"""What a Ray of our own hears of, tried in a process of its own: Ray reads its settings once for a process, and that of
the tests may have a Ray which would then be shown no token."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).with_name("alone_cases.py")


def test_the_cases_hold() -> None:
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", str(CASES)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0 and "7 passed" in done.stdout, done.stdout + done.stderr
