"""What a dry run says that a round costs: measured where rounds are quick, else concluded from parts of a round."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from fedtune.commands import _output
from fedtune.options import SearchRequest
from fedtune.planning import estimate as module
from fedtune.planning.estimate import START_UP, estimate, turns
from fedtune.planning.plan import plan
from fedtune.planning.short_round import ERROR
from tests.fedtune.conftest import experiment
from trainables import registry


@pytest.mark.parametrize("long", [False, True])
def test_long_rounds_are_concluded_and_the_plan_says_so(
    long: bool, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole: list[int] = []
    monkeypatch.setattr(module, "typical", lambda federation, *_: (whole.append(1) or 0.5, 0.5))
    monkeypatch.setattr(module, "PATIENCE", 0.0 if long else 1e9)
    planned = plan(SearchRequest("fedavg", dataset=toy, set={"model": "mlp", "local_steps": 2}, name=tmp_path / "made"))
    found = estimate(planned)
    assert (found.error, len(whole)) == ((ERROR, 0) if long else (0.0, 1)) and found.round_seconds > 0
    _output.estimate(found, as_json=True)
    assert json.loads(capsys.readouterr().out)["round_seconds_error"] == (ERROR if long else None)
    _output.estimate(found, as_json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert ("from its first steps and some of its samples, give or take 25 %" in said) == long


def test_clients_that_are_trained_as_one_program_are_timed_as_they_are(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    monkeypatch.setattr(module, "concluded", lambda *_: pytest.fail("concluded"))
    values = registry.resolve("fedavg", {"dataset": str(toy), "model": "mlp", "local_steps": 1, "executor": "vmap"})
    found = module.timed_cost("fedavg", values, 0, device="cpu", threads=1, data_dir=None)
    assert found.error == 0 and found.seconds > 0


@pytest.mark.parametrize(
    ("changes", "trials", "expected"),
    [
        ({"concurrency": 2}, 30, 15),
        ({"concurrency": 1}, 7, 7),
        ({"concurrency": 4, "early": 0}, 30, 8),
        ({"concurrency": 4}, 8, 4),
        ({"concurrency": 4}, 12, 5),
        ({"concurrency": 4}, 30, 10),
        ({"concurrency": 4, "taken": 8}, 12, 3),
        ({"concurrency": 4, "order": "arrival"}, 30, 8),
        ({"concurrency": 6, "sampler": "random", "scheduler": "none"}, 30, 5),
        ({"concurrency": 4}, 0, 0),
    ],
)
def test_trials_that_wait_for_others_take_longer(
    tmp_path: Path, changes: dict[str, Any], trials: int, expected: int
) -> None:
    """Played second by second, with trials that all take one."""
    e = experiment(tmp_path, **{"early": 8, **changes})
    assert turns(e, trials) == expected
    ended, following, second = e.taken, e.taken, 0
    while ended < e.taken + trials:
        while following < min(e.taken + trials, ended + e.concurrency):
            if e.looks_back and e.order == "fixed" and e.seen(following) > ended:
                break
            following += 1
        ended, second = following, second + 1
    assert second == expected


def test_a_dry_run_allows_for_it(toy: Path, tmp_path: Path) -> None:
    given = {"model": "mlp", "local_steps": 1, "clients": 3}
    planned = plan(SearchRequest("fedavg", dataset=str(toy), set=given, name=tmp_path / "run", trials=12, rounds=4))
    wide = dataclasses.replace(planned, experiment=dataclasses.replace(planned.experiment, concurrency=4))
    found = estimate(wide)
    assert found.at_most == pytest.approx(START_UP + 5 * 4 * found.round_seconds)
