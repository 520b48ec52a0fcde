"""The folder of a search among the machine's temporary files: for this user alone, and never somebody else's."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedtune.machine import private_folder as module
from fedtune.machine.private_folder import LONGEST, chosen_place, leftovers, private_folder
from search_spaces.errors import UserError


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where folders are made; short, as the path of a socket is."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ft") as made:
        monkeypatch.setenv("RAY_TMPDIR", made)
        yield Path(made)


def a_leftover(place: Path, name: str = "fedtune-ray-0123456789a", mode: int = 0o700) -> Path:
    folder = place / name
    (folder / "r" / "logs").mkdir(parents=True)
    folder.chmod(mode)
    return folder


def test_the_folder_is_private_and_is_removed(place: Path) -> None:
    before = os.umask(0)
    try:
        with private_folder() as folder, private_folder() as other:
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and folder.parent == place
            assert folder != other and leftovers(place) == sorted([folder, other])
            (folder / "file").touch()
    finally:
        os.umask(before)
    assert list(place.iterdir()) == []


def test_sockets_fit(place: Path) -> None:
    """The longest path that Ray makes, with the longest process id of Linux, at the longest place."""
    name = "fedtune-ray-" + 11 * "x"
    session = "session_2026-11-23_11-57-15_123456_4194304"
    path = "/".join(("/" + (LONGEST - 1) * "x", name, module.RAY, session, "sockets", "plasma_store"))
    limit = 103 if sys.platform == "darwin" else 107
    assert len(path) == limit
    with private_folder() as folder:
        assert len(folder.name) == len(name)


def test_a_killed_search_s_folder_is_removed_by_the_next(place: Path) -> None:
    code = "import os\nfrom fedtune.machine.private_folder import private_folder\nwith private_folder(): os._exit(9)"
    subprocess.run([sys.executable, "-c", code], check=False)
    (left,) = leftovers(place)
    with private_folder() as folder:
        assert not left.exists() and folder.exists()


def test_what_is_in_use_stays(place: Path) -> None:
    code = (
        "from fedtune.machine.private_folder import private_folder\n"
        "with private_folder() as folder: print(folder, flush=True); input()"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    theirs = Path(other.stdout.readline().strip())
    with private_folder():
        assert theirs.exists()
    other.communicate("\n")
    assert not theirs.exists()


@pytest.mark.parametrize("name", ["fedtune-ray-abcdefgh", "fedtune-ray-0123456789ab", "fedtune-ray-0123456.89", "mine"])
def test_other_names_stay(place: Path, name: str) -> None:
    other = a_leftover(place, name)
    with private_folder():
        assert (other / "r" / "logs").exists()


def test_a_folder_that_others_may_enter_stays(place: Path) -> None:
    """It is none of ours, whatever it is called."""
    other = a_leftover(place, mode=0o755)
    with private_folder():
        assert (other / "r" / "logs").exists()


def test_no_link_is_followed(place: Path, tmp_path: Path) -> None:
    target = a_leftover(tmp_path, "precious")
    link, left = place / "fedtune-ray-link0123456", a_leftover(place)
    link.symlink_to(target)
    (left / "out").symlink_to(target)
    with private_folder():
        assert link.is_symlink() and (target / "r" / "logs").exists() and not left.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a folder of another user")
def test_somebody_else_s_folder_stays(place: Path) -> None:
    other = a_leftover(place)
    os.chown(other, 12345, 12345)
    with private_folder():
        assert (other / "r" / "logs").exists()


def test_a_folder_that_was_taken_for_left_behind_is_made_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another search cleans up between the making of the folder and its being held."""
    hold, seen = module._held, []

    def disturbed(folder: Path) -> int | None:
        seen.append(folder)
        if len(seen) == 1:
            folder.rmdir()
        return hold(folder)

    monkeypatch.setattr(module, "_held", disturbed)
    with private_folder() as folder:
        assert folder.exists() and folder == seen[1] != seen[0]


def test_too_long_a_place_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", "/" + LONGEST * "x")
    assert chosen_place() == Path("/tmp")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UserError, match=f"at most {LONGEST} bytes and which may be written, got /xx.* and /tmp. Name"):
        chosen_place()
