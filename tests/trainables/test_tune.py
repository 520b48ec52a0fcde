"""The Ray trainable, driven by hand: it never raises, its folder is whole, and it goes on where it was."""

from __future__ import annotations

import dataclasses
import errno
import importlib.metadata
import json
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from ray._raylet import raise_sys_exit_with_custom_error_message

from fedtune.decisions.early_stopping import Halving, Later, Never
from search_spaces import files
from tests.fedtune.fake import Fake
from tests.toy import write_toy
from tests.trainables.jobs import cut_off, fake_job, job_of, run, steps, untimed_rows
from trainables.simulated_trial import SimulatedTrial
from trainables.tune import Trial
from trainables.worker import environment, trial_folder
from trainables.worker.environment import COMPUTE, Environment, Token
from trainables.worker.job import Ending, Job
from trainables.worker.rounds_jsonl import read_rows


def ending_and_values(trial: Trial | Job) -> tuple[Ending, list[Any]]:
    """How a trial ends, and its value after each round."""
    results = steps(trial)
    return results[-1]["ending"], [result["values"] for result in results]


def test_a_whole_trial(tmp_path: Path) -> None:
    ending, values = ending_and_values(fake_job(tmp_path / "t"))
    assert (ending.stop_reason, ending.round, ending.error) == ("completed", 4, None)
    assert sorted(ending.curve) == [1, 2, 3, 4] and values == list(ending.curve.values())
    rows = read_rows(tmp_path / "t" / "rounds.jsonl")
    assert [(row["round"], row["seed"]) for row in rows] == [(r, s) for r in (1, 2, 3, 4) for s in (0, 1)]
    assert ending.curve[4][0] == pytest.approx(sum(row["val_global_accuracy"] for row in rows[-2:]) / 2, abs=1e-15)
    assert {path.name for path in (tmp_path / "t").iterdir()} == {
        "rounds.jsonl",
        "checkpoint",
        "partition.json",
        "log.txt",
    }


@pytest.mark.parametrize(
    ("trouble", "reason", "round_", "words"),
    [
        ("setup", "error", 0, "must not be so"),
        ("raise", "error", 1, "RuntimeError: boom"),
        ("nan", "diverged", 2, "train_loss stopped being a finite number"),
    ],
)
def test_trouble_is_an_outcome(tmp_path: Path, trouble: str, reason: str, round_: int, words: str) -> None:
    trial = Trial({"job": fake_job(tmp_path / "t", trouble=trouble)})
    ending = run(trial)
    assert (ending.stop_reason, ending.round) == (reason, round_)
    assert words in str(ending.error) and "\n" not in str(ending.error)
    if trouble == "raise":
        assert "second line" in (tmp_path / "t" / "log.txt").read_text()
    # The process is good for another trial.
    assert trial.reset_config({"job": fake_job(tmp_path / "next")})
    assert run(trial).stop_reason == "completed"


def test_not_finite_is_null(tmp_path: Path) -> None:
    run(fake_job(tmp_path / "t", trouble="nan"))
    assert [row["train_loss"] for row in read_rows(tmp_path / "t" / "rounds.jsonl") if row["round"] == 2] == [
        None,
        None,
    ]
    assert "NaN" not in (tmp_path / "t" / "rounds.jsonl").read_text()


def test_the_rule_is_asked_after_each_round(tmp_path: Path) -> None:
    ending = run(fake_job(tmp_path / "t", rule=Halving.of(3, {3: [(9.0,), (9.0,)]})))
    assert (ending.stop_reason, ending.round) == ("scheduler", 3)


def test_smaller_is_better_for_a_loss(tmp_path: Path) -> None:
    asked: list[Mapping[int, tuple[float, ...]]] = []

    class Ask:
        def stops(self, round_: int, curve: Mapping[int, tuple[float, ...]]) -> bool:
            asked.append(dict(curve))
            return False

    made = fake_job(tmp_path / "t", rule=Ask())
    ending = run(dataclasses.replace(made, metrics=("train_loss",), signs=(-1,)))
    assert asked[0][1][0] == -ending.curve[1][0] < 0


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_going_on_gives_the_same_rows(tmp_path: Path, cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_folder, "between_checkpoints", lambda cost: 0.0)  # a checkpoint every round
    whole = run(fake_job(tmp_path / "whole"))
    cut_off(fake_job(tmp_path / "cut"), cut)
    # What a kill between rows and checkpoint leaves: a round too many, and a torn line.
    with (tmp_path / "cut" / "rounds.jsonl").open("a") as file:
        file.write(json.dumps({"round": cut + 1, "seed": 0, "val_global_accuracy": 99.0}) + "\n" + '{"round": 9')
    again = run(fake_job(tmp_path / "cut"))
    assert again.curve == whole.curve
    assert (tmp_path / "cut" / "rounds.jsonl").read_text() == (tmp_path / "whole" / "rounds.jsonl").read_text()


