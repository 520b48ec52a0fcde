"""NVIDIA's Multi-Process Service for as long as a search runs: kernels of trials that share a GPU then overlap.

    with beside(folder, gpus=0.25) as told: ...       # `told`: a sentence, None where no GPU is shared

Without it the processes on a GPU take turns. It is a daemon with a folder of pipes, by which processes that are started
while it runs find it. Ours has its folder in `folder`, the search's private one, so nobody else's processes use it. It
ends with the search. That of a search that was killed is ended by the next one, which finds its folder
(`private_ray.py`).

It is started only where trials have parts of a GPU, and where that takes nothing from anybody: no such daemon runs yet,
the variable CUDA_MPS_PIPE_DIRECTORY names none, no GPU is divided (MIG), and no GPU that takes one process at a time
(compute mode) has one already.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from search_spaces.errors import short

CONTROL, SMI = "nvidia-cuda-mps-control", "nvidia-smi"
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
#: Its folder in that of the search.
FOLDER = "mps"
#: Seconds that a command of NVIDIA's may take, and that the daemon waits for processes when it is to end.
PATIENCE, LAST = 20.0, 5


@contextlib.contextmanager
def beside(folder: Path, gpus: float) -> Iterator[str | None]:
    """Runs the daemon where trials of so many `gpus` each share one and it may be started; gives what is to be told."""
    if not 0 < gpus < 1:
        yield None
        return
    if (why := _prevented()) is not None:
        yield why
        return
    names = _folders(folder)
    for path in names.values():
        Path(path).mkdir(parents=True, mode=0o700)
    problem = _asked([CONTROL, "-d"], names)
    if problem is not None:
        yield f"Trials take turns on a GPU, as NVIDIA's MPS did not start ({problem})."
        return
    os.environ.update(names)
    try:
        yield "NVIDIA's MPS runs for this search, so that trials on one GPU compute at the same time."
    finally:
        for name in names:
            os.environ.pop(name, None)
        end(folder)


def end(folder: Path) -> None:
    """Ends the daemon of the search in `folder`, if there is one."""
    names = _folders(folder)
    if Path(names[PIPES]).is_dir() and shutil.which(CONTROL) is not None:
        _asked([CONTROL], names, f"quit -t {LAST}\n")


def running() -> bool:
    """Whether such a daemon, or a server of one, runs on this machine."""
    for entry in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if entry.read_text().startswith("nvidia-cuda-mps"):
                return True
    return False


def _prevented() -> str | None:
    """Why it is not started, in a sentence; None where it may be."""
    if PIPES in os.environ:
        return f"NVIDIA's MPS is left as it was set up, as the variable {PIPES} is set."
    if shutil.which(CONTROL) is None:
        return f"Trials take turns on a GPU, as NVIDIA's MPS is not installed ({CONTROL} is not on PATH)."
    if running():
        return "NVIDIA's MPS runs already and is left as it was set up."
    try:
        cards = _lines("--query-gpu=mig.mode.current,compute_mode")
        others = _lines("--query-compute-apps=pid")
    except (OSError, subprocess.SubprocessError) as error:
        return f"Trials take turns on a GPU: MPS was not started, as {SMI} did not answer ({short(str(error))})."
    modes = [tuple(part.strip() for part in line.split(",")) for line in cards]
    if any(mode[0] == "Enabled" for mode in modes):
        return "Trials take turns on a part of a GPU: MPS was not started, as a GPU here is divided (MIG)."
    if others and any(mode[-1] != "Default" for mode in modes):
        return "Trials take turns on a GPU: MPS was not started, as another process has a GPU for itself."
    return None


def _lines(query: str) -> list[str]:
    """The answer of NVIDIA's tool, without empty lines."""
    done = subprocess.run(
        [SMI, query, "--format=csv,noheader"], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    return [line for line in done.stdout.splitlines() if line.strip()]


def _folders(folder: Path) -> dict[str, str]:
    return {PIPES: str(folder / FOLDER / "pipe"), LOGS: str(folder / FOLDER / "log")}


def _asked(command: list[str], names: dict[str, str], said: str = "") -> str | None:
    """Runs a command of the daemon's; what went wrong. Its output is not waited for: the daemon would keep it open."""
    try:
        done = subprocess.run(
            command,
            input=said.encode(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | names,
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return short(str(error))
    return None if done.returncode == 0 else f"{command[0]} ended with {done.returncode}"
