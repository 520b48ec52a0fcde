"""What readers make of a race: its winner over all its seeds, its record, and a search that begins with it."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import pytest

from analysis import curve_table
from analysis.estimate import configuration
from analysis.figures import curves, heatmap, history, slices
from analysis.report.page import Page
from analysis.report.sections import best_card
from analysis.report.summary import facts
from analysis.report.trials import trials as trials_table
from analysis.runs import Run
from fedtune.api.export import export
from fedtune.api.search import Best
from fedtune.api.status import status
from fedtune.record.experiment import search_seeds
from tests.fedtune.played import begin, play, searched

ROUNDS = 4
#: Further seeds pay where a seed does something to one configuration alone.
NOISY = {"own_noise": 0.2}


def raced(folder: Path, sessions: int = 1, **changes: object) -> Run:
    given: dict[str, object] = {"budget": 18 * ROUNDS, "seeds": search_seeds(0, 5), "rounds": ROUNDS}
    given |= {"scheduler": "none", "values": NOISY}
    begin(folder, **given | {"sampler": "random", **changes})
    return play(folder, width=2, sessions=sessions)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return raced(tmp_path_factory.mktemp("race") / "raced")


def test_the_winner_stands_for_all_its_seeds(run: Run) -> None:
    assert run.raced and run.best is not None
    numbers = run.federations(run.best)
    params = run.parameters(run.best)
    assert numbers == [t.number for t in run.frozen if t.params == params] and len(numbers) > 1
    rows = {n: json.loads((run.path / f"trials/{n:04d}/rounds.jsonl").read_text().splitlines()[-1]) for n in numbers}
    assert run.over_seeds("global_accuracy") == {row["seed"]: row["global_accuracy"] for row in rows.values()}
    found = Best.of(run, run.best)
    assert found.values == {
        "val_global_accuracy": pytest.approx(statistics.fmean(row["val_global_accuracy"] for row in rows.values()))
    }
    assert found.metrics["wlp"] == pytest.approx(statistics.fmean(row["wlp"] for row in rows.values()))
    assert found.estimate is not None and found.estimate.seeds == len(numbers)


def test_figures_compare_configurations_as_if_all_had_run_on_the_same_seeds(run: Run) -> None:
    """Against least squares with a column for every configuration and every seed. The winner's curve is that of all its
    seeds."""
    done = [t for t in run.frozen if t.state.name == "COMPLETE"]
    keys = list(dict.fromkeys(configuration(t) for t in done))
    seeds = sorted({t.user_attrs["seed"] for t in done})
    columns = np.array(
        [[float(configuration(t) == k) for k in keys] + [float(t.user_attrs["seed"] == s) for s in seeds] for t in done]
    )
    values = np.array([t.values[0] for t in done])
    fitted = np.linalg.lstsq(columns, values, rcond=None)[0]
    shared = float((columns[:, len(keys) :] @ fitted[len(keys) :]).mean())
    first = {key: next(t.number for t in done if configuration(t) == key) for key in keys}
    expected = {first[key]: pytest.approx(fitted[i] + shared) for i, key in enumerate(keys)}
    assert len(seeds) > 2 and len(done) > len(keys)
    assert run.levelled[run.metrics[0]].to_dict() == expected
    drawn = slices.data([run]).table
    assert drawn.drop_duplicates("number").set_index("number")["value"].to_dict() == expected
    assert heatmap.data([run]).table.query("state == 'COMPLETE'")["trial"].nunique() == len(keys)
    assert "A dot is a configuration" in heatmap.data([run]).note
    assert history.data([run])["number"].tolist() == sorted(expected)
    chosen = curves.data([run]).table.query("best and metric == 'global_accuracy'").set_index("round")["mean"]
    assert chosen[ROUNDS] == pytest.approx(statistics.fmean(run.over_seeds("global_accuracy").values()))


def test_the_export_names_the_seeds_and_the_partition_of_each(run: Run) -> None:
    data = export(run.path)
    assert run.best is not None
    seeds = [run.frozen[n].user_attrs["seed"] for n in run.federations(run.best)]
    assert data["provenance"]["seeds"] == seeds == list(range(len(seeds)))
    assert list(data["provenance"]["partition"]) == [str(seed) for seed in seeds]
    assert run.estimate is not None and data["estimate"]["tied_trials"] == list(run.estimate.tied)


def test_the_estimate_knows_which_trial_has_the_papers_values(run: Run) -> None:
    paper = [t.number for t in run.frozen if t.user_attrs.get("from") == "the paper's values"]
    assert run.estimate is not None and [run.estimate.paper] == paper[:1]


def test_the_status_says_what_was_spent(run: Run, tmp_path: Path) -> None:
    found = status(run.path)
    assert found["state"] == "finished" and found["seed_rounds"] == {"spent": 18 * ROUNDS, "budget": 18 * ROUNDS}
    assert status(searched(tmp_path / "no_race").path)["seed_rounds"] is None
    begin(tmp_path / "begun", budget=18 * ROUNDS, rounds=ROUNDS)
    assert status(tmp_path / "begun")["state"] == "resumable"


def test_the_report_names_trials_and_seeds(run: Run) -> None:
    from analysis.labels import Labels

    labels = Labels.of([run])
    assert run.best is not None
    numbers = [str(n) for n in sorted(run.federations(run.best))]
    named = f"trials {', '.join(numbers[:-1])} and {numbers[-1]}"
    page = Page("title")
    best_card(page, run, labels, "")
    html = page.html()
    assert f"Best configuration: {named}" in html
    assert f"over {len(numbers)} seeds" in html
    text = facts(run, labels)
    groups: dict[str, int] = {}
    for t in run.frozen:
        groups[str(t.params)] = groups.get(str(t.params), 0) + 1
    several = f"{min(groups.values())} to {max(groups.values())}"
    assert f"Seeds per configuration</dt><dd>{several}<small>a race; {len(groups)} configurations" in text
    assert f"{18 * ROUNDS} of {18 * ROUNDS} rounds run in all" in text
    table = trials_table(run)
    of = {row["trial"]: row for row in table.rows}
    further = run.frozen[int(numbers[-1])]
    assert of[further.number]["seed"] == further.user_attrs["seed"]
    assert of[further.number]["origin"] == f"trial {further.user_attrs['of']}, a further seed"


def test_the_table_of_curves_has_a_row_per_configuration(run: Run, tmp_path: Path) -> None:
    export(run.path, table=tmp_path / "curves.npz")
    table = curve_table.load(tmp_path / "curves.npz")
    assert len(table.configurations) == len({tuple(t.params.items()) for t in run.frozen})
    assert table.seeds == tuple(sorted({t.user_attrs["seed"] for t in run.frozen}))
    there = np.isfinite(table.validation[:, :, -1])
    assert there.sum() == len(run.frozen) and there[:, 0].all()


def test_a_search_takes_the_first_seeds_of_a_race(run: Run, tmp_path: Path) -> None:
    made = begin(tmp_path / "warm", run, rounds=ROUNDS, seeds=(0,), trials=3, values=NOISY)
    first = [t for t in run.frozen if "of" not in t.user_attrs]
    assert made.experiment.taken == len(first) and made.experiment.trials == len(first) + 3
    warm = play(tmp_path / "warm")
    assert [t.values for t in warm.frozen[: len(first)]] == [t.values for t in first]


@pytest.mark.parametrize("seeds", [(0, 1), (7,)])
def test_a_search_of_other_seeds_takes_points_only(run: Run, tmp_path: Path, seeds: tuple[int, ...]) -> None:
    made = begin(tmp_path / "warm", run, rounds=ROUNDS, seeds=seeds, values=NOISY)
    assert made.experiment.taken == 0 and "differ in seeds" in made.notes[-1]


def test_a_race_takes_results_and_gives_them_further_seeds(tmp_path: Path) -> None:
    old = searched(tmp_path / "old", rounds=ROUNDS, seeds=(0,), values=NOISY)
    budget = 12 * ROUNDS
    changes: dict[str, object] = {"budget": budget, "sampler": "random", "values": NOISY}
    made = begin(tmp_path / "race", old, rounds=ROUNDS, seeds=search_seeds(0, 5), **changes)
    assert made.experiment.taken == 6
    run = play(tmp_path / "race", sessions=2)
    assert [t.values for t in run.frozen[:6]] == [t.values for t in old.frozen]
    assert all(t.user_attrs["seed"] == 0 and "of" not in t.user_attrs for t in run.frozen[:6])
    own = [t for t in run.frozen if t.number >= 6]
    assert any(t.user_attrs.get("of", 6) < 6 for t in own), "a taken configuration has a further seed"
    assert budget - ROUNDS < sum(t.user_attrs["rounds"] for t in own) <= budget


def test_where_every_cell_of_a_grid_was_taken_the_budget_goes_to_further_seeds(tmp_path: Path) -> None:
    old = searched(tmp_path / "old", rounds=ROUNDS, seeds=(0,), sampler="grid")
    seeds, budget = search_seeds(0, 5), 3 * ROUNDS
    begin(tmp_path / "race", old, rounds=ROUNDS, seeds=seeds, budget=budget, sampler="grid", scheduler="none", trials=6)
    run = play(tmp_path / "race")
    assert len(run.frozen) == 9 and [t.values for t in run.frozen[:6]] == [t.values for t in old.frozen]
    assert all(t.user_attrs["seed"] > 0 and t.user_attrs["of"] < 6 for t in run.frozen[6:])


def test_a_search_with_a_confirmation_is_read_like_a_race(tmp_path: Path) -> None:
    """Its last trials are no configurations of their own, in figures, in the report and in what is exported."""
    given: dict[str, object] = {"budget": 0, "trials": 12, "confirm": 2, "seeds": search_seeds(0, 1)}
    run = raced(tmp_path / "confirmed", **given)
    assert [t.user_attrs.get("confirms", False) for t in run.frozen] == [False] * 10 + [True] * 2
    found = status(run.path)
    assert (found["state"], found["trials"], found["done"], found["seed_rounds"]) == ("finished", 12, 12, None)
    assert history.data([run])["number"].tolist() == list(range(10)) == list(run.levelled.index)
    assert "A dot is a configuration" in heatmap.data([run]).note
    first = run.frozen[10].user_attrs["of"]
    rows = {row["trial"]: row for row in trials_table(run).rows}
    assert (rows[10]["origin"], rows[10]["seed"]) == (f"trial {first}, confirmed on a further seed", 1)
    assert export(run.path, trial=first)["provenance"]["seeds"][:2] == [0, 1]
    from analysis.labels import Labels

    text = facts(run, Labels.of([run]))
    assert "Seeds per configuration</dt><dd>1 to " in text
    assert "<small>10 configurations ran to their end; 2 trials confirm the best" in text
    assert "a race" not in text
