"""Servers that die are noticed, slow ones are not taken for dead. (That Ray's are is an end-to-end test.)"""

from __future__ import annotations

import socket
import time

import pytest

from fedtune.machine import servers
from fedtune.machine.servers import CLUSTER, OWN, Watch, patience


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
    monkeypatch.setattr(servers, "_places", lambda: places)
    monkeypatch.setattr(servers, "EVERY", 0.05)
    return made


@pytest.mark.parametrize("name", ["GCS", "raylet"])
def test_a_server_that_is_gone_is_told_once(two: dict[str, socket.socket], name: str) -> None:
    told: list[str] = []
    with Watch(told.append, patience=0.2) as watch:
        time.sleep(0.5)
        assert told == [] and watch.gone() is None
        two[name].close()
        assert watch.gone() == name
        time.sleep(1.0)
    assert told == [name]


def test_a_server_that_comes_back_in_time_is_not_lost(two: dict[str, socket.socket]) -> None:
    told: list[str] = []
    place = two["GCS"].getsockname()
    with Watch(told.append, patience=3.0) as watch:
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
    with Watch(told.append, patience=0.1):
        pass
    two["GCS"].close()
    time.sleep(0.5)
    assert told == []


def test_every_death_is_noticed_within_thirty_seconds() -> None:
    assert patience(None) == OWN and patience("host:6379") == CLUSTER
    assert OWN < CLUSTER and CLUSTER + servers.EVERY + 2 * servers.ATTEMPT < 30
