"""What is printed: names and texts out of files cannot steer a terminal, a spreadsheet or the shell of who copies a
command."""

from __future__ import annotations

import ast
import csv
import io
import json
import pkgutil
import re
import shlex
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from analysis.next_commands import export_command
from analysis.runs import load_run
from analysis.tables.table import Column, Table
from fedtune import cli, commands
from fedtune.api.search import Result
from fedtune.commands import _output
from fedtune.console import tables
from fedtune.console.progress import ProgressDisplay
from fedtune.record import run_directory
from search_spaces import run_folder
from search_spaces.errors import visible
from tests.fedtune.conftest import experiment, start
from tests.fedtune.queues import begun, take
from trainables.worker import rounds_jsonl
from trainables.worker.job import Ending

ROOT = Path(__file__).resolve().parents[2]
#: Clears the screen, sets the title of the window, goes back to the start of the line, turns the direction of writing.
HOSTILE = "a\x1b[2J\x1b]0;title\x07b\rc\x9b31m\u202ed"
SHOWN = "a\\u001b[2J\\u001b]0;title\\u0007b\\u000dc\\u009b31m\\u202ed"


CommandLine = Callable[..., tuple[int, str, str]]


def obeyed(text: str) -> list[str]:
    """Characters of `text` that are not shown: controls, marks of direction, halves of pairs."""
    return [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in "\n\t"]


def test_what_a_terminal_would_obey_is_written_out() -> None:
    assert visible(HOSTILE) == SHOWN and not obeyed(SHOWN)
    assert visible("\ud800") == "\\ud800" and visible("α × λ – 1\n\tü 漢") == "α × λ – 1\n\tü 漢"


