"""The mirror of a folder of several runs: its journals are those of one moment, and what is later is left out."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.runs import load_run
from fedtune.options import ReproduceRequest
from fedtune.planning.reproduction import plan_reproduction
from fedtune.record import mirror as mirrors
from fedtune.record.mirror import Mirror, check_new, check_same, fetch
from fedtune.record.storage import Storage
from search_spaces import files, run_folder
from search_spaces.errors import UserError
from tests.fedtune.conftest import start
from tests.fedtune.played import play


def sent(mirror: Path) -> dict[str, bytes]:
    """The journals of a mirror, as they would be fetched."""
    storage = Storage(str(mirror))
    return mirrors._sent_journals(storage, storage.names())


def test_the_journals_are_those_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever a file is read or sent, the driver goes on: it writes a line of the first run, then the same one of the
    second. The machine is lost after one file, after two, and so on."""
    folder, far = tmp_path / "all", tmp_path / "far"
    journals = [folder / "search" / name / run_folder.STUDY for name in ("one", "two")]
    for journal in journals:
        journal.parent.mkdir(parents=True)
        (journal.parent / run_folder.EXPERIMENT).touch()
        journal.touch()
    line, left = 0, 0

    def step() -> None:
        nonlocal line
        for _ in range(3):  # of two runs, so that each is the last one now and then
            with open(journals[line % 2], "a") as file:
                file.write(f"{line // 2}\n")
            line += 1

    def during(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            step()
            found = function(*args)
            step()
            return found

        return call

    write = Storage.write

    def cut_off(self: Storage, name: str, source: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError("lost")
        write(self, name, source)

    step()
    monkeypatch.setattr(files, "read_bytes", during(files.read_bytes))
    monkeypatch.setattr(Mirror, "_changed", during(Mirror._changed))
    reached = set()
    for most in range(5):
        mirror = Mirror(str(far), folder, lambda text: None)
        left = 99
        monkeypatch.setattr(Storage, "write", during(write))
        assert mirror._sent_all()
        monkeypatch.setattr(Storage, "write", cut_off)
        left = most
        whole = mirror._sent_all()
        one, two = (len(journal.splitlines()) for journal in sent(far).values())
        assert one - two in (0, 1) and one > 0
        held = (far / "search" / "one" / run_folder.STUDY).read_bytes()
        reached.add((whole, len(held.splitlines()) > one))
    # Cut off before a journal, between a journal and what the mirror says of it, and not at all.
    assert reached == {(False, False), (False, True), (True, False)}


def several(tmp_path: Path, **changes: Any) -> Path:
    """A folder of two runs, of which one has been played."""
    folder = tmp_path / "table"
    for name in ("one", "two"):
        start(folder / run_folder.CELLS / name, trials=3, **changes)
    (folder / run_folder.REPRODUCTION).write_text("reproduction: mine\n")
    play(folder / run_folder.CELLS / "one")
    return folder


def test_what_is_later_than_the_journals_is_left_out(tmp_path: Path) -> None:
    """A run that began and a trial that ended since they were sent."""
    folder, far = several(tmp_path), tmp_path / "far" / "table"
    check_new(str(far), folder)
    assert Mirror(str(far), folder, pytest.fail)._sent_all()
    before = {name: len(content) for name, content in sent(far).items()}
    start(folder / run_folder.CELLS / "three", trials=3)
    play(folder / run_folder.CELLS / "two")
    mirror = Mirror(str(far), folder, pytest.fail)
    mirror._send()  # and is lost before it says so
    assert (far / run_folder.CELLS / "three" / run_folder.EXPERIMENT).exists()
    fetch(str(far), tmp_path / "again")
    assert sorted(path.name for path in (tmp_path / "again" / run_folder.CELLS).iterdir()) == ["one", "two"]
    runs = {name: load_run(tmp_path / "again" / run_folder.CELLS / name) for name in ("one", "two")}
    assert [len(run.frozen) for run in runs.values()] == [3, 0]
    assert {name: run.experiment["storage"] for name, run in runs.items()} == dict.fromkeys(runs, str(far))
    assert not list((tmp_path / "again" / run_folder.CELLS / "two" / run_folder.TRIALS).iterdir())
    held = {name: (tmp_path / "again" / name).stat().st_size for name in before}
    assert held == before
    # What was fetched goes on with this mirror, which holds more than it says.
    check_same(str(far), tmp_path / "again")
    check_same(str(far), folder)
    for name in ("two", "three"):
        shutil.rmtree(folder / run_folder.CELLS / name)
    with pytest.raises(UserError, match="holds what is not in"):
        check_same(str(far), folder)
    with pytest.raises(UserError, match=r"holds a run already\. Go on with it by"):
        check_new(str(far), tmp_path / "other")


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"cells/one/study.journal": 10**9}, r"is damaged: cells/one/study\.journal is shorter than mirror\.json says"),
        ({"cells/none/study.journal": 1}, r"is damaged: cells/none/study\.journal is shorter"),
        ({"../one/study.journal": 1}, r"holds a mirror\.json that fedtune did not write"),
        ({"cells/one/experiment.yaml": 1}, r"holds a mirror\.json that fedtune did not write"),
        ({"cells/one/study.journal": True}, r"holds a mirror\.json that fedtune did not write"),
        (["cells/one/study.journal"], r"holds a mirror\.json that fedtune did not write"),
        ({}, r"holds no run: study\.journal cannot be found there"),
    ],
)
def test_a_mirror_that_does_not_hold_what_it_says(told: Any, says: str, tmp_path: Path) -> None:
    folder, far = several(tmp_path), tmp_path / "far" / "table"
    assert Mirror(str(far), folder, pytest.fail)._sent_all()
    (far / mirrors.STATE).write_text(json.dumps({"version": 1, "sent": "", "whole": False, "journals": told}))
    with pytest.raises(UserError, match=says):
        fetch(str(far), tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_the_folder_that_a_mirror_is_made_to_has_the_name_of_a_reproduction(tmp_path: Path) -> None:
    asked = ReproduceRequest(
        "dfrd-fig5", small=True, runs_dir=str(tmp_path / "runs"), storage="s3://bucket/mine?region=x"
    )
    with pytest.raises(UserError) as error:
        plan_reproduction(asked)
    assert str(error.value) == (
        "storage must be a URI that ends with the folder's name, dfrd-fig5-small, got 's3://bucket/mine?region=x' "
        "(--storage). Write it as s3://bucket/mine/dfrd-fig5-small."
    )
    assert not os.listdir(tmp_path)
