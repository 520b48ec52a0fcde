"""The mirror of a run directory: what is in it at any moment, and going on from there."""

from __future__ import annotations

import io
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from analysis.runs import load_run
from analysis.runs.mappings import read_yaml
from fedtune.api.resume import resume
from fedtune.api.search import Result, carry_out
from fedtune.commands import _output
from fedtune.execution import outcome
from fedtune.options import SearchRequest
from fedtune.planning.plan import Plan, plan
from fedtune.record import mirror as mirrors
from fedtune.record.experiment import Experiment
from fedtune.record.mirror import Mirror, check_new, check_same, fetch
from fedtune.record.run_directory import write_document
from fedtune.record.storage import Storage, check_uri
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.fedtune.conftest import experiment, frozen, space, start
from tests.fedtune.fake import Fake
from tests.fedtune.played import _simulate, asked, play
from tests.fedtune.queues import opened
from tests.toy import write_toy


class Lost(BaseException):
    """The driver's machine is lost."""


def files_of(folder: Path) -> dict[str, bytes]:
    """What a mirror of the run directory has to hold."""
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    unsent = (run_folder.LOCK, mirrors.STATE)
    return {name: content for name, content in found.items() if name.rpartition("/")[2] not in unsent}


def run_some(run: Path, until: int) -> None:
    """Runs trials to their end, and begins trial `until`."""
    queue = opened(run, Experiment.read(run))
    while (proposal := queue.propose()) is not None and proposal.number < until:
        _simulate(queue, proposal.part.experiment, run, proposal, Fake)
    assert proposal is not None
    (run / run_folder.trial_folder(until)).mkdir(exist_ok=True)
    (run / run_folder.trial_folder(until) / run_folder.CONFIG).write_text("{}")


