"""`fedtune.reproduce` on real Ray with a fake simulation: what it makes, takes, goes on with and refuses. Every run of
a figure of rebuilt images is attacked once, on the same images."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import fedtune
from analysis.reproduce import declaration
from analysis.runs import load_run
from fedtune.api import reproduce
from fedtune.api.reproduce import Reproduced
from fedtune.api.reproductions import reproductions
from fedtune.cli import app
from fedtune.commands._reproduce_output import result
from fedtune.options import ReproduceRequest
from fedtune.planning.plan import AMX, plan
from fedtune.planning.reproduction import command, plan_reproduction
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.fedtune.api.test_auto import interrupted_after
from tests.fedtune.fake import OfTable
from tests.fedtune.record.test_storage import files_of

#: DFRD's Table 1 has numbers of FedAvg; FedProx stands for any method without one.
MINE: dict[str, Any] = {
    "title": "Two methods",
    "source": "DFRD, Table 1",
    "published": "dfrd_tab1",
    "datasets": {"svhn": {}},
    "seeds": 3,
    "metrics": ["global_accuracy"],
    "columns": {"omega": [1, 0.1]},
    "rows": [{"row": "FedAvg", "method": "fedavg", "space": "omega"}, {"row": "FedProx", "method": "fedprox"}],
    "small": {"rounds": 3, "seeds": 5, "set": {"clients": 3, "min_samples": 2}},
    "seconds": 0.1,
    "claims": [
        {"says": "FedProx is ahead", "source": "p. 1", "ahead": "FedProx", "behind": "FedAvg"},
        {"says": "FedAvg is ahead", "source": "p. 1", "ahead": "FedAvg", "behind": "FedProx"},
    ],
}


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One declared reproduction, `mine`, and a folder for runs."""
    folder = tmp_path / "declared"
    folder.mkdir()
    (folder / "mine.yaml").write_text(yaml.safe_dump(MINE))
    monkeypatch.setattr(declaration, "FOLDER", folder)
    return tmp_path / "runs"


def call(runs: Path, **changes: Any) -> Reproduced:
    given: dict[str, Any] = {"small": True, "runs_dir": str(runs), "slots": 2, "quiet": True}
    return fedtune.reproduce("mine", **given | {"simulate": OfTable} | changes)


def measured(folder: Path) -> dict[str, list[float]]:
    """The last accuracy of every federation, by cell, read from the files alone."""
    found = {}
    for cell in sorted((folder / run_folder.CELLS).iterdir()):
        rows = [
            json.loads(line)
            for path in sorted(cell.glob(f"{run_folder.TRIALS}/*/{run_folder.ROUNDS}"))
            for line in path.read_text().splitlines()
        ]
        found[cell.name] = [row["global_accuracy"] for row in rows if row["round"] == 3]
    return found


