"""Who is to blame for a process that died again and again."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedtune.machine import deaths
from fedtune.trials.died import RETRIES, Died
from search_spaces import run_folder

LOW = "1 worker(s) were killed due to the node running low on memory."
ABORTED = "Fatal Python error: Aborted\n"


def dies(died: Died, folder: Path, round_: int, said: str = "", log: str = "") -> None:
    """The process of trial 4 begins, writes so many rounds of two seeds, and dies."""
    died.begin(4, folder)
    (folder / run_folder.ROUNDS).write_text("{}\n" * 2 * round_)
    with (folder / run_folder.LOG).open("a") as file:
        file.write(log)
    assert died.note(4, folder, 2, said) == round_


@pytest.mark.parametrize(
    ("said", "log", "error"),
    [
        ([LOW] * 3, [""] * 3, "Its process died 3 times for lack of memory, each time after round 2."),
        ([""] * 3, [ABORTED] * 3, "Its process died 3 times by a crash in native code, each time after round 2."),
        (
            [LOW, "", ""],
            ["", ABORTED, ABORTED],
            "Its process died 3 times for lack of memory or by a crash in native code, each time after round 2.",
        ),
    ],
)
def test_what_a_trial_brings_about_is_its_failure(tmp_path: Path, said: list[str], log: list[str], error: str) -> None:
    died = Died()
    for one, other in zip(said, log, strict=True):
        assert not died.too_often(4)
        dies(died, tmp_path, 2, one, other)
    assert died.too_often(4) and died.is_own_doing(4) and died.error(4) == error


@pytest.mark.parametrize(
    ("rounds", "log", "when"),
    [
        ((2, 2, 2), ("", "", ""), "each time after round 2, and nothing says that memory ran out or that it crashed"),
        ((2, 2, 2), (ABORTED, "", ABORTED), "each time after round 2, and nothing says"),
        ((0, 1, 1), (ABORTED, ABORTED, ABORTED), "after the rounds 0, 1 and 1, so it was ended from outside"),
    ],
)
def test_anything_else_ends_the_search(
    tmp_path: Path, rounds: tuple[int, ...], log: tuple[str, ...], when: str
) -> None:
    died = Died()
    assert len(rounds) == RETRIES + 1
    for round_, text in zip(rounds, log, strict=True):
        dies(died, tmp_path, round_, log=text)
    assert died.too_often(4) and not died.is_own_doing(4)
    told = died.from_outside(4, "fedtune resume runs/a")
    assert told.exit_code == 3 and f"The process of trial 4 died 3 times, {when}" in str(told)
    assert str(told).endswith("no trial was scored by this. Then go on with `fedtune resume runs/a`.")


def test_a_process_that_the_system_ended_for_lack_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the beginning and at the end of each of three processes; the last one ended without such a kill."""
    counts = iter((5, 6, 6, 8, 8, 8))
    monkeypatch.setattr(deaths, "memory_kills", lambda: next(counts))
    died = Died()
    dies(died, tmp_path, 1)
    dies(died, tmp_path, 1)
    assert died.is_own_doing(4)
    dies(died, tmp_path, 1)
    assert not died.is_own_doing(4)