def test_a_mirror_that_was_cut_off_at_any_file_goes_on_to_the_same_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal comes after what it tells of: the machine is lost after one file, after two, and so on. Of later
    files a part of the run was mirrored before. Nothing that has ended is computed again."""
    changes: dict[str, Any] = {"trials": 5, "rounds": 4, "order": run_folder.ARRIVAL, "concurrency": 1}
    wanted = frozen(asked(tmp_path / "whole", **changes).path)
    sent, most = Storage.write, 0

    def cut_off(self: Storage, name: str, source: Any) -> None:
        nonlocal most
        most -= 1
        if most < 0:
            raise Lost
        sent(self, name, source)

    held = 0
    for most_now in range(1, 40, 2):
        most = most_now
        place = tmp_path / str(most_now)
        start(place / "run", **changes)
        mirror = Mirror(str(place / "mirror"), place / "run", pytest.fail)
        monkeypatch.setattr(Storage, "write", cut_off)
        try:
            for trials in (1, 3, 4):
                run_some(place / "run", trials)
                mirror._send()
        except Lost:
            pass
        monkeypatch.setattr(Storage, "write", sent)
        if not (place / "mirror" / run_folder.STUDY).exists():
            with pytest.raises(UserError, match="holds no run: "):
                fetch(str(place / "mirror"), place / "again")
            assert not (place / "again").exists()
            continue
        fetch(str(place / "mirror"), place / "again")
        run = load_run(place / "again")
        assert outcome.damaged(run.path, Experiment.of(run), run.frozen) == []
        assert len(list((run.path / run_folder.TRIALS).iterdir())) <= len(run.frozen)
        play(run.path)
        assert frozen(run.path) == wanted
        held += 1
    assert held > 12 and most >= 0  # all of it was sent in the end


def test_rows_reach_as_far_as_the_checkpoint_while_a_trial_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial writes a row and then a checkpoint whenever a file is about to be sent, and whenever one is opened."""
    start(tmp_path / "run")
    place, there = tmp_path / "run" / run_folder.trial_folder(0), tmp_path / "mirror" / run_folder.trial_folder(0)
    place.mkdir()
    round_ = 0

    def step() -> None:
        nonlocal round_
        round_ += 1
        with open(place / run_folder.ROUNDS, "a") as rows:
            rows.write(f"{round_}\n")
        (place / "next").write_text(str(round_))
        os.replace(place / "next", place / run_folder.CHECKPOINT)

    def during(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            step()
            found = function(*args)
            step()
            if (there / run_folder.CHECKPOINT).exists():
                rows = (there / run_folder.ROUNDS).read_text().splitlines()
                assert int((there / run_folder.CHECKPOINT).read_text()) <= int(rows[-1])
            return found

        return call

    monkeypatch.setattr(Storage, "write", during(Storage.write))
    monkeypatch.setattr(Mirror, "_changed", during(Mirror._changed))
    mirror = Mirror(str(tmp_path / "mirror"), tmp_path / "run", pytest.fail)
    for _ in range(3):
        mirror._send()
    assert (there / run_folder.CHECKPOINT).exists()


def test_a_checkpoint_in_the_mirror_has_what_it_needs_of_the_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trial puts another checkpoint in its place, and removes what that does not need, before and after each file
    is sent, and now and then while one is looked for."""
    start(tmp_path / "run")
    place, there = tmp_path / "run" / run_folder.trial_folder(0), tmp_path / "mirror" / run_folder.trial_folder(0)
    place.mkdir()
    round_, looked = 0, 0

    def step() -> None:
        nonlocal round_
        round_ += 1
        (place / f"states-{round_}").write_text(str(round_))
        (place / "next").write_text(f"states-{round_}")
        os.utime(place / "next", ns=(round_, round_))  # so soon one may have the time and the node of an earlier one
        os.replace(place / "next", place / run_folder.CHECKPOINT)
        (place / f"states-{round_ - 1}").unlink(missing_ok=True)

    changed, write = Mirror._changed, Storage.write

    def looking(self: Mirror, path: Path, held: Any) -> Any:
        nonlocal looked
        looked += path.parent == place
        found = changed(self, path, held)
        if path.parent == place and looked % 4 == 1:
            step()
        return found

    def sending(self: Storage, name: str, source: Any) -> None:
        step()
        write(self, name, source)
        if (there / run_folder.CHECKPOINT).exists():
            assert (there / (there / run_folder.CHECKPOINT).read_text()).exists()
        step()

    step()
    monkeypatch.setattr(Mirror, "_changed", looking)
    monkeypatch.setattr(Storage, "write", sending)
    for _ in range(2):  # another process goes on with the mirror
        mirror = Mirror(str(tmp_path / "mirror"), tmp_path / "run", pytest.fail)
        for _ in range(4):
            mirror._send()
    needed = (there / run_folder.CHECKPOINT).read_text()
    assert [path.name for path in run_folder.states(there)] == [needed] and needed != "states-1"


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A server of S3 on loopback with a bucket named `runs`: its URI of a run, and what switches it off and on."""
    import boto3
    from moto.server import ThreadedMotoServer

    for name, value in {"AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": "a secret of mine"}.items():
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()

    class Bucket:
        uri = f"s3://runs/mine?endpoint_override=http://127.0.0.1:{port}&region=us-east-1"

        def off(self) -> None:
            server.stop()

        def on(self) -> None:
            nonlocal server
            server = ThreadedMotoServer("127.0.0.1", port=port, verbose=False)  # it keeps its objects in this process
            server.start()

    boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1").create_bucket(Bucket="runs")
    yield Bucket()
    server.stop()


@pytest.mark.guard("a mirror in a bucket of S3")
def test_a_bucket_that_fails_and_comes_back_is_told_of_once_and_holds_all_in_the_end(
    bucket: Any, tmp_path: Path
) -> None:
    said: list[str] = []
    start(tmp_path / "run", trials=4)
    check_new(bucket.uri, tmp_path / "run")
    mirror = Mirror(bucket.uri, tmp_path / "run", said.append)
    assert mirror._sent_all()
    run_some(tmp_path / "run", 2)
    bucket.off()
    assert not mirror._sent_all() and not mirror._sent_all()
    bucket.on()
    play(tmp_path / "run")
    assert mirror._sent_all(whole=True)
    assert [line.partition(" (--storage): ")[0] for line in said] == [
        f"The storage {bucket.uri} cannot be used",
        f"The storage {bucket.uri} is back, and the mirror lacks nothing.",
    ]
    fetch(bucket.uri, tmp_path / "again")
    mine, again = files_of(tmp_path / "run"), files_of(tmp_path / "again")
    assert mine.keys() == again.keys() and len(mine) > 12
    assert all(mine[name] == again[name] for name in mine if name != run_folder.EXPERIMENT)
    assert not any(b"a secret of mine" in content for content in again.values())
    with pytest.raises(UserError, match=r"holds a run already\. Go on with it by `fedtune resume 's3://runs/mine"):
        check_new(bucket.uri, tmp_path / "other")
    nowhere = bucket.uri.replace("runs/mine", "nowhere/mine")
    with pytest.raises(UserError, match=r"cannot be used \(--storage\): NO_SUCH_BUCKET .*does not exist\."):
        check_new(nowhere, tmp_path / "other")


class Slow(Fake):
    """Its search takes longer than the time it is given."""

    def step(self) -> list[dict[str, Any]]:
        time.sleep(0.1)
        return super().step()


@pytest.mark.guard("a mirror kept while Ray runs trials")
def test_a_search_goes_on_from_its_mirror_on_another_machine(
    ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through Ray, while the mirror is kept in its thread. What the first machine had is gone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mirrors, "EVERY", 0.05)
    made = experiment(tmp_path / "mine", time=2.0, trials=4, sampler="random", storage="x")
    uri = (tmp_path / "far" / "mine").as_uri()
    request = SearchRequest("fedavg", quiet=True, simulate=Slow, storage=uri)
    begun = carry_out(Plan(tmp_path / "mine", made, space(), {}, (), {}), request)
    assert begun.out_of_time and begun.unsent is None
    assert files_of(tmp_path / "mine") == files_of(tmp_path / "far" / "mine")
    shutil.rmtree(tmp_path / "mine")
    ended = resume(uri, quiet=True, simulate=Fake, time="5m")
    assert isinstance(ended, Result) and ended.finished and ended.folder == tmp_path / "runs" / "mine"
    assert files_of(ended.folder) == files_of(tmp_path / "far" / "mine")
    assert json.loads((tmp_path / "far" / "mine" / mirrors.STATE).read_text())["whole"] is True
    wanted = asked(tmp_path / "asked", trials=4, sampler="random").path
    assert frozen(ended.folder) == frozen(wanted)
    with pytest.raises(UserError, match="A run named 'mine' exists already"):
        resume(uri, quiet=True, simulate=Fake)


def test_what_a_mirror_lacks_is_said_with_exit_code_3_and_sent_where_the_command_says(
    ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """And never where the record says: whoever made a run directory does not choose who is sent what it comes to."""
    monkeypatch.setattr(mirrors, "LAST", 0.0)
    theirs = str(tmp_path / "theirs")
    made = experiment(tmp_path / "mine", trials=2, sampler="random", scheduler="none", storage=theirs)
    place = tmp_path / "far"
    sent = Storage.write

    def gone(self: Storage, name: str, source: Any) -> None:
        place.unlink(missing_ok=True) if place.is_file() else shutil.rmtree(place, ignore_errors=True)
        place.touch()  # a file where the folder was
        sent(self, name, source)

    check_new(str(place), tmp_path / "mine")
    monkeypatch.setattr("fedtune.api.search.check_new", lambda *_: monkeypatch.setattr(Storage, "write", gone))
    request = SearchRequest("fedavg", plain=True, simulate=Fake, storage=str(place))
    ended = carry_out(Plan(tmp_path / "mine", made, space(), {}, (), {}), request)
    assert ended.finished and ended.counts == {"COMPLETE": 2}
    with pytest.raises(typer.Exit) as left:
        _output.result(ended, as_json=False)
    assert left.value.exit_code == 3
    said = capfd.readouterr().err
    assert said.count("The run goes on, and what its mirror lacks is sent when the storage is back.") == 1
    assert f"--storage {place}`" in said and "lacks some: The storage" in said
    monkeypatch.setattr(Storage, "write", sent)
    place.unlink()
    (tmp_path / "mine" / run_folder.trial_folder(1) / run_folder.ROUNDS).unlink()  # so that it has something to do
    assert resume(tmp_path / "mine", plain=True, simulate=Fake).finished
    assert f"This run was mirrored to {theirs} and goes on without." in capfd.readouterr().err
    assert not (tmp_path / "theirs").exists() and not place.exists()
    assert resume(tmp_path / "mine", quiet=True, simulate=Fake, storage=str(place)).unsent is None
    assert files_of(tmp_path / "mine") == files_of(place)


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("mirror", "storage must be a URI or an absolute path, got 'mirror'"),
        ("s3://mine:secret@bucket/run", "must hold no user, password or key"),
        ("s3://mine@bucket/run", "must hold no user, password or key"),
        ("simplecache::s3://mine:secret@bucket/run", "must hold no user, password or key"),
        ("s3://bucket/run?endpoint_override=http://mine:secret@host", "must hold no user, password or key"),
        ("s3://[bad/run", "storage must be a URI that can be read (Invalid IPv6 URL)"),
        ("abfs://box@account.dfs.core.windows.net/run?account_key=secret", "must hold no user, password or key"),
    ],
)
def test_a_storage_with_a_secret_or_without_a_scheme_is_refused_before_anything_is_written(
    uri: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDTUNE_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError) as refused:
        plan(SearchRequest("fedavg", dataset=str(write_toy(tmp_path)), rounds=1, set=["clients=3", f"storage={uri}"]))
    assert [why in problem for problem in refused.value.problems] == [True]
    assert "secret" not in str(refused.value) and not (tmp_path / "runs").exists()
    problems: list[str] = []
    check_uri("abfs://box@account.dfs.core.windows.net/run", problems)  # a container, which is no secret
    assert problems == []