@pytest.mark.guard("a whole table of a paper")
def test_it_makes_every_cell_and_decides(ray_cluster: None, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = call(mine)
    folder = mine / "mine-small"
    assert whole.finished and whole.folder == folder
    first = measured(folder)
    assert {name: len(values) for name, values in first.items()} == {
        "01-fedavg-omega-1": 5,
        "01-fedavg-omega-0.1": 5,
        "02-fedprox-omega-1": 5,
        "02-fedprox-omega-0.1": 5,
    }
    shares = {load_run(folder / run_folder.CELLS / name).experiment["values"]["validation_fraction"] for name in first}
    assert shares == {0.1}, "what was published is kept, where a search on these data takes more"
    # The fake gives FedProx more than FedAvg, in both columns and under every seed.
    assert [claim.told for claim in whole.claims] == [
        "agrees, on digits instead of svhn",
        "disagrees, on digits instead of svhn",
    ]
    assert json.loads(json.dumps(whole.to_json(), allow_nan=False))["claims"][0]["verdict"] == "agrees"
    lines = list(csv.DictReader((folder / run_folder.VERDICTS).open()))
    assert len(lines) == 4
    means = {name: sum(values) / 5 for name, values in first.items()}
    gap = means["02-fedprox-omega-1"] - means["01-fedavg-omega-1"]
    assert float(lines[0]["difference"]) == pytest.approx(gap)
    rows = folder / run_folder.CELLS / "02-fedprox-omega-1" / run_folder.trial_folder(1) / run_folder.ROUNDS
    lost = rows.read_text()
    rows.unlink()
    resumed = fedtune.resume(folder, quiet=True, simulate=OfTable)
    assert (
        isinstance(resumed, Reproduced)
        and resumed.finished
        and resumed.to_json()["claims"] == whole.to_json()["claims"]
    )
    assert [row["global_accuracy"] for row in map(json.loads, rows.read_text().splitlines())] == [
        row["global_accuracy"] for row in map(json.loads, lost.splitlines())
    ]
    with pytest.raises(UserError, match=r"by `fedtune reproduce` and goes on as it was begun\. Leave --time out"):
        fedtune.resume(folder, time="1h")
    _takes_what_is_there(mine, folder, monkeypatch)


def _takes_what_is_there(mine: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.glob("cells/*/trials/*/rounds.jsonl")}
    again = call(mine, simulate=None)  # nothing is simulated
    assert again.finished and len(before) == 20
    assert {path: path.stat().st_mtime_ns for path in before} == before
    for changes, said in (
        ({"rounds": 4}, "begun with 3 rounds, not 4: go on with `fedtune reproduce mine --small --rounds 3 --seeds 5"),
        ({"seeds": 2}, "begun with 5 seeds, not 2"),
    ):
        with pytest.raises(UserError, match="was begun") as caught:
            call(mine, **changes)
        assert len(caught.value.problems) == 1 and said in str(caught.value)
    with monkeypatch.context() as patch:
        changed = MINE | {"small": MINE["small"] | {"set": {"clients": 4, "min_samples": 2}}}
        (declaration.FOLDER / "mine.yaml").write_text(yaml.safe_dump(changed))
        with pytest.raises(UserError, match="was begun with clients 3, not 4"):
            call(mine)
        (declaration.FOLDER / "mine.yaml").write_text(yaml.safe_dump(MINE))
        patch.undo()


def test_parts_add_to_one_table(ray_cluster: None, mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second part leaves the first as it is, and what nobody asked for says that it has not been run."""
    first = call(mine, rows="fedavg", columns="omega=1", seeds=2)
    assert first.finished and first.made.missing == 3 and first.to_json()["not_run"] == 3
    assert first.command == f"fedtune reproduce mine --small --seeds 2 --runs-dir {mine}"
    assert [claim.told for claim in first.claims] == ["not run", "not run"]
    before = {path: path.stat().st_mtime_ns for path in first.folder.glob("cells/*/trials/*/rounds.jsonl")}
    resumed = fedtune.resume(first.folder, quiet=True)  # of what it began with, all of which has ended
    assert isinstance(resumed, Reproduced) and resumed.finished and resumed.made.missing == 3
    second = call(mine, rows=["FedProx"], columns=["omega=1,0.1"], seeds=2)
    assert {path: path.stat().st_mtime_ns for path in before} == before and len(before) == 2
    assert sorted(measured(second.folder)) == ["01-fedavg-omega-1", "02-fedprox-omega-0.1", "02-fedprox-omega-1"]
    assert second.claims[0].why.startswith("1 of 2 comparisons have no result yet. Of the others: ")
    result(second, False)
    said = capsys.readouterr().out
    assert said.count("not run") == 2 and "1 of 4 cells are not run yet. All of them:" in said
    with pytest.raises(
        UserError, match=r"begun with 3 rounds, not 4: go on with .* --rows FedAvg --rounds 3 --seeds 2"
    ):
        call(mine, rows="FedAvg", rounds=4, seeds=2)


def test_interrupted_in_the_middle_of_a_cell_the_same_call_goes_on(
    ray_cluster: None, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so does `resume` with its mirror, after the machine was lost. Both reach what the uninterrupted one does."""
    monkeypatch.chdir(tmp_path)
    whole, far = call(mine), str(tmp_path / "far" / "mine-small")
    with monkeypatch.context() as patch:
        interrupted_after(10, patch)
        cut = call(tmp_path / "cut", storage=far)
    assert cut.interrupted and not cut.finished and cut.made.done < 20
    values = measured(whole.folder)
    assert "--storage" in cut.command and far in cut.command
    shutil.rmtree(mine)
    fetched = fedtune.resume(Path(far).as_uri(), quiet=True, simulate=OfTable)
    assert fetched.finished and fetched.folder == mine / "mine-small"
    resumed = call(tmp_path / "cut")
    for found in (resumed, fetched):
        assert found.finished and measured(found.folder) == values
        assert found.to_json()["verdicts"] == whole.to_json()["verdicts"]
    assert files_of(fetched.folder) == files_of(Path(far))
    with pytest.raises(UserError, match=r"mine-other was renamed\. Give it the name back .* begins with mine-small\."):
        fedtune.resume(fetched.folder.rename(mine / "mine-other"))


def test_failed_federations_are_told(ray_cluster: None, mine: Path) -> None:
    """SCAFFOLD is chosen by a metric that the fake does not measure, which fails a trial."""
    failing = MINE | {"rows": [MINE["rows"][0], {"row": "FedProx", "method": "scaffold"}]}
    failing |= {"columns": {"omega": [1]}, "small": MINE["small"] | {"seeds": 1}}
    (declaration.FOLDER / "mine.yaml").write_text(yaml.safe_dump(failing))
    found = call(mine)
    assert found.finished and found.made.done == 1
    cell = mine / "mine-small" / run_folder.CELLS / "02-scaffold-omega-1"
    assert found.made.failed == {cell.resolve(): 1}
    assert [claim.verdict for claim in found.claims] == ["cannot be told"] * 2


def test_the_folder_must_be_one_of_reproduce(mine: Path) -> None:
    (mine / "mine-small").mkdir(parents=True)
    (mine / "mine-small" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="was not made by `fedtune reproduce`"):
        call(mine)
    (mine / "mine-small" / run_folder.REPRODUCTION).write_text("{torn")
    with pytest.raises(UserError, match="cannot be read"):
        call(mine)
    assert sorted(path.name for path in (mine / "mine-small").iterdir()) == ["notes.txt", run_folder.REPRODUCTION]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "Unknown reproduction 'nothing'. Known: mine."),
        (["mine", "--small", "--rounds", "0"], "rounds must be a whole number in [1, 1000000], got 0 (--rounds)."),
        (["mine", "--small", "--seeds", "0"], "seeds must be a whole number in [1, 1000], got 0 (--seeds)."),
        (["mine", "--small", "--slots", "0"], "slots"),
        (["mine", "--small", "--dataset", "nowhere"], "nowhere"),
        (["mine", "--small", "--rows", "FedAvg,FedPox"], "rows of mine (FedAvg, FedProx), got FedPox (--rows)."),
        (["mine", "--small", "--columns", "omga=1"], "columns of mine (omega=1,0.1), got omga=1 (--columns)."),
        (["mine", "--small", "--columns", "omega=1,2"], "columns of mine (omega=1,0.1), got omega=1,2 (--columns)."),
    ],
)
def test_bad_requests_are_one_sentence_and_write_nothing(mine: Path, words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, ["reproduce", *words, "--runs-dir", str(mine)])
    assert isinstance(done.exception, UserError) and len(done.exception.problems) == 1
    assert said in str(done.exception)
    assert not mine.exists()


