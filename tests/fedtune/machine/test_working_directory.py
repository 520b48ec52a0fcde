from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CODE = """
import os, sys
os.rmdir(os.getcwd())
from fedtune.machine.working_directory import load_torch
load_torch()
import torch
print(float((torch.ones(64, 64) @ torch.ones(64, 64)).sum()))
try:
    os.getcwd()
except FileNotFoundError:
    print("still nowhere")
"""


def test_torch_is_loaded_where_the_working_directory_is_gone(tmp_path: Path) -> None:
    place = tmp_path / "gone"
    place.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
    )
    assert done.stdout.split("\n") == [f"{64.0**3}", "still nowhere", ""], done.stderr
