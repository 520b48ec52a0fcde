"""What clients keep, in files beside the checkpoint: what is written, read after a kill, and refused."""

from __future__ import annotations

import gc
import math
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from search_spaces import leftovers, run_folder
from tests.contracts.test_methods import light, untimed, values_for
from tests.trainables.jobs import complete, job_of, untimed_rows
from trainables.simulated_trial import SimulatedTrial
from trainables.simulation import checkpoint, client_files, rounds
from trainables.simulation.client_files import ClientFiles, Key
from trainables.simulation.replicates import Replicates
from trainables.worker import trial_folder
from trainables.worker.rounds_jsonl import Damaged
from trainables.worker.trial_folder import TrialFolder

CPU = torch.device("cpu")


def states(*clients: int, value: float = 0.0) -> dict[Key, Any]:
    return {(0, "client_states", c): {"w": torch.full((8,), value + c)} for c in clients}


def names(folder: Path) -> list[str]:
    return [path.name for path in run_folder.states(folder)]


def test_a_file_holds_what_has_changed(tmp_path: Path) -> None:
    """A file of which half or less is needed is given up, and what is needed of it stands in the new one."""
    files, now = ClientFiles(), states(*range(6))
    assert files.save(tmp_path, now)[0]["files"] == {"states-1": 6 * 32}
    files.save(tmp_path, now)  # nothing has changed
    assert names(tmp_path) == ["states-1"]
    now |= states(0, 1, value=10.0)
    listed, _ = files.save(tmp_path, now)
    assert listed["files"] == {"states-1": 6 * 32, "states-2": 2 * 32}
    assert checkpoint.load(tmp_path / "states-2").keys() == states(0, 1).keys()
    now |= states(2, value=20.0)
    listed, _ = files.save(tmp_path, now)
    assert listed["files"] == {"states-2": 2 * 32, "states-3": 4 * 32}  # 3, 4 and 5 of the first file, and 2
    again = ClientFiles()
    found = again.load(tmp_path, listed, CPU)
    assert list(found) == list(now) and all(torch.equal(found[key]["w"], now[key]["w"]) for key in now)
    again.holds(found)
    assert again.save(tmp_path, found)[0] == listed and len(names(tmp_path)) == 3
    assert ClientFiles().save(tmp_path, now)[0]["files"] == {"states-4": 6 * 32}, "files of others stay as they are"


def test_there_are_never_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_files, "MOST", 4)
    files, now = ClientFiles(), states(*range(12))
    for client in range(12):
        now |= states(client, value=100.0)
        listed, _ = files.save(tmp_path, now)
        assert len(listed["files"]) <= 4
        found = client_files.read(tmp_path, listed)
        assert all(torch.equal(found[key]["w"], now[key]["w"]) for key in now)


def test_what_an_ended_trial_leaves_is_one_file_of_what_is_kept(tmp_path: Path) -> None:
    files, now = ClientFiles(), states(*range(6))
    files.save(tmp_path, now)
    now |= states(0, 1, value=10.0)
    assert len(files.save(tmp_path, now)[0]["files"]) == 2
    listed, _ = files.save(tmp_path, now, merged=True)
    assert listed["files"] == {"states-3": 6 * 32}
    assert checkpoint.load(tmp_path / "states-3").keys() == now.keys()
    found = client_files.read(tmp_path, listed)
    assert list(found) == list(now) and all(torch.equal(found[key]["w"], now[key]["w"]) for key in now)
    assert files.save(tmp_path, now, merged=True)[0] == listed and len(names(tmp_path)) == 3, "it is one already"
    now |= states(5, value=20.0)  # of the one file more than half is needed, and not all
    assert files.save(tmp_path, now, merged=True)[0]["files"] == {"states-4": 6 * 32}
    assert ClientFiles().save(tmp_path, {}, merged=True)[0] == {"files": {}, "clients": []}


def test_a_list_that_names_another_file_is_refused(tmp_path: Path) -> None:
    listed, _ = ClientFiles().save(tmp_path, states(0))
    with pytest.raises(ValueError, match="a trial has no file"):
        client_files.read(tmp_path, {**listed, "files": {"../states-1": 32}})