def test_without_small_it_is_the_papers_setting(mine: Path) -> None:
    asked = ReproduceRequest("mine", runs_dir=str(mine))
    (mine.parent / "declared" / "mine.yaml").write_text(
        yaml.safe_dump(
            MINE
            | {
                "rows": MINE["rows"][:1],
                "claims": [{"says": "It falls", "source": "p. 1", "ahead": {"omega": 1}, "behind": {"omega": 0.1}}],
            }
        )
    )
    planned = plan_reproduction(asked)
    assert planned.folder == mine / "mine"
    assert planned.record.here == planned.record.paper
    assert vars(planned.record.here) == {"dataset": "svhn", "model": "cnn", "clients": 10, "rounds": 100, "seeds": 3}
    assert [part.settings.value("omega") for part in planned.parts] == [1.0, 0.1]
    other = plan_reproduction(ReproduceRequest("mine", small=True, dataset="rotated_digits", runs_dir=str(mine)))
    assert other.folder.name == "mine-small-rotated_digits"
    assert other.record.here.dataset == "rotated_digits" and other.record.paper.dataset == "svhn"


@pytest.mark.parametrize(
    ("name", "asked", "meant", "model"),
    [
        ("dfrd-table1", "fmnist", "fmnist32", "cnn"),
        ("dfrd-table1", "fmnist32", "fmnist32", "cnn"),
        ("fedmdcg-table1", "fmnist", "fmnist", "lenet_code_64"),
    ],
)
def test_fashion_mnist_is_as_large_as_in_its_paper(
    tmp_path: Path, name: str, asked: str, meant: str, model: str
) -> None:
    """DFRD resizes it (Table 6: 1 × 32 × 32), FedMD-CG does not; both are asked for by the same name."""
    planned = plan_reproduction(ReproduceRequest(name, dataset=asked, runs_dir=str(tmp_path)))
    assert planned.folder.name == f"{name}-{meant}" and f"--dataset {meant}" in command(planned.asked)
    assert planned.record.here == planned.record.paper
    assert (planned.record.here.dataset, planned.record.here.model) == (meant, model)
    assert len(planned.reproduction.lines(meant)) > 0


