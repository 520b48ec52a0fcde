"""Servers that die are noticed, slow ones are not taken for dead, and a dead one ends the search, also where Ray keeps
the main thread waiting. (That Ray's are noticed, `make faults` tries.)"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from analysis.runs import load_run
from fedtune.api.resume import resume
from fedtune.api.search import carry_out
from fedtune.machine import cluster, private_ray, server_watch
from fedtune.machine.server_watch import CLUSTER, OWN, ServerLoss, ServersLost, ServerWatch, patience, resuming
from fedtune.options import Progress
from fedtune.planning.plan import Plan
from fedtune.record.run_directory import is_driven
from tests.fedtune.conftest import experiment, space

SENTENCE = (
    "Ray's raylet died, and nothing runs without it. The search stopped and keeps what was written; no trial was "
    "scored by this. Go on with `fedtune resume '/runs/my run'`."
)


def listening() -> socket.socket:
    """It takes connections and never answers, as a server does that has no time."""
    made = socket.socket()
    made.bind(("127.0.0.1", 0))
    made.listen(64)
    return made


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> dict[str, socket.socket]:
    made = {"GCS": listening(), "raylet": listening()}
    places = {name: server.getsockname() for name, server in made.items()}
    monkeypatch.setattr(server_watch, "_places", lambda: places)
    monkeypatch.setattr(server_watch, "EVERY", 0.05)
    return made


@pytest.mark.parametrize("name", ["GCS", "raylet"])
def test_a_server_that_is_gone_is_told_once(two: dict[str, socket.socket], name: str) -> None:
    told: list[str] = []
    with ServerWatch(told.append, patience=0.2) as watch:
        time.sleep(0.5)
        assert told == [] and watch.gone() is None
        two[name].close()
        assert watch.gone() == name
        time.sleep(1.0)
    assert told == [name]


def test_a_server_that_comes_back_in_time_is_not_lost(two: dict[str, socket.socket]) -> None:
    told: list[str] = []
    place = two["GCS"].getsockname()
    with ServerWatch(told.append, patience=3.0) as watch:
        two["GCS"].close()
        time.sleep(0.3)
        assert watch.gone() == "GCS"
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(place)
            again.listen(64)
            time.sleep(3.2)
    assert told == []


def test_nothing_is_told_after_the_end(two: dict[str, socket.socket]) -> None:
    told: list[str] = []
    with ServerWatch(told.append, patience=0.1):
        pass
    two["GCS"].close()
    time.sleep(0.5)
    assert told == []


def test_every_death_is_noticed_within_thirty_seconds() -> None:
    assert patience(None) == OWN and patience("host:6379") == CLUSTER
    assert OWN < CLUSTER and CLUSTER + server_watch.EVERY + 2 * server_watch.ATTEMPT < 30


def test_the_search_ends_with_the_command_that_goes_on() -> None:
    with ServerLoss(resuming(Path("/runs/my run"))) as lost:
        lost.check()
        lost.note("raylet")
        lost.note("GCS")
    with pytest.raises(ServersLost) as told:
        lost.check()
    assert told.value.problems == (SENTENCE,) and told.value.exit_code == 3


def test_where_ray_keeps_waiting_the_process_ends(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert server_watch.CLUSTER + server_watch.EVERY + 2 * server_watch.ATTEMPT + server_watch.LEAVING < 30
    monkeypatch.setattr(server_watch, "LEAVING", 0.1)
    codes: list[int] = []
    lost = ServerLoss(resuming(Path("/runs/my run")), codes.append)
    lost.note("raylet")
    time.sleep(0.5)
    assert codes == [3] and capsys.readouterr().err == SENTENCE + "\n"


def test_a_signal_that_ended_the_servers_too_is_an_interruption(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `timeout` sends it to all processes of its group."""
    monkeypatch.setattr(server_watch, "SOON", 0.1)
    codes: list[int] = []
    lost = ServerLoss(resuming(Path("/run")), codes.append, interrupted=lambda: True)
    lost.check()
    lost.note("GCS")
    with pytest.raises(KeyboardInterrupt):
        lost.check()
    time.sleep(0.5)
    assert codes == [130] and capsys.readouterr().err == "Interrupted. Go on with `fedtune resume /run`.\n"


def test_a_process_that_left_ray_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_watch, "LEAVING", 0.2)
    codes: list[int] = []
    with ServerLoss(resuming(Path("/run")), codes.append) as lost:
        lost.note("raylet")
    time.sleep(0.5)
    assert codes == []


def test_where_ray_does_not_start_the_run_stays_and_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def dead(folder: Path, **_: object) -> Iterator[None]:
        with private_ray._told():
            raise RuntimeError("Failed to start GCS.")
        yield

    monkeypatch.setattr(cluster, "started", dead)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    folder = tmp_path / "my run"
    plan = Plan(folder, experiment(folder), space(), {}, (), {})
    for goes_on in (lambda: carry_out(plan, Progress(quiet=True)), lambda: resume(folder, quiet=True)):
        with pytest.raises(ServersLost, match="Failed to start GCS") as told:
            goes_on()
        assert told.value.exit_code == 3 and f"`fedtune resume '{folder}'`" in str(told.value)
        assert len(told.value.problems) == 1 and not is_driven(folder) and load_run(folder).frozen == []
