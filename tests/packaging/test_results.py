"""Every command of docs/results.md, on digits and on another data set, and of the README is one that fedtune accepts.

The commands are read by letting bash run the document's blocks with a `fedtune` that only notes its arguments. They
are planned in full, not carried out.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedtune import cli
from fedtune.api import auto, run, search
from fedtune.planning import auto_budget
from tests.equal_terms import TABLES, differing, group

ROOT = Path(__file__).resolve().parents[2]
SH = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Notes a call's words, each quoted for a shell, as one line on the file descriptor 9.
NOTE = 'fedtune() { printf "%q " "$@" >&9; echo >&9; }; export -f fedtune;'
#: The commands that compute something.
MAKING = ("run", "search", "auto")
#: A data set that the tables can be made on instead of digits.
OTHER = "rotated_digits"


class Planned(Exception):
    """Raised in place of carrying a plan out."""


def noted(bash: str, folder: Path) -> list[list[str]]:
    """The words of every fedtune command that this bash text would run."""
    notes = folder / "notes"
    done = subprocess.run(
        ["bash", "-c", f"{NOTE} {{ {bash}\n}} 9>{shlex.quote(str(notes))}"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [shlex.split(line) for line in notes.read_text(encoding="utf-8").splitlines()]


def commands(name: str, folder: Path) -> list[list[str]]:
    """The commands of a document's shell blocks that compute something, loops carried out."""
    text = (ROOT / name).read_text(encoding="utf-8")
    lines = "\n".join(SH.findall(text)).splitlines() if name == "docs/results.md" else []
    if name == "README.md":
        lines = [
            line.strip() for line in text.splitlines() if line.strip().startswith(("fedtune run", "fedtune search"))
        ]
    return [c for c in noted("\n".join(lines), folder) if c[0] in MAKING]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("source", ["docs/results.md", "README.md", OTHER])
def test_the_commands_can_be_carried_out(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the runs of one table agree on what its paper holds equal. What is trained from a file has the values of the
    search that the file comes from, but for the one that was searched."""
    document = "docs/results.md" if source == OTHER else source
    found = [[*c, "--dataset", OTHER] if source == OTHER else c for c in commands(document, tmp_path)]
    assert found
    configurations: dict[str, dict[str, Any]] = {}

    def stop(planned: Any, _: object) -> None:
        e = planned.experiment
        searched = {*planned.space.search, *planned.space.vary} if e.kind == "search" else set()
        configurations[e.name] = {k: v for k, v in planned.middle.items() if k not in searched} | {"rounds": e.rounds}
        raise Planned(e.method)

    def stop_auto(planned: Any, _: object) -> None:
        for e in (one.experiment for one in planned.searches):
            configurations[f"{planned.record.name}/{e.method}"] = {**e.values, "rounds": e.rounds}
        assert planned.record.equal and not planned.record.excluded
        raise Planned

    monkeypatch.setattr(auto, "carry_out_auto", stop_auto)
    monkeypatch.setattr(
        auto_budget, "measured", lambda *a, **k: {"seconds": 1.0, "seed-rounds": 1.0, "bytes": 1.0, "bytes_up": 1.0}
    )
    for module in (search, run):  # each names it, the one that defines it and the one that calls it
        monkeypatch.setattr(module, "carry_out", stop)
    monkeypatch.chdir(tmp_path)
    if source == "README.md":  # its table is that of the start page
        table = re.search(r"^```python\n(.*?)^```$", (ROOT / "docs" / "start.md").read_text(), re.MULTILINE | re.DOTALL)
        assert table is not None
        exec(table[1], {})
    for command in found:
        if any(word.endswith(".yaml") for word in command[:2]):
            continue  # trains what an earlier command exported
        monkeypatch.setattr(sys, "argv", ["fedtune", *command])
        with pytest.raises(Planned):
            cli.main()
    if source == "docs/results.md":
        assert_equal_terms(configurations)


def assert_equal_terms(configurations: dict[str, dict[str, Any]]) -> None:
    """Runs of one comparison agree on what `tests.equal_terms` lists for its table."""
    for table in (t for t in TABLES if t.runs):
        together: dict[str, dict[str, dict[str, Any]]] = {}
        for run_name, values in configurations.items():
            part = group(table, run_name)
            if part is not None:
                together.setdefault(part, {})[run_name] = values
        assert together, f"no run of {table.source}"
        for runs in together.values():
            # When the test set is measured decides no result: a search does it at the end, a final run in every round.
            assert len(runs) > 1 and differing(table.held - {"eval_test"} | {"rounds"}, runs) == {}