@pytest.mark.parametrize("said", [True, False])
def test_a_reproduction_says_where_bfloat16_would_be_faster(
    mine: Path, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its runs' plans say of it, once, and that it computes as the papers did."""
    told: list[str] = []
    one, checked = AMX if said else "Something else.", reproduce._checked

    def plans(*given: Any, **more: Any) -> Any:
        made, notes = checked(*given, **more)
        return [dataclasses.replace(plan, notes=(one,)) for plan in made], notes

    monkeypatch.setattr(reproduce, "_checked", plans)
    monkeypatch.setattr(reproduce, "_carried_out", lambda planned, plans, notes, *rest: told.extend(notes))
    call(mine)
    assert [note for note in told if "bfloat16" in note] == ([reproduce.FLOAT32] if said else [])


def test_lines_through_one_point_share_its_cell(tmp_path: Path) -> None:
    """Six weights at seven values each are 42 dots of FedMD-CG's Fig. 6, and 37 runs."""
    whole = plan_reproduction(ReproduceRequest("fedmdcg-fig6", dataset="fmnist", runs_dir=str(tmp_path)))
    assert len(whole.reproduction.rows) * len(whole.reproduction.places) == 42 and len(whole.parts) == 37
    assert whole.record.here == whole.record.paper and whole.record.symbols["value"] == "λ"
    asked = ReproduceRequest("fedmdcg-fig6", rows=("lambda3,λ₅",), columns=("value=0,1",), runs_dir=str(tmp_path))
    part = plan_reproduction(asked)
    weights = {
        p.folder.name: [p.values()[f"lambda{i}"] for i in range(1, 7)] + [p.values()["omega"]] for p in part.parts
    }
    assert weights == {
        "03-fedmdcg-lambda3-0": [1, 1, 0, 1, 1, 1, 1],
        "00-fedmdcg": [1, 1, 1, 1, 1, 1, 1],
        "05-fedmdcg-lambda5-0": [1, 1, 1, 1, 0, 1, 1],
    }


def test_a_reproduction_measures_on_the_test_set_in_every_round(tmp_path: Path) -> None:
    """A heat map too, which is a search."""
    for name in ("dfrd-fig5", "dfrd-table1"):
        asked = ReproduceRequest(name, small=True, runs_dir=str(tmp_path))
        part = plan_reproduction(asked).parts[0]
        assert plan(part.request, part.settings).experiment.values["eval_test"] == "every"


def test_a_heat_map_is_made_whole(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="must be left out for dfrd-fig5, a heat map, which is one search, got λ"):
        plan_reproduction(ReproduceRequest("dfrd-fig5", small=True, rows=("λ",), runs_dir=str(tmp_path)))


def test_the_list_fits_80_columns_and_says_what_each_costs() -> None:
    done = CliRunner().invoke(app, ["reproduce"])
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert all(len(line) <= 80 for line in lines)
    rows = {row["name"]: row for row in reproductions()}
    for name in rows:
        assert sum(line.startswith(f"{name} ") for line in lines) == 1
    table = rows["fedkf-table5"]  # nine rows, three columns
    one = declaration.declared("fedkf-table5")
    assert table["small_seed_rounds"] == 9 * 3 * one.small_rounds * one.small_seeds
    assert table["paper_seed_rounds"] == 9 * 3 * 100 * 3
    assert rows["dfrd-fig5"]["paper_seed_rounds"] == 30 * 200 * 3
    assert table["seconds"] == pytest.approx(6 + table["small_seed_rounds"] * one.seconds / table["cores"])


def test_every_run_is_attacked_once_and_under_its_first_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = plan_reproduction(ReproduceRequest("fedmdcg-fig4", small=True, runs_dir=str(tmp_path), quiet=True))
    calls: list[tuple[Path, dict[str, Any]]] = []

    def attack(target: Path, **options: Any) -> None:
        calls.append((target, options))
        target.mkdir(parents=True)
        (target / run_folder.ATTACK).write_bytes(b"")

    monkeypatch.setattr(reproduce, "attack", attack)
    reproduce._attack(planned)
    assert [target for target, _ in calls] == [part.folder for part in planned.parts] and len(calls) == 6
    assert {(options["trial"], options["images"]) for _, options in calls} == {(0, reproduce.IMAGES)}
    reproduce._attack(planned)
    assert len(calls) == 6, "what has been attacked is taken as it is"
