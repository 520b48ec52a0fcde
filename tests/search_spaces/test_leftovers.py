"""What a killed process was writing is cleared away; what somebody writes, or what only looks alike, is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from search_spaces import files, leftovers

HEX = "0123456789abcdef"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def writer(target: Path) -> subprocess.Popen[str]:
    """A process that is in the middle of writing `target`."""
    code = (
        "import sys, time; from pathlib import Path; from search_spaces import files\n"
        "with files.replacing(Path(sys.argv[1])): print('writing', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(target)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "writing\n"
    return process


def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path: Path) -> None:
    process = writer(tmp_path / "e.yaml")
    (left,) = names(tmp_path)
    files.replace(tmp_path / "e.yaml", "mine")
    assert names(tmp_path) == {"e.yaml", left}, "its writer lives"
    process.send_signal(signal.SIGKILL)
    process.wait()
    files.replace(tmp_path / "other.yaml", "mine")
    assert left in names(tmp_path), "another file's"
    files.replace(tmp_path / "e.yaml", "again")
    assert names(tmp_path) == {"e.yaml", "other.yaml"}


@pytest.mark.parametrize(
    ("temporary", "name"),
    [
        (f".e.yaml.{HEX}.tmp", "e.yaml"),
        (f"..e.yaml.{HEX}.tmp.{HEX}.tmp", "e.yaml"),
        (f".a b\n.{HEX}.tmp", "a b\n"),
        (f"e.yaml.{HEX}.tmp", None),
        (f".e.yaml.{HEX[1:]}.tmp", None),
        (f".e.yaml.{HEX.upper()}.tmp", None),
        (f".e.yaml.{HEX}.tmp~", None),
        (f"..{HEX}.tmp", None),
        (".e.yaml.4711", None),
    ],
)
def test_a_name_says_what_it_becomes(temporary: str, name: str | None) -> None:
    assert leftovers.becomes(temporary) == name
    assert leftovers.becomes(leftovers.temporary_name("x")) == "x"


def test_a_link_stays_and_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "place" / f".a.{HEX}.tmp").symlink_to(tmp_path / "secret")
    (tmp_path / "place" / f".c.{HEX}.tmp").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "place" / f".d.{HEX}.tmp")
    before = names(tmp_path / "place")
    leftovers.clear(tmp_path / "place", lambda name: True, folders=lambda folder: True)
    assert names(tmp_path / "place") == before and (tmp_path / "secret").read_text() == "secret"


def test_another_users_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f".a.{HEX}.tmp").write_text("")
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    leftovers.clear(tmp_path, lambda name: True)
    assert names(tmp_path) == {f".a.{HEX}.tmp"}
    monkeypatch.undo()
    leftovers.clear(tmp_path, lambda name: True)
    assert not names(tmp_path)


def test_a_folder_goes_only_where_it_is_ours_and_free(tmp_path: Path) -> None:
    held, made = leftovers.new_folder(tmp_path / "run")
    (made / "trials").mkdir()
    (tmp_path / f".notes.{HEX}.tmp").mkdir()
    before = names(tmp_path)
    leftovers.clear(tmp_path, lambda name: True)
    leftovers.clear(tmp_path, lambda name: name == "run", folders=lambda folder: True)
    assert names(tmp_path) == before
    os.close(held)
    leftovers.clear(tmp_path, lambda name: True, folders=lambda folder: folder == made)
    assert names(tmp_path) == {f".notes.{HEX}.tmp"}


def test_what_was_taken_for_left_over_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may look between a file's making and its being held."""
    lock, looked = leftovers.fcntl.flock, []

    def cleared_first(descriptor: int, how: int) -> None:
        if not looked:
            looked.extend(tmp_path.iterdir())
            looked[0].unlink()
        lock(descriptor, how)

    monkeypatch.setattr(leftovers.fcntl, "flock", cleared_first)
    descriptor, made = leftovers.new_file(tmp_path / "e.yaml")
    os.close(descriptor)
    assert made.exists() and made != looked[0]


def test_where_there_are_no_locks_nothing_is_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(descriptor: int, how: int) -> None:
        raise OSError("no locks available")

    (tmp_path / f".e.yaml.{HEX}.tmp").write_text("")
    monkeypatch.setattr(leftovers.fcntl, "flock", none)
    files.replace(tmp_path / "e.yaml", "mine")
    assert names(tmp_path) == {"e.yaml", f".e.yaml.{HEX}.tmp"}


def test_a_folder_that_is_not_there_has_nothing_to_clear(tmp_path: Path) -> None:
    leftovers.clear(tmp_path / "none", lambda name: True)
    assert not names(tmp_path)


def test_a_temporary_folder_is_private_and_goes_in_the_end_or_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers.tempfile, "gettempdir", lambda: str(tmp_path))
    (tmp_path / f".mine.{HEX}.tmp").mkdir(mode=0o700)  # of a killed process
    (tmp_path / f".mine.{HEX[::-1]}.tmp").mkdir(mode=0o755)  # not made so
    (tmp_path / f".other.{HEX}.tmp").mkdir(mode=0o700)
    kept = {f".mine.{HEX[::-1]}.tmp", f".other.{HEX}.tmp"}
    with leftovers.temporary_folder("mine") as (folder, _):
        (folder / "file").write_text("x")
        assert names(tmp_path) == kept | {folder.name} and folder.stat().st_mode & 0o777 == 0o700
        with leftovers.temporary_folder("mine") as (second, _):
            assert folder.exists() and second != folder, "it is held"
    assert names(tmp_path) == kept
    (tmp_path / f".mine.{HEX}.tmp").mkdir(mode=0o700)
    file = tmp_path / f".mine.{HEX}.tmp" / "file"
    for age, there in ((5.0, True), (70.0, False)):
        file.touch()
        for path in (file, file.parent):
            os.utime(path, (0, time.time() - age))
        with leftovers.temporary_folder("mine", quiet=60.0):
            assert file.exists() is there, f"last written {age:.0f} s ago"
