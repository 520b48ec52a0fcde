"""The dashboard has no log-in: it is given a copy, and takes no code from the current directory."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from optuna_dashboard._note import get_note_from_system_attrs, split_body

from analysis.runs import load_run
from fedtune.api.optuna_study import PART, _kept
from fedtune.api.status import as_shown
from fedtune.record.journal import StudyFile
from search_spaces import run_folder
from tests.analysis import synthetic
from tests.fedtune.conftest import start


def test_what_is_shown_has_titles_and_says_what_a_user_needs(tmp_path: Path) -> None:
    """Read by optuna-dashboard's own functions: its notes are written without it."""
    run = load_run(synthetic.write(tmp_path / "run", trials=12))
    copy = tmp_path / "copy" / run_folder.STUDY
    copy.parent.mkdir()
    # A driver that writes meanwhile has begun a line.
    with (run.path / run_folder.STUDY).open("ab") as writer:
        writer.write(b'{"op_code": 4, "study')
    copy.write_text(as_shown(load_run(run.path)))
    study = StudyFile(copy.parent).study
    assert study.metric_names == ["Global accuracy (validation)"]
    named = [{"α (alpha)": t.params["alpha"], "λ (lambda)": t.params["lambda"]} for t in run.frozen]
    assert [trial.params for trial in study.trials] == named
    assert [trial.values for trial in study.trials] == [trial.values for trial in run.frozen]
    estimate, attributes = run.estimate, study._storage.get_study_system_attrs(study._study_id)
    assert estimate is not None and run.best is not None
    note = get_note_from_system_attrs(attributes, None)["body"]
    assert note.startswith("# run\n") and f"Winner: trial {run.best} with α = " in note
    assert "- α (alpha): Weight of the EMA generator's samples." in note
    assert f"Estimate of its mean over all seeds: {100 * estimate.mean:.2f} %" in note
    assert study.user_attrs["winner"] == f"trial {run.best}"
    assert study.user_attrs["estimate"].startswith(f"{100 * estimate.mean:.2f} %, 90 % interval ")
    told = [get_note_from_system_attrs(attributes, trial._trial_id)["body"] for trial in study.trials]
    assert [n for n, text in enumerate(told) if "**The winner.**" in text] == [run.best]
    assert told[run.best].startswith("Completed after 9 of 9 rounds, seeds 0, 1.")
    assert told[3].startswith("Stopped early after 3 of 9 rounds") and "Estimated mean over all seeds" in told[3]
    assert "Error: RuntimeError: &lt;b&gt;out of memory&lt;/b&gt;" in told[9], "no text is HTML there"
    assert StudyFile(run.path).study.metric_names is None


@pytest.mark.parametrize("letters", [1, PART, PART + 1, 3 * PART])
def test_a_long_note_is_kept_as_optuna_dashboard_keeps_it(letters: int) -> None:
    text = "".join(chr(97 + place % 26) for place in range(letters))
    for trial, place in ((None, "dashboard:"), (7, "dashboard:7:")):
        kept = _kept(place, text)
        assert get_note_from_system_attrs(kept, trial) == {"version": 1, "body": text}
        assert {key: value for key, value in kept.items() if "note_str" in key} == split_body(text, trial)


def answer(url: str, process: subprocess.Popen[str], **more: object) -> dict[str, list[object]]:
    deadline = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, **more)) as found:  # type: ignore[arg-type]
                return dict(json.loads(found.read() or b"{}"))
        except urllib.error.HTTPError:
            raise
        except OSError:
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.2)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_dashboard_changes_a_copy_only(tmp_path: Path, number: signal.Signals) -> None:
    start(tmp_path / "run")
    for name in ("optuna_dashboard", "optuna", "sqlalchemy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a stranger')")
    (tmp_path / "temporary").mkdir()
    before = (tmp_path / "run" / run_folder.STUDY).read_bytes()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [Path(sys.executable).with_name("fedtune"), "dashboard", "run", "--port", str(port)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path / "temporary")},
        start_new_session=True,
    )
    try:
        url = f"http://127.0.0.1:{port}/api/studies"
        (study,) = answer(url, process)["study_summaries"]
        assert isinstance(study, dict)
        [copied] = (tmp_path / "temporary").glob(".fedtune-dashboard.*.tmp")
        assert copied.stat().st_mode & 0o777 == 0o700
        answer(
            f"{url}/{study['study_id']}",
            process,
            method="DELETE",
            headers={"Content-Type": "application/json"},
            data=b"{}",
        )
        assert answer(url, process)["study_summaries"] == []
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert "This is a copy of the study" in err and "has no log-in" in err and "Traceback" not in err
    assert (tmp_path / "run" / run_folder.STUDY).read_bytes() == before
    assert list((tmp_path / "temporary").iterdir()) == []