def test_a_mirror_of_something_else_is_not_written_over(tmp_path: Path) -> None:
    place = str(tmp_path / "far")
    for name in ("mine", "other"):
        start(tmp_path / name, trials=3)
        run_some(tmp_path / name, 1)
    Mirror(place, tmp_path / "mine", pytest.fail)._send()
    check_same(place, tmp_path / "mine")
    with pytest.raises(UserError, match=r"holds what is not in .*other: another run, or trials that it ran elsewhere"):
        check_same(place, tmp_path / "other")
    with pytest.raises(UserError, match="outside of the run directory"):
        check_new(str(tmp_path / "mine" / "inside"), tmp_path / "mine")
    with pytest.raises(UserError, match=r"The storage nothing://x/y cannot be used \(--storage\): .*nothing"):
        check_new("nothing://x/y", tmp_path / "new")
    (tmp_path / "far" / ".hidden").touch()
    with pytest.raises(UserError, match=r"holds '\.hidden', which no run has"):
        fetch(place, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_after_more_rounds_a_mirror_from_before_is_gone_on_with_and_no_other_is(tmp_path: Path) -> None:
    """`fedtune extend --rounds` writes the journal anew, and was killed before anything was sent."""
    place, run, elsewhere = str(tmp_path / "far"), tmp_path / "run", tmp_path / "elsewhere"
    for folder in (run, elsewhere):
        start(folder, trials=4, rounds=4, scheduler="none")
    run_some(run, 2)
    Mirror(place, run, pytest.fail)._send()
    shutil.copytree(run, tmp_path / "before")
    request = run / run_folder.EXPERIMENT
    longer = {**read_yaml(request), "rounds": 6, "rounds_before": [4]}
    write_document(request, longer)
    opened(run, Experiment.read(run))
    journal = (run / run_folder.STUDY).read_bytes()
    assert not journal.startswith((tmp_path / "far" / run_folder.STUDY).read_bytes())
    check_same(place, run)
    play(run)
    check_same(place, run)
    run_some(tmp_path / "before", 3)  # another machine went on from the mirror
    Mirror(place, tmp_path / "before", pytest.fail)._send()
    (run / run_folder.STUDY).write_bytes(journal)
    with pytest.raises(UserError, match="holds what is not in"):
        check_same(place, run)
    with pytest.raises(UserError, match="holds what is not in"):
        check_same(place, elsewhere)


def test_what_a_killed_driver_was_sending_is_no_file_of_the_run_and_is_removed(tmp_path: Path) -> None:
    far, run = tmp_path / "far", tmp_path / "run"
    start(run, trials=3)
    run_some(run, 1)
    with Mirror(str(far), run, pytest.fail):
        pass
    trial = run_folder.trial_folder(0)
    left = [far / f"{name}.part" for name in (mirrors.STATE, run_folder.STUDY, f"{trial}/{run_folder.CHECKPOINT}")]
    for path in left:
        path.write_text("half")
    other = far / "somebody's.part"
    other.write_text("whole")
    fetch(str(far), tmp_path / "again")
    assert not list((tmp_path / "again").rglob("*.part"))
    check_same(str(far), run)
    with Mirror(str(far), run, pytest.fail):
        pass
    assert [*far.rglob("*.part")] == [other], "what is not ours stays"
    only = tmp_path / "only"
    only.mkdir()
    (only / f"{mirrors.STATE}.part").write_text("half")
    check_new(str(only), tmp_path / "new")
    (only / "film.part").write_text("whole")
    with pytest.raises(UserError, match=r"holds film\.part already"):
        check_new(str(only), tmp_path / "new")


def test_a_library_of_fsspec_serves_where_pyarrow_knows_none(tmp_path: Path) -> None:
    start(tmp_path / "run", trials=3)
    run_some(tmp_path / "run", 1)
    Mirror("memory://far/run", tmp_path / "run", pytest.fail)._send()
    there = io.BytesIO()
    Storage("memory://far/run").read(run_folder.STUDY, there)
    assert there.getvalue() == (tmp_path / "run" / run_folder.STUDY).read_bytes()
    fetch("memory://far/run", tmp_path / "again")
    assert files_of(tmp_path / "again").keys() == files_of(tmp_path / "run").keys()
