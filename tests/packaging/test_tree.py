"""What a newcomer may rely on: every file says what it holds, the docs name every folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("fedtune", "search_spaces", "trainables", "analysis")


def modules(root: Path) -> Iterator[tuple[str, ast.Module]]:
    """Every module's path below `root`, and its syntax tree."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            yield str(path.relative_to(root)), ast.parse(path.read_text(encoding="utf-8"))


def without_docstring(root: Path) -> list[str]:
    """Files that do not begin with a sentence on what they hold."""
    found = []
    for name, tree in modules(root):
        first = (ast.get_docstring(tree) or "").split("\n\n")[0].strip()
        if not first.endswith((".", "?", ":")):
            found.append(
                f"{name}: the first paragraph of the file must be a docstring of whole sentences, got {first!r}"
            )
    return found


def rooms() -> list[str]:
    """Every folder of modules inside a package, such as `analysis/figures`."""
    inits = (path for package in PACKAGES for path in (ROOT / package).glob("**/__init__.py"))
    return sorted(str(path.parent.relative_to(ROOT)) for path in inits if path.parent.parent != ROOT)


def test_every_file_says_what_it_holds() -> None:
    assert not (found := without_docstring(ROOT)), "\n".join(found)


def test_every_folder_of_modules_is_a_package() -> None:
    """A folder without `__init__.py` is imported all the same, but nothing of it can be re-exported or installed."""
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert not (found := [str(f.relative_to(ROOT)) for f in sorted(folders) if not (f / "__init__.py").is_file()]), (
        found
    )


@pytest.mark.parametrize("room", rooms())
def test_the_docs_say_what_every_room_is_for(room: str) -> None:
    text = (ROOT / "docs" / "how-it-fits.md").read_text(encoding="utf-8")
    assert f"`{room}/`" in text, f"docs/how-it-fits.md does not name {room}/. Say in one sentence what is in it."


def test_a_breach_is_found(tmp_path: Path) -> None:
    room = tmp_path / "analysis"
    room.mkdir()
    (room / "silent.py").write_text("VALUE = 1\n")
    (room / "fair.py").write_text('"""Something fair."""\n')
    assert [line.split(":")[0] for line in without_docstring(tmp_path)] == ["analysis/silent.py"]
