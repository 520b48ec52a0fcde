"""A run goes on with other code than it began with: a method's own file that changed is refused, another revision of a
checkout is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis import machines
from analysis.runs import load_run
from fedtune.options import SearchRequest
from fedtune.planning.plan import plan
from fedtune.planning.resumption import check_unchanged
from fedtune.record import provenance, run_directory
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.toy import write_toy
from trainables import own_code

METHOD = """\
import dataclasses
from trainables.methods import fedavg

METHOD = dataclasses.replace(fedavg.METHOD, name="mine", title="Mine")
"""


def loaded_again() -> None:
    """As a new process would load the methods."""
    own_code.forget()


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "mine.py"
    path.write_text(METHOD)
    monkeypatch.setenv("FEDTUNE_METHODS", str(path))
    loaded_again()
    yield path
    monkeypatch.undo()
    loaded_again()


def begun(folder: Path, method: str) -> Path:
    data = write_toy(folder)
    request = SearchRequest(method, dataset=str(data), name=folder / "runs" / "run", set=("clients=3", "omega=1"))
    made = plan(request)
    facts = provenance.provenance(**made.facts)
    run_directory.create(made.folder, made.experiment, made.space, facts)
    return made.folder


def checked(folder: Path, **options: bool) -> list[str]:
    from fedtune.planning.resumption import complete
    from fedtune.record.experiment import Experiment

    run = load_run(folder)
    return check_unchanged(run, *complete(folder, Experiment.of(run)), **options)


def recorded(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / run_folder.PROVENANCE).read_text())
    return found


def test_a_method_of_ones_own_that_was_changed_is_refused_or_accepted(tmp_path: Path, mine: Path) -> None:
    folder = begun(tmp_path, "mine")
    assert checked(folder) == [] and provenance.went_on(folder) is None
    mine.write_text(METHOD + "# another comment\n")
    with pytest.raises(UserError, match=r"^mine.py must be as it was when .* began .*--other-versions") as told:
        checked(folder)
    assert len(told.value.problems) == 1
    assert checked(folder, other_versions=True) == []
    said = provenance.went_on(folder)
    assert said is not None and "goes on with mine.py" in said and "may give other numbers" in said
    assert checked(folder) == [], "accepted once, and recorded"
    mine.write_text(METHOD)
    assert checked(folder) == [], "what it began with"


def test_a_method_of_the_package_has_no_file_of_its_own(tmp_path: Path, mine: Path) -> None:
    folder = begun(tmp_path, "fedavg")
    assert "method_file" not in recorded(folder)
    mine.write_text(METHOD + "# another comment\n")
    assert checked(folder) == [] and provenance.went_on(folder) is None


def test_another_revision_is_told_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "git_revision", lambda: "1" * 40)
    folder = begun(tmp_path, "fedavg")
    assert provenance.went_on(folder) is None
    monkeypatch.setattr(provenance, "git_revision", lambda: "2" * 40 + "+changes")
    assert checked(folder) == []
    assert provenance.went_on(folder) == (
        "This run was begun with fedtune's revision 1111111111 and goes on with fedtune's revision 2222222222+changes, "
        "where the same seed may give other numbers: its numbers may differ from those of an uninterrupted run."
    )
    assert provenance.went_on(folder) is not None and len(recorded(folder)["continued"]) == 1  # type: ignore[arg-type]
    [said] = machines.side_by_side({"run": recorded(folder)})
    assert "fedtune's revision 1111111111, fedtune's revision 2222222222+changes" in said or "in parts" in said
    monkeypatch.setattr(provenance, "git_revision", lambda: None)
    assert provenance.went_on(folder) is None, "what was not recorded is not compared"