def made(toy: Path) -> Replicates:
    values = values_for("scaffold", toy, clients=4, active_clients=2, rounds=4)
    return Replicates("scaffold", values, (3, 4))


def kept(replicates: Replicates) -> list[tuple[Any, Any]]:
    return [(checkpoint.to_tree(s.progress.client_states), s.save()) for s in replicates.simulations]


class Killed(BaseException):
    """Ends a trial where a process would have been killed."""


@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize(("at", "mapped"), [("states", False), ("checkpoint", True), ("removal", False)])
def test_a_kill_at_any_moment_changes_nothing(
    at: str, mapped: bool, stays: bool, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed once the states of round 3 are written, once its checkpoint is, before what it needs no longer is removed:
    round 4 holds the same bits. Mapped, the states are read from the files, which never change. `stays`: round 3 was
    the last one, so that all states went into one file, and round 4 is run after an extension."""
    monkeypatch.setattr(trial_folder, "between_checkpoints", lambda cost: 0.0)
    monkeypatch.setattr(checkpoint, "MAPPED", 0 if mapped else math.inf)
    whole = made(toy)
    for _ in range(4):
        whole.step()

    def go_on(until: int) -> Replicates:
        folder, trial = TrialFolder(tmp_path / "trials" / "0000"), made(toy)
        try:
            folder.resume(trial, (3, 4))
            while trial.round < until:
                folder.append(trial.step())
                folder.save_checkpoint(trial, last=False, stays=stays and trial.round >= 3)
        finally:
            folder.close()
        return trial

    go_on(2)
    save, remove = checkpoint.save, run_folder.remove_states
    with monkeypatch.context() as patch:

        def killed(path: Path, tree: Any, **how: Any) -> None:
            save(path, tree, **how)
            if at == "states" or not run_folder.is_states(path.name):
                raise Killed

        def not_removed(folder: Path, needed: Any = ()) -> None:
            if "states-3" in needed:
                raise Killed
            remove(folder, needed)

        if at == "removal":
            patch.setattr(trial_folder, "remove_states", not_removed)
        else:
            patch.setattr(checkpoint, "save", killed)
        with pytest.raises(Killed):
            go_on(3)
    place = tmp_path / "trials" / "0000"
    assert "states-3" in names(place)
    gone_on = go_on(4)
    assert same(kept(gone_on), kept(whole))
    assert set(names(place)) == set(checkpoint.load(place / "checkpoint")["clients"]["files"])
    assert not stays or len(names(place)) == 1
    before = {name: (place / name).read_bytes() for name in names(place)}
    for s in gone_on.simulations:
        for tensor in s.progress.client_states[next(iter(s.progress.client_states))].control.values():
            tensor.add_(1.0)
    assert before == {name: (place / name).read_bytes() for name in names(place)}


@pytest.mark.parametrize("extendable", [True, False])
def test_a_trial_that_may_go_on_leaves_one_file_and_goes_on_to_the_same_rounds(
    extendable: bool, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial of four rounds, and one of seven; then the first has three more."""
    monkeypatch.setattr(trial_folder, "between_checkpoints", lambda cost: 0.0)

    def ran(name: str, rounds: int) -> Path:
        values, folder = values_for("scaffold", toy, clients=8, active_clients=2, rounds=rounds), tmp_path / name
        complete(job_of(folder, "scaffold", values, (3,), "global_accuracy", extendable=extendable))
        return folder

    short, long = ran("short", 4), ran("long", 7)
    assert (len(names(short)) == len(names(long)) == 1) == extendable
    found = checkpoint.load(short / "checkpoint")["clients"]
    if extendable:
        held = checkpoint.load(short / names(short)[0])
        assert held.keys() == {tuple(place[:3]) for place in found["clients"]} and len(held) > 2
    ran("short", 7)
    rows = [untimed_rows(folder) for folder in (short, long)]
    assert rows[0] == rows[1] and len(rows[0]) == 7
    kept = [client_files.read(one, checkpoint.load(one / "checkpoint")["clients"]) for one in (short, long)]
    assert same(*kept)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other) and one.stride() == other.stride()
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_states_that_are_missing_or_damaged_start_the_trial_again(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, place = made(toy), tmp_path / "trials" / "0000"
    folder = TrialFolder(place)
    folder.append(trial.step())
    folder.save_checkpoint(trial, last=True)
    shutil.copytree(place, tmp_path / "before")
    for damage in (Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-100])):
        damage(place / "states-1")
        with pytest.raises(Damaged, match="its checkpoint is damaged"):
            folder.resume(made(toy), (3, 4))
        shutil.copy(tmp_path / "before" / "states-1", place)
    folder.start_over(Damaged("it is damaged"))
    assert names(place) == []
    folder.close()


