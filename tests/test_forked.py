"""A forked command has the surroundings, the signals and the end of one that Python starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked

#: Prints what it was given and has.
TELLS = """
import json, os, sys, tempfile, threading
print(json.dumps([
    __name__, sys.argv, sys.path[0], os.getcwd(), os.environ.get("GIVEN"), os.environ.get("MINE"),
    tempfile.gettempdir(), len(os.listdir("/proc/self/task")), os.getsid(0) == os.getpgid(0) == os.getpid(),
    sys.stdin.read(), "torch" in sys.modules,
]))
"""


def test_a_command_has_what_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "m")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = forked.run(["-c", TELLS, "a", "b c"], cwd=tmp_path, settings={"GIVEN": "g"})
    here = str(tmp_path)
    assert json.loads(done.stdout) == ["__main__", ["-c", "a", "b c"], "", here, "g", "m", here, 1, True, "", True]
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.delenv("MINE")
    (tmp_path / "told.py").write_text(TELLS)
    found = json.loads(forked.run(["-m", "told", "a"], cwd=tmp_path).stdout)
    assert found[:6] == ["__main__", [str(tmp_path / "told.py"), "a"], here, here, None, None]


@pytest.mark.parametrize(
    "code",
    [
        "print('a'); raise SystemExit",
        "import sys; sys.exit(2)",
        "import sys; sys.exit(-1)",
        "import sys; print('é'); sys.exit('said')",
        "import os; os.kill(os.getpid(), 15)",
        "import atexit; atexit.register(print, 'last'); print('first', end=' ')",
        "import threading; threading.Timer(0.05, print, ['later']).start(); print('sooner')",
        "import os; print('lost'); os._exit(3)",
    ],
)
def test_it_ends_as_python_ends_it(code: str, tmp_path: Path) -> None:
    done = forked.run(["-c", code], cwd=tmp_path)
    real = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (real.returncode, real.stdout, real.stderr)
