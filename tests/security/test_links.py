"""A prepared run directory: nothing in it makes a command read, overwrite or delete what lies elsewhere."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.report import report
from analysis.runs import load_run
from fedtune.api.extend import extend
from fedtune.api.resume import resume
from fedtune.api.status import status
from fedtune.record import run_directory
from search_spaces import files, leftovers, run_folder
from search_spaces.errors import UserError
from tests.fedtune.conftest import start
from tests.fedtune.fake import Fake
from tests.fedtune.queues import begun, take
from tests.trainables.jobs import fake_job, run
from tests.unchanged import unchanged
from trainables.worker import rounds_jsonl
from trainables.worker.job import Ending

SECRET = "a secret that lies elsewhere"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """What a prepared run directory must not lead to."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / ".checkpoint.hidden").write_text(SECRET)
    (folder / "file").write_text(f"secret: {SECRET}\n")
    return folder


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A search with one trial that ran to its end and one that was cut off."""
    queue = begun(tmp_path / "run", trials=3)
    for _ in range(2):
        proposal = take(queue)
        folder = run_directory.trial_folder(tmp_path / "run", proposal.number)
        run_directory.write_document(folder / run_folder.CONFIG, {"rounds": 9, **proposal.values})
        rounds_jsonl.append(folder / run_folder.ROUNDS, [{"round": 1, "seed": 0, "val_global_accuracy": 0.5}])
    queue.finish(0, Ending("completed", 9, None, {9: (0.5,)}))
    return tmp_path / "run"


#: What is linked, and whether the link leads to the folder or to the file in it.
LINKS = {
    run_folder.EXPERIMENT: "file",
    run_folder.SPACE: "file",
    run_folder.PROVENANCE: "file",
    run_folder.LOCK: "file",
    run_folder.REPORT: "file",
    run_folder.ATTACK: "file",
    "attack.png": "file",
    "attack.html": "file",
    run_folder.STUDY: "file",
    "figures": "",
    run_folder.TRIALS: "",
    "trials/0001": "",
    "trials/0002": "",
    "trials/0000/config.yaml": "file",
    "trials/0000/partition.json": "file",
    "trials/0000/rounds.jsonl": "file",
    "trials/0001/checkpoint": "file",
    "trials/0001/log.txt": "file",
    "trials/0001/.checkpoint.0123456789abcdef.tmp": "file",
}
COMMANDS: dict[str, Callable[[Path], object]] = {
    "resume": lambda folder: resume(folder, quiet=True, simulate=Fake),
    "extend": lambda folder: extend(folder, trials=1, quiet=True, simulate=Fake),
    "extend --rounds": lambda folder: extend(folder, rounds=1, quiet=True, simulate=Fake),
    "report": report,
    "status": status,
}


def linked(folder: Path, name: str, target: Path) -> None:
    place = folder / name
    if place.exists():
        place.rename(folder / "moved")
    place.symlink_to(target)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", LINKS)
def test_no_link_is_followed(prepared: Path, elsewhere: Path, name: str, command: str) -> None:
    linked(prepared, name, elsewhere / LINKS[name])
    with unchanged(elsewhere, prepared), pytest.raises(UserError, match="symbolic link") as told:
        COMMANDS[command](prepared)
    assert str(prepared / name) in str(told.value) and SECRET not in str(told.value)


def test_a_run_directory_may_be_reached_by_a_link_and_hold_a_users_own(prepared: Path, tmp_path: Path) -> None:
    (prepared / "notes").symlink_to(tmp_path)
    (tmp_path / "short").symlink_to(prepared)
    assert load_run(tmp_path / "short").path == prepared


@pytest.mark.parametrize("name", [run_folder.LOCK, "trials/0000/rounds.jsonl"])
def test_a_pipe_keeps_nobody_waiting(prepared: Path, name: str) -> None:
    (prepared / name).unlink(missing_ok=True)
    os.mkfifo(prepared / name)
    ended = threading.Event()

    def look() -> None:
        with pytest.raises(UserError, match="got a pipe"):
            status(prepared)
        ended.set()

    threading.Thread(target=look, daemon=True).start()
    assert ended.wait(20)


# Below: a link that appears only after the directory was looked through.


def test_the_lock_truncates_nothing_elsewhere(prepared: Path, elsewhere: Path) -> None:
    linked(prepared, run_folder.LOCK, elsewhere / "file")
    with unchanged(elsewhere), pytest.raises(UserError, match="symbolic link"), run_directory.lock(prepared):
        pass


@pytest.mark.parametrize("name", ["", "log.txt", "rounds.jsonl", "checkpoint"])
def test_a_trial_follows_no_link(tmp_path: Path, elsewhere: Path, name: str) -> None:
    """The whole folder of the trial is a link, or one of its files."""
    place = tmp_path / "t" / name if name else tmp_path / "t"
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(elsewhere / "file" if name else elsewhere)
    with unchanged(elsewhere):
        ending = run(fake_job(tmp_path / "t"))
    if name != "checkpoint":  # which is replaced as a whole: the stand-in for the engine reads whatever it is given
        assert ending.stop_reason == "interrupted" and "symbolic link" in str(ending.error)


def test_the_engine_loads_no_linked_checkpoint(tmp_path: Path) -> None:
    from trainables.simulation import checkpoint

    checkpoint.save(tmp_path / "true", {"a": 1})
    assert checkpoint.load(tmp_path / "true") == {"a": 1}
    (tmp_path / "link").symlink_to(tmp_path / "true")
    with pytest.raises(OSError, match="symbolic link"):
        checkpoint.load(tmp_path / "link")


def test_the_driver_writes_into_no_linked_trial(prepared: Path, elsewhere: Path) -> None:
    (prepared / "trials" / "0002").symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic link"):
        run_directory.trial_folder(prepared, 2)


def test_only_what_fedtune_was_writing_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    hexed = "0123456789abcdef.tmp"
    for name in (
        f".checkpoint.{hexed}",
        f"..checkpoint.{hexed}.{hexed}",
        f".config.yaml.{hexed}",
        f".model-0.json.{hexed}",
    ):
        (tmp_path / "t" / name).write_text("x")
    alike = {".mine", ".checkpoint.mine", ".checkpoint.0123.tmp", f".mine.{hexed}"}
    for name in alike:
        (tmp_path / "t" / name).write_text("x")
    run(fake_job(tmp_path / "t"))
    assert {path.name for path in (tmp_path / "t").glob(".*")} == alike


def test_a_linked_target_is_replaced_and_not_followed(tmp_path: Path, elsewhere: Path) -> None:
    (tmp_path / "link").symlink_to(elsewhere / "file")
    files.replace(tmp_path / "link", "mine")
    assert (tmp_path / "link").read_text() == "mine" and not (tmp_path / "link").is_symlink()
    assert SECRET in (elsewhere / "file").read_text()


def test_names_of_temporary_files_cannot_be_guessed(tmp_path: Path) -> None:
    names = []
    for _ in range(20):
        with files.replacing(tmp_path / "file") as temporary:
            names.append(temporary.name)
    # 64 random bits each: that two are alike would happen once in 10^17 runs of this test.
    assert len(set(names)) == 20 and all(len(name.split(".")[2]) == 16 for name in names)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_temporary_file_is_none_that_was_there(
    tmp_path: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers.secrets, "token_hex", lambda count: "guessed")
    (tmp_path / ".file.guessed.tmp").symlink_to(elsewhere / "file")
    with unchanged(elsewhere), pytest.raises(FileExistsError):
        files.replace(tmp_path / "file", "mine")
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_umask_decides_the_mode_of_every_file(tmp_path: Path, mask: int, mode: int) -> None:
    import torch

    from trainables.zoo import Card, save_model

    before = os.umask(mask)
    try:
        start(tmp_path / "run")
        with run_directory.lock(tmp_path / "run"):
            run(fake_job(run_directory.trial_folder(tmp_path / "run", 0)))
        card = Card("lenet5", (1, 8, 8), 2, (0.0,), (1.0,))
        save_model(tmp_path / "run" / "trials" / "0000" / "model-0.safetensors", {"a": torch.zeros(2)}, card)
    finally:
        os.umask(before)
    written = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert len(written) == 11 and {path.stat().st_mode & 0o777 for path in written} == {mode}
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o777 & ~mask
