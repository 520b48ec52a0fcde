"""Trials whose files come home from a machine that does not see the run directory, with the actor called directly."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import math
import os
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from search_spaces import files
from search_spaces.errors import EnvironmentFault
from search_spaces.run_folder import OVER
from tests.toy import write_toy
from tests.trainables.jobs import complete, fake_job, run, untimed_rows
from trainables import data, tune
from trainables.simulation import checkpoint
from trainables.tune import Trial
from trainables.worker import environment, home, trial_folder
from trainables.worker.environment import Environment, Token
from trainables.worker.home import Home, Sent, SentFolder
from trainables.worker.job import Job
from trainables.worker.trial_folder import TrialFolder

#: As no machine sees this, every trial with it is sent home.
UNSEEN = Environment(token=Token("/nowhere/.session-1", "random"), home="actor")


#: Every folder of a trial that is sent home.
FOLDERS: list[SentFolder] = []


@pytest.fixture
def run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run directory; scratch folders of trials are made in `there`. A checkpoint is written after every round."""
    monkeypatch.setattr(environment, "SHARED_SOON", 0.0)
    monkeypatch.setattr(trial_folder, "between_checkpoints", lambda cost: 0.0)
    (tmp_path / "there").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "there"))
    made = tmp_path / "run"
    for number in ("0000", "0001"):
        (made / "trials" / number).mkdir(parents=True)
    begin = SentFolder.__init__

    def noted(self: SentFolder, *given: Any) -> None:
        begin(self, *given)
        FOLDERS.append(self)

    monkeypatch.setattr(SentFolder, "__init__", noted)
    actor = Home([str(made)], [], None)
    monkeypatch.setattr(tune, "ask", lambda name, what, *given: getattr(actor, what)(*given))
    return made


def job(folder: Path, **changes: Any) -> Job:
    return dataclasses.replace(fake_job(folder), **changes)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "checkpoint"}


def folder() -> SentFolder:
    """That of the trial that began last."""
    return FOLDERS[-1]


@pytest.mark.parametrize("lost_after", [None, 1, 3])
def test_home_holds_what_a_trial_there_would_have_left(
    run_folder: Path, tmp_path: Path, lost_after: int | None
) -> None:
    """Also where its machine is lost in between, and the next one begins with what is at home."""
    whole = run(job(tmp_path / "whole"))
    place = run_folder / "trials" / "0000"
    first = Trial({"job": job(place, environment=UNSEEN)})
    note = first.step()["note"]
    assert note.endswith("does not see the run directory; rounds and checkpoints of its trials are sent home.")
    if lost_after is not None:
        for _ in range(lost_after - 1):
            first.step()
        folder().arrived()
        assert (place / "rounds.jsonl").read_bytes().count(b"\n") == 2 * lost_after
        tune.ask("actor", "release", str(place))  # as the driver does that takes the first machine for lost
        second = Trial({"job": job(place, environment=UNSEEN)})
        late = first.step()["ending"]  # the first machine was not dead, only out of reach
        assert late.stop_reason == "interrupted" and "another process writes this trial" in str(late.error)
        assert (place / "rounds.jsonl").read_bytes().count(b"\n") == 2 * lost_after
    assert run(second if lost_after else first).curve == whole.curve
    assert content(place) == content(tmp_path / "whole")
    assert (place / "checkpoint").stat().st_size == (tmp_path / "whole" / "checkpoint").stat().st_size
    assert run(job(place)).curve == whole.curve  # the checkpoint can be read, here too
    assert not list((tmp_path / "there").iterdir()), "no copy is left on the other machine"


