"""Every command behind docs/results.md and the README is one that fedtune accepts: planned in full, not carried out."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from fedtune import cli, searching

ROOT = Path(__file__).resolve().parents[2]
SH = re.compile(r"^```(?:sh)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Planned(Exception):
    """Raised in place of carrying a plan out."""


def commands(name: str) -> list[list[str]]:
    """The `fedtune run` and `fedtune search` lines of a document's blocks, `for` loops unrolled by their first words."""
    found = []
    for block in SH.findall((ROOT / name).read_text(encoding="utf-8")):
        loops = dict(re.findall(r"for (\w+) in (\S+)", block))
        for line in block.replace("\\\n", " ").splitlines():
            text = re.sub(r"\$\{?(\w+)\}?", lambda m, known=loops: known.get(m[1], m[0]), line.strip())
            if text.startswith(("fedtune run", "fedtune search")):
                found.append(shlex.split(text, comments=True)[1:])
    return found


EVERY = [(name, command) for name in ("docs/results.md", "README.md") for command in commands(name)]


def test_there_are_commands_to_check() -> None:
    assert {command[0] for _, command in EVERY} == {"run", "search"}
    assert sum(name == "docs/results.md" for name, _ in EVERY) >= 4


@pytest.mark.parametrize(("name", "command"), EVERY, ids=[f"{n}: {' '.join(c)}"[:90] for n, c in EVERY])
def test_the_command_can_be_carried_out(name: str, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "best.yaml" in command:
        pytest.skip("trains what an earlier command exported")

    def stop(planned: Any, **_: Any) -> None:
        raise Planned(planned.experiment.method)

    monkeypatch.setattr(searching, "carry_out", stop)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fedtune", *command])
    with pytest.raises(Planned):
        cli.main()
