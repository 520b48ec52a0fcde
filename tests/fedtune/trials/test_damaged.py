"""A trial that has ended and whose rows are damaged is computed again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fedtune.api.resume import resume
from fedtune.api.search import Result
from fedtune.record.study import StudyFile
from fedtune.trials.damaged import curve, damaged
from fedtune.trials.queue import TrialQueue
from search_spaces import run_folder
from tests.fedtune.conftest import experiment, frozen, space, start
from tests.fedtune.fake import Fake
from tests.fedtune.played import asked as played
from trainables.tune import Ending
from trainables.worker import rounds_jsonl
from trainables.worker.trial_values import check_curve

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
    made = start(tmp_path / "run", trials=4)
    queue = TrialQueue(tmp_path / "run", made, space())
    for rounds in (9, 1, 2):
        proposal = queue.propose()
        assert proposal is not None
        place = tmp_path / "run" / run_folder.trial_folder(proposal.number)
        place.mkdir()
        rows = [{"round": r + 1, "seed": seed, "val_global_accuracy": 0.5} for r in range(rounds) for seed in (0, 1)]
        rounds_jsonl.append(place / run_folder.ROUNDS, rows)
        if proposal.number < 2:
            queue.finish(
                proposal.number, Ending("completed" if rounds == 9 else "error", rounds, None, {rounds: (0.5,)})
            )
    queue.close()
    return tmp_path / "run"


def asked(folder: Path, **changes: object) -> list[int]:
    made = experiment(folder, trials=4, **changes)
    queue = TrialQueue(folder, made, space())
    found = damaged(folder, made, queue.trials())
    assert queue.damaged() == found
    queue.close()
    return found


@pytest.mark.parametrize("how", DAMAGES)
def test_each_kind_of_damage_is_found(folder: Path, how: str) -> None:
    assert asked(folder) == []
    for number in (1, 2):
        damage(folder / run_folder.trial_folder(number) / run_folder.ROUNDS, how)
    assert asked(folder) == [1], "one that has not ended looks after itself"
    assert asked(folder, taken=2) == []


def other_digit(folder: Path, number: int, metric: str = "val_global_accuracy", line: int = 0) -> None:
    """A digit of the metric in a row is another one; the line is JSON as before."""
    path = folder / run_folder.trial_folder(number) / run_folder.ROUNDS
    lines = path.read_text().splitlines(keepends=True)
    row = json.loads(lines[line])
    lines[line] = json.dumps({**row, metric: row[metric] + 0.001}) + "\n"
    path.write_text("".join(lines))


SEVERAL = ("val_global_accuracy", "bytes_up")


@pytest.mark.parametrize(
    ("metrics", "changed"), [(("val_global_accuracy",), 0), (SEVERAL, 0), (SEVERAL, 1)], ids=["one", "first", "second"]
)
def test_another_number_is_damage_where_the_study_knows_it(
    conduct: Callable[..., Result],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    metrics: tuple[str, ...],
    changed: int,
) -> None:
    conduct("run", trials=3, scheduler="none", sampler="random", rounds=4, metric=metrics, concurrency=1)
    before = frozen(tmp_path / "run")
    other_digit(tmp_path / "run", 1, metrics[changed])
    assert frozen(tmp_path / "run") != before
    capsys.readouterr()
    assert resume(tmp_path / "run", plain=True, simulate=Fake).finished
    said = capsys.readouterr().err
    assert "Trial 1 starts again from round 0, as its rounds.jsonl has other numbers in round 1 than the study" in said
    assert said.count("starts again") == 1 and frozen(tmp_path / "run") == before


def test_a_metric_that_selects_nothing_is_compared_in_its_last_round(tmp_path: Path) -> None:
    played(tmp_path / "run", trials=3, scheduler="none", sampler="random", rounds=4)
    made = experiment(tmp_path / "run", trials=3, scheduler="none", sampler="random", rounds=4)
    trials = StudyFile(tmp_path / "run").trials()
    for number, metric, line in ((0, "bytes_up", 0), (0, "seconds", -1), (1, "bytes_up", -1)):
        other_digit(tmp_path / "run", number, metric, line)
    assert damaged(tmp_path / "run", made, trials) == [1]


def test_the_values_of_several_metrics_are_recorded_with_every_round(tmp_path: Path) -> None:
    """A driver that is killed leaves them to be compared with the rows of a trial that had not ended."""
    made = start(tmp_path / "run", trials=1, metric=SEVERAL)
    for round_ in (1, 2):
        queue = TrialQueue(tmp_path / "run", made, space())
        assert queue.propose() is not None
        for value in (0.25, 0.75):  # a round keeps the first one that it was reported with
            queue.report(0, round_, (value * round_, 3.0))
        queue.close()
    queue = TrialQueue(tmp_path / "run", made, space())
    assert curve(queue.trials()[0]) == {1: (0.25, 3.0), 2: (0.5, 3.0)}
    queue.close()


def test_of_several_metrics_time_is_not_compared() -> None:
    rows = [{"round": 1, "seed": 0, "val_global_accuracy": 0.5, "seconds": 1.0}]
    names = ("val_global_accuracy", "seconds")
    check_curve(rows, names, {1: (0.5, 2.0)}, "rounds.jsonl")
    with pytest.raises(rounds_jsonl.Damaged, match="other numbers in round 1"):
        check_curve(rows, names, {1: (0.25, 1.0)}, "rounds.jsonl")


def test_rows_that_went_on_elsewhere_are_not_compared(folder: Path) -> None:
    rows = folder / run_folder.trial_folder(1) / run_folder.ROUNDS
    other_digit(folder, 1)
    assert asked(folder) == [1]
    (folder / run_folder.PROVENANCE).write_text(json.dumps({"continued": [{"versions": {"torch": "1.0"}}]}))
    assert asked(folder) == []
    rows.unlink()
    assert asked(folder) == [1], "other damage is"


def test_rows_of_other_seeds_are_damage(folder: Path) -> None:
    assert asked(folder, seeds=(0, 2)) == [0, 1]


def test_one_whose_process_dies_once_more_stays_what_it_was(folder: Path) -> None:
    made = experiment(folder, trials=4)
    queue = TrialQueue(folder, made, space())
    before = queue.trials()[1]
    queue.again(1, (2.0, 0.0))
    proposal = queue.propose()
    assert proposal is not None and (proposal.number, proposal.share) == (1, None)
    queue.finish(1, Ending("error", 1, "another ending"))
    assert queue.trials()[1] == before
    queue.close()