def of_files() -> int:
    """KiB of this process's memory that are pages of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssFile:"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux maps checkpoints")
def test_what_is_paged_out_takes_no_memory_and_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "MAPPED", 0)
    written = {"w": torch.arange(8 << 20, dtype=torch.float32), "b": torch.ones(3)}  # 32 MiB
    checkpoint.save(tmp_path / "states-1", written, durable=True)  # what is not on the disk yet cannot be given back
    found = checkpoint.load(tmp_path / "states-1")
    before = of_files()
    found["w"].sum()
    read = of_files()
    found["w"][5] = -1.0  # never reaches the file, and must not be lost
    checkpoint.page_out(found | {"in memory": torch.ones(100_000)})
    assert read - before > 30 << 10 and read - of_files() > 30 << 10
    written["w"][5] = -1.0
    assert torch.equal(found["w"], written["w"]) and torch.equal(found["b"], written["b"])


def test_a_state_that_a_client_has_replaced_is_paged_out(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were read back from a file, and they are not held any longer."""
    monkeypatch.setattr(checkpoint, "MAPPED", 0)
    paged: list[Any] = []
    monkeypatch.setattr(rounds, "page_out", paged.append)
    trial = made(toy)
    trial.step()
    assert not paged, "nothing was read back yet"
    trial.save(tmp_path / "checkpoint")
    before = [dict(s.progress.client_states) for s in trial.simulations]
    assert [s.read_back for s in trial.simulations] == before and all(map(len, before))
    while not paged:
        trial.step()
    replaced = [
        checkpoint.to_tree(held)
        for s, were in zip(trial.simulations, before, strict=True)
        for client, held in were.items()
        if s.progress.client_states[client] is not held
    ]
    assert same(paged, replaced)
    for s in trial.simulations:
        assert all(s.progress.client_states[client] is held for client, held in s.read_back.items())


def test_a_checkpoint_of_another_version_or_of_other_seeds_is_refused(toy: Path, tmp_path: Path) -> None:
    trial = Replicates("fedavg", values_for("fedavg", toy), (3,))
    trial.save(tmp_path / "now")
    for version in (1, 2, 3, 99):
        checkpoint.save(tmp_path / "other", checkpoint.load(tmp_path / "now") | {"version": version})
        with pytest.raises(ValueError, match=f"has version {version} and this fedtune reads version 4"):
            trial.load(tmp_path / "other")
    with pytest.raises(ValueError, match=r"of the seeds \(3,\)"):
        Replicates("fedavg", values_for("fedavg", toy), (4,)).load(tmp_path / "now")


def temporary(folder: Path) -> list[str]:
    """What the files in a folder are to become that have temporary names."""
    return sorted(name for path in folder.iterdir() if (name := leftovers.becomes(path.name)) is not None)


