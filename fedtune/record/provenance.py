"""What a run needs to be repeated elsewhere: versions, revision, machine, command."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis import machines
from fedtune.options import own_samplers
from fedtune.record.run_directory import write_document
from search_spaces import files, own_files, run_folder
from search_spaces.versions import installed

if TYPE_CHECKING:
    from trainables.worker.environment import Environment

PACKAGES = ("fedtune", "ray", "optuna", "torch", "torchvision", "numpy", "scikit-learn")
#: Those that compute numbers or propose configurations. (Ray places trials, and the others read data sets, whose
#: content is recorded by its hash.)
NUMBERS = ("fedtune", "numpy", "optuna", "torch")


def versions() -> dict[str, str]:
    """Of Python and of the packages whose versions can change numbers."""
    return installed(PACKAGES)


def git_revision() -> str | None:
    """The revision of the code that runs, with `+changes` where the work tree differs; None outside a repository."""
    here = Path(__file__).resolve().parents[2]

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # An installed copy may lie inside somebody else's repository, whose revision says nothing about it.
    if git("ls-files", "--error-unmatch", str(Path(__file__).resolve())) is None:
        return None
    revision = git("rev-parse", "HEAD")
    changed = git(
        "status", "--porcelain", "--untracked-files=no", "--", "fedtune", "trainables", "search_spaces", "analysis"
    )
    return None if revision is None else revision + ("+changes" if changed else "")


def provenance(*, device: str = "cpu", **more: Any) -> dict[str, Any]:
    """What a run needs to be repeated elsewhere, and to explain a difference if it is not repeated exactly."""
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": _command(),
        "versions": versions(),
        "git": git_revision(),
        "machine": machine(device),
        "device": device,
        **more,
    }


def machine(device: str = "cpu") -> dict[str, Any]:
    """Where this runs. `processor`, `instructions` and `gpu` decide the last digits of numbers (see
    `analysis.machines`)."""
    import torch

    limit = os.environ.get("ONEDNN_MAX_CPU_ISA")
    instructions = torch.backends.cpu.get_cpu_capability() + (f", oneDNN {limit}" if limit else "")
    found = {
        "host": socket.gethostname(),
        "system": platform.platform(),
        "processor": _processor(),
        "instructions": instructions,
        "cores": os.cpu_count(),
    }
    return found | ({"gpu": torch.cuda.get_device_name()} if device == "cuda" and torch.cuda.is_available() else {})


def went_on(folder: Path) -> str | None:
    """Called before a run computes. The sentence where this is another kind of machine than it began on, or has other
    versions or another revision; the provenance then names this one too."""
    begun = _recorded(folder)
    if begun is None:
        return None
    here = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "git": git_revision(),
        "machine": machine(str(begun.get("device", "cpu"))),
        **_own_files(begun),
    }
    told = machines.went_on(begun, here)
    if told and all(machines.apart(part, here) for part in machines.parts(begun)):
        write_document(folder / run_folder.PROVENANCE, begun | {"continued": [*begun.get("continued", []), here]})
    return told


def _own_files(begun: Mapping[str, Any]) -> dict[str, Any]:
    """`method_file`, `model_file`, `sampler_file` and `metric_file` as they are now, of a run whose method, model,
    sampler or metric was a user's own file and is one."""
    from trainables import models, own_metrics, registry

    method, model, sampler = begun.get("method_file"), begun.get("model_file"), begun.get("sampler_file")
    metric = begun.get("metric_file")
    now = {
        "method_file": registry.own_file(str(method["method"])) if isinstance(method, dict) else None,
        "model_file": models.own_file(str(model["model"])) if isinstance(model, dict) else None,
        "sampler_file": sampler_file(str(sampler["sampler"])) if isinstance(sampler, dict) else None,
        "metric_file": own_metrics.own_file(str(metric["metric"])) if isinstance(metric, dict) else None,
    }
    return {kind: found for kind, found in now.items() if found is not None}


def sampler_file(name: str) -> dict[str, str] | None:
    """Of a sampler of a user's own (FEDTUNE_SAMPLERS): its name, its file's, and the hash of the file's content as it
    is now. None of one that belongs to the package."""
    path = own_samplers().get(name)
    return None if path is None or not path.is_file() else {"sampler": name, **own_files.facts(path)}


def extended(folder: Path, changes: Mapping[str, tuple[int, int]]) -> None:
    """Adds to the provenance of the run in `folder` that it was extended now: `trials` and `rounds`, where these have
    changed, from so many to so many. Raises `UserError` where the disk refuses."""
    made = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": _command(),
        **{name: list(change) for name, change in changes.items()},
    }
    _add(folder, "extended", [made])


def ran_on(folder: Path, slots: Sequence[Mapping[str, Any]]) -> None:
    """Adds to the provenance of the run in `folder` for how many trials at once its machines have room, each machine
    once in one state. Raises `UserError` where the disk refuses."""
    _add(folder, "slots", slots)


def shared_gpus(folder: Path, how: str) -> None:
    """Adds to the provenance of the run in `folder` how its trials share a GPU, each way once. Raises `UserError` where
    the disk refuses."""
    _add(folder, "mps", [how])


def _add(folder: Path, name: str, entries: Sequence[Any]) -> None:
    """Adds to a list of a run's provenance those of the entries that are not in it."""
    begun = _recorded(folder)
    if begun is None:
        return
    earlier = begun.get(name)
    listed = earlier if isinstance(earlier, list) else []
    if new := [one for one in entries if one not in listed]:
        write_document(folder / run_folder.PROVENANCE, begun | {name: [*listed, *new]})


def _recorded(folder: Path) -> dict[str, Any] | None:
    """The provenance of a run; None where there is none that can be read (`check_unchanged` tells of a torn one)."""
    try:
        found = json.loads(files.read_text(folder / run_folder.PROVENANCE))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _command() -> list[str]:
    return [Path(sys.argv[0]).name, *sys.argv[1:]]


def begun_with(folder: Path) -> Environment:
    """What the trials of the run in `folder` are to find: its recorded data set, and the libraries of this process."""
    from trainables.worker.environment import COMPUTE, Environment

    recorded = _recorded(folder) or {}
    dataset, several = recorded.get("dataset"), recorded.get("datasets")
    content = dataset.get("hash") if isinstance(dataset, dict) else None
    here = versions()
    return Environment(
        content if isinstance(content, str) else None,
        {name: here[name] for name in COMPUTE if name in here},
        datasets=several if isinstance(several, dict) else {},
    )


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
