"""A figure of rebuilt images: every run is attacked once, on the same images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedtune.api import reproduce
from fedtune.options import ReproduceRequest
from fedtune.planning.reproduction import plan_reproduction
from search_spaces import run_folder


def test_every_run_is_attacked_once_and_under_its_first_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan_reproduction(ReproduceRequest("fedmdcg-fig4", small=True, runs_dir=str(tmp_path), quiet=True))
    calls: list[tuple[Path, dict[str, Any]]] = []

    def attack(target: Path, **options: Any) -> None:
        calls.append((target, options))
        target.mkdir(parents=True)
        (target / run_folder.ATTACK).write_bytes(b"")

    monkeypatch.setattr(reproduce, "attack", attack)
    reproduce._attack(planned)
    assert [target for target, _ in calls] == [part.folder for part in planned.parts] and len(calls) == 6
    assert {(options["trial"], options["images"]) for _, options in calls} == {(0, reproduce.IMAGES)}
    reproduce._attack(planned)
    assert len(calls) == 6, "what has been attacked is taken as it is"
