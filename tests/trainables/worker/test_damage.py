"""Files of one trial that do not hold what was written to them: it starts again, to the same record."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainables.jobs import cut_off, fake_job, job_of, run
from trainables.tune import Trial
from trainables.worker import trial_folder
from trainables.worker.job import Job
from trainables.worker.rounds_jsonl import Damaged, complete_rounds, first_rows

Damage = Callable[[Path], None]


def lines(folder: Path, change: Callable[[list[str]], list[str]]) -> None:
    path = folder / "rounds.jsonl"
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


def cut_checkpoint(folder: Path) -> None:
    content = (folder / "checkpoint").read_bytes()
    (folder / "checkpoint").write_bytes(content[: len(content) // 2])


def empty_checkpoint(folder: Path) -> None:
    (folder / "checkpoint").write_bytes(b"")


def garbled_checkpoint(folder: Path) -> None:
    (folder / "checkpoint").write_bytes(b"\x80\x04garbled" * 100)


def no_checkpoint(folder: Path) -> None:
    (folder / "checkpoint").unlink()


def no_rounds(folder: Path) -> None:
    (folder / "rounds.jsonl").unlink()


def missing_row(folder: Path) -> None:
    lines(folder, lambda rows: rows[:2] + rows[3:])


def swapped_rows(folder: Path) -> None:
    lines(folder, lambda rows: [rows[2], rows[1], rows[0], *rows[3:]])


def garbled_row(folder: Path) -> None:
    lines(folder, lambda rows: [rows[0], rows[1][5:], *rows[2:]])


def infinite_row(folder: Path) -> None:
    lines(folder, lambda rows: [rows[0].replace('"train_loss": ', '"train_loss": 1e999, "x": '), *rows[1:]])


def nested_row(folder: Path) -> None:
    lines(folder, lambda rows: ["[" * 100_000 + "\n", *rows[1:]])


def no_text(folder: Path) -> None:
    (folder / "rounds.jsonl").write_bytes(b"\xff\xfe" + (folder / "rounds.jsonl").read_bytes())


def other_partition(folder: Path) -> None:
    path = folder / "partition.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"hash": {"0": "another", "1": "another"}}))


DAMAGES = {
    cut_checkpoint: "its checkpoint is damaged",
    empty_checkpoint: "its checkpoint is damaged",
    garbled_checkpoint: "its checkpoint is damaged",
    no_checkpoint: "its checkpoint is missing",
    no_rounds: "its rounds.jsonl lacks rows",
    missing_row: "its rounds.jsonl lacks rows",
    swapped_rows: "its rounds.jsonl has another row where round 1 of seed 0 should be",
    garbled_row: "its rounds.jsonl is garbled in round 1",
    infinite_row: "its rounds.jsonl is garbled in round 1",
    nested_row: "its rounds.jsonl is garbled in round 1",
    no_text: "its rounds.jsonl is not text",
    other_partition: "its rounds were run on another partition",
}


@pytest.fixture(autouse=True)
def checkpoint_every_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_folder, "between_checkpoints", lambda cost: 0.0)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_trial_starts_again_to_the_same_record(tmp_path: Path, damage: Damage) -> None:
    whole = run(fake_job(tmp_path / "whole"))
    cut_off(fake_job(tmp_path / "cut"), 3)
    damage(tmp_path / "cut")
    trial = Trial({"job": fake_job(tmp_path / "cut")})
    first = trial.step()
    assert (first["round"], first["note"]) == (1, f"Trial 0 starts again from round 0, as {DAMAGES[damage]}.")
    again = run(trial)
    assert (again.stop_reason, again.curve) == (whole.stop_reason, whole.curve)
    for name in ("rounds.jsonl", "checkpoint", "partition.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert DAMAGES[damage] in (tmp_path / "cut" / "log.txt").read_text()


@pytest.mark.parametrize("cut", [0, 1, 3])
def test_a_whole_trial_goes_on_without_a_note(tmp_path: Path, cut: int) -> None:
    cut_off(fake_job(tmp_path / "t"), cut)
    first = Trial({"job": fake_job(tmp_path / "t")}).step()
    assert "note" not in first and first["round"] == cut + 1


@pytest.mark.parametrize("torn", [True, False])
def test_a_partition_that_cannot_be_read_is_written_again_and_told(tmp_path: Path, torn: bool) -> None:
    cut_off(fake_job(tmp_path / "t"), 2)
    path = tmp_path / "t" / "partition.json"
    before = path.read_bytes()
    path.write_bytes(before[:9]) if torn else path.unlink()
    first = Trial({"job": fake_job(tmp_path / "t")}).step()
    said = "its partition.json could not be read, and is written again"
    assert (first["round"], first["note"]) == (3, f"Trial 0 goes on; {said}.")
    assert path.read_bytes() == before and said in (tmp_path / "t" / "log.txt").read_text()


def flipped_bit(folder: Path) -> None:
    """One bit in the middle, where a tensor lies: nothing but the checksum tells of it."""
    content = bytearray((folder / "checkpoint").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "checkpoint").write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [cut_checkpoint, flipped_bit, garbled_checkpoint], ids=lambda d: d.__name__)
def test_a_damaged_checkpoint_of_the_real_engine(tmp_path: Path, toy: Path, damage: Damage) -> None:
    values = {"dataset": str(toy), "rounds": 2, "clients": 3, "local_steps": 1, "model": "lenet5", "partition": "iid"}

    def made(name: str) -> Job:
        return job_of(tmp_path / name, "fedavg", values, metric="global_accuracy")

    whole = run(made("whole"))
    cut_off(made("cut"), 1)
    damage(tmp_path / "cut")
    trial = Trial({"job": made("cut")})
    first = trial.step()
    assert (first["round"], first["note"]) == (1, "Trial 0 starts again from round 0, as its checkpoint is damaged.")
    assert run(trial).curve == whole.curve


def test_first_rows_of_no_rounds_need_no_file(tmp_path: Path) -> None:
    assert first_rows(tmp_path / "none", 0, (0, 1)) == []
    with pytest.raises(Damaged, match="lacks rows"):
        first_rows(tmp_path / "none", 1, (0, 1))


def test_rounds_that_were_written_by_all_seeds(tmp_path: Path) -> None:
    path = tmp_path / "rounds.jsonl"
    assert complete_rounds(path, 2) == 0
    for text, rounds in (("{}\n", 0), ("{}\n{}\n", 1), ("{}\n{}\n{}\n{}", 1), ("{}\n" * 4, 2)):
        path.write_text(text)
        assert complete_rounds(path, 2) == rounds
