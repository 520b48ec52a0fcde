"""What `fedtune extend` may add to a search, what it refuses, and what it says."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from analysis.runs import Run, load_run
from fedtune.api.extend import changes, longer, told
from fedtune.cli import main
from fedtune.decisions.history import Part
from fedtune.execution.outcome import drop_checkpoint, may_go_on
from fedtune.options import ExtendRequest
from fedtune.planning.resumption import space_of
from fedtune.record.experiment import Experiment
from fedtune.record.run_directory import write_document
from search_spaces import leftovers, run_folder
from search_spaces.dimension import Dimension
from search_spaces.errors import UserError
from search_spaces.parameter import Parameter
from search_spaces.space import Space
from tests import study_file
from tests.fedtune.conftest import start
from tests.fedtune.played import searched
from tests.unchanged import unchanged


def edited(folder: Path, **changes: Any) -> Run:
    """The run with another request. Made a race by a budget, its trials have a seed of their own, as in one."""
    made = dataclasses.replace(Experiment.read(folder), **changes)
    write_document(folder / run_folder.EXPERIMENT, made.to_yaml())
    if made.budget is not None:
        study_file.change(folder / run_folder.STUDY, lambda trial: trial["user_attrs"].update(seed=0))
    return load_run(folder)


def asked(run: Run, **more: Any) -> Experiment:
    return longer(run, space_of(run.path / run_folder.SPACE), ExtendRequest(run.path, **more))


def refusal(run: Run, **more: Any) -> str:
    with pytest.raises(UserError) as found:
        asked(run, **more)
    return str(found.value)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Of a method that has the parameters of the fake."""
    return searched(tmp_path / "run", method="dfrd", trials=2, rounds=4)


def test_rounds_and_trials_are_added(run: Run) -> None:
    before = Experiment.of(run)
    rounds, trials, both = asked(run, rounds=2), asked(run, trials=3), asked(run, rounds=2, trials=3)
    assert (rounds.rounds, rounds.values["rounds"], rounds.rounds_before, rounds.trials) == (6, 6, (4,), 2)
    assert (trials.rounds, trials.values["rounds"], trials.rounds_before, trials.trials) == (4, 4, (), 5)
    assert (both.rounds, both.values["rounds"], both.rounds_before, both.trials) == (6, 6, (4,), 5)
    again = edited(run.path, rounds=6, rounds_before=(4,), values={**before.values, "rounds": 6})
    assert asked(again, rounds=10).rounds_before == (4, 6)


def test_what_changed_is_from_so_many_to_so_many(run: Run) -> None:
    before = Experiment.of(run)
    assert changes(before, asked(run, rounds=2)) == {"rounds": (4, 6)}
    assert changes(before, asked(run, rounds=1, trials=3)) == {"trials": (2, 5), "rounds": (4, 5)}


def test_rounds_of_a_grid_are_added_and_its_trials_are_not(tmp_path: Path) -> None:
    grid = searched(tmp_path / "grid", sampler="grid", trials=6, rounds=4)
    assert asked(grid, rounds=2).rounds == 6
    assert refusal(grid, trials=1) == (
        f"{grid.path} is a grid search, and its grid is complete with 6 trials. Start a new search of a finer grid."
    )
    assert "finer grid" in refusal(grid, trials=1, rounds=2)


def test_nothing_to_add_is_refused(run: Run) -> None:
    assert refusal(run) == (
        f"Nothing was asked for. Say how many trials (--trials) or rounds (--rounds) are to be added to {run.path}."
    )


@pytest.mark.parametrize(
    ("rounds", "bounds"),
    [(0, " in [1, 99996]"), (-1, " in [1, 99996]"), (99_997, " in [1, 99996]"), (True, ""), (2.5, "")],
)
def test_rounds_are_a_whole_number_that_fits(run: Run, rounds: Any, bounds: str) -> None:
    assert refusal(run, rounds=rounds) == f"rounds must be a whole number{bounds}, got {rounds!r} (--rounds)."


def test_all_problems_are_told_together(run: Run) -> None:
    said = refusal(run, rounds=0, trials=0)
    assert "(--rounds)" in said and "(--trials)" in said


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        ({"budget": 60}, "it is a race, and its budget was shared out among federations of 4 rounds"),
        ({"taken": 1}, "results of earlier runs were taken for 1 trial, and no checkpoint is here for them"),
        ({"values": {"attack_images": 2}}, "the attack (attack_images) was made in round 4, the last one (trial 0)"),
        ({"values": {"eval_every": 3}}, "round 4 was measured only because it was the last one (eval_every 3)"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, dict) else "",
)
def test_what_hangs_on_the_planned_rounds_is_refused(run: Run, edits: dict[str, Any], why: str) -> None:
    values = {"rounds": 4, **edits.get("values", {})}
    said = refusal(edited(run.path, **edits | {"values": values}), rounds=2)
    assert said.startswith(f"{run.path} cannot have more than its 4 rounds, as {why}"), said
    assert said.endswith("Start a new search with --rounds 6.") and "\n" not in said


@pytest.mark.parametrize("values", [{"eval_every": 2}, {"target": 0.5, "attack_images": 0}], ids=str)
def test_what_does_not_hang_on_them_is_not(run: Run, values: dict[str, Any]) -> None:
    assert asked(edited(run.path, values={"rounds": 4, **values}), rounds=2).rounds == 6


