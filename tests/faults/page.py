"""The tables of docs/faults.md, made from the registry: `python -m tests.faults page` writes them."""

from __future__ import annotations

import re
from pathlib import Path

from tests.faults.cases.damage import WAYS
from tests.faults.registry import Case, cases

PAGE = Path(__file__).resolve().parents[2] / "docs" / "faults.md"
_PLACE = r"(<!-- {name} -->\n).*?(<!-- end -->)"


def faults(found: list[Case]) -> str:
    """All but the damaged files, a line each."""
    rows = [f"| {one.name} | {one.done} | {one.moments or ''} | {one.expected} |" for one in found if not one.of]
    return "\n".join(["| fault | what is done | moments | comes out |", "|---|---|---|---|", *rows]) + "\n"


def damages(found: list[Case]) -> str:
    """The damaged files: a line for each, a column for each way."""
    rows: dict[tuple[str, str], dict[str, str]] = {}
    for one in found:
        if one.of:
            names, whose, way = one.of
            rows.setdefault((names, whose), {})[way] = one.expected
    lines = [
        f"| {' '.join([', '.join(f'`{name}`' for name in names.split()), whose]).strip()} | "
        f"{' | '.join(ways[way] for way in WAYS)} |"
        for (names, whose), ways in rows.items()
    ]
    return "\n".join([f"| file | {' | '.join(WAYS)} |", "|---|" + "---|" * len(WAYS), *lines]) + "\n"


def made(text: str) -> str:
    """The page with the tables as the registry has them."""
    found = cases()
    for name, table in (("faults", faults(found)), ("files", damages(found))):
        text, times = re.subn(
            _PLACE.format(name=name), lambda place, table=table: place[1] + table + place[2], text, flags=re.DOTALL
        )
        assert times == 1, f"docs/faults.md has no place for the table of {name}"
    return text


def record() -> None:
    PAGE.write_text(made(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
