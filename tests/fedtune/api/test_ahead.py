"""A trial that has not ended and is ahead: what is said of it, and what `fedtune export` and `fedtune run` take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fedtune
from analysis.report import build
from analysis.runs import Run, load_run
from fedtune.api.search import result_of
from fedtune.commands import _output, _status_output
from fedtune.execution.driver import Outcome
from fedtune.planning.configuration import trial_of
from search_spaces import run_folder
from tests.fedtune.played import begin, play
from tests.fedtune.queues import opened, take
from trainables.worker import rounds_jsonl


def going_on(folder: Path, ended: int, *curves: list[float], **changes: Any) -> Run:
    """A search of which so many trials have ended, after eight rounds, and others have these curves."""
    asked = {"sampler": "random", "scheduler": "none", "trials": ended + len(curves), "rounds": 8, **changes}
    made = begin(folder, **asked).experiment
    if ended:
        play(folder, most=ended)
    queue = opened(folder, made)
    for number, curve in enumerate(curves, start=ended):
        proposal = take(queue)
        assert proposal.number == number
        place = folder / run_folder.trial_folder(number)
        place.mkdir(exist_ok=True)
        (place / run_folder.CONFIG).write_text(json.dumps({**made.values, **proposal.values}))
        for round_, value in enumerate(curve, start=1):
            rows = [{"round": round_, "seed": seed, made.metric[0]: value} for seed in proposal.seeds]
            rounds_jsonl.append(place / run_folder.ROUNDS, rows)
            queue.report(number, round_, (value,))
    return load_run(folder)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Six trials that ended with at most 1, and one that has 2 after three rounds."""
    return going_on(tmp_path_factory.mktemp("ahead") / "run", 6, [1.5, 1.8, 2.0])


def test_status_and_result_say_it_beside_the_best(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    found = fedtune.status(run.path)
    assert found["best"]["trial"] < 6 and found["best"]["estimate"]["trial"] == found["best"]["trial"]
    ahead = found["ahead"]
    assert (ahead["trial"], ahead["round"], ahead["rounds"], ahead["values"]) == (6, 3, 8, {run.metrics[0]: 2.0})
    assert ahead["estimate"]["trial"] == 6 and ahead["params"] == run.parameters(6)
    _status_output.status(run, found, as_json=False)
    result = result_of(run.path, Outcome(finished=False, out_of_time=True))
    assert result.best is not None and result.ahead is not None
    assert (result.best.number, result.ahead.number) == (found["best"]["trial"], 6)
    assert result.to_json()["ahead"]["values"] == {run.metrics[0]: 2.0}
    _output.result(result, as_json=False)
    said = capsys.readouterr().out
    assert said.count("Trial 6, which has not ended, is ahead: ") == 2


def test_export_and_run_take_it_and_another_one_where_asked(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = fedtune.export(run.path, tmp_path / "best.yaml")
    assert (found["provenance"]["trial"], found["provenance"]["round"]) == (6, 3)
    assert found["estimate"]["trial"] == 6 and found["metric"] == {run.metrics[0]: 2.0}
    assert {key: found["parameters"][key] for key in run.keys} == run.parameters(6)
    assert run.best is not None
    ended = fedtune.export(run.path, trial=run.best)["provenance"]
    assert ended["trial"] == run.best and "round" not in ended
    assert trial_of(run, None) == 6, "which `fedtune run` trains"
    _output.exported(found, "best.yaml", as_json=False)
    assert " 200.00 % in round 3, as it has not run to its end, alpha=" in " ".join(capsys.readouterr().out.split())


def test_the_report_says_it(run: Run, tmp_path: Path) -> None:
    html = build(run.path, tmp_path / "report.html").read_text()
    assert "Trial 6, which has not ended, is ahead: " in html
    none_ended = going_on(tmp_path / "run", 0, [0.5, 0.6], [0.5, 0.7])
    html = build(none_ended.path, tmp_path / "report.html").read_text()
    assert "There is no result yet" in html and "Trial 1, which has not ended, is ahead: 70" in html


def test_what_is_not_ahead(tmp_path: Path) -> None:
    assert going_on(tmp_path / "poor", 3, [0.1, 0.1, 0.1]).ahead is None
    assert going_on(tmp_path / "short", 3, [2.0]).ahead is None
    required = going_on(tmp_path / "required", 3, [2.0, 2.0], require=("val_wlp>=0.1",))
    assert required.ahead is None, "whether it keeps that at its end is not known"
    assert fedtune.status(tmp_path / "poor")["ahead"] is None


def test_before_two_have_ended_there_is_no_estimate_of_it(tmp_path: Path) -> None:
    second = going_on(tmp_path / "run", 1, [1.5, 2.0], seeds=(0,))
    assert (second.best, second.ahead, second.ahead_estimate) == (0, 1, None)
    assert fedtune.export(second.path)["provenance"]["round"] == 2
    found = result_of(second.path, Outcome(finished=False, interrupted=True))
    assert found.best is not None and found.ahead is not None and found.ahead.estimate is None