def test_a_trial_goes_on_while_one_message_is_on_its_way(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one waits for it, and the end of the trial for the last one."""
    monkeypatch.setattr(trial_folder, "between_checkpoints", lambda cost: math.inf)  # the first and the last only
    whole = run(job(tmp_path / "whole"))
    place, write = run_folder / "trials" / "0000", Home.write
    may_write = threading.Event()
    may_write.set()

    def waits(self: Home, *given: Any) -> None:
        assert may_write.wait(30)
        write(self, *given)

    def rows() -> int:
        return (place / "rounds.jsonl").read_bytes().count(b"\n")

    monkeypatch.setattr(Home, "write", waits)
    trial = Trial({"job": job(place, environment=UNSEEN)})
    trial.step()
    folder().arrived()
    assert rows() == 2
    may_write.clear()
    trial.step()  # ends, although nothing is written
    assert rows() == 2
    threading.Timer(0.2, may_write.set).start()
    trial.step()
    assert rows() >= 4  # the message before is at home when the next one is sent
    assert trial.step()["done"] and rows() == 8 and (place / "checkpoint").read_bytes() != b""
    assert content(place) == content(tmp_path / "whole")
    assert run(job(place, environment=UNSEEN, ended=True)).curve == whole.curve


def test_a_message_that_did_not_arrive_is_told_and_sent_again(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next message, and when the trial is left."""
    monkeypatch.setattr(trial_folder, "between_checkpoints", lambda cost: math.inf)
    place, write, refused = run_folder / "trials" / "0000", Home.write, False

    def may_refuse(self: Home, *given: Any) -> None:
        if refused:
            raise OSError(errno.EHOSTUNREACH, "out of reach")
        write(self, *given)

    monkeypatch.setattr(Home, "write", may_refuse)
    trial = Trial({"job": job(place, environment=UNSEEN)})
    trial.step()
    folder().arrived()
    refused = True
    assert not trial.step()["done"]  # it is on its way
    message = folder()._under_way
    assert message is not None
    with contextlib.suppress(OSError):
        message.seconds.result()
    refused = False
    ending = trial.step()["ending"]
    assert ending.stop_reason == "interrupted" and "out of reach" in str(ending.error)
    assert (place / "rounds.jsonl").read_bytes().count(b"\n") == 6  # those of the third round too, which was computed


def test_models_come_home(run_folder: Path, tmp_path: Path) -> None:
    data_set = str(write_toy(tmp_path))
    values = {"dataset": data_set, "rounds": 2, "clients": 3, "local_steps": 1, "model": "lenet5", "partition": "iid"}
    kept = {"values": values, "simulate": None, "keep_models": True, "seeds": (0,)}
    place = run_folder / "trials" / "0000"
    complete(job(tmp_path / "whole", **kept))
    complete(job(place, environment=UNSEEN, **kept))
    assert "model-0.safetensors" in content(place) and content(place).keys() == content(tmp_path / "whole").keys()
    for name in ("model-0.safetensors", "partition.json", "confusion.json"):
        assert (place / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert untimed_rows(place) == untimed_rows(tmp_path / "whole")


@pytest.mark.parametrize("lost", [False, True])
def test_what_clients_keep_comes_home_as_it_changes(
    lost: bool, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file once; and whenever home was written to, its checkpoint has all that it needs there."""
    values = {"dataset": str(write_toy(tmp_path)), "rounds": 4, "clients": 4, "active_clients": 1, "local_steps": 1}
    values |= {"model": "lenet5", "partition": "iid"}
    kept: dict[str, Any] = {"method": "scaffold", "values": values, "simulate": None, "seeds": (0,)}
    place, sent = run_folder / "trials" / "0000", []
    write = files.replace

    def noted(path: Path, content: str | bytes, **how: Any) -> None:
        write(path, content, **how)
        if path.parent == place:
            sent.append(path.name)
            if (place / "checkpoint").exists():
                names = checkpoint.load(place / "checkpoint")["clients"]["files"]
                assert all((place / name).exists() for name in names)

    monkeypatch.setattr(files, "replace", noted)
    complete(job(tmp_path / "whole", **kept))
    trial = Trial({"job": job(place, environment=UNSEEN, **kept)})
    if lost:
        trial.step(), trial.step()
        folder().arrived()
        tune.ask("actor", "release", str(place))
        trial = Trial({"job": job(place, environment=UNSEEN, **kept)})
    complete(trial)
    assert untimed_rows(place) == untimed_rows(tmp_path / "whole")
    states = [name for name in sent if name.startswith("states-")]
    assert len(states) == len(set(states)) == 4
    here, there = ((checkpoint.load(one / "checkpoint")["clients"], one) for one in (place, tmp_path / "whole"))
    assert here[0] == there[0] and {p.name for p in place.glob("states-*")} == set(here[0]["files"])
    for name in here[0]["files"]:
        assert (place / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_second_process_of_a_trial_waits_and_runs_nothing_anew(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray may begin a trial in two processes, of which the second one comes to it when the first one has ended."""
    monkeypatch.setattr(home, "LOCK_SECONDS", 0.0)
    place = run_folder / "trials" / "0000"
    first = Trial({"job": job(place, environment=UNSEEN)})
    beside = Trial({"job": job(place, environment=UNSEEN)}).step()["ending"]
    assert beside.stop_reason == "interrupted" and "another process still writes this trial" in str(beside.error)
    run(first)
    (place / "checkpoint").write_bytes(OVER)
    before = content(place)
    for where in (UNSEEN, Environment()):
        late = Trial({"job": job(place, environment=where)}).step()["ending"]
        assert late.stop_reason == "interrupted" and "The trial has ended already" in str(late.error)
        assert {name: text for name, text in content(place).items() if name != "log.txt"} == {
            name: text for name, text in before.items() if name != "log.txt"
        }
    again = run(job(place, environment=UNSEEN, ended=True))  # its rows are damaged
    assert again.stop_reason == "completed" and content(place)["rounds.jsonl"] == before["rounds.jsonl"]


def test_damaged_files_at_home_start_a_trial_again(run_folder: Path, tmp_path: Path) -> None:
    place = run_folder / "trials" / "0000"
    whole = run(job(place, environment=UNSEEN))
    (place / "checkpoint").write_bytes(b"torn")
    (place / "images-0-0001.npz").write_bytes(b"")
    again = Trial({"job": job(place, environment=UNSEEN)})
    assert again.step()["note"].startswith("Trial 0 starts again from round 0, as its checkpoint is damaged")
    assert run(again).curve == whole.curve and (place / "checkpoint").stat().st_size > 4


def test_a_disk_that_is_full_at_home_interrupts(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial({"job": job(run_folder / "trials" / "0000", environment=UNSEEN)})
    trial.step()

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(home, "_extend", full)
    ending = trial.step()["ending"]
    assert ending.stop_reason == "interrupted"
    assert "No space left on device" in str(ending.error)


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("run/trials/0000", "../0001/rounds.jsonl"),
        ("run/trials/0000", "config.yml"),
        ("run/trials/0002", "rounds.jsonl"),
        ("run/trials/..", "rounds.jsonl"),
        ("run", "rounds.jsonl"),
        ("other/trials/0000", "rounds.jsonl"),
        ("run/trials/0001", "rounds.jsonl"),
    ],
)
def test_home_writes_to_folders_of_its_trials_alone(tmp_path: Path, folder: str, name: str) -> None:
    for place in ("run/trials/0000", "other/trials/0000"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "run/trials/0001").symlink_to(tmp_path / "other")
    actor = Home([str(tmp_path / "run")], [], None)
    with pytest.raises(OSError):
        begun = actor.begin(str(tmp_path / folder))
        assert begun is not None
        actor.write(str(tmp_path / folder), begun[0], [Sent(name, None, b"x")])
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "log.txt"]
    assert not list((tmp_path / "other").rglob("log.txt"))


def test_lines_are_put_behind_those_that_are_there(tmp_path: Path) -> None:
    (tmp_path / "trials/0000").mkdir(parents=True)
    place, actor = tmp_path / "trials/0000", Home([str(tmp_path)], [], None)
    begun = actor.begin(str(place))
    assert begun is not None and begun[1] == {"log.txt": b""}
    holder = begun[0]
    for sent in (Sent("rounds.jsonl", None, b"one\n"), *[Sent("rounds.jsonl", 4, b"two\n")] * 2):
        actor.write(str(place), holder, [sent])
    assert (place / "rounds.jsonl").read_bytes() == b"one\ntwo\n"
    with pytest.raises(OSError, match="lines before these are missing"):
        actor.write(str(place), holder, [Sent("rounds.jsonl", 9, b"four\n")])
    actor.write(str(place), holder, [Sent("rounds.jsonl", None, None)])
    assert not (place / "rounds.jsonl").exists()


def test_what_a_lost_machine_sent_is_written_or_refused_before_another_process_begins(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message of the lost machine may be half written when its trial goes on where the folder is seen. There it would
    put rows in the place of those that were computed again."""
    monkeypatch.setattr(trial_folder, "LOCK_SECONDS", 0.0)
    place, actor = run_folder / "trials" / "0000", Home([str(run_folder)], [], None)
    begun = actor.begin(str(place))
    assert begun is not None
    rows, extend = Sent("rounds.jsonl", 0, b"late\n"), home._extend
    is_writing, may_write = threading.Event(), threading.Event()

    def slowly(path: Path, after: int, content: bytes) -> None:
        is_writing.set()
        assert may_write.wait(30)
        extend(path, after, content)

    monkeypatch.setattr(home, "_extend", slowly)
    with ThreadPoolExecutor(2) as threads:
        late = threads.submit(actor.write, str(place), begun[0], [rows, rows])
        assert is_writing.wait(30)
        released = threads.submit(actor.release, str(place))
        with pytest.raises(OSError, match="another process still writes"):
            TrialFolder(place)
        assert not released.done()
        may_write.set()
        released.result(30)
        here = TrialFolder(place)
        with contextlib.suppress(OSError):  # the second file was written before the release, or refused
            late.result(30)
    here.rewrite([])
    with pytest.raises(OSError, match="another process writes this trial"):
        actor.write(str(place), begun[0], [rows])
    assert actor.begin(str(place)) is None, "a process that sees the folder writes to it"
    assert (place / "rounds.jsonl").read_bytes() == b""
    here.close()
    assert actor.begin(str(place)) is not None


def test_the_log_stays_the_file_that_is_held(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_folder, "LOCK_SECONDS", 0.0)
    place, actor = run_folder / "trials" / "0000", Home([str(run_folder)], [], None)
    begun = actor.begin(str(place))
    assert begun is not None
    actor.write(str(place), begun[0], [Sent("log.txt", None, b"line\n")])
    with pytest.raises(OSError, match="another process still writes"):
        TrialFolder(place)
    assert (place / "log.txt").read_bytes() == b"line\n"


def test_a_data_set_that_a_machine_lacks_is_sent_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "PIECE", 1000)
    monkeypatch.setattr(data, "_TAKEN", {})
    at_home = write_toy(tmp_path)
    hidden, asked = tmp_path / "hidden", list[str]()
    actor = Home([], [str(at_home)], None)
    expected = data.load(str(at_home))

    def ask(what: str, *given: Any) -> Any:
        """The actor has the file and another cache."""
        asked.append(what)
        with monkeypatch.context() as there:
            there.setenv("FEDTUNE_CACHE", str(tmp_path / "cache of home"))
            hidden.rename(at_home)
            try:
                return getattr(actor, what)(*given)
            finally:
                at_home.rename(hidden)

    at_home.rename(hidden)
    monkeypatch.setenv("FEDTUNE_CACHE", str(tmp_path / "cache here"))
    home.bring(ask, str(at_home), None)
    found = data.load(str(at_home))
    assert found.hash == expected.hash and found.train_x.tobytes() == expected.train_x.tobytes()
    assert (found.title, found.class_names, found.kind) == (expected.title, expected.class_names, expected.kind)
    assert asked[0] == "dataset" and asked.count("piece") > 4
    monkeypatch.setattr(data, "_TAKEN", {})  # another process of the machine
    home.bring(ask, str(at_home), None)
    assert asked[-1] == "dataset" and asked.count("dataset") == 2, "its pieces are there already"
    with pytest.raises(EnvironmentFault, match=r"The run has no data set '/etc/passwd'"):
        home.bring(ask, "/etc/passwd", None)
    with pytest.raises(OSError, match="no data set of this run has this file"):
        actor.piece("passwd", "meta.json", 0)
    with pytest.raises(OSError, match="no data set of this run has this file"):
        actor.piece(next(iter(actor._prepared)), "../meta.json", 0)


def test_a_data_set_that_ends_early_or_has_no_place_is_no_trials_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDTUNE_CACHE", str(tmp_path / "cache"))
    answers = {"dataset": ("key", "Title", {"meta.json": 9}), "piece": b""}

    def ask(what: str, *_: object) -> Any:
        return answers[what]

    with pytest.raises(OSError, match="shorter at home than it was"):
        home.bring(ask, "/nowhere/own.npz", None)
    assert not list((tmp_path / "cache" / "prepared").glob("*/")), "nothing is taken for a whole data set"
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDTUNE_CACHE", str(tmp_path / "file"))
    with pytest.raises(EnvironmentFault, match="The cache folder must be writable"):
        home.bring(ask, "/nowhere/own.npz", None)
