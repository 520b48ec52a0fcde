"""The run directory: whole or not at all; what its provenance keeps of extensions; and what is said about a run while
trials run."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedtune.api.search import result_of
from fedtune.api.status import status
from fedtune.console import progress
from fedtune.console.progress import ProgressDisplay, duration
from fedtune.execution.driver import Outcome
from fedtune.record import run_directory as record
from fedtune.record.journal import StudyFile
from fedtune.record.provenance import extended
from fedtune.record.run_directory import lock, token
from search_spaces import files, run_folder
from search_spaces.errors import UserError
from search_spaces.metrics import UNREACHED
from tests.fedtune.conftest import experiment, start
from tests.fedtune.queues import begun, take
from trainables.worker.job import Ending


@pytest.mark.parametrize("strange", ["a b", "a?b", "a%20b", "a%b", "a#b&mode=ro", "é+"])
def test_any_folder_name_holds_a_study(tmp_path: Path, strange: str) -> None:
    start(tmp_path / strange / "run")
    assert StudyFile(tmp_path / strange / "run").study.study_name == "run"
    assert [path.name for path in tmp_path.iterdir()] == [strange] and (
        tmp_path / strange / "run" / run_folder.STUDY
    ).stat().st_size > 0


def test_a_new_study_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []
    monkeypatch.setattr(files, "sync", lambda path: synced.append(path.read_bytes()))
    start(tmp_path / "run")
    assert (tmp_path / "run" / run_folder.STUDY).read_bytes() in synced


@pytest.mark.parametrize("step", [run_folder.EXPERIMENT, run_folder.SPACE, run_folder.PROVENANCE, "create_study"])
def test_a_failed_creation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def replace(path: Path, text: str, *, durable: bool) -> None:
        if path.name == step:
            full()
        path.write_text(text)

    if step == "create_study":
        monkeypatch.setattr(record, step, full)
    else:
        monkeypatch.setattr(files, "replace", replace)
    with pytest.raises(UserError, match="No space left on device"):
        start(tmp_path / "runs" / "run")
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_name_taken_meanwhile(tmp_path: Path) -> None:
    start(tmp_path / "run")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(UserError, match="exists already"):
        start(tmp_path / "run")
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        (run_folder.EXPERIMENT, "kind: search", "with `fedtune resume {0}`, lengthen it with `fedtune extend {0} --t"),
        (run_folder.EXPERIMENT, "kind: search\nsampler: grid", "lengthen it with `fedtune extend {0} --rounds N`, or"),
        (run_folder.EXPERIMENT, "kind: run", "with `fedtune resume {0}`, or choose another --name, as for more seeds"),
        (run_folder.AUTO, "", "with `fedtune resume {0}`, or choose another --name."),
        (run_folder.REPRODUCTION, "", "with `fedtune resume {0}`, or choose another --name."),
        ("notes.txt", "", "{0} exists already, and is no run that can be read. Choose another --name."),
    ],
)
def test_of_a_name_that_is_taken_only_what_works_there_is_recommended(
    tmp_path: Path, file: str, content: str, says: str
) -> None:
    (tmp_path / file).write_text(content)
    assert says.format(tmp_path) in str(record.exists(tmp_path))


def test_the_old_text_stands_until_the_new_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.json"
    record.write_document(path, {"text": "old"})
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(UserError, match="cannot be written"):
        record.write_document(path, {"text": "new"})
    assert json.loads(path.read_text()) == {"text": "old"} and len(list(tmp_path.iterdir())) == 1


def test_the_lock_is_let_go_when_its_process_is_killed(tmp_path: Path) -> None:
    start(tmp_path / "run")
    code = (
        "import sys, time; from pathlib import Path; from fedtune.record import run_directory as record\n"
        "with record.lock(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    assert record.is_driven(tmp_path / "run")
    with pytest.raises(UserError, match=f"process {process.pid}"), record.lock(tmp_path / "run"):
        pass
    process.kill()
    process.wait()
    with record.lock(tmp_path / "run"):
        pass


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (run_folder.STUDY, b""),
        (run_folder.STUDY, b"not a database" * 100),
        (run_folder.EXPERIMENT, b"\xff"),
        (run_folder.EXPERIMENT, b"- 1"),
    ],
)
def test_a_damaged_run_is_a_sentence(tmp_path: Path, name: str, content: bytes) -> None:
    start(tmp_path / "run")
    (tmp_path / "run" / name).write_bytes(content)
    with pytest.raises(UserError, match=name):
        status(tmp_path / "run")


def test_status_of_a_run_that_was_cut_short(tmp_path: Path) -> None:
    queue = begun(tmp_path / "run", trials=3)
    first, _ = take(queue), take(queue)
    queue.finish(first.number, Ending("completed", 9, None, {9: (0.5,)}))
    folder = tmp_path / "run" / run_folder.trial_folder(1)
    folder.mkdir(parents=True)
    (folder / run_folder.ROUNDS).write_text('{"round": 3, "seed": 0}\n{"round": 4, "se')
    found = status(tmp_path / "run")
    assert (found["state"], found["done"], found["trials"]) == ("resumable", 1, 3)
    assert [(t["trial"], t["round"]) for t in found["running"]] == [(1, 3)]
    assert found["best"]["values"] == {"val_global_accuracy": 0.5}


def test_a_result_is_plain_data(tmp_path: Path) -> None:
    queue = begun(tmp_path / "run", trials=2)
    first, _ = take(queue), take(queue)
    queue.finish(first.number, Ending("completed", 9, None, {9: (0.5,)}))
    found = json.loads(json.dumps(result_of(tmp_path / "run", Outcome(finished=False)).to_json()))
    assert found["counts"] == {"COMPLETE": 1, "RUNNING": 1}
    assert (found["best"]["number"], found["best"]["values"]) == (0, {"val_global_accuracy": 0.5})
    assert found["best"]["params"] == dict(first.values)


def watch(**changes: object) -> ProgressDisplay:
    return ProgressDisplay(experiment(Path("/r"), **changes), "plain")


def test_a_line_says_what_matters() -> None:
    told = watch(trials=5)
    told.started(0, {"alpha": 0.25})
    told.round(0, 1, (0.4,))
    told.round(0, 2, (0.5,))
    told.finished(0, "COMPLETE", (0.5,), None)
    told.started(1, {"alpha": 1.0})
    told.finished(1, "PRUNED", (0.9,), None)
    told.started(2, {"alpha": 2.0})
    told.expect(lambda: ({2: 4.0}, 1.0))
    line = told.line()
    assert "2 of 5 trials: 1 done, 1 pruned, 0 failed, 1 running" in line
    assert line[:80].count("best 50.00 % (trial 0)") == 1, "the best value is in view where a terminal has 80 columns"
    assert "new best: trial 0: val_global_accuracy 50.00 % (alpha=0.25)" in line and "rounds/s" in line
    # Nine rounds of the trial that runs at 4 s take longer than those of two more at 1 s beside it.
    assert "about 36 s left" in line
    told._asked_again = 0.0  # on a busy machine the first forecast takes so long that no other is asked for yet
    told.expect(lambda: ({2: 1.0}, 4.0))
    assert f"about {(9 * 1 + 18 * 4) / told.experiment.concurrency:.0f} s left" in told.line()
    assert "alpha" not in told.line(), "the configuration is told once"


def test_a_trial_that_runs_is_told_where_none_that_ended_is_better() -> None:
    told = watch(trials=30, rounds=60)
    told.started(10, {})
    told.started(11, {})
    assert "running:" not in told.line(), "nothing is measured yet"
    told.round(10, 3, (0.6,))
    told.round(11, 4, (0.652,))
    told.round(11, 5, None)
    assert "running: 65.20 % (trial 11, round 4 of 60)  0 of 30 trials" in told.line(), "not every round is measured"
    told.finished(10, "COMPLETE", (0.65,), None)
    told.round(11, 59, (0.6611,))
    said = "best 65.00 % (trial 10)  running: 66.11 % (trial 11, round 59 of 60)  "
    assert said in told.line()[:80], "both are in view where a terminal has 80 columns"
    told.round(11, 60, (0.64,))
    assert "running:" not in told.line(), "the best that ended is better"
    told.started(12, {})
    told.round(12, 1, (math.nan,))
    assert "running:" not in told.line()


def test_of_equal_trials_that_run_the_first_is_told_and_less_may_be_better() -> None:
    told = watch(metric=("val_global_loss",))
    for number, value in enumerate((0.9, 0.5, 0.5)):
        told.started(number, {})
        told.round(number, 2, (value,))
    assert "running: 0.5 nats (trial 1, round 2 of 9)" in told.line()


@pytest.mark.parametrize(
    "changes",
    [
        {"metric": ("val_global_accuracy", "bytes_up")},
        {"metric": ("rounds_to_target",)},
        {"kind": "run", "trials": 3, "seeds": (1000, 1001, 1002)},
    ],
    ids=("several metrics", "a target that was not reached", "a final run"),
)
def test_where_one_value_is_not_all_no_trial_that_runs_is_told(changes: dict[str, object]) -> None:
    told = watch(**changes)
    told.started(0, {})
    told.round(0, 1, (UNREACHED, 5e7)[: len(told.experiment.metric)])
    assert "running:" not in told.line() and "0 done" in told.line()


def test_a_final_run_is_told_by_its_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    told = watch(kind="run", trials=3, seeds=(1000, 1001, 1002))
    told.started(0, {})
    told.finished(0, "COMPLETE", (0.6,), None)
    assert "mean val_global_accuracy 60.00 %  1 of 3 seeds: 1 done, 0 failed, 0 running" in told.line()
    told.started(1, {})
    told.finished(1, "COMPLETE", (0.8,), None)
    assert "mean val_global_accuracy 70.00 % ± 14.14 %  2 of 3 seeds" in told.line()[:80]
    told.started(2, {})
    told.finished(2, "FAIL", None, "it diverged.")
    assert "trial" not in told.line() and "best" not in told.line()
    assert capsys.readouterr().err == "Seed 1002 failed: it diverged.\n"


def test_a_race_is_told_by_its_rounds() -> None:
    told = watch(trials=5, budget=45, rounds=9)
    told.past(0, "COMPLETE", (0.5,), {}, 9)
    told.past(1, "PRUNED", None, {}, 3)
    told.started(2, {})
    told.round(2, 4, (0.1,))
    told.phase = ""
    assert "16 of 45 seed-rounds: 1 done, 1 pruned, 0 failed, 1 running" in told.line()
    told.finished(2, "PRUNED", None, None)
    assert "16 of 45 seed-rounds: 1 done, 2 pruned" in told.line()


@pytest.mark.parametrize(("metric", "best"), [("val_global_accuracy", 1), ("val_global_loss", 0)])
def test_the_best_follows_the_metrics_direction(metric: str, best: int) -> None:
    told = watch(metric=(metric,))
    for number, value in enumerate((0.1, 0.7, 0.7)):
        told.past(number, "COMPLETE", (value,), {})
    assert told.best is not None and told.best[0] == best


def test_lines_come_while_nothing_happens(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "HEARTBEAT", 0.2)
    with watch():
        time.sleep(0.5)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 2 and all("starting Ray" in line for line in lines)


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    told = ProgressDisplay(experiment(Path("/r")), "quiet")
    with told:
        told.say("a word")
        told.started(0, {})
        told.finished(0, "FAIL", None, "an error")
    assert capsys.readouterr() == ("", "")


def test_the_live_panel_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    told = ProgressDisplay(experiment(Path("/r"), trials=3), "live")
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(told._panel())
    told.started(0, {"alpha": 0.25})
    told.round(0, 4, (0.4,))
    console.print(told._panel())
    assert "running: 40.00 % (trial 0, round 4 of 9)" in console.export_text(clear=False)
    told.past(7, "COMPLETE", (0.8,), {"alpha": 1.0})
    console.print(told._panel())
    text = console.export_text()
    assert (
        "starting Ray" in text and "4/9" in text and "best: trial 7" in text and "Global accuracy (validation)" in text
    )


@pytest.mark.parametrize(("seconds", "text"), [(5, "5 s"), (120, "2 min"), (9000, "2.5 h")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_token_of_a_session(tmp_path: Path) -> None:
    left, mine = tmp_path / ".session-0123456789abcdef", tmp_path / ".sessions"
    left.symlink_to(mine)
    mine.touch()
    (tmp_path / ".session-fedcba9876543210").mkdir()  # none of ours
    found = []
    for _ in range(2):
        with lock(tmp_path):
            assert not left.is_symlink()
            with token(tmp_path) as (path, content):
                assert path.parent == tmp_path and path.read_text() == content
                found.append((path, content))
        assert {path.name for path in tmp_path.iterdir()} == {mine.name, ".session-fedcba9876543210", "driver.lock"}
    assert found[0][0] != found[1][0] and found[0][1] != found[1][1] and len(content) == 32


def test_a_token_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written: No such file or directory"), token(tmp_path / "gone"):
        pass


def test_under_several_conditions_the_best_is_that_of_one() -> None:
    told = ProgressDisplay(experiment(Path("/r"), trials=4), "quiet", varied=("omega",))
    told.past(0, "COMPLETE", (0.9,), {"alpha": 1.0, "omega": 10.0})
    told.past(1, "COMPLETE", (0.3,), {"alpha": 1.0, "omega": 0.1})
    told.phase = ""
    assert "best under omega=0.1: trial 1: " in told.line() and "best trial 0" not in told.line()
    told.past(2, "COMPLETE", (0.2,), {"alpha": 0.5, "omega": 0.1})
    assert told.best is not None and told.best[0] == 1, "worse under its own condition"
    told.past(3, "COMPLETE", (0.95,), {"alpha": 0.5, "omega": 10.0})
    assert "best under omega=10: trial 3: " in told.line()
    told.started(4, {"alpha": 0.5, "omega": 10.0})
    told.round(4, 1, (0.99,))
    assert "running:" not in told.line(), "the other condition may be the easier one"


def test_every_extension_is_listed_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / run_folder.PROVENANCE
    path.write_text(json.dumps({"created": "then", "command": ["fedtune", "search"]}))
    for words, changes in ((["--rounds", "2"], {"rounds": (4, 6)}), (["--trials", "1"], {"trials": (5, 6)})):
        monkeypatch.setattr(sys, "argv", ["/bin/fedtune", "extend", "run", *words])
        extended(tmp_path, changes)
    found = json.loads(path.read_text())
    assert {key: found[key] for key in ("created", "command")} == {"created": "then", "command": ["fedtune", "search"]}
    first, second = found["extended"]
    assert first.pop("created") and second.pop("created")
    assert first == {"command": ["fedtune", "extend", "run", "--rounds", "2"], "rounds": [4, 6]}
    assert second == {"command": ["fedtune", "extend", "run", "--trials", "1"], "trials": [5, 6]}


@pytest.mark.parametrize("content", [None, "[]", "{"])
def test_a_run_without_a_readable_provenance_gets_none(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / run_folder.PROVENANCE
    if content is not None:
        path.write_text(content)
    extended(tmp_path, {"rounds": (4, 6)})
    assert (path.read_text() if path.exists() else None) == content


def test_a_list_that_is_none_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / run_folder.PROVENANCE).write_text('{"extended": 3}')
    extended(tmp_path, {"rounds": (4, 6)})
    assert len(json.loads((tmp_path / run_folder.PROVENANCE).read_text())["extended"]) == 1
