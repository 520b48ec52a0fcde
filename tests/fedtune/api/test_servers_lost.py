"""A server of Ray that dies under several runs: the command that goes on with all of them is named, and the process is
not left waiting for Ray."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from fedtune.api.resume import resume
from fedtune.execution import driver
from fedtune.execution.interrupts import Interrupts
from fedtune.execution.ray_hooks import SessionEnd
from fedtune.execution.ray_session import TuneSession
from fedtune.machine import cluster
from fedtune.machine.server_watch import ServerLoss, ServersLost
from tests.security import prepared

DIED = "Ray's GCS died, and nothing runs without it."


def waited_for() -> bool:
    """Whether the process will be ended where Ray keeps it waiting."""
    timers = [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]
    return any(not timer.finished.is_set() for timer in timers)  # one that was cancelled ends a moment later


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[bool]:
    """No Ray is there; every time that one is left, whether that is waited for."""
    found: list[bool] = []

    @contextmanager
    def joined(address: str | None, **_: object) -> Iterator[Path]:
        try:
            yield tmp_path
        finally:
            found.append(waited_for())

    monkeypatch.setattr(cluster, "joined", joined)
    monkeypatch.setattr(driver, "ServerWatch", lambda note, *, patience: nullcontext())
    return found


def dies(session: TuneSession, scratch: Path, forks: bool) -> None:
    session.end.lost.note("GCS")
    session.end.lost.check()


def test_a_reproduction_is_given_again(left: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TuneSession, "fit", dies)
    folder = prepared.table(monkeypatch, tmp_path)
    with pytest.raises(ServersLost, match=DIED) as told:
        prepared.again(folder)
    assert f"Go on with `fedtune reproduce two --small --runs-dir {folder.parent}`." in str(told.value)
    assert left == [True] and not waited_for()


@pytest.mark.parametrize("when", ["in a session", "between two sessions"])
def test_a_search_over_methods_is_resumed(
    left: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    folder = prepared.several(tmp_path / "run")

    def watch(note: Callable[[str], None], *, patience: float) -> nullcontext[None]:
        if when == "between two sessions":
            note("GCS")
        return nullcontext()

    def fit(session: TuneSession, scratch: Path, forks: bool) -> None:
        assert when == "in a session", "a session began without Ray"
        dies(session, scratch, forks)

    monkeypatch.setattr(driver, "ServerWatch", watch)
    monkeypatch.setattr(TuneSession, "fit", fit)
    with pytest.raises(ServersLost, match=DIED) as told:
        resume(folder, quiet=True)
    assert f"Go on with `fedtune resume {folder}`." in str(told.value)
    assert left and all(left) and not waited_for()


def test_a_full_disk_names_the_command_too(tmp_path: Path) -> None:
    end = SessionEnd(tmp_path, None, Interrupts(), ServerLoss("fedtune reproduce two --small"))
    with end.keeping_failures():
        raise OSError(28, "No space left on device")
    assert str(tmp_path) in str(end.failure) and "No space left on device" in str(end.failure)
    assert "go on with `fedtune reproduce two --small`." in str(end.failure)
