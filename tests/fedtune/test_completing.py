"""Words that a shell offers while a command line is typed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedtune.cli import app
from fedtune.commands import _complete
from fedtune.commands.completion import SHELLS
from fedtune.console import completing
from search_spaces import run_folder
from search_spaces.errors import UserError
from search_spaces.metrics import METRICS
from trainables import registry


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two runs, one of them a level deeper, and something else."""
    for name in ("runs/one", "runs/group/two", "runs/notes", "other"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("runs/one", "runs/group/two"):
        (tmp_path / name / run_folder.EXPERIMENT).write_text("version: 1\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def words(line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What is offered for the last word of `line`."""
    typed = line.split(" ")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(typed) - 1))
    monkeypatch.setenv(completing.VARIABLE, "complete_bash")
    with pytest.raises(SystemExit):
        completing.answer(app)
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("fedtune sea", ["search"]),
        ("fedtune search fedpro", ["fedproto", "fedprox"]),
        ("fedtune search dfrd --sp", ["--space"]),
        ("fedtune search dfrd --space a", ["active_clients", "alpha_lambda"]),
        ("fedtune search dfrd --space alpha_lambda --metric val_global_l", ["val_global_loss"]),
        ("fedtune report ", ["runs/group/", "runs/one"]),
        ("fedtune report runs/group/", ["runs/group/two"]),
        ("fedtune compare runs/one ru", ["runs/"]),
        ("fedtune run fedprot", ["fedproto"]),
        ("fedtune run runs/o", ["runs/one"]),
        ("fedtune nonsense x", []),
        ("fedtune status nowhere/x", []),
    ],
)
def test_what_is_offered(
    line: str, offered: list[str], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words(line, monkeypatch, capsys) == offered


def test_names_are_those_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method is found by its file here, without loading it."""
    monkeypatch.delenv("FEDTUNE_METHODS", raising=False)
    assert _complete.methods("") == list(registry.methods())
    assert _complete.metrics("") == list(METRICS)


def test_no_method_is_loaded_for_it() -> None:
    code = (
        "import sys; from fedtune.commands import _complete; assert 'dfrd' in _complete.methods('');"
        "assert not {'torch', 'ray', 'optuna', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_bash_takes_the_lines(here: Path) -> None:
    (here / "fedtune").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fedtune "$@"\n')
    (here / "fedtune").chmod(0o755)
    script = (
        'eval "$(fedtune completion bash)"; COMP_WORDS=(fedtune status runs/o); COMP_CWORD=2; '
        'complete -p fedtune; _fedtune_completion fedtune; echo "offered ${COMPREPLY[*]}"'
    )
    path = f"{here}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", script], env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert "-F _fedtune_completion fedtune" in done.stdout and "offered runs/one" in done.stdout, done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_has_its_lines(shell: str) -> None:
    done = CliRunner().invoke(app, ["completion", shell])
    assert done.exit_code == 0 and completing.VARIABLE in done.stdout


def test_an_unknown_shell_is_told() -> None:
    found = CliRunner().invoke(app, ["completion", "bsh"])
    assert isinstance(found.exception, UserError) and "Did you mean 'bash'" in str(found.exception)
