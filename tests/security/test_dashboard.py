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
from optuna_dashboard._note import get_note_from_system_attrs

from fedtune.api.status import name_objectives
from fedtune.decisions.history import Part
from fedtune.execution.queue import Queue
from fedtune.record.journal import StudyFile, copy_study
from search_spaces import run_folder
from tests.fedtune.conftest import space, start
from tests.fedtune.played import searched


def test_a_copy_is_whole_also_while_the_study_is_written(tmp_path: Path) -> None:
    queue = Queue([Part(tmp_path / "run", start(tmp_path / "run"), space())])
    assert queue.propose() is not None
    (tmp_path / "copy").mkdir()
    with (tmp_path / "run" / run_folder.STUDY).open("ab") as writer:
        writer.write(b'{"op_code": 4, "study')
    copy_study(tmp_path / "run" / run_folder.STUDY, tmp_path / "copy" / run_folder.STUDY)
    assert [trial.number for trial in StudyFile(tmp_path / "copy").trials()] == [0]


def test_the_copy_names_its_objectives_and_says_what_was_searched(tmp_path: Path) -> None:
    run = searched(tmp_path / "run", trials=2)
    copy = tmp_path / "copy" / run_folder.STUDY
    copy.parent.mkdir()
    copy_study(run.path / run_folder.STUDY, copy)
    name_objectives(copy, run)
    study = StudyFile(copy.parent).study
    assert study.metric_names == ["Global accuracy (validation)"]
    assert [trial.params for trial in study.trials] == [trial.params for trial in run.frozen]
    storage = study._storage
    note = get_note_from_system_attrs(storage.get_study_system_attrs(study._study_id), None)["body"]
    assert note.startswith("# run\n") and "(`alpha`)" in note and "(`lambda`)" in note
    assert StudyFile(run.path).study.metric_names is None


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
