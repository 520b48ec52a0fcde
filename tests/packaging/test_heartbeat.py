"""scripts/heartbeat.py: output and exit code pass through, silence never lasts."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "heartbeat.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, check=False)


def test_output_and_exit_code_pass_through() -> None:
    done = run("Working", sys.executable, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)")
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 7)


def test_a_signal_is_reported_as_a_shell_would() -> None:
    assert run("Working", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)").returncode == 137


def test_a_large_output_arrives_whole() -> None:
    done = run("Working", sys.executable, "-c", "print('x' * 5_000_000)")
    assert len(done.stdout) == 5_000_001 and set(done.stdout.strip()) == {"x"}


def test_silence_is_broken_every_three_seconds(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"1" * 3_000_000)
    slow = "import time; print('go', end='', flush=True); time.sleep(7)"
    command = [sys.executable, str(SCRIPT), "--watch", str(tmp_path), "Installing", sys.executable, "-c", slow]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    started = time.monotonic()
    seen = [(time.monotonic() - started, line.strip()) for line in process.stdout]
    assert process.wait() == 0
    assert [line for _, line in seen][:2] == ["go", seen[1][1]]
    times = [0.0, *(at for at, _ in seen), time.monotonic() - started]
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) < 5
    assert seen[1][1].startswith("Installing ... 3 s, ") and seen[1][1].endswith(f" MB in {tmp_path}")
