"""`fedtune attack`: which configuration it takes, what it says and writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

import fedtune
from fedtune.api.attack import facts, progress, shortened
from fedtune.cli import app
from fedtune.console.busy import busy
from fedtune.record.journal import StudyFile
from fedtune.record.run_directory import write_document
from search_spaces import run_folder
from search_spaces.errors import UserError
from tests.fedtune.conftest import start
from trainables import registry

SMALL: dict[str, Any] = {
    "clients": 3,
    "rounds": 4,
    "partition": "iid",
    "min_samples": 4,
    "attack_steps": 3,
    "local_steps": 30,
    "batch_size": 64,
}


def configuration(folder: Path, toy: Path, method: str = "lgfedavg", **more: Any) -> Path:
    path = folder / "best.yaml"
    write_document(
        path,
        {
            "fedtune": 1,
            "method": method,
            "parameters": SMALL | {"dataset": str(toy)} | more,
            "provenance": {"seeds": [7, 8]},
        },
    )
    return path


def run_with_one_trial(folder: Path, toy: Path) -> Path:
    """A run directory as a search leaves it, with one complete trial."""
    start(folder, seeds=(5,), trials=1, method="fedper")
    trial = folder / run_folder.trial_folder(0)
    trial.mkdir(parents=True)
    (trial / run_folder.CONFIG).write_text(yaml.safe_dump(SMALL | {"dataset": str(toy)}))
    StudyFile(folder).study.add_trial(optuna.trial.create_trial(value=0.5, state=optuna.trial.TrialState.COMPLETE))
    return folder


def test_a_file_gives_its_pictures_beside_itself(toy: Path, tmp_path: Path) -> None:
    made = fedtune.attack(configuration(tmp_path, toy), images=2, quiet=True)
    assert (made.method, made.seed, made.sent, made.private, made.steps) == ("lgfedavg", 7, ("head",), "random", 3)
    assert made.picture == tmp_path / "best-attack.png" and made.page == tmp_path / "best-attack.html"
    assert made.psnr == pytest.approx(np.mean([leak.psnr for leak in made.leaks]))
    picture = np.asarray(Image.open(made.picture))
    # Originals are enlarged 14 times and stand in the upper row as they are.
    original = np.rint(made.leaks[0].original.numpy()[0] * 255).astype(np.uint8).repeat(14, 0).repeat(14, 1)
    assert any((picture[y : y + 112, x : x + 112, 0] == original).all() for y in range(30, 80) for x in range(60, 120))
    page = made.page.read_text()
    assert (
        page.count("data:image/png;base64,") == 4
        and "the gradient of head" in page
        and "http" not in page.split("</style>")[-1].split("<script")[0]
    )


def test_a_run_gives_its_best_trial_with_its_seed(toy: Path, tmp_path: Path) -> None:
    folder = run_with_one_trial(tmp_path / "one", toy)
    done = CliRunner().invoke(
        app, ["attack", str(folder), "--images", "1", "--steps", "2", "--private", "searched", "--json"]
    )
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["method"], told["seed"], told["steps"], told["private"], told["sent"]) == (
        "fedper",
        5,
        2,
        "searched",
        ["features"],
    )
    assert told["files"] == [str(folder / "attack.png"), str(folder / "attack.html")]
    assert all(Path(file).is_file() for file in told["files"])
    with np.load(folder / run_folder.ATTACK) as kept:
        assert kept["original"].shape == kept["recovered"].shape == (1, 1, 8, 8) and int(kept["trial"]) == 0
        assert kept["psnr"].tolist() == [told["psnr"]] and kept["label"].shape == kept["client"].shape == (1,)
        error = ((kept["original"].astype(float) - kept["recovered"]) / 255) ** 2
        # 8-bit pixels give the PSNR of the unrounded images nearly.
        assert 10 * np.log10(1 / error.mean()) == pytest.approx(told["psnr"], abs=0.1)
    assert sorted(path.name for path in folder.iterdir() if path.suffix not in (".png", ".html", ".npz")) == sorted(
        [run_folder.EXPERIMENT, run_folder.SPACE, run_folder.PROVENANCE, run_folder.STUDY, run_folder.TRIALS]
    )


def test_the_table_names_what_is_known_and_the_better_attack(toy: Path, tmp_path: Path) -> None:
    folder = run_with_one_trial(tmp_path / "one", toy)
    done = CliRunner().invoke(
        app,
        ["attack", str(folder), "--images", "2", "--steps", "2", "-o", str(tmp_path / "new" / "look.png")],
    )
    assert done.exit_code == 0, done.output
    for words in (
        "FedPer",
        "PSNR (dB)",
        "clients upload: features",
        "unknown head: random weights stand in for it",
        "--private searched",
        "mean PSNR",
    ):
        assert words in done.stdout
    assert (tmp_path / "new" / "look.png").is_file() and (tmp_path / "new" / "look.html").is_file()


def test_with_nothing_shared_there_is_nothing_to_match(toy: Path, tmp_path: Path) -> None:
    made = fedtune.attack(configuration(tmp_path, toy, "local"), images=1, quiet=True)
    assert made.sent == () and made.to_json()["images"][0]["mismatch"] is None
    assert ("the attacker knows", "nothing") in facts(made)


def test_the_same_request_gives_the_same_numbers(toy: Path, tmp_path: Path) -> None:
    path = configuration(tmp_path, toy)
    assert fedtune.attack(path, images=2, quiet=True).to_json() == fedtune.attack(path, images=2, quiet=True).to_json()
    assert fedtune.attack(path, images=2, seed=1, quiet=True).psnr != fedtune.attack(path, images=2, quiet=True).psnr


def test_rounds_are_shortened_and_nothing_else_changes(toy: Path) -> None:
    values: dict[str, Any] = {
        "dataset": str(toy),
        "local_epochs": 5,
        "local_steps": 50,
        "server_iters": 10,
        "rho": 5,
        "base": "fedrolex",
        "noise_dim": 32,
    }
    complete = registry.resolve("dfrd", values)
    found = shortened("dfrd", complete)
    assert (found["local_steps"], found["local_epochs"], found["server_iters"], found["batch_size"]) == (1, 0, 1, 8)
    untouched = set(complete) - {k for k in complete if k.endswith(("_steps", "_iters", "_epochs", "batch_size"))}
    assert {k: found[k] for k in untouched} == {k: complete[k] for k in untouched}
    assert found["attack_steps"] == 300


def test_uploads_of_later_rounds_count(toy: Path, tmp_path: Path) -> None:
    """DHF sends its features only in the rounds that train the global model, here the last of four; with an interval of
    0, never."""

    def sent(interval: int) -> tuple[str, ...]:
        return fedtune.attack(configuration(tmp_path, toy, "dhf", gme_interval=interval), images=1, quiet=True).sent

    assert {"features", "head", "prototype"} <= set(sent(100))
    assert {"head", "prototype"} <= set(sent(0)) and "features" not in sent(0)


def test_every_problem_of_the_request_is_said(tmp_path: Path, toy: Path) -> None:
    with pytest.raises(UserError) as error:
        fedtune.attack(tmp_path, images=0, steps=0, private="no", output="a.jpg", seed=-1)
    assert len(error.value.problems) == 5
    for words in (
        "images must be a whole number in [1, 1000], got 0",
        "steps must",
        "seed must",
        "Unknown choice of --private 'no'. Known: random, searched.",
        "ending in .png",
    ):
        assert words in str(error.value)


@pytest.mark.parametrize(
    ("target", "words"), [("nothing", "There is no run 'nothing'"), ("nothing.yaml", "nothing.yaml")]
)
def test_a_target_that_is_not_there(target: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=words):
        fedtune.attack(target, quiet=True)
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_a_complete_trial_and_a_trial_of_no_run(tmp_path: Path, toy: Path) -> None:
    start(tmp_path / "empty")
    with pytest.raises(UserError, match="no trial that ran to its end"):
        fedtune.attack(tmp_path / "empty", quiet=True)
    with pytest.raises(UserError, match="trial must be left out"):
        fedtune.attack(configuration(tmp_path, toy), trial=0, quiet=True)


def test_progress_is_never_silent_for_long(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "HEARTBEAT", 0.1)
    import time

    with busy("plain") as say:
        say("thinking")
        time.sleep(0.4)
    assert capfd.readouterr().err.count("thinking") >= 3