def test_a_method_that_plans_over_all_rounds_is_refused(tmp_path: Path) -> None:
    power = Parameter("ramp_power", "real", 2.0, "", low=0.0, high=10.0)
    where = Space("power", "fedmdcg", {"ramp_power": Dimension(power, 0.0, 2.0, grid=(0.0, 2.0))})
    run = searched(tmp_path / "run", where=where, sampler="grid", trials=2, rounds=4, values={"alpha": 0.5})
    run = edited(run.path, method="fedmdcg", values={"rounds": 4})
    assert refusal(run, rounds=2) == (
        f"{run.path} cannot have more than its 4 rounds, as FedMD-CG follows a schedule over all planned rounds, and "
        f"its first 4 would be others (trial 1). Start a new search with --rounds 6."
    )


def test_a_search_that_has_not_begun_can_have_any_rounds(tmp_path: Path) -> None:
    start(tmp_path / "run", method="fedphp", rounds=4, values={"eval_every": 3})
    assert asked(load_run(tmp_path / "run"), rounds=2).rounds == 6


def test_a_final_run_and_a_cell_of_a_reproduction_are_refused(tmp_path: Path) -> None:
    cell = searched(tmp_path / "made" / run_folder.CELLS / "cell", trials=1, rounds=2)
    (tmp_path / "made" / run_folder.REPRODUCTION).touch()
    assert "it belongs to what `fedtune reproduce` made, which decides its rounds" in refusal(cell, rounds=2)
    final = edited(cell.path, kind="run")
    assert refusal(final, rounds=2).startswith(f"{cell.path} is a final run; only a search can be extended.")


def test_it_says_what_goes_on_and_what_stays(run: Run) -> None:
    before = Experiment.of(run)
    trials = searched(run.path.parent / "stopped", scheduler="asha", grace=1, trials=12, rounds=4).frozen
    states = [trial.state.name for trial in trials]
    whole, stopped = states.count("COMPLETE"), states.count("PRUNED")
    assert whole > 1 and stopped > 1
    assert told(before, asked(run, rounds=2, trials=1), trials) == [
        "The search of 2 trials gets 1 more, which makes 3.",
        f"Trials of 4 rounds get 2 more, which makes 6: {whole} trials that had run to their end go on from their "
        "checkpoints; "
        f"{stopped} trials that early stopping ended stay stopped.",
    ]
    learns = dataclasses.replace(before, sampler="tpe")
    assert told(learns, dataclasses.replace(learns, rounds=6), trials[:1])[1] == (
        "What was proposed and stopped so far was decided by trials of 4 rounds, and stays. A new search with --rounds "
        "6 may choose other configurations."
    )
    assert told(before, asked(run, rounds=2), []) == ["Trials of 4 rounds get 2 more, which makes 6."]


def test_the_command_ends_with_one_sentence_and_writes_nothing(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, said in (([], "Nothing was asked for."), (["--rounds", "0"], "rounds must be a whole number")):
        monkeypatch.setattr(sys, "argv", ["fedtune", "extend", str(run.path), *words])
        with unchanged(run.path), pytest.raises(SystemExit) as ended:
            main()
        error = capsys.readouterr().err.strip()
        assert ended.value.code == 2 and said in error and len(error.splitlines()) <= 3


def test_a_fifth_of_a_search_that_is_extended_confirms(tmp_path: Path) -> None:
    """Of one that began with a confirmation; of a race a fifth of its rounds."""
    run = searched(tmp_path / "run", trials=10, confirm=2, seeds=(0,), sampler="random", scheduler="none", rounds=4)
    longer = asked(run, trials=10)
    assert (longer.trials, longer.confirm, asked(run, trials=4).confirm) == (20, 4, 2)
    assert told(Experiment.of(run), longer, run.frozen)[1] == (
        "Its confirmation stays, and the last of the new trials confirm again."
    )
    raced = edited(run.path, budget=80, confirm=4)
    assert (asked(raced, trials=5).budget, asked(raced, trials=5).confirm) == (120, 6)
    assert asked(edited(run.path, budget=80, confirm=0), trials=5).confirm == 0


@pytest.mark.parametrize(
    ("edits", "kept"),
    [
        ({}, ["COMPLETE"]),
        ({"kind": "run"}, []),
        ({"budget": 60}, []),
        ({"taken": 1}, []),
        ({"part": True}, []),
        ({"values": {"attack_images": 2}}, []),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, dict) else "",
)
def test_a_checkpoint_stays_where_a_trial_may_go_on(tmp_path: Path, edits: dict[str, Any], kept: list[str]) -> None:
    """What this file refuses, and nothing else, has run its last round."""
    run = searched(tmp_path / "run", method="dfrd", scheduler="asha", grace=1, trials=12, rounds=4)
    values = {"rounds": 4, **edits.get("values", {})}
    part = Part(
        run.path,
        dataclasses.replace(Experiment.of(run), **edits | {"values": values}),
        space_of(run.path / run_folder.SPACE),
    )
    places = {trial.number: run.path / run_folder.trial_folder(trial.number) for trial in run.frozen}
    for trial in run.frozen:
        (places[trial.number] / run_folder.CHECKPOINT).touch()
        (places[trial.number] / "states-7").touch()
        (places[trial.number] / leftovers.temporary_name("states-8")).touch()
        drop_checkpoint(part, trial)
        drop_checkpoint(part, trial)
        assert may_go_on(part, {**part.experiment.values, **part.space.values(trial.params)}) == bool(kept)
    states = {trial.number: trial.state.name for trial in run.frozen}
    assert set(states.values()) == {"COMPLETE", "PRUNED"}
    there = [number for number, place in places.items() if not run_folder.has_ended(place)]
    assert there == [number for number, state in states.items() if state in kept]
    assert there == [number for number, place in places.items() if run_folder.states(place)]
    assert there == [number for number, place in places.items() if any(map(leftovers.becomes, os.listdir(place)))]
