"""What the provenance of a run keeps of its extensions."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fedtune.record.provenance import extended
from search_spaces import run_folder


def test_every_extension_is_listed_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / run_folder.PROVENANCE
    path.write_text(json.dumps({"created": "then", "command": ["fedtune", "search"]}))
    for words, changes in ((["--rounds", "2"], {"rounds": (4, 6)}), (["--trials", "1"], {"trials": (5, 6)})):
        monkeypatch.setattr(sys, "argv", ["/bin/fedtune", "extend", "run", *words])
        extended(tmp_path, changes)
    found = json.loads(path.read_text())
    assert {key: found[key] for key in ("created", "command")} == {"created": "then", "command": ["fedtune", "search"]}
    first, second = found["extended"]
    assert first.pop("created") and second.pop("created")
    assert first == {"command": ["fedtune", "extend", "run", "--rounds", "2"], "rounds": [4, 6]}
    assert second == {"command": ["fedtune", "extend", "run", "--trials", "1"], "trials": [5, 6]}


@pytest.mark.parametrize("content", [None, "[]", "{"])
def test_a_run_without_a_readable_provenance_gets_none(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / run_folder.PROVENANCE
    if content is not None:
        path.write_text(content)
    extended(tmp_path, {"rounds": (4, 6)})
    assert (path.read_text() if path.exists() else None) == content


def test_a_list_that_is_none_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / run_folder.PROVENANCE).write_text('{"extended": 3}')
    extended(tmp_path, {"rounds": (4, 6)})
    assert len(json.loads((tmp_path / run_folder.PROVENANCE).read_text())["extended"]) == 1