def test_a_trial_that_had_ended_ends_at_once(tmp_path: Path) -> None:
    rule = Halving.of(3, {3: [(9.0,), (9.0,)]})
    first = run(fake_job(tmp_path / "t", rule=rule))
    again, values = ending_and_values(fake_job(tmp_path / "t", rule=rule))
    assert (again.stop_reason, again.round, again.curve, len(values)) == (first.stop_reason, 3, first.curve, 1)


def test_the_test_set_is_measured_where_the_trial_may_end(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill changes no row, and the last round of a trial that goes on is then one of many."""
    monkeypatch.setattr(trial_folder, "between_checkpoints", lambda cost: 0.0)  # a checkpoint every round

    def federation(name: str, rounds: int, rule: Any) -> Job:
        given = {
            "dataset": str(toy),
            "clients": 2,
            "rounds": rounds,
            "omega": 1.0,
            "eval_test": "end",
            "local_steps": 1,
        }
        return job_of(tmp_path / name, "fedavg", given, rule=rule)

    def measured(name: str) -> list[dict[str, Any]]:
        return untimed_rows(tmp_path / name)

    def on_test(name: str) -> list[int]:
        return [row["round"] for row in measured(name) if {"global_accuracy", "local_accuracies"} & set(row)]

    stopping, going_on = Halving.of(3, {2: [(9.0,), (9.0,)]}), Halving.of(3, {2: [(-9.0,)]})
    assert run(federation("stopped", 4, stopping)).stop_reason == "scheduler"
    assert on_test("stopped") == [2]
    cut_off(federation("killed", 4, going_on), 3)
    for name, rounds in (("killed", 4), ("whole", 4), ("short", 3), ("longer", 4)):
        run(federation(name, rounds, Never() if name in ("short", "longer") else going_on))
    assert on_test("whole") == [2, 4] and measured("killed") == measured("whole")
    assert on_test("short") == [3] and on_test("longer") == [4]
    run(federation("short", 4, Later(3, Never())))
    assert measured("short") == measured("longer")


def test_rounds_without_evaluation_report_nothing(tmp_path: Path) -> None:
    ending, values = ending_and_values(fake_job(tmp_path / "t", eval_every=3))
    assert [value is None for value in values] == [True, True, False, False]
    assert sorted(ending.curve) == [3, 4] and ending.stop_reason == "completed"


def test_an_unwritable_folder_interrupts_and_is_not_scored(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ending = run(fake_job(tmp_path / "file" / "t"))
    assert ending.stop_reason == "interrupted"


def test_a_disk_that_fills_up_interrupts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial({"job": fake_job(tmp_path / "t")})

    def full(self: Fake, path: Path, *, merged: bool = False) -> None:
        raise RuntimeError("PytorchStreamWriter failed writing file")  # torch's way of saying it

    monkeypatch.setattr(Fake, "save", full)
    monkeypatch.setattr(trial_folder, "between_checkpoints", lambda cost: 0.0)
    ending = run(trial)
    assert ending.stop_reason == "interrupted" and "checkpoint" in str(ending.error)


def test_fast_rounds_are_not_all_checkpointed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saves: list[int] = []
    true = Fake.save

    def slow(self: Fake, path: Path, *, merged: bool = False) -> None:
        import time

        time.sleep(0.05)
        saves.append(self.round)
        true(self, path)

    monkeypatch.setattr(Fake, "save", slow)
    run(fake_job(tmp_path / "t", rounds=40, sleep=0.001))
    assert saves[0] == 1 and saves[-1] == 40 and len(saves) <= 4


def test_prints_go_to_the_trials_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    true = Fake.step

    def loud(self: Fake) -> list[dict[str, Any]]:
        print("a word")
        return true(self)

    monkeypatch.setattr(Fake, "step", loud)
    run(fake_job(tmp_path / "t"))
    assert (tmp_path / "t" / "log.txt").read_text().count("a word") == 4
    assert "a word" not in capsys.readouterr().out


def test_what_ends_its_process_is_no_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's handler of SIGTERM raises `SystemExit`, as `sys.exit` in a method of a user's own does."""

    def told_to_end(self: Fake) -> None:
        raise_sys_exit_with_custom_error_message("The process receives a SIGTERM.")

    monkeypatch.setattr(Fake, "step", told_to_end)
    trial = Trial({"job": fake_job(tmp_path / "t")})
    with pytest.raises(SystemExit):
        trial.step()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError(
            "[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried to "
            "allocate 8 bytes."
        ),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_memory_that_does_not_suffice_interrupts_and_is_not_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(trial_folder, "between_checkpoints", lambda cost: 0.0)
    whole = run(fake_job(tmp_path / "whole"))
    true = Fake.step

    def hungry(self: Fake) -> list[dict[str, Any]]:
        if self.round == 2:
            raise error
        return true(self)

    monkeypatch.setattr(Fake, "step", hungry)
    first = SimulatedTrial(fake_job(tmp_path / "t"), False, lambda *asked: None, "this machine")
    ending = run(first)
    assert (ending.stop_reason, ending.out_of_memory, ending.round) == ("interrupted", True, 2)
    assert (ending.node, whole.node) == ("this machine", "")
    monkeypatch.setattr(Fake, "step", true)
    # The first process is still there, but has let go of the folder.
    again, values = ending_and_values(fake_job(tmp_path / "t"))
    assert (again.stop_reason, again.out_of_memory, len(values)) == (
        "completed",
        False,
        2,
    ) and again.curve == whole.curve


def test_seconds_are_those_of_all_sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_folder, "between_checkpoints", lambda cost: 0.0)
    cut_off(fake_job(tmp_path / "t"), 3)
    rows = read_rows(tmp_path / "t" / "rounds.jsonl")
    (tmp_path / "t" / "rounds.jsonl").write_text("".join(json.dumps({**row, "seconds": 100.0}) + "\n" for row in rows))
    assert 600.0 <= run(fake_job(tmp_path / "t")).seconds < 660.0  # three rounds of two seeds, and one of now


