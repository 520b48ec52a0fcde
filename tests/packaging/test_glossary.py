"""The glossary explains words that are really used, one line each, in alphabetical order."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "glossary.md"
PLACES = ("fedtune", "search_spaces", "trainables", "analysis", "docs")
ENTRY = re.compile(r"- \*\*(?P<term>[^*]+)\*\*: (?P<text>.+)")


def lines() -> list[str]:
    """The page's entries as they stand."""
    return [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("-")]


def terms() -> list[str]:
    return [found["term"] for line in lines() if (found := ENTRY.fullmatch(line))]


@cache
def everything() -> str:
    """All code and all other pages in lower case, line breaks and underscores as spaces, `TrialQueue` also as two words."""
    files = [path for place in PLACES for path in (ROOT / place).rglob("*") if path.suffix in (".py", ".md", ".yaml")]
    texts = (path.read_text(encoding="utf-8") for path in [*files, ROOT / "README.md"] if path != PAGE)
    text = " ".join(texts)
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return re.sub(r"[\s_]+", " ", f"{text} {apart}").lower()


def test_every_entry_is_one_line_of_one_form() -> None:
    for line in lines():
        assert ENTRY.fullmatch(line) and line.endswith(".") and len(line) <= 160, line
    assert len(lines()) == len(terms()) > 50


def test_entries_are_in_alphabetical_order() -> None:
    assert terms() == sorted(set(terms()), key=str.casefold)


@pytest.mark.parametrize("term", terms())
def test_every_term_is_used(term: str) -> None:
    plain = re.escape(term.lower().replace("_", " "))
    assert re.search(rf"(?<!\w){plain}s?(?!\w)", everything()), (
        f"{term!r} occurs neither in the code nor in the docs. Remove its line."
    )
