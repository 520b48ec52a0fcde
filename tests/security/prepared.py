"""Folders of `fedtune auto` and `fedtune reproduce` as somebody may have prepared them, made without any training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import fedtune
from analysis.auto.record import AutoRecord, Candidate
from analysis.reproduce import declaration
from fedtune.api.auto import allocation_of
from fedtune.machine import cluster
from fedtune.planning.auto_plan import AutoPlan
from fedtune.planning.plan import Plan
from search_spaces import run_folder
from search_spaces.dimension import Dimension
from search_spaces.space import Space
from tests.fedtune.conftest import experiment
from tests.fedtune.fake import OfTable
from tests.fedtune.played import play
from trainables import registry

#: A table of two cells, `CELLS`.
TABLE: dict[str, Any] = {
    "title": "Two cells",
    "source": "DFRD, Table 1",
    "published": "dfrd_tab1",
    "datasets": {"svhn": {}},
    "seeds": 1,
    "metrics": ["global_accuracy"],
    "columns": {"omega": [1]},
    "rows": [{"row": "FedAvg", "method": "fedavg", "space": "omega"}, {"row": "FedProx", "method": "fedprox"}],
    "small": {"rounds": 3, "seeds": 1, "set": {"clients": 3, "min_samples": 2}},
    "seconds": 0.1,
    "claims": [{"says": "FedProx is ahead", "source": "p. 1", "ahead": "FedProx", "behind": "FedAvg"}],
}
CELLS = ("01-fedavg-omega-1", "02-fedprox-omega-1")


class Stopped(Exception):
    """Ray was about to be joined."""


def stop_before_ray(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """No Ray is joined; gives the addresses at which one would have been."""
    asked: list[str | None] = []

    def joined(address: str | None, **_: object) -> None:
        asked.append(address)
        raise Stopped

    monkeypatch.setattr(cluster, "joined", joined)
    return asked


def several(folder: Path, *, searched: bool = False, **changes: Any) -> Path:
    """The folder of a search over one method, with nothing done, or with its search done and no fresh seed."""
    declared = registry.declared("fedavg")["lr"]
    space = Space("lr", "fedavg", {"lr": Dimension(declared, 0.01, 0.1, grid=(0.01, 0.1))})
    made = experiment(
        folder, space="lr", sampler="random", scheduler="none", part=True, values={"clients": 3}, **changes
    )
    record = AutoRecord(
        name=folder.name,
        metric="val_global_accuracy",
        methods=(Candidate("fedavg", "FedAvg", {"seconds": 1.0, "seed-rounds": 1.0, "bytes": 1.0}),),
        excluded=(),
        unit="seed-rounds",
        cost="seed-rounds",
        search_budget=float(made.rounds * len(made.seeds)),
        fresh_budget=9.0,
        final_budget=9.0,
        least=1,
        equal=False,
        rounds=made.rounds,
        seed=0,
        seeds=len(made.seeds),
        fresh=1,
        final=1,
    )
    search = folder / run_folder.SEARCHES / "fedavg"
    AutoPlan(folder, record, (Plan(search, made, space, {}, (), {}),), ()).create()
    if searched:
        play(search, allocation=allocation_of(record), simulate=OfTable)
    return folder


def table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a reproduction whose cells were begun; `again` is its command."""
    declared = tmp_path / "declared"
    declared.mkdir()
    (declared / "two.yaml").write_text(yaml.safe_dump(TABLE))
    monkeypatch.setattr(declaration, "FOLDER", declared)
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        stop_before_ray(patch)
        again(tmp_path / "two-small")
    return tmp_path / "two-small"


def again(folder: Path) -> object:
    """The command that made this folder, given again."""
    runs = str(folder.parent)
    return fedtune.reproduce("two", small=True, runs_dir=runs, slots=1, plain=True, simulate=OfTable)
