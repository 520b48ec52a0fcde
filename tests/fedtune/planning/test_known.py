"""What a search takes from earlier runs: results where they hold, else points; nothing that is damaged or elsewhere."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.runs import load_run
from fedtune.decisions.optuna_samplers import STARTUP
from fedtune.planning.warm_start import POINTS, opened
from search_spaces import run_folder
from search_spaces.dimension import Dimension
from search_spaces.parameter import Parameter
from search_spaces.space import Space
from tests.fedtune.conftest import space
from tests.fedtune.played import FACTS, begin, play, searched

PAPER = {"alpha": 0.5, "lambda": 0.5}
OURS = {"alpha", "lambda"}


def narrow(low: float, high: float) -> Space:
    """The usual space with less of alpha."""
    usual = space()
    alpha = dataclasses.replace(usual.search["alpha"], low=low, high=high, grid=None)
    return dataclasses.replace(usual, search={**usual.search, "alpha": alpha})


def points(made: Any) -> list[dict[str, Any]]:
    return [dict(item["values"]) for item in made.experiment.first]


def test_results_are_taken_where_all_agrees(tmp_path: Path) -> None:
    old = searched(tmp_path / "old")
    made = begin(tmp_path / "new", old, trials=5)
    assert points(made)[:6] == [old.parameters(n) for n in range(6)], "the paper's values were trial 0 there"
    assert [item["from"] for item in made.experiment.first] == [f"old trial {n}" for n in range(6)]
    assert (made.experiment.taken, made.experiment.to_run, made.experiment.trials) == (6, 5, 11)
    assert made.notes[0] == "old: 6 of 6 complete trials in this space; the results of 6 are taken and not run again."
    assert made.facts["taken"][0]["trials"] == list(range(6)) and made.facts["taken"][0]["git"] == "abc"
    code = r"(fedtune's revision \w+(\+changes)?, )?"  # of a checkout
    said = rf"computed with {code}torch 2.0 and this search runs with {code}torch"
    assert any(re.search(said, note) for note in made.notes)
    assert not any("paper's values" in note for note in made.notes), "they are not run again"


@pytest.mark.parametrize(
    ("changes", "facts", "told"),
    [
        ({"rounds": 8}, FACTS, "rounds"),
        ({"seeds": (0,)}, FACTS, "seeds"),
        ({"seeds": (0, 2)}, FACTS, "seeds"),
        ({"metric": ("val_wlp",)}, FACTS, "metric"),
        ({"metric": ("val_global_accuracy", "val_wlp")}, FACTS, "metric"),
        ({"values": {"lr": 0.1}}, FACTS, "lr"),
        ({}, {**FACTS, "dataset": {"name": "toy", "hash": "d2"}}, "data set"),
        ({}, {**FACTS, "partition": {"0": "p2"}}, "partition"),
    ],
)
def test_where_something_differs_only_points_are_taken(
    tmp_path: Path, changes: dict[str, Any], facts: dict[str, Any], told: str
) -> None:
    old = searched(tmp_path / "old")
    made = begin(tmp_path / "new", old, facts=facts, **changes)
    assert made.experiment.taken == 0 and not made.taken and made.experiment.trials == 12
    # Fake's quality is known in closed form: best is who is nearest to alpha 0.3 and lambda 0.7.
    ranked = sorted(
        (old.parameters(n) for n in range(1, 6)),
        key=lambda p: (p["alpha"] - 0.3) ** 2 / 4 + (p["lambda"] - 0.7) ** 2,
    )
    assert points(made) == [PAPER, *ranked[:3]]
    assert made.notes[-1] == (
        "old: 6 of 6 complete trials in this space; the best 3 are run first. Results are not taken, as the runs "
        f"differ in {told}."
    )


@pytest.mark.parametrize(("theirs", "ours", "taken"), [("every", "end", 6), ("end", "every", 0), ("end", "end", 6)])
def test_what_every_round_measured_on_the_test_set_stands_for_the_last(
    tmp_path: Path, theirs: str, ours: str, taken: int
) -> None:
    old = searched(tmp_path / "old", values={"eval_test": theirs})
    made = begin(tmp_path / "new", old, trials=5, values={"eval_test": ours})
    assert made.experiment.taken == taken
    assert any("eval_test" in note for note in made.notes) == (not taken)


def test_the_data_sets_path_does_not_count(tmp_path: Path) -> None:
    old = searched(tmp_path / "old", values={"dataset": "/a/toy.npz"})
    assert begin(tmp_path / "new", old, values={"dataset": "/b/toy.npz"}).experiment.taken == 6


def test_the_number_of_points_does_not_depend_on_the_budget(tmp_path: Path) -> None:
    old = searched(tmp_path / "old")
    few, many = (begin(tmp_path / str(n), old, rounds=8, trials=n) for n in (2, 200))
    assert few.experiment.first == many.experiment.first and len(few.experiment.first) == 1 + POINTS
    assert POINTS <= STARTUP // 2, "chance keeps half of the trials before a sampler starts"


def test_points_outside_the_space_are_left_out_and_counted(tmp_path: Path) -> None:
    old = searched(tmp_path / "old", trials=12)
    some = sorted(n for n in range(12) if 0.8 <= old.parameters(n)["alpha"] <= 1.6)
    assert 0 < len(some) < 12
    made = begin(tmp_path / "new", old, where=narrow(0.8, 1.6))
    assert points(made)[: made.experiment.taken] == [old.parameters(n) for n in some]
    assert f"old: {len(some)} of 12 complete trials in this space" in made.notes[0]
    made = begin(tmp_path / "none", old, where=narrow(0.0, 1e-6))
    assert made.notes == ("old: 0 of 12 complete trials in this space, so nothing is taken.",)
    assert made.experiment.first == ()


def test_other_parameters_are_left_out(tmp_path: Path) -> None:
    old = searched(tmp_path / "old")
    usual = space()
    beta = Dimension(Parameter("beta", "real", 0.5, "", low=0.0, high=1.0), 0.0, 1.0)
    made = begin(tmp_path / "new", old, where=dataclasses.replace(usual, search={**usual.search, "beta": beta}))
    assert points(made) == [PAPER | {"beta": 0.5}] and "0 of 6" in made.notes[-1]


def test_only_complete_trials_count(tmp_path: Path) -> None:
    old = searched(tmp_path / "old", scheduler="asha", trials=14)
    complete = [t.number for t in old.frozen if t.state.name == "COMPLETE"]
    assert 0 < len(complete) < 14
    made = begin(tmp_path / "new", old)
    assert points(made)[: len(complete)] == [old.parameters(n) for n in complete]
    assert f"{len(complete)} of {len(complete)} complete trials" in made.notes[0]


def test_of_several_runs_the_best_come_in_turn(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    runs = [searched(tmp_path / side / "old", seed=seed) for seed, side in enumerate("ab")]
    made = begin(tmp_path / "new", *runs, rounds=8)
    ranked = [[run.parameters(n) for n in run.ranked if run.parameters(n) != PAPER] for run in runs]
    assert points(made) == [PAPER, ranked[0][0], ranked[1][0], ranked[0][1]]
    assert [item["from"].split(" trial")[0] for item in made.experiment.first[1:]] == ["a/old", "b/old", "a/old"]
    told = [note.partition("; ")[2].partition(".")[0] for note in made.notes[1:]]
    assert told == ["the best 2 are run first", "the best one is run first"]
    many = [searched(tmp_path / f"more-{seed}", seed=seed, trials=3) for seed in range(2, 6)]
    first = begin(tmp_path / "all", *many, rounds=8).experiment.first[1:]
    assert [item["from"].split(" trial")[0] for item in first] == [f"more-{seed}" for seed in range(2, 6)]


def test_results_and_points_of_different_runs(tmp_path: Path) -> None:
    same, other = searched(tmp_path / "same"), searched(tmp_path / "other", rounds=8)
    made = begin(tmp_path / "new", other, same)
    assert made.experiment.taken == 6 and points(made) == [same.parameters(n) for n in range(6)]
    assert made.notes[-1].startswith("other: 6 of 6 complete trials in this space; the best are among the first trials")


def test_a_taken_result_keeps_its_first_origin(tmp_path: Path) -> None:
    old = searched(tmp_path / "old")
    begin(tmp_path / "middle", old, trials=1, sampler="random", scheduler="none")
    made = begin(tmp_path / "new", play(tmp_path / "middle"))
    assert [item["from"] for item in made.experiment.first][1:] == [f"old trial {n}" for n in range(1, 6)] + [
        "middle trial 6"
    ]


def test_a_grid_is_not_run_where_it_is_known(tmp_path: Path) -> None:
    coarse = dataclasses.replace(
        space(), search={**space().search, "alpha": dataclasses.replace(space().search["alpha"], grid=(0.0, 2.0))}
    )
    old = searched(tmp_path / "old", where=coarse, sampler="grid", trials=4)
    made = begin(tmp_path / "new", old, sampler="grid", scheduler="none", trials=6)
    assert (made.experiment.taken, made.experiment.trials) == (4, 6)
    run = play(tmp_path / "new")
    assert [run.parameters(n) for n in range(6)] == [
        *({"alpha": a, "lambda": b} for a in (0.0, 2.0) for b in (0.0, 0.5)),
        *({"alpha": 1.0, "lambda": b} for b in (0.0, 0.5)),
    ]
    elsewhere = searched(tmp_path / "random", seed=3)
    assert begin(tmp_path / "apart", elsewhere, sampler="grid", scheduler="none", trials=6).experiment.taken == 0


def lines(change: Callable[[list[dict[str, Any]]], Any]) -> Callable[[Path], None]:
    """An edit of the rows of a trial."""

    def edit(folder: Path) -> None:
        path = folder / run_folder.ROUNDS
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        change(rows)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    return edit


def partition(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        path = folder / run_folder.PARTITION
        data = json.loads(path.read_text())
        change(data)
        path.write_text(json.dumps(data))

    return edit


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "no rows": lambda folder: (folder / run_folder.ROUNDS).unlink(),
    "not text": lambda folder: (folder / run_folder.ROUNDS).write_bytes(b"\xff\xfe\n"),
    "not JSON": lambda folder: (folder / run_folder.ROUNDS).write_text("{\n"),
    "deep": lambda folder: (folder / run_folder.ROUNDS).write_text("[" * 100_000 + "\n"),
    "a list": lambda folder: (folder / run_folder.ROUNDS).write_text("[1]\n"),
    "a round missing": lines(lambda rows: rows.pop(3)),
    "a round too many": lines(lambda rows: rows.append({**rows[-1], "round": 10})),
    "another seed": lines(lambda rows: rows.append({**rows[-1], "seed": 5})),
    "a flag for a round": lines(lambda rows: rows[0].update(round=True)),
    "no seed": lines(lambda rows: rows[0].pop("seed")),
    "an unknown measurement": lines(lambda rows: rows[0].update(trial=3)),
    "a text": lines(lambda rows: rows[0].update(wlp="<script>")),
    "infinity": lines(lambda rows: rows[0].update(wlp=float("inf"))),
    "a huge number": lines(lambda rows: rows[0].update(bytes_up=10**400)),
    "a list for a number": lines(lambda rows: rows[0].update(wlp=[1])),
    "a text in a list": lines(lambda rows: rows[0].update(client_accuracy=["x"])),
    "diverged": lines(lambda rows: rows[0].update(train_loss=None)),
    "another value than the study": lines(lambda rows: rows[-1].update(val_global_accuracy=0.999)),
    "no partition": lambda folder: (folder / run_folder.PARTITION).unlink(),
    "no hash": partition(lambda data: data.pop("hash")),
    "no counts": partition(lambda data: data.pop("1")),
    "negative counts": partition(lambda data: data.update({"1": [[-1, 2]]})),
    "uneven counts": partition(lambda data: data.update({"1": [[1, 2], [3]]})),
    "texts for counts": partition(lambda data: data.update({"1": "12"})),
}


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("earlier") / "old"
    searched(folder, trials=2)
    return folder


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_damaged_is_left_out_and_told(old: Path, tmp_path: Path, damage: str) -> None:
    shutil.copytree(old, tmp_path / "old")
    DAMAGE[damage](tmp_path / "old" / run_folder.trial_folder(1))
    made = begin(tmp_path / "new", load_run(tmp_path / "old"))
    assert made.experiment.taken == 1 and points(made) == [PAPER]
    assert "old: 1 of these trials has damaged or incomplete files, so no result is taken there." in made.notes


def test_a_line_that_was_written_twice_counts_once(old: Path, tmp_path: Path) -> None:
    shutil.copytree(old, tmp_path / "old")
    lines(lambda rows: rows.insert(0, rows[0]))(tmp_path / "old" / run_folder.trial_folder(1))
    made = begin(tmp_path / "new", load_run(tmp_path / "old"))
    assert made.experiment.taken == 2 and len(made.taken[1].rows) == 18


def test_a_run_that_has_nothing_to_give_is_refused(old: Path, tmp_path: Path) -> None:
    final = searched(tmp_path / "final", seeds=tuple(range(100)))
    text = (final.path / run_folder.EXPERIMENT).read_text().replace("kind: search", "kind: run")
    (final.path / run_folder.EXPERIMENT).write_text(text)
    for method, keys, path, words in (
        ("dfrd", OURS, old, "searches the method 'fedavg' and this search is of 'dfrd', so nothing can be taken"),
        ("fedavg", {"beta"}, old, "searches alpha, lambda and this search beta, so nothing can be taken"),
        ("fedavg", OURS, final.path, "is a final run and searches nothing"),
        ("fedavg", OURS, tmp_path / "nowhere", "There is no run"),
    ):
        problems: list[str] = []
        assert opened((str(path),), method, keys, problems) == []
        assert len(problems) == 1 and words in problems[0] and "--warm-start" in problems[0]
    assert len(opened((str(old), str(old)), "fedavg", OURS, [])) == 1, "the same run twice is one run"