def places_of_files() -> list[tuple[int, int]]:
    """Where this process has mapped files of what clients keep: begin and end."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    places = [line.split()[0].split("-") for line in lines if run_folder.STATES in line]
    return [(int(begin, 16), int(end, 16)) for begin, end in places]


def lies_in(tensor: torch.Tensor, places: list[tuple[int, int]]) -> bool:
    return any(begin <= tensor.data_ptr() < end for begin, end in places)


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux maps checkpoints")


def keep(files: ClientFiles, now: dict[Key, Any], client: int, value: float = 0.0) -> list[int]:
    """Which clients' states move out as this client keeps something new."""
    now.update(states(client, value=value))
    if not files.overflow(now[0, "client_states", client]):
        return []
    found = files.move_out(now)
    places = places_of_files()
    assert all(torch.equal(found[key]["w"], now[key]["w"]) and lies_in(found[key]["w"], places) for key in found)
    now.update(found)
    files.holds(found)
    return [client for _, _, client in found]


@on_linux
def test_what_is_too_much_for_the_memory_goes_into_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: of 100 bytes the fourth state of 32 is too much. The files have temporary names until a checkpoint lists
    them; what none lists and nobody needs is removed with the next one, and the rest with their owner."""
    monkeypatch.setattr(client_files, "IN_MEMORY", 100)
    files, now = ClientFiles(), dict[Key, Any]()
    assert [keep(files, now, client) for client in range(5)] == [[], [], [], [], []], "no folder is known"
    files, now = ClientFiles(), {}
    files.keep_in(tmp_path)
    assert [keep(files, now, client) for client in range(5)] == [[], [], [], [0, 1, 2, 3], []]
    assert (temporary(tmp_path), names(tmp_path)) == (["states-1"], [])
    # Of one client again and again no more than one state is in memory.
    assert [keep(files, now, 4, value) for value in (10.0, 20.0, 30.0, 40.0, 50.0)] == [[]] * 5
    assert [keep(files, now, client, 60.0) for client in range(4)] == [[], [], [0, 1, 2, 4], []]
    assert (temporary(tmp_path), names(tmp_path)) == (["states-1", "states-2"], [])
    listed, _ = files.save(tmp_path, now)
    assert listed["files"] == {"states-2": 4 * 32, "states-3": 32}
    assert (temporary(tmp_path), names(tmp_path)) == ([], ["states-2", "states-3"])
    found = client_files.read(tmp_path, listed)
    assert list(found) == list(now) and all(torch.equal(found[key]["w"], now[key]["w"]) for key in now)
    for value in (70.0, 80.0, 90.0):
        for client in range(5):
            keep(files, now, client, value)
    assert (temporary(tmp_path), names(tmp_path)) == (["states-6", "states-7"], ["states-2", "states-3"])
    run_folder.remove_states(tmp_path, ["states-2", "states-3"])
    assert len(temporary(tmp_path)) == 2, "their process lives"
    del files
    gc.collect()
    assert (temporary(tmp_path), names(tmp_path)) == ([], ["states-2", "states-3"])
    assert all(float(now[0, "client_states", client]["w"][0]) == 90.0 + client for client in range(5))


@on_linux
def test_saved_states_in_memory_are_mapped_from_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a checkpoint too short to be mapped, also once it was read by another process, are not written again."""
    monkeypatch.setattr(client_files, "IN_MEMORY", 100)
    files, now = ClientFiles(), states(0, 1, 2)
    files.keep_in(tmp_path)
    listed, mapped = files.save(tmp_path, now)
    assert not mapped
    again = ClientFiles()
    again.keep_in(tmp_path)
    now = again.load(tmp_path, listed, CPU)
    again.holds(now)
    now |= states(3)
    assert again.overflow(now[0, "client_states", 3])
    found = again.move_out(now)
    places = places_of_files()
    assert [client for _, _, client in found] == [0, 1, 2, 3]
    assert all(lies_in(tree["w"], places) for tree in found.values())
    assert checkpoint.load(next(tmp_path.glob(".states-2.*"))).keys() == states(3).keys()
    # Where a checkpoint holds too much for the memory, it is mapped when it is read.
    files.save(tmp_path, now := states(*range(5)))
    listed, _ = files.save(tmp_path, now)
    found = again.load(tmp_path, listed, CPU)
    places = places_of_files()
    assert len(found) == 5 and all(lies_in(tree["w"], places) for tree in found.values())
    again.holds(found)
    assert not again.overflow(states(0)[0, "client_states", 0])