def test_of_all_characters_those_are_written_out_that_cannot_be_seen() -> None:
    assigned = (chr(code) for code in range(sys.maxunicode + 1))
    wrong = [c for c in assigned if unicodedata.category(c) != "Cn" and (visible(c) != c) != bool(obeyed(c))]
    assert [f"{ord(c):x}" for c in wrong] == []
    # As JSON writes it, also beyond the first plane.
    assert visible("\ufeff\U000e0041") == "\\ufeff\\udb40\\udc41"
    assert json.loads('"' + visible("\U000e0041") + '"') == "\U000e0041"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A run whose texts were chosen by somebody else: its folder's name, and the error of its failed trial."""
    folder = tmp_path / "a\x1b[2J\u202eb"
    queue = begun(folder, trials=2)
    _ = take(queue), take(queue)
    place = run_directory.trial_folder(folder, 0)
    rounds_jsonl.append(place / run_folder.ROUNDS, [{"round": 9, "seed": 0, "global_accuracy": 0.5}])
    queue.finish(0, Ending("completed", 9, None, {9: (0.5,)}))
    queue.finish(1, Ending("error", 1, HOSTILE))
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("status", "--json"),
        ("runs",),
        ("runs", "--json"),
        ("report",),
        ("compare",),
        ("compare", "--csv", "-"),
        ("export",),
    ],
    ids=" ".join,
)
def test_no_command_prints_them(
    hostile: Path, monkeypatch: pytest.MonkeyPatch, command_line: CommandLine, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    runs = [str(hostile.parent if words[0] == "runs" else hostile)] * (2 if words[0] == "compare" else 1)
    code, out, err = command_line(words[0], *runs, *words[1:])
    said = out + err
    assert code == 0 and re.search(r"\\(u001b|e)\[2J", said) and not obeyed(said)
    if words == ("status",):
        assert SHOWN in said
    if words == ("status", "--json"):
        assert HOSTILE in {error["error"] for error in json.loads(said)["errors"]}


def test_no_warning_prints_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A library's own warning may repeat what a file holds."""

    def command(**_: object) -> int:
        warnings.warn("torn \x1b[2Jtext", UserWarning, stacklevel=1)
        return 0

    monkeypatch.setattr(cli, "app", command)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert cli._run() == 0
    err = capsys.readouterr().err
    assert "UserWarning: torn \\u001b[2Jtext\n" in err and "\x1b" not in err


def test_tables_and_progress_do_not_print_them(capsys: pytest.CaptureFixture[str]) -> None:
    tables.show("title", [{"a": HOSTILE}], {"a": "heading"})
    tables.say(HOSTILE)
    watch = ProgressDisplay(experiment(Path("/r")), "plain")
    watch.started(0, {"alpha": HOSTILE})
    watch.say(HOSTILE)
    watch.finished(0, "COMPLETE", (0.5,), None)
    print(visible(watch.line()))
    from rich.console import Console

    Console().print(Table([Column("a", HOSTILE, str)], [{"a": HOSTILE}], title=HOSTILE).rich())
    out, err = capsys.readouterr()
    assert out.count("u202e") == 6 and not obeyed(out) and not obeyed(err) and "u202e" in err


@pytest.mark.parametrize(
    "text", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", " =1", "\n-1", "-cmd|' /C calc'!A0"]
)
def test_no_cell_or_heading_of_a_csv_file_is_a_formula(text: str) -> None:
    table = Table([Column(text, "heading", str)], [{text: text}])
    for [cell] in csv.reader(io.StringIO(table.csv())):
        assert cell.startswith(("'", "\\u000d")), cell


def test_numbers_in_a_csv_file_stay_numbers() -> None:
    table = Table([Column("a", "a")], [{"a": -0.5}, {"a": "x-1"}, {"a": None}, {"a": -3}])
    assert list(csv.reader(io.StringIO(table.csv()))) == [["a"], ["-0.5"], ["x-1"], [""], ["-3"]]


# -- commands ------------------------------------------------------------------------------------------------------

COMMANDS = "|".join(info.name for info in pkgutil.iter_modules(commands.__path__))
#: Calls that make one word of a shell out of a text.
QUOTES = ("quote", "join")
#: Placeholders that are numbers.
NUMBERS = ("seeds",)


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Every module of ours, by its path, and its syntax tree."""
    for package in ("fedtune", "search_spaces", "trainables", "analysis"):
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def unquoted(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Placeholders of f-strings that stand in a command `fedtune …` without being quoted for a shell."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        before = ""
        for part in node.values:
            if isinstance(part, ast.Constant):
                before += str(part.value)
                continue
            assert isinstance(part, ast.FormattedValue)
            in_command = re.search(rf"fedtune ({COMMANDS})( [^`;\n]*)?$", before.replace(". ", "\n"))
            call = part.value
            name = call.func if isinstance(call, ast.Call) else None
            is_quoted = name is not None and (getattr(name, "id", None) or getattr(name, "attr", "")) in QUOTES
            if in_command and not is_quoted and getattr(call, "id", "") not in NUMBERS:
                yield node.lineno, ast.unparse(part.value)
            before += "X"


def test_every_printed_command_quotes_what_it_names() -> None:
    found = [f"{name}:{line}: {{{text}}}" for name, tree in modules() for line, text in unquoted(tree)]
    assert not found, "Quote these for a shell (search_spaces.shell.quote):\n" + "\n".join(found)
    # Between the quotes of `shlex`, what is written out on a screen would name something else. (The fork server writes
    # a program, which is not shown.)
    quoting = ["fedtune/machine/fork_server.py", "search_spaces/shell.py"]
    assert [name for name, tree in modules() if imports(tree, "shlex")] == quoting


def imports(tree: ast.AST, module: str) -> bool:
    found = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    return any(module in (getattr(node, "module", ""), *(name.name for name in node.names)) for node in found)


@pytest.mark.parametrize("name", ["a b", "it's", "$(touch hacked)", "a;b", "-x"])
def test_a_printed_command_names_the_folder_for_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    start(tmp_path / "runs" / name)
    result = Result(tmp_path / "runs" / name, {}, None, finished=False)
    _output.result(result, as_json=False)
    command = capsys.readouterr().out.split("Go on with: ")[1].strip()
    assert shlex.split(command) == ["fedtune", "resume", f"runs/{name}"]
    run = load_run(tmp_path / "runs" / name)
    assert shlex.split(export_command(run.shown))[:3] == ["fedtune", "export", f"runs/{name}"]
