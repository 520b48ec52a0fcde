"""A prepared run directory does not choose the machine on which it goes on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from analysis.runs.mappings import read_yaml
from fedtune.api.extend import extend
from fedtune.api.resume import resume
from fedtune.machine import cluster
from fedtune.planning import resumption
from fedtune.record import provenance, run_directory
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.fedtune.conftest import experiment, space
from tests.security import prepared
from tests.unchanged import unchanged

RECORDED, GIVEN = "203.0.113.7:6379", "10.0.0.2:6379"


def plain(folder: Path) -> Path:
    made = experiment(folder, address=RECORDED, sampler="random", scheduler="none")
    run_directory.create(folder, made, space(), provenance.provenance())
    return folder


#: How the folder is prepared, and the command that goes on with it.
KINDS: dict[str, tuple[Callable[[Path], Path], Callable[[Path, str | None], object]]] = {
    "resume": (plain, lambda folder, address: resume(folder, address=address, plain=True)),
    "extend": (plain, lambda folder, address: extend(folder, trials=1, address=address, plain=True)),
    "auto": (
        lambda folder: prepared.several(folder, address=RECORDED),
        lambda folder, address: resume(folder, address=address, plain=True),
    ),
    "auto's fresh seeds": (
        lambda folder: prepared.several(folder, address=RECORDED, searched=True),
        lambda folder, address: resume(folder, address=address, plain=True),
    ),
}


@pytest.mark.parametrize("given", [None, GIVEN])
@pytest.mark.parametrize("kind", KINDS)
def test_an_address_comes_from_the_command_line_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str, given: str | None
) -> None:
    prepare, go_on = KINDS[kind]
    folder = prepare(tmp_path / "run")
    checked: list[str | None] = []
    for module in (resumption, cluster):
        monkeypatch.setattr(module, "check_address", checked.append)  # nobody answers there
    joined = prepared.stop_before_ray(monkeypatch)
    with contextlib.suppress(prepared.Stopped):
        go_on(folder, given)
    assert joined == [given] and set(checked) == {given}
    said = f"was begun on the Ray cluster at '{RECORDED}' and goes on on this machine" in capsys.readouterr().err
    assert said == (given is None)
    records = {path: read_yaml(path)["address"] for path in folder.rglob(run_folder.EXPERIMENT)}
    begun = records.pop(folder / "fresh" / "fedavg" / run_folder.EXPERIMENT, given)
    assert begun == given and set(records.values()) == {RECORDED}, "a record says where its run began"


def test_a_cell_of_a_reproduction_names_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`reproduce` has no --address: it runs on this machine."""
    folder = prepared.table(monkeypatch, tmp_path)
    for record in folder.rglob(run_folder.EXPERIMENT):
        run_directory.write_document(record, read_yaml(record) | {"address": RECORDED})
    joined = prepared.stop_before_ray(monkeypatch)
    with pytest.raises(prepared.Stopped):
        prepared.again(folder)
    assert joined == [None]
    err = capsys.readouterr().err
    assert err.count(f"This run was begun on the Ray cluster at '{RECORDED}' and goes on on this machine.") == 1
    assert "Give --address" not in err


@pytest.mark.parametrize("kind", ["resume", "extend", "auto"])
def test_where_nobody_answers_nothing_is_written(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests of this process may share a Ray, and where there is one no address is looked at.
    monkeypatch.setattr(cluster, "_is_joined", lambda: False)
    prepare, go_on = KINDS[kind]
    folder = prepare(tmp_path / "run")
    with unchanged(folder), pytest.raises(UserError, match=r"No Ray cluster answers at '127\.0\.0\.1:1'") as told:
        go_on(folder, "127.0.0.1:1")
    assert len(told.value.problems) == 1


def test_what_this_machine_has_not_is_told_before_it_goes_on(tmp_path: Path) -> None:
    folder = prepared.several(tmp_path / "run", address=RECORDED, gpus_per_trial=64.0)
    with (
        unchanged(folder),
        pytest.raises(UserError, match=r"gpus of a trial must be at most .* Give --address to join a cluster"),
    ):
        resume(folder)