@on_linux
@pytest.mark.parametrize("name", ["scaffold", "fedphp", "dhf", "ditto"])
def test_states_that_move_out_in_the_midst_of_a_round_change_no_bit(
    name: str, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With room for one and a half states of the memory's, rows, states and clients' own models are those of a trial
    that keeps all in memory; also after a kill, which leaves files of temporary names, and a resumption."""
    monkeypatch.setattr(trial_folder, "between_checkpoints", lambda cost: 0.0)
    values = values_for(name, toy, clients=6, active_clients=4, rounds=4, **light(name))
    whole = Replicates(name, values, (3, 4))
    whole.keep_models()
    rows = [whole.step() for _ in range(4)]
    held = whole.simulations[0].of_clients().values()
    one = max(checkpoint.count_bytes(checkpoint.to_tree(tree)) for tree in held)
    monkeypatch.setattr(client_files, "IN_MEMORY", one * 3 // 2)
    most, moved = list[int](), list[int]()
    count, move_out = ClientFiles.overflow, ClientFiles.move_out

    def counted(self: ClientFiles, held: Any) -> bool:
        found = count(self, held)
        if not found:
            most.append(sum(in_memory(s) for s in trial.simulations))
        return found

    def noted(self: ClientFiles, now: Any) -> Any:
        found = move_out(self, now)
        moved.append(len(found))
        return found

    def in_memory(s: Any) -> int:
        trees, places = [checkpoint.to_tree(tree) for tree in s.of_clients().values()], places_of_files()
        found = (t for tree in trees for t in checkpoint._tensors(tree) if not lies_in(t, places))
        return sum(map(checkpoint.count_bytes, found))

    monkeypatch.setattr(ClientFiles, "overflow", counted)
    monkeypatch.setattr(ClientFiles, "move_out", noted)
    place = tmp_path / "trials" / "0000"
    for until in (2, 3, 4):
        folder, trial = TrialFolder(place), Replicates(name, values, (3, 4))
        before = folder.resume(trial, (3, 4))
        trial.keep_models()
        assert temporary(place) == []
        while trial.round < until:
            new = trial.step()
            assert [untimed(row) for row in new] == [untimed(row) for row in rows[trial.round - 1]]
            folder.append(new)
            folder.save_checkpoint(trial, last=False)
        assert len(before) == 2 * (until - 1 if until > 2 else 0)
        folder.close()
        (place / leftovers.temporary_name("states-99")).write_bytes(b"of a process that was killed")
    assert len(moved) > 4 and sum(moved) > 8 and max(most) <= one * 3 // 2
    assert same(kept(trial), kept(whole))
    personal = [
        {seed: {c: p for c, (p, _) in of.items()} for seed, of in t.personal_models().items()} for t in (trial, whole)
    ]
    assert same(*personal)


@on_linux
def test_a_disk_that_is_full_in_the_midst_of_a_round_interrupts(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written until then under a temporary name is removed when the trial lets go of its folder."""
    monkeypatch.setattr(client_files, "IN_MEMORY", 0)
    true, written = torch.save, list[Path]()

    def full(tree: Any, to: Any) -> None:
        if not isinstance(to, Path):
            return true(tree, to)
        if len(written) == 2:
            raise RuntimeError("PytorchStreamWriter failed writing file")  # torch's way of saying it
        written.append(to)
        return true(tree, to)

    monkeypatch.setattr(torch, "save", full)
    values = values_for("scaffold", toy, clients=6, active_clients=4, rounds=4)
    job = job_of(tmp_path / "t", "scaffold", values, (3,), "global_accuracy")
    result = SimulatedTrial(job, False, lambda *asked: None).step()
    assert result["done"] and len(written) == 2
    ending = result["ending"]
    assert (ending.stop_reason, ending.round) == ("interrupted", 0) and "states-3 cannot be written" in ending.error
    assert temporary(tmp_path / "t") == [] and not any(path.exists() for path in written)
