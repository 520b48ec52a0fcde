"""A server that died ends the search, also where Ray keeps the main thread waiting."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.runs import load
from fedtune.machine import servers
from fedtune.machine.servers import ServersLost
from fedtune.planning.plan import Plan
from fedtune.record.run_directory import is_driven
from fedtune.trials import lost as module
from fedtune.trials.lost import Lost, resuming
from tests.fedtune.conftest import experiment, space

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


def test_where_ray_does_not_start_the_run_stays_and_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from contextlib import contextmanager

    from fedtune.api.search import carry_out, resume
    from fedtune.machine import cluster

    @contextmanager
    def dead(folder: Path, **_: object) -> Iterator[None]:
        with cluster._told():
            raise RuntimeError("Failed to start GCS.")
        yield

    monkeypatch.setattr(cluster, "started", dead)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    folder = tmp_path / "my run"
    plan = Plan(folder, experiment(folder), space(), {}, (), {})
    for goes_on in (lambda: carry_out(plan, quiet=True), lambda: resume(folder, quiet=True)):
        with pytest.raises(ServersLost, match="Failed to start GCS") as told:
            goes_on()
        assert told.value.exit_code == 3 and f"`fedtune resume '{folder}'`" in str(told.value)
        assert len(told.value.problems) == 1 and not is_driven(folder) and load(folder).frozen == []