def test_rows_and_checkpoint_are_on_the_disk_before_the_swap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    true_sync, true_replace = files.sync, os.replace
    monkeypatch.setattr(files, "sync", lambda path: (events.append(f"sync {path.name}"), true_sync(path)))
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append(f"swap {Path(b).name}"), true_replace(a, b)))
    run(fake_job(tmp_path / "t", rounds=1))
    synced, saved, swapped = events[-3:]
    assert (synced, swapped) == ("sync rounds.jsonl", "swap checkpoint")
    assert re.fullmatch(r"sync \.checkpoint\.[0-9a-f]{16}\.tmp", saved)


def test_a_trial_has_the_threads_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    true = Fake.step

    def look(self: Fake) -> list[dict[str, Any]]:
        seen.append(torch.get_num_threads())
        return true(self)

    monkeypatch.setattr(Fake, "step", look)
    before = torch.get_num_threads()
    try:
        for threads in (2, 1):
            run(dataclasses.replace(fake_job(tmp_path / f"t{threads}"), threads=threads))
    finally:
        torch.set_num_threads(before)
    assert seen == [2] * 4 + [1] * 4


def test_data_that_are_gone_or_changed_interrupt_and_are_not_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_folder, "between_checkpoints", lambda cost: 0.0)
    data = write_toy(tmp_path)
    values = {"dataset": str(data), "rounds": 2, "clients": 3, "local_steps": 1, "model": "lenet5", "partition": "iid"}

    def made(folder: str, environment: Environment) -> Job:
        return job_of(tmp_path / folder, "fedavg", values, environment=environment)

    assert run(made("first", Environment())).stop_reason == "completed"
    content = json.loads((tmp_path / "first" / "partition.json").read_text())["dataset"]
    assert run(made("same", Environment(content))).stop_reason == "completed"
    ending = run(made("other", Environment("another")))
    assert (ending.stop_reason, ending.round) == ("interrupted", 0)
    assert "must be as it was when the run began (hash another)" in str(ending.error)
    assert not (tmp_path / "other" / "rounds.jsonl").exists()
    data.unlink()
    ending = run(made("same", Environment(content)))
    assert ending.stop_reason == "interrupted" and "must be there, a folder of images" in str(ending.error)


def test_a_machine_with_other_libraries_interrupts_and_is_not_scored(tmp_path: Path) -> None:
    here = {name: importlib.metadata.version(name) for name in COMPUTE}
    same = dataclasses.replace(fake_job(tmp_path / "same"), environment=Environment(versions=here))
    assert run(same).stop_reason == "completed"
    other = dataclasses.replace(fake_job(tmp_path / "t"), environment=Environment(versions={**here, "numpy": "1.0"}))
    ending = run(other)
    assert ending.stop_reason == "interrupted" and "the search runs with numpy 1.0" in str(ending.error)
    assert not (tmp_path / "t").exists()


def test_a_machine_without_the_run_directory_interrupts_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "SHARED", 0.3)
    seen, other = tmp_path / "run" / ".session-1", tmp_path / "elsewhere" / ".session-1"
    seen.parent.mkdir()
    seen.write_text("random")

    def ending(token: Token) -> Ending:
        asked = dataclasses.replace(fake_job(seen.parent / "t"), environment=Environment(token=token))
        return run(asked)

    for token in (Token(str(other), "random"), Token(str(seen), "of another directory")):
        found = ending(token)
        assert (found.stop_reason, found.round, found.out_of_memory) == ("interrupted", 0, False)
        assert str(found.error) == (
            f"The machine {socket.gethostname()} does not see the run directory {Path(token.path).parent}, so what its "
            "trials write would be lost."
        )
        assert not other.parent.exists() and [path.name for path in seen.parent.iterdir()] == [seen.name]
    assert ending(Token(str(seen), "random")).stop_reason == "completed"
