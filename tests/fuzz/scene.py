"""The small real runs, files and data sets that inputs are made from, made once.

run/       a finished search: three trials of two rounds        cut/     the same, its last trial cut off in round 1
final/     a final run over two seeds                           best.yaml, space.yaml, data.npz, images/, file
auto/      a finished search over two methods                   auto-cut/   the same, cut off in its fresh seeds
table/     the folder of a finished reproduction                table-cut/  the same, cut off in its last cell
loop       a symbolic link to itself                            pipe     a named pipe
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from optuna.trial import TrialState

from search_spaces import run_folder
from tests import study_file

ROOT = Path(__file__).resolve().parents[2]
FILES = ("best.yaml", "space.yaml", "data.npz", "images", "file", "loop", "pipe")
SPACE = """\
method: fedprox
title: a space of a user
search:
  mu: {grid: [0.0, 0.01, 0.1]}
  lr: {low: 0.001, high: 0.1, log: true}
fix: {clients: 4, local_steps: 1}
profiles:
  small: {rounds: 2, trials: 3, seeds: 1}
  paper: {rounds: 20, seeds: 2, select_on_test: true}
figures: [heatmap]
metric: val_global_accuracy
"""
#: Little work per round.
SMALL = ("--set", "clients=4", "--set", "local_steps=1", "--set", "batch_size=4")
#: Those of the search over several methods.
METHODS = ("fedavg", "fedprox")
#: The reproduction with the fewest cells, and its folder within the one for runs.
TABLE = "fedkf-table12"
TABLE_FOLDER = f"{TABLE}-small"
#: The folders that hold several runs.
AUTOS, TABLES = ("auto", "auto-cut"), ("table", "table-cut")


def make(folder: Path, cache: Path) -> Path:
    """Makes the scene in `folder`, which does not exist yet; the data set's cache is kept in `cache`."""
    folder.mkdir(parents=True)
    (folder / "space.yaml").write_text(SPACE)
    (folder / "file").write_text("a file\n")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")
    _data(folder)
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.scene", str(folder)],
        cwd=ROOT,
        env={**os.environ, "FEDTUNE_CACHE": str(cache), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"The scene could not be made:\n{done.stderr}")
    _cut(folder)
    _cut_several(folder)
    return folder


def _runs(folder: Path) -> None:
    """The real runs, in a process with Ray."""
    import ray

    import fedtune

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    small = [word for word in SMALL if word != "--set"]
    where: dict[str, Any] = {"quiet": True, "set": small}
    once = {"slots": 1, "per_trial": "cpus=1"}
    fedtune.search(
        "fedprox", space="default", trials=3, rounds=2, name=folder / "run", scheduler="none", **where, **once
    )
    fedtune.export(folder / "run", folder / "best.yaml")
    fedtune.run("fedprox", seeds=2, rounds=1, name=folder / "final", **where, **once)
    few = {"rounds": 2, "fresh_seeds": 2, "final_seeds": 1, "least": 1}
    # A trial of each method, two fresh seeds of each, a seed of the leader: seven federations of two rounds.
    fedtune.auto(budget="14rounds", methods=METHODS, name=folder / "auto", **few, **where, **once)
    made = {"runs_dir": str(folder / "table"), "quiet": True, "slots": 1}
    fedtune.reproduce(TABLE, small=True, rounds=2, seeds=1, **made)
    ray.shutdown()


def _cut(folder: Path) -> None:
    """The search as a kill of its driver in trial 2 left it."""
    shutil.copytree(folder / "run", folder / "cut")
    _cut_trial(folder / "cut", 2)


def _cut_several(folder: Path) -> None:
    """As a kill left them: the search over several methods in the fresh seeds of one method, the reproduction in its
    last cell."""
    for whole, cut in (AUTOS, TABLES):
        shutil.copytree(folder / whole, folder / cut)
    (final,) = (folder / "auto-cut" / run_folder.FINAL).iterdir()
    shutil.rmtree(final)
    _cut_trial(folder / "auto-cut" / run_folder.FRESH / METHODS[-1], 1)
    table = folder / "table-cut" / TABLE_FOLDER
    _cut_trial(max((table / run_folder.CELLS).iterdir()), 0)


def _cut_trial(run: Path, number: int) -> None:
    """The run as a kill of its driver in round 2 of its last trial left it."""

    def changed(trial: dict[str, Any]) -> None:
        trial.update(state=TrialState.RUNNING, value=None, values=None)
        del trial["datetime_complete"]
        kept = ("seed", "place", "from")
        trial["user_attrs"] = {key: value for key, value in trial["user_attrs"].items() if key in kept}
        trial["intermediate_values"].pop("2", None)

    study_file.change(run / run_folder.STUDY, changed, number)
    rows = run / run_folder.trial_folder(number) / run_folder.ROUNDS
    rows.write_text("".join(line for line in rows.read_text().splitlines(True) if json.loads(line)["round"] == 1))


def _data(folder: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (60, 8, 8), dtype=np.uint8), np.arange(60) % 3
    np.savez(folder / "data.npz", x=x, y=y)
    for number, (picture, label) in enumerate(zip(x[:18], y[:18], strict=True)):
        place = folder / "images" / f"class{label}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(place / f"{number}.png")


def documents(scene: Path) -> dict[str, Any]:
    """The real documents that mutated ones begin from, by path."""
    found = {name: yaml.safe_load((scene / name).read_text()) for name in ("best.yaml", "space.yaml")}
    for folder in ("run", "cut", "final", *AUTOS, *TABLES):
        for path in sorted((scene / folder).rglob("*")):
            if path.suffix in (".yaml", ".json"):
                read = yaml.safe_load if path.suffix == ".yaml" else json.loads
                found[str(path.relative_to(scene))] = read(path.read_text())
    return found


def npz(arrays: dict[str, bytes]) -> bytes:
    """An archive of these members, which need be no arrays."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in arrays.items():
            archive.writestr(name, content)
    return out.getvalue()


if __name__ == "__main__":
    _runs(Path(sys.argv[1]))
