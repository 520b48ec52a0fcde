"""Every command's `--help` ends with examples, shown as they are written, and what they name exists."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from fedtune import cli
from search_spaces import presets
from search_spaces.metrics import METRICS
from tests.fedtune.played import searched
from trainables import data, registry

ROOT = Path(__file__).resolve().parents[2]
GROUP: Any = typer.main.get_command(cli.app)
CONTEXT = GROUP.make_context("fedtune", ["doctor"], resilient_parsing=True)
NAMES = GROUP.list_commands(CONTEXT)
#: Parameters that say how much is computed in a round.
STEPS = ("local_steps", "server_iters", "gen_steps", "distill_steps")
#: What a line of help may hold beside its indentation, on a terminal of 80 columns.
COLUMNS = 78


def command(name: str) -> Any:
    return GROUP.get_command(CONTEXT, name)


def examples(name: str) -> list[list[str]]:
    """The words of a command's examples after `fedtune`; a line that ends with a backslash goes on in the next."""
    lines = command(name).epilog.replace("\\\n", " ").splitlines()
    return [shlex.split(line)[1:] for line in lines if not line.startswith("#")]


EXAMPLES = [words for name in NAMES for words in examples(name)]


def parsed(words: list[str]) -> dict[str, Any]:
    """The arguments as the command would receive them; typer refuses an unknown option or a value of the wrong kind."""
    context = command(words[0]).make_context(words[0], words[1:])
    assert not context.args
    values: dict[str, Any] = context.params
    return values


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_an_example_of_itself(name: str) -> None:
    assert examples(name)
    assert all(words[0] == name for words in examples(name))
    text = command(name).epilog
    assert all(line.startswith(("fedtune ", "# ", "    ")) for line in text.splitlines()), (
        "a command, what it is for, or its next line"
    )
    assert all(len(line) <= COLUMNS for line in text.splitlines())
    assert text.count("# ") == len(examples(name)), "every example says what it is for"


def test_the_real_help_shows_them() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fedtune", "search", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert all(f"  {line}\n" in done.stdout for line in command("search").epilog.splitlines())
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


@pytest.mark.parametrize("words", EXAMPLES, ids=" ".join)
def test_every_example_is_accepted(words: list[str]) -> None:
    values = parsed(words)
    if words[0] in ("methods", "spaces", "search"):
        name = values.get("method" if words[0] != "methods" else "name")
        assert name is None or name in registry.methods()
    named = next((w for w in words[1:2] if w in registry.methods()), None)
    if values.get("space", "default") != "default":
        several = [name for text in values.get("methods") or () for name in text.split(",")]
        tuned = several or [str(named)]
        assert all(values["space"] in presets.names(name) for name in tuned)
    for setting in values.get("set") or ():
        key, value = setting.split("=")
        if f"--{key}" in command(words[0]).by_set:
            continue  # an option of its own
        registry.declared(named or "fedavg")[key].convert(value)  # auto sets it for all methods
    asked = values.get("metric") or ()
    for metric in (asked,) if isinstance(asked, str) else asked:
        assert metric in METRICS
    if words[0] == "datasets" and values["name"] is not None:
        assert values["name"] in data.names()


@pytest.mark.parametrize("words", examples("search"), ids=" ".join)
def test_every_search_can_be_planned(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process: that a process of its own plans, too, is shown by the tests of the command line. The rounds that
    are timed have few steps: what is asked is whether they can be, and DFRD's own take ten seconds each."""
    (tmp_path / "runs").mkdir()
    rows = "".join(f"{i / 400},{i % 7},{i % 4},{i % 5}\n" for i in range(400))
    (tmp_path / "people.csv").write_text(f"age,a,y,hospital\n{rows}", encoding="utf-8")
    if "--warm-start" in words:
        searched(tmp_path / words[words.index("--warm-start") + 1], method=words[1])
    monkeypatch.chdir(tmp_path)
    short = [f"--set={name}=1" for name in STEPS if name in registry.declared(words[1])]
    done = CliRunner().invoke(cli.app, [*words, *short, "--dry-run"])
    assert done.exit_code == 0, done.exception
    assert "Nothing was created." in done.output
