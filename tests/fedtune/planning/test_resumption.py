"""A run goes on only where its data and the libraries are those it began with; else one sentence, nothing written."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from analysis import machines
from fedtune.cli import main
from fedtune.options import SearchRequest
from fedtune.planning.plan import plan
from fedtune.planning.resumption import check_unchanged
from fedtune.record import provenance, run_directory
from fedtune.record.experiment import Experiment
from fedtune.record.journal import StudyFile
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.fedtune.queues import opened, take
from tests.toy import write_toy
from tests.unchanged import unchanged
from trainables.worker import rounds_jsonl


class Begun:
    """A search on data of its own that was cut off in its first trial."""

    def __init__(self, folder: Path) -> None:
        self.data = write_toy(folder)
        request = SearchRequest(
            "fedavg", dataset=str(self.data), name=folder / "runs" / "run", set=("clients=3", "omega=1")
        )
        planned = plan(request)
        self.folder, self.experiment, self.space = planned.folder, planned.experiment, planned.space
        planned.create(self.folder)
        take(opened(self.folder, planned.experiment, planned.space))

    def record(self, change: Callable[[dict], object]) -> None:  # type: ignore[type-arg]
        path = self.folder / run_folder.PROVENANCE
        recorded = json.loads(path.read_text())
        change(recorded)
        path.write_text(json.dumps(recorded))

    def notes(self, **options: bool) -> list[str]:
        from analysis.runs import load_run

        return check_unchanged(load_run(self.folder), self.experiment, self.space, **options)


@pytest.fixture
def begun(tmp_path: Path) -> Begun:
    return Begun(tmp_path)


def gone(begun: Begun, patch: pytest.MonkeyPatch) -> None:
    begun.data.rename(begun.data.with_suffix(".away"))


def other_labels(begun: Begun, patch: pytest.MonkeyPatch) -> None:
    arrays = dict(np.load(begun.data))
    arrays["y_train"] = arrays["y_train"][::-1]
    np.savez(begun.data, **arrays)


def cache_not_writable(begun: Begun, patch: pytest.MonkeyPatch) -> None:
    patch.setenv("FEDTUNE_CACHE", str(begun.data / "cache"))  # below a file there can be no folder


def other_torch(begun: Begun, patch: pytest.MonkeyPatch) -> None:
    begun.record(lambda recorded: recorded["versions"].update(torch="1.0"))


def other_partition(begun: Begun, patch: pytest.MonkeyPatch) -> None:
    begun.record(lambda recorded: recorded["partition"].update({"0": "abc"}))


def option_gone(begun: Begun, patch: pytest.MonkeyPatch) -> None:
    path = begun.folder / run_folder.EXPERIMENT
    path.write_text(path.read_text() + "prior: 0.25\n")


def value_edited(begun: Begun, patch: pytest.MonkeyPatch) -> None:
    """Guards that values are checked as they are read: trials take them as they are recorded."""
    path = begun.folder / run_folder.EXPERIMENT
    text = path.read_text()
    assert "  omega: 1.0\n" in text
    path.write_text(text.replace("  omega: 1.0\n", "  omega: high\n"))


FAULTS = {
    value_edited: "omega must be a number in [0.001, 10000], got 'high'",
    option_gone: "was begun with --prior, which is gone",
    gone: "A data set of your own must be there, a folder of images",
    other_labels: "must be as it was when the run began",
    cache_not_writable: "The cache folder must be writable",
    other_torch: "was begun with torch 1.0, and here is torch",
    other_partition: "The partition of",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("words", [("resume",), ("extend", "--trials", "2")], ids=lambda words: words[0])
def test_a_fault_is_one_sentence_and_nothing_is_written(
    begun: Begun,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fault: Callable[[Begun, pytest.MonkeyPatch], None],
    words: tuple[str, ...],
) -> None:
    fault(begun, monkeypatch)
    monkeypatch.setattr(sys, "argv", ["fedtune", words[0], str(begun.folder), *words[1:]])
    with unchanged(begun.folder), pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    assert FAULTS[fault] in err and len(err.splitlines()) == 1
    assert [trial.state.name for trial in StudyFile(begun.folder).study.trials] == ["RUNNING"]


def test_what_is_unchanged_goes_on_silently(begun: Begun) -> None:
    assert begun.notes() == []


def test_other_versions_can_be_accepted(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    other_torch(begun, monkeypatch)
    assert begun.notes(other_versions=True) == []


def test_versions_that_were_accepted_once_are_accepted_again(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    other_torch(begun, monkeypatch)
    begun.record(lambda recorded: recorded.update(continued=[{"versions": provenance.versions()}]))
    assert begun.notes() == []


def test_another_revision_is_told_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "git_revision", lambda: "1" * 40)
    begun = Begun(tmp_path)
    assert provenance.went_on(begun.folder) is None
    monkeypatch.setattr(provenance, "git_revision", lambda: "2" * 40 + "+changes")
    assert begun.notes() == []
    assert provenance.went_on(begun.folder) == (
        "This run was begun with fedtune's revision 1111111111 and goes on with fedtune's revision 2222222222+changes, "
        "where the same seed may give other numbers: its numbers may differ from those of an uninterrupted run."
    )
    recorded = json.loads((begun.folder / run_folder.PROVENANCE).read_text())
    assert provenance.went_on(begun.folder) is not None and len(recorded["continued"]) == 1
    [said] = machines.side_by_side({"run": recorded})
    assert "fedtune's revision 1111111111, fedtune's revision 2222222222+changes" in said or "in parts" in said
    monkeypatch.setattr(provenance, "git_revision", lambda: None)
    assert provenance.went_on(begun.folder) is None, "what was not recorded is not compared"


def test_libraries_that_compute_nothing_may_change(begun: Begun) -> None:
    begun.record(lambda recorded: recorded["versions"].update(ray="1.0", python="3.0"))
    assert begun.notes() == []


def test_other_data_are_refused_whatever_versions_are_accepted(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    from search_spaces.errors import UserError

    other_labels(begun, monkeypatch)
    with pytest.raises(UserError, match="another content"):
        begun.notes(other_versions=True)


def test_what_was_not_recorded_is_said(begun: Begun) -> None:
    begun.record(lambda recorded: recorded.pop("dataset"))
    [note] = begun.notes()
    assert "does not say which data set the run was begun with" in note


def test_a_finished_run_needs_no_data(begun: Begun, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedtune.api.resume import resume
    from trainables.worker.job import Ending

    made = Experiment.from_yaml({**begun.experiment.to_yaml(), "trials": 1}, "")
    run_directory.write_document(begun.folder / run_folder.EXPERIMENT, made.to_yaml())
    queue = opened(begun.folder, made, begun.space)
    queue.finish(0, Ending("completed", 1, None, {1: (0.5,)}))
    rows = begun.folder / run_folder.trial_folder(0) / run_folder.ROUNDS
    rows.parent.mkdir(exist_ok=True)
    rounds_jsonl.append(rows, [{"round": 1, "seed": seed, made.metric[0]: 0.5} for seed in made.seeds])
    gone(begun, monkeypatch)
    assert resume(begun.folder, quiet=True).finished
    rows.unlink()  # then there is something to compute
    with pytest.raises(UserError, match="cannot go on"):
        resume(begun.folder, quiet=True)


@pytest.mark.parametrize("content", ["", "{", "[1]"])
def test_a_torn_record_is_refused(begun: Begun, content: str) -> None:
    """What the record does not say is not checked, so a torn one must not pass for one that says nothing."""
    (begun.folder / run_folder.PROVENANCE).write_text(content)
    with pytest.raises(UserError, match=run_folder.PROVENANCE):
        begun.notes()
