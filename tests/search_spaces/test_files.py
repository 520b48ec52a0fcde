"""Files are written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from search_spaces import files


@pytest.mark.parametrize(("content", "stored"), [("α\n", "α\n".encode()), (b"\x00\xff", b"\x00\xff")])
def test_text_and_bytes_take_the_old_content_s_place(tmp_path: Path, content: str | bytes, stored: bytes) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    files.replace(path, content)
    assert path.read_bytes() == stored and list(tmp_path.iterdir()) == [path]


def test_a_new_file_has_the_rights_of_any_other(tmp_path: Path) -> None:
    files.replace(tmp_path / "ours", "text")
    (tmp_path / "any").write_text("text")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "any").stat().st_mode


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_the_old_content_stands_when_writing_fails(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(type(error)), files.replacing(path) as temporary:
        temporary.write_text("half")
        raise error
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_durable_content_is_on_the_disk_before_the_swap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    true_sync, true_swap = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (events.append("sync"), true_sync(descriptor)))
    monkeypatch.setattr(os, "replace", lambda old, new: (events.append("swap"), true_swap(old, new)))
    files.replace(tmp_path / "file", "text", durable=True)
    files.replace(tmp_path / "file", "text")
    assert events == ["sync", "swap", "swap"]


def test_the_sentence_says_what_can_be_done(tmp_path: Path) -> None:
    error = files.cannot_write(tmp_path, OSError(errno.ENOSPC, "No space left on device"), "Free some space.")
    assert error.problems == (f"{tmp_path} cannot be written: No space left on device. Free some space.",)
