"""A server that died ends the search, also where Ray keeps the main thread waiting."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fedtune.machine import servers
from fedtune.machine.servers import ServersLost
from fedtune.trials import lost as module
from fedtune.trials.lost import Lost, resuming

SENTENCE = (
    "Ray's raylet died, and nothing runs without it. The search stopped and keeps what was written; no trial was "
    "scored by this. Go on with `fedtune resume '/runs/my run'`."
)


def test_the_search_ends_with_the_command_that_goes_on() -> None:
    with Lost(resuming(Path("/runs/my run"))) as lost:
        lost.check()
        lost.note("raylet")
        lost.note("GCS")
    with pytest.raises(ServersLost) as told:
        lost.check()
    assert told.value.problems == (SENTENCE,) and told.value.exit_code == 3


def test_where_ray_keeps_waiting_the_process_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert servers.CLUSTER + servers.EVERY + 2 * servers.ATTEMPT + module.PATIENCE < 30
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    codes: list[int] = []
    lost = Lost(resuming(Path("/runs/my run")), codes.append)
    lost.note("raylet")
    time.sleep(0.5)
    assert codes == [3] and capsys.readouterr().err == SENTENCE + "\n"


def test_a_process_that_left_ray_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    codes: list[int] = []
    with Lost(resuming(Path("/run")), codes.append) as lost:
        lost.note("raylet")
    time.sleep(0.5)
    assert codes == []
