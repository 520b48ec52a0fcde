"""What fuzzing found: refused in sentences with exit code 2, or answered truly, and nothing is half-written."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import yaml

from analysis.report import report
from analysis.runs import load_run
from fedtune.api.export import export
from fedtune.api.extend import extend
from fedtune.api.resume import resume
from fedtune.planning.checks import seconds_of
from fedtune.record import run_directory
from search_spaces import documents, run_folder
from search_spaces.errors import DamagedFile, UserError
from tests.fedtune.fake import Fake
from tests.fedtune.played import searched
from tests.unchanged import unchanged
from trainables.data import own

FEDTUNE = str(Path(sys.executable).with_name("fedtune"))
LONG = "n" * 5000


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a link to itself."""
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished search of two trials on the fake."""
    return searched(tmp_path / "run", trials=2).path


CommandLine = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["search", "fedavg", "--seeds", "999999999999"], r"seeds must be a whole number in \[1, 1000\]"),
        (["run", "fedavg", "--seeds", "999999999999"], r"seeds must be a whole number in \[1, 1000\]"),
        (["search", "fedavg", "--per-trial", "cpus=1e-320"], "cpus of a trial must be a number of at least 0.0001"),
        (
            ["search", "fedavg", "--per-trial", "gpus=1e-320"],
            "gpus of a trial must be 0 or a number of at least 0.0001",
        ),
        (["search", "fedavg", "--per-trial", "cpus=nan"], "cpus of a trial must be"),
        (["search", "fedavg", "--slots", "999999999999"], "slots must be a whole number in"),
        (["search", "fedavg", "--time", "9" * 400], "time must be a length"),
        (["search", "fedavg", "--name", f"{LONG}/x"], "The path 'nnn.* cannot be used .--name.: File name too long"),
        (["search", "fedavg", "--name", "loop/x"], "The path 'loop' cannot be used .--name.: Too many levels"),
        (["search", "fedavg", "--name", "~nobody-of-that-name/x"], "The path .* cannot be used"),
        (["search", "fedavg", "--dataset", f"./{LONG}"], "cannot be used .--dataset.: File name too long"),
        (["search", "fedavg", "--dataset", "./loop"], "cannot be used .--dataset.: Too many levels"),
        (["search", "fedavg", "--space", f"{LONG}.yaml"], "File name too long"),
        (["report", LONG], "cannot be used: File name too long"),
        (["status", "loop/x"], "cannot be used: Too many levels"),
        (["run", "loop"], "cannot be used: Too many levels"),
        (["search", "fedavg", "--seeds", "\x1b[2J"], r"`fedtune search --help`"),
        (["search", "fedavg", "--\x1b[2J"], r"No such option.*`fedtune search --help`"),
        (["search", "fedprox", "--mu", "1"], "No such option: --mu.* It is a parameter: --set mu=VALUE gives it"),
        (["nothing\r\nforged"], "Unknown command"),
        (["run", f"{'n' * 100}/" * 50], "n+ … n+/?.? cannot be used: File name too long"),
        (["resume", "run", "x/" * 2500], "unexpected extra argument.* … .*`fedtune resume --help`"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_a_command_line_is_refused_in_a_sentence(
    here: Path,
    command_line: CommandLine,
    words: list[str],
    said: str,
) -> None:
    with unchanged(here):
        code, out, err = command_line(*words)
    assert (code, out) == (2, "") and re.search(said, err), err
    assert all(len(line) < 1000 for line in err.splitlines()) and "\x1b" not in err and "Traceback" not in err


GOING_ON = (("resume",), ("extend", "--trials", "2"))


@pytest.mark.parametrize("words", GOING_ON, ids=" ".join)
@pytest.mark.parametrize("planned", [2, 4])
def test_a_folder_in_the_place_of_rows_is_refused_in_a_sentence(
    tmp_path: Path,
    command_line: CommandLine,
    words: tuple[str, ...],
    planned: int,
) -> None:
    run = tmp_path / "run"
    searched(run)
    record = run / run_folder.EXPERIMENT
    record.write_text(re.sub(r"(?m)^trials: .*$", f"trials: {planned}", record.read_text()))
    rows = run / "trials" / "0000" / "rounds.jsonl"
    rows.unlink()
    rows.mkdir()
    with unchanged(tmp_path):
        told = command_line(words[0], str(run), *words[1:])
    assert told == (2, "", f"{rows} cannot be used: it is not a plain file.\n")


@pytest.mark.parametrize("words", GOING_ON, ids=" ".join)
def test_a_known_point_outside_the_space_is_refused_before_anything_is_written(
    tmp_path: Path, command_line: CommandLine, words: tuple[str, ...]
) -> None:
    run = tmp_path / "run"
    searched(run)
    record = run / run_folder.EXPERIMENT
    stored = yaml.safe_load(record.read_text())
    record.write_text(yaml.safe_dump({**stored, "first": [{"values": {"alpha": -1}, "from": "here"}]}))
    with unchanged(tmp_path):
        code, out, err = command_line(words[0], str(run), *words[1:])
    assert (code, out) == (2, "") and "values of first must be a point of the space" in err, err


def test_a_search_whose_record_was_made_a_race(tmp_path: Path, command_line: CommandLine) -> None:
    run = tmp_path / "run"
    searched(run)
    record = run / run_folder.EXPERIMENT
    record.write_text(record.read_text() + "budget: 1000\n")
    table = ("export", str(run), "--table", str(tmp_path / "curves.npz"))
    for words in (table, ("export", str(run), "--trial", "0"), ("resume", str(run)), ("status", str(run))):
        code, _, err = command_line(*words)
        assert code == 2 and "has a trial without a seed of its own" in err and err.count("\n") == 1, err
    assert not (tmp_path / "curves.npz").exists()


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env={**os.environ, "FEDTUNE": FEDTUNE, **environment}
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('"$FEDTUNE" datasets >&-', "Standard output is closed"),
        ('"$FEDTUNE" datasets > /dev/full', "The result cannot be printed: No space left on device"),
    ],
    ids=["closed", "full"],
)
def test_surroundings_in_which_nothing_can_be_said(line: str, said: str) -> None:
    done = shell(line)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(said) and len(done.stderr.splitlines()) == 1, done.stderr


def test_an_output_that_holds_ascii_only_gets_the_rest_written_out() -> None:
    done = shell('"$FEDTUNE" datasets', PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and not done.stderr and "8\\xd78" in done.stdout


@pytest.mark.parametrize("text", ["!!bool x", "!!bool 7", "!!timestamp 99", "!!int x", "!!float x"])
def test_a_tag_that_does_not_fit_is_told_with_its_line(text: str) -> None:
    with pytest.raises(UserError, match=r"space\.yaml, line 2: .*is not plain YAML"):
        documents.parse(f"method: fedavg\ntitle: {text}\n", "space.yaml")


@pytest.mark.parametrize("shape", ["[1]", "1", "x", "{dataset: [1]}", "{run: {a: 1}}", "{seeds: x}"])
def test_an_exported_file_with_a_provenance_of_another_shape(here: Path, command_line: CommandLine, shape: str) -> None:
    (here / "best.yaml").write_text(f"fedtune: 1\nmethod: fedavg\nparameters: {{rounds: 1}}\nprovenance: {shape}\n")
    for command in (["run", "best.yaml"], ["attack", "best.yaml"]):
        code, out, err = command_line(*command)
        assert (code, out) == (2, "") and "must be" in err and "best.yaml, line 4" in err, err


DAMAGE = {"missing": None, "torn": b'{"a": ', "empty": b"", "list": b"[1]", "number": b"1", "bytes": b"\xff\x00"}
OTHER = {
    run_folder.SPACE: b'{"search": 1}',
    run_folder.PROVENANCE: b'{"versions": [1]}',
    f"{run_folder.trial_folder(1)}/{run_folder.CONFIG}": b"alpha: {a: [1]}",
}


def damaged(run: Path, name: str, how: str) -> Path:
    content = OTHER[name] if how == "another shape" else DAMAGE[how]
    if content is None:
        (run / name).unlink()
    else:
        (run / name).write_bytes(content)
    return run


@pytest.mark.filterwarnings("ignore::search_spaces.errors.DamagedFile")
@pytest.mark.parametrize("how", [*DAMAGE, "another shape"])
@pytest.mark.parametrize("name", OTHER)
def test_a_damaged_file_changes_no_exported_value(run: Path, name: str, how: str) -> None:
    whole = export(run)
    found = export(damaged(run, name, how))
    assert found["parameters"] == whole["parameters"] and found["metric"] == whole["metric"]
    assert found["provenance"]["trial"] == whole["provenance"]["trial"]


@pytest.mark.parametrize("how", [*DAMAGE, "another shape"])
@pytest.mark.parametrize("command", [resume, extend])
@pytest.mark.filterwarnings("ignore::search_spaces.errors.DamagedFile")
def test_no_search_goes_on_without_its_space(run: Path, how: str, command: object) -> None:
    damaged(run, run_folder.SPACE, how)
    with unchanged(run), pytest.raises(UserError, match=r"space\.json") as told:
        if command is extend:
            extend(run, trials=1, quiet=True, simulate=Fake)
        else:
            resume(run, quiet=True, simulate=Fake)
    assert len(told.value.problems) == 1


@pytest.mark.covering
@pytest.mark.parametrize("how", [*(how for how in DAMAGE if how != "missing"), "another shape"])
@pytest.mark.parametrize("name", [run_folder.SPACE, run_folder.PROVENANCE])
def test_what_is_left_out_as_damaged_is_said(run: Path, name: str, how: str) -> None:
    damaged(run, name, how)
    with pytest.warns(DamagedFile, match=f"What {name} says is left out"):
        page = report(run).read_text()
    assert f"What {name} says is left out, as it is damaged" in page


def test_on_the_command_line_it_is_said_in_one_line(run: Path, command_line: CommandLine) -> None:
    damaged(run, run_folder.PROVENANCE, "list")
    code, out, err = command_line("status", "run", "--json")
    assert code == 0 and json.loads(out)["done"] == 2
    assert err.startswith("What provenance.json says is left out") and len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("trials", 10**12),
        ("trials", True),
        ("rounds", 0),
        ("seeds", []),
        ("seeds", [None]),
        ("values", [1]),
        ("values", {"a": [1]}),
        ("metric", ["nothing"]),
        ("lag", -1),
        ("cpus_per_trial", float("inf")),
        ("kind", "other"),
        ("first", [1]),
        ("time", "x"),
        ("method", None),
        ("version", 0),
    ],
)
def test_a_request_of_another_shape_is_refused(run: Path, key: str, value: object) -> None:
    path = run / run_folder.EXPERIMENT
    run_directory.write_document(path, {**load_run(run).experiment, key: value})
    with pytest.raises(UserError, match=rf"^{key} must be .*experiment\.yaml"):
        load_run(run)


@pytest.mark.parametrize("labels", [[0, 1e30], [0.0, -1e30], [0, 2**60]])
def test_labels_that_no_number_holds_exactly(tmp_path: Path, labels: list[float]) -> None:
    np.savez(tmp_path / "far.npz", x=np.zeros((4, 8, 8), dtype=np.uint8), y=np.resize(labels, 4))
    with pytest.raises(UserError, match=r"y must be whole numbers in \[-9007199254740992, 9007199254740992\]"):
        own.read_npz(tmp_path / "far.npz")


def test_a_pipe_among_images_keeps_nobody_waiting(tmp_path: Path) -> None:
    from PIL import Image

    for name in "ab":
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("L", (8, 8)).save(tmp_path / "photos" / name / "0.png")
    os.mkfifo(tmp_path / "photos" / "a" / "1.png")
    with pytest.raises(UserError, match="Images must be plain files, got a folder, a pipe"):
        own.load(own.Reference("photos"), tmp_path / "photos")


@pytest.mark.parametrize("target", ["", ".", "folder", "pipe"])
def test_only_a_file_is_replaced(run: Path, here: Path, command_line: CommandLine, target: str) -> None:
    (here / "folder").mkdir()
    os.mkfifo(here / "pipe")
    before = {path: path.stat().st_mode for path in here.rglob("*") if not path.is_symlink()}
    for command in (["report", "run", "-o"], ["compare", "run", "run", "--figure"]):
        code, out, err = command_line(*command, target)
        assert (code, out) == (2, "") and "cannot be written: it is a folder, a pipe or a device" in err, err
    assert {path: path.stat().st_mode for path in here.rglob("*") if not path.is_symlink()} == before


@pytest.mark.parametrize(
    "wrong",
    ["folder", "file/table.csv", "pipe", "taken.html", "closed/table.csv", "x/" * 2500],
    ids=lambda path: path[:20],
)
def test_of_several_files_none_is_written_where_one_cannot_be(
    run: Path, here: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    (here / "folder").mkdir()
    (here / "closed").mkdir(mode=0o500)
    (here / "file").write_text("here before")
    os.mkfifo(here / "pipe")
    monkeypatch.setattr(os, "access", lambda path, how: Path(path).name != "closed")  # root may write anywhere
    before = sorted(path.name for path in here.iterdir())
    for by in ([], ["--by", "omega"]):
        words = ["compare", "run", "run", *by, "--figure", "taken.html", "--csv", wrong]
        code, out, err = command_line(*words)
        expected = "name the same file" if wrong == "taken.html" else "cannot be written"
        assert (code, out, err.count("\n")) == (2, "", 1) and expected in err and len(err) < 500, err
    assert sorted(path.name for path in here.iterdir()) == before
    assert (here / "file").read_text() == "here before" and not list((here / "folder").iterdir())


def test_a_wall_clock_budget_ends_some_day() -> None:
    for text in ("1e3h", "999999999d", "0s", "-1"):
        problems: list[str] = []
        assert seconds_of(text, problems) is None and len(problems) == 1
    assert seconds_of("3650d", []) == 3650 * 86400
