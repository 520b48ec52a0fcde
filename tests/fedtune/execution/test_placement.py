"""Shares of GPUs and cores on real Ray with declared GPUs, and what becomes of trials that run out of memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from fedtune.api.search import Result
from fedtune.execution import retries
from fedtune.record.journal import StudyFile
from tests.fedtune.conftest import frozen
from tests.fedtune.fake import Hungry
from tests.fedtune.played import asked

Conduct = Callable[..., Result]
#: Trials 0 to 5 that look at nothing: the same configurations in every run.
PLAIN: dict[str, Any] = {"trials": 6, "rounds": 4, "scheduler": "none", "sampler": "random"}


def hungry(diary: Path, resource: str, needs: float, below: float = 1.1, **more: Any) -> dict[str, Any]:
    """Keywords for a run of `Hungry` in which trials with alpha below `below` need so much."""
    values = {"resource": resource, "needs": needs, "hungry_below": below, "diary": str(diary), "sleep": 0.1, **more}
    return {"simulate": Hungry, "values": values}


def read(diary: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in diary.read_text().splitlines()]


def at_once(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(one["begin"] < other["end"] and other["begin"] < one["end"])


def asked_for(folder: Path, **changes: Any) -> list[dict[str, Any]]:
    asked(folder, **changes)
    return frozen(folder)


def without_share(trials: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**trial, "attributes": {k: v for k, v in trial["attributes"].items() if k != "share"}} for trial in trials]


@pytest.mark.guard("parts of GPUs")
def test_parts_of_gpus_add_up_to_whole_ones(conduct: Conduct, tmp_path: Path) -> None:
    result = conduct(
        "run", **PLAIN, concurrency=4, gpus_per_trial=0.5, **hungry(tmp_path / "diary", "GPU", 0.5, together=4)
    )
    assert result.counts == {"COMPLETE": 6}
    notes = read(tmp_path / "diary")
    assert {note["gpu"] for note in notes} == {"0", "1"} and {note["share"] for note in notes} == {0.5}
    for note in notes:
        beside = {other["process"] for other in notes if other["gpu"] == note["gpu"] and at_once(note, other)}
        assert len(beside) <= 2, "half a GPU each is two on one"
    assert any(at_once(a, b) and a["process"] != b["process"] for a, b in combinations(notes, 2))


def test_out_of_gpu_memory_goes_on_at_twice_the_share(conduct: Conduct, tmp_path: Path) -> None:
    asked(tmp_path / "calm", **PLAIN)
    result = conduct("run", **PLAIN, concurrency=8, gpus_per_trial=0.25, **hungry(tmp_path / "diary", "GPU", 0.75))
    assert result.counts == {"COMPLETE": 6}
    notes = read(tmp_path / "diary")
    needy = {note["alpha"] for note in notes if note["alpha"] < 1.1}
    assert len(needy) == 3
    for trial in StudyFile(tmp_path / "run").study.trials:
        assert trial.user_attrs["stop_reason"] == "completed" and "error" not in trial.user_attrs
        assert trial.user_attrs.get("share") == ([0.5, 1.0] if trial.params["alpha"] in needy else None)
        tried = [note["share"] for note in notes if note["alpha"] == trial.params["alpha"] and note["round"] == 2]
        assert tried == ([0.25, 0.5, 1.0] if trial.params["alpha"] in needy else [0.25])
    for note in notes:
        if note["share"] == 1.0:
            assert not [
                other
                for other in notes
                if other["gpu"] == note["gpu"] and other["process"] != note["process"] and at_once(note, other)
            ]
    assert [trial["rows"] for trial in frozen(tmp_path / "run")] == [
        trial["rows"] for trial in frozen(tmp_path / "calm")
    ]


def test_without_a_gpu_it_goes_on_with_twice_the_cores(
    conduct: Conduct, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the system killed its process and counts that; and the search is the one it would have been."""
    kills = tmp_path / "diary.kills"
    monkeypatch.setattr(retries, "memory_kills", lambda: kills.stat().st_size if kills.exists() else 0)
    rest: dict[str, Any] = {"trials": 8, "rounds": 9, "lag": 3}
    asked(tmp_path / "calm", **rest)
    result = conduct("run", **rest, concurrency=3, **hungry(tmp_path / "diary", "CPU", 2, killed=True))
    assert result.finished
    assert without_share(frozen(tmp_path / "run")) == frozen(tmp_path / "calm")
    assert {note["share"] for note in read(tmp_path / "diary")} == {0.5, 1, 2}


@pytest.mark.guard("a trial that ran out of memory, on Ray itself")
def test_others_go_on_beside_it(conduct: Conduct, tmp_path: Path) -> None:
    """The other trial does not end before the hungry one runs with its larger share."""
    plain = PLAIN | {"trials": 2}
    alphas = [trial["params"]["alpha"] for trial in asked_for(tmp_path / "calm", **plain)]
    below = sum(alphas) / 2
    result = conduct("run", **plain, concurrency=2, **hungry(tmp_path / "diary", "CPU", 2, below, wait=True))
    assert result.counts == {"COMPLETE": 2}
    notes = read(tmp_path / "diary")
    fed = min(note["end"] for note in notes if note["share"] == 2)
    assert fed < max(note["end"] for note in notes if note["alpha"] > below) < fed + 60


def test_what_does_not_fit_the_whole_machine_fails_with_a_sentence(conduct: Conduct, tmp_path: Path) -> None:
    result = conduct("run", **PLAIN, concurrency=2, gpus_per_trial=0.5, **hungry(tmp_path / "diary", "GPU", 99))
    failed = [trial for trial in StudyFile(tmp_path / "run").study.trials if trial.state.name == "FAIL"]
    assert result.finished and failed and result.counts["COMPLETE"] + len(failed) == 6
    for trial in failed:
        assert trial.user_attrs["stop_reason"] == "error" and trial.user_attrs["share"] == [0.5, 1.0]
        assert trial.user_attrs["error"] == (
            "It ran out of memory with 1 GPU to itself after round 1 "
            "(OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB)."
        )
