"""A trial that has ended and whose rows are damaged is computed again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedtune.api.resume import resume
from fedtune.api.search import Result
from fedtune.execution.outcome import damaged
from search_spaces import run_folder
from tests.fedtune.conftest import experiment, frozen
from tests.fedtune.fake import Fake
from tests.fedtune.queues import begun, opened, take
from trainables.worker import rounds_jsonl
from trainables.worker.job import Ending

DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "removed": lambda content: None,
    "emptied": lambda content: b"",
    "truncated": lambda content: content[:-3],
    "garbled": lambda content: content.replace(b'"round": 1', b'"round": \xff', 1),
    "a row less": lambda content: b"".join(
        content.splitlines(keepends=True)[:1] + content.splitlines(keepends=True)[2:]
    ),
}


def damage(path: Path, how: str) -> None:
    content = DAMAGES[how](path.read_bytes())
    path.unlink() if content is None else path.write_bytes(content)


@pytest.mark.guard("damaged files")
def test_they_are_computed_again_to_the_same_numbers(
    conduct: Callable[..., Result], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conduct("run", concurrency=1)
    before = frozen(tmp_path / "run")
    assert {"COMPLETE", "PRUNED"} <= {trial["state"] for trial in before}
    for number, how in zip((0, 3, 5, 8, 11), DAMAGES, strict=True):
        damage(tmp_path / "run" / run_folder.trial_folder(number) / run_folder.ROUNDS, how)
    capsys.readouterr()
    result = resume(tmp_path / "run", plain=True, simulate=Fake)
    assert result.finished and frozen(tmp_path / "run") == before
    said = capsys.readouterr().err
    assert all(f"Trial {number} starts again from round 0" in said for number in (0, 3, 5, 8, 11)), said


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with a trial that ran all its rounds, one that ended after one, and one that runs."""
    queue = begun(tmp_path / "run", trials=4)
    for rounds in (9, 1, 2):
        proposal = take(queue)
        place = tmp_path / "run" / run_folder.trial_folder(proposal.number)
        place.mkdir()
        rows = [{"round": r + 1, "seed": seed, "val_global_accuracy": 0.5} for r in range(rounds) for seed in (0, 1)]
        rounds_jsonl.append(place / run_folder.ROUNDS, rows)
        if proposal.number < 2:
            queue.finish(
                proposal.number, Ending("completed" if rounds == 9 else "error", rounds, None, {rounds: (0.5,)})
            )
    return tmp_path / "run"


def asked(folder: Path, **changes: object) -> list[int]:
    made = experiment(folder, trials=4, **changes)
    queue = opened(folder, made)
    found = damaged(folder, made, queue.trials())
    assert queue.damaged() == found
    return found


@pytest.mark.parametrize("how", DAMAGES)
def test_each_kind_of_damage_is_found(folder: Path, how: str) -> None:
    assert asked(folder) == []
    for number in (1, 2):
        damage(folder / run_folder.trial_folder(number) / run_folder.ROUNDS, how)
    assert asked(folder) == [1], "one that has not ended looks after itself"
    assert asked(folder, taken=2) == []


def test_rows_of_other_seeds_are_damage(folder: Path) -> None:
    assert asked(folder, seeds=(0, 2)) == [0, 1]


def test_one_whose_process_dies_once_more_stays_what_it_was(folder: Path) -> None:
    made = experiment(folder, trials=4)
    queue = opened(folder, made)
    before = queue.trials()[1]
    queue.again(1, (2.0, 0.0))
    proposal = take(queue)
    assert (proposal.number, proposal.share) == (1, None)
    queue.report(1, 2, (0.75,))
    queue.finish(1, Ending("error", 1, "another ending"))
    assert queue.trials()[1] == before
