"""The results: one JSON file, an entry per case. `benchmarks/recorded/performance.json.xz` has those of a release."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import OUT, ROOT, ratio, spread

RESULTS = OUT / "results.json"
RECORDED = ROOT / "benchmarks" / "recorded" / "performance.json.xz"


@dataclass(frozen=True)
class Goal:
    """A ratio or a number that must be reached. `least`: at least `must`, otherwise at most. `got` is None where it was
    not measured."""

    text: str
    must: float
    got: float | None
    least: bool = True
    unit: str = ""
    #: Smallest and largest over the turns, where there are several.
    spread: tuple[float, float] | None = None

    @property
    def met(self) -> bool:
        if self.got is None:
            return False
        return self.got >= self.must if self.least else self.got <= self.must


@dataclass
class Case:
    """What a case found. `tables`: title, columns and rows; `curves`: title, axes and series of points for a
    drawing."""

    name: str
    title: str
    text: str = ""
    goals: list[Goal] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)
    curves: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    quick: bool = False

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Adds a table; cells are numbers or text."""
        self.tables.append({"title": title, "columns": list(columns), "rows": [list(row) for row in rows]})

    def curve(
        self, title: str, x: str, y: str, series: Mapping[str, Sequence[tuple[float, float]]], log: bool = True
    ) -> None:
        """Adds a drawing; every series is a list of (x, y)."""
        self.curves.append(
            {
                "title": title,
                "x": x,
                "y": y,
                "log": log,
                "series": {name: [list(p) for p in points] for name, points in series.items()},
            }
        )

    def faster(self, text: str, must: float, reference: Sequence[float], seconds: Sequence[float]) -> None:
        """A goal of a speed-up over `reference`, both taken in the same turns."""
        self.goals.append(Goal(text, must, ratio(reference, seconds), unit="×", spread=spread(reference, seconds)))


def machine() -> dict[str, Any]:
    """What the figures belong to."""
    import torch

    from fedtune.machine import resources

    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    revision = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False
    ).stdout.strip()
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": resources.cores(),
        "load": round(os.getloadavg()[0], 2),
        "extensions": [flag for flag in ("avx512f", "avx512_bf16", "amx_bf16") if flag in flags],
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "torch": torch.__version__.split("+")[0],
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "revision": revision,
        "date": time.strftime("%Y-%m-%d"),
    }


def load(path: Path) -> dict[str, Any]:
    """The results in that file; none where there is no file."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"cases": {}}


def store(case: Case, path: Path = RESULTS) -> None:
    """Puts a case's entry into the file, beside those of other cases."""
    found = load(path)
    entry = asdict(case) | {"machine": machine()}
    found["cases"][case.name] = entry
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(path)
