"""Studies that are whole journals and hold what no search has written: refused in one sentence, soon and with little
memory."""

from __future__ import annotations

import errno
import json
import math
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import optuna
import pytest
import yaml

from analysis.runs import load_run
from fedtune.record.journal import NotWritten, StudyFile
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests import study_file
from tests.fedtune.conftest import space, start
from tests.study_file import Operation
from trainables.worker.rounds_jsonl import Damaged, first_rows


def changed(folder: Path, change: Callable[[Operation], object], *numbers: int) -> None:
    study_file.change(folder / run_folder.STUDY, change, *numbers)


def refused(folder: Path, says: str) -> None:
    """By whoever reads the run, and by whoever goes on with it."""
    for reads in (load_run, StudyFile):
        with pytest.raises(UserError, match=says) as told:
            reads(folder)
        assert len(told.value.problems) == 1 and run_folder.STUDY in str(told.value)


ATTRIBUTES = [
    *(("rounds", value) for value in ('"x"', "[1]", "null", "1e999", "NaN", "-1", "true", "2.5", "9" * 400)),
    *(("seed", value) for value in ('"x"', "null", "1.0")),
    *((name, '"1"') for name in ("seconds", "of", "place", "went_on", "confirms")),
    *(("share", value) for value in ("1", "[1]", '["a", "b"]', "[1e999, 0]", "null", "[1, 2, 3]")),
    *(("curve", value) for value in ("1", '"x"', '"[1]"', '"{\\"x\\": [1]}"', '"{\\"1\\": [1, 2]}"', '"{\\"1\\": 1}"')),
    *((name, "5") for name in ("error", "from", "stop_reason")),
    ("stop_reason", '"tired"'),
]


@pytest.mark.parametrize(("name", "value"), ATTRIBUTES)
def test_an_attribute_of_another_shape(copy: Path, name: str, value: str) -> None:
    changed(copy, lambda trial: trial["user_attrs"].update({name: json.loads(value)}), 2)
    refused(copy, f"{name} must be .*trial 2")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"value": "x"}, "values must be 1 finite number"),
        ({"value": math.inf}, "values must be 1 finite number"),
        ({"value": None}, "values must be 1 finite number"),
        ({"value": None, "values": [0.5, 0.5]}, "values must be 1 finite number"),
        ({"intermediate_values": {"1": "x"}}, "value of a round must"),
        ({"intermediate_values": {"-1": 0.5}}, "value of a round must"),
        ({"intermediate_values": {"x": 0.5}}, "be read"),
        ({"intermediate_values": [0.5]}, "be read"),
        ({"params": "x"}, "be read"),
        ({"user_attrs": [1]}, "user_attrs must be a mapping"),
        ({"user_attrs": "x"}, "user_attrs must be a mapping"),
        ({"system_attrs": None}, "system_attrs must be a mapping"),
        ({"state": 77}, "be read"),
        ({"datetime_start": "x"}, "be read"),
        ({"op_code": 77}, "be read"),
        ({"study_id": []}, "be read"),
    ],
)
def test_a_trial_of_another_shape(copy: Path, change: Operation, says: str) -> None:
    changed(copy, lambda trial: trial.update(change), 0)
    refused(copy, says)


@pytest.mark.parametrize("value", ["x", 9e999, None, [1]])
def test_a_parameter_of_another_shape(copy: Path, value: object) -> None:
    changed(copy, lambda trial: trial["params"].update(dict.fromkeys(trial["params"], value)), 0)
    refused(copy, "must be a value of its distribution|be read")


@pytest.mark.parametrize(
    "line",
    ["{", "1", "[]", '"x"', "null", "\x00", "[" * 10**5, '{"op_code": 4}', "9" * 5000, '{"op_code": 0, "x": 1e999}'],
)
@pytest.mark.parametrize("place", [0, 3, -1])
def test_a_line_that_is_no_operation(copy: Path, line: str, place: int) -> None:
    path = copy / run_folder.STUDY
    lines = path.read_text().splitlines()
    lines[place] = line
    path.write_text("\n".join(lines) + "\n")
    refused(copy, "is not a line of a study|cannot be read as an Optuna study")


