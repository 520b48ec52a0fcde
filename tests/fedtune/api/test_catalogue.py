"""Listings are found once and remembered until something they come from changes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fedtune.api import catalogue
from search_spaces.errors import UserError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FEDTUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEDTUNE_METHODS", raising=False)
    return tmp_path / "cache" / "listings"


def test_what_is_remembered_is_what_was_found(cache: Path) -> None:
    first = catalogue.spaces("dfrd"), catalogue.methods(), catalogue.methods("fedkf")
    assert len(list(cache.iterdir())) == 3
    assert first == (catalogue.spaces("dfrd"), catalogue.methods(), catalogue.methods("fedkf"))
    assert first[0] == catalogue._spaces("dfrd") and first[1] == catalogue._methods(None)


def test_it_is_found_once(monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path) -> None:
    calls: list[int] = []

    def find() -> list[dict[str, int]]:
        calls.append(1)
        return [{"n": len(calls)}]

    source = tmp_path / "method.py"
    source.write_text("one")
    monkeypatch.setattr(catalogue, "_declaring", lambda: iter([source]))
    assert [catalogue.remembered("x", find) for _ in range(2)] == [[{"n": 1}]] * 2
    source.write_text("other")
    assert catalogue.remembered("x", find) == [{"n": 2}] and len(list(cache.iterdir())) == 1
    (note,) = cache.iterdir()
    note.write_text("{")
    assert catalogue.remembered("x", find) == [{"n": 3}]
    monkeypatch.setenv("FEDTUNE_METHODS", "mine.py")
    assert catalogue.remembered("x", find) == [{"n": 4}]


def test_a_strange_name_reaches_no_file(cache: Path) -> None:
    for name in ("../../x", "a/b", "x" * 300):
        with pytest.raises(UserError):
            catalogue.methods(name)
    assert not cache.exists()


def test_a_cache_that_cannot_be_written_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDTUNE_CACHE", str(tmp_path / "file"))
    assert catalogue.remembered("x", lambda: [{"a": 1}]) == [{"a": 1}]


def test_pytorch_is_not_loaded_the_second_time() -> None:
    code = (
        "import sys; from fedtune.api.catalogue import spaces, methods; spaces(); methods();"
        "print(json.dumps('torch' in sys.modules))"
    )
    found = [
        subprocess.run([sys.executable, "-c", f"import json; {code}"], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [json.loads(done.stdout) for done in found] == [True, False]