@pytest.mark.parametrize(("op", "more"), [(8, {"user_attr": {"rounds": "x"}}), (6, {"state": 3, "values": None})])
def test_what_is_said_of_a_trial_that_is_not_there_is_nobodys(copy: Path, op: int, more: Operation) -> None:
    """Nor of the one that comes next; and a trial that has ended stays as it is."""
    path = copy / run_folder.STUDY
    before = [(trial.state, trial.user_attrs) for trial in load_run(copy).frozen]
    for trial in (0, len(before), 10**12, -1, "x"):
        line = {"op_code": op, "worker_id": "x", "trial_id": trial, "datetime_complete": "2026-01-01T00:00:00", **more}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
    assert [(trial.state, trial.user_attrs) for trial in load_run(copy).frozen] == before
    StudyFile(copy).add(optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING))
    *_, added = load_run(copy).frozen
    assert added.number == len(before) and added.user_attrs == {}


def test_a_study_whose_best_trial_would_be_the_worst(copy: Path) -> None:
    path = copy / run_folder.STUDY
    first, *rest = study_file.operations(path)
    study_file.rewrite(path, [first | {"directions": [1]}, *rest])
    with pytest.raises(UserError, match="direction of val_global_accuracy must be maximize, got 'minimize'"):
        load_run(copy)


def test_a_study_with_fewer_objectives_than_metrics(copy: Path) -> None:
    path = copy / run_folder.EXPERIMENT
    changes = {"metric": ["val_global_accuracy", "bytes_up"]}
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))
    with pytest.raises(UserError, match="number of objectives must be 2, got 1"):
        load_run(copy)


@pytest.mark.parametrize("more", [["another"], []])
def test_several_studies_in_one_file_or_none(copy: Path, more: list[str]) -> None:
    path = copy / run_folder.STUDY
    first, *rest = study_file.operations(path)
    gone = {"op_code": 1, "worker_id": "x", "study_id": 0}
    study_file.rewrite(path, [first, *rest, *([first | {"study_name": name} for name in more] or [gone])])
    refused(copy, f"must hold one study, got {2 * len(more)}")


def test_what_the_disk_refuses_to_write_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a line may be in the file then: the next one takes its place."""
    start(tmp_path / "run", trials=4)
    study, trial = StudyFile(tmp_path / "run"), optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING)
    write = os.write

    def full(file: int, content: bytes) -> int:
        if len(content) > 20:
            return write(file, content[:20])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    study.add(trial)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(NotWritten, match=r"cannot be written: No space left on device\. Free some space") as told:
            study.add(trial)
    assert len(told.value.problems) == 1 and "\n" not in str(told.value)
    assert len(study.trials()) == len(StudyFile(tmp_path / "run").trials()) == 1
    study.add(trial)
    assert [one.number for one in StudyFile(tmp_path / "run").trials()] == [0, 1]


def test_rounds_without_end_are_not_counted_out(tmp_path: Path) -> None:
    path = tmp_path / run_folder.ROUNDS
    path.write_text("{}\n")
    tracemalloc.start()
    try:
        with pytest.raises(Damaged, match="lacks rows"):
            first_rows(path, 10**12, (0, 1))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("generation", [-1, 0.5, "0", True])
def test_a_generation_that_no_sampler_has_counted(tmp_path: Path, generation: object) -> None:
    """NSGA-II would look for the parents of it among all trials."""
    start(tmp_path / "run", sampler="nsga2", trials=4)
    params = dict.fromkeys(space().search, 0.5)
    kinds = {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in params}
    system = {"NSGAIISampler:generation": generation}
    one = optuna.trial.create_trial(value=0.5, params=params, distributions=kinds, system_attrs=system)
    StudyFile(tmp_path / "run").add(one)
    with pytest.raises(UserError, match=r"generation must be a whole number of at least 0, got .*trial 0"):
        StudyFile(tmp_path / "run")
