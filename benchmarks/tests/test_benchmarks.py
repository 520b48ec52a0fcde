"""The benchmarks: a quick try of some cases, the page made of their figures, and what they are compared with. No figure
is judged."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from benchmarks import fingerprint, images, measure, page
from benchmarks.cases import ORDER, OTHERS, dry_run, gpu, pages, reports
from benchmarks.cases import search as search_case
from benchmarks.reference import Optimised, Plain
from benchmarks.results import Case, Goal
from benchmarks.standin import Standin
from fedtune.options import SearchRequest
from fedtune.planning.plan import plan
from tests.contracts.test_executors import exact_round, wide
from tests.exact import assert_as_exact
from tests.packaging.test_examples import command as command_of
from tests.toy import write_toy
from trainables.simulation.rounds import Simulation

ROOT = Path(__file__).resolve().parents[2]


def benchmarks(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"FEDTUNE_BENCH": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment,
    )


@pytest.mark.skipif(not any(map(shutil.which, pages.BROWSERS)), reason="no Chromium here")
def test_cases_are_measured(tmp_path: Path) -> None:
    done = benchmarks(tmp_path, "run", "--quick", "client_round", "methods", "two_cores", "pages", "clients")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "quick.json").read_text())["cases"]
    assert all(case["quick"] and case["machine"]["cores"] >= 1 for case in found.values())
    assert all(case["tables"] and all(table["rows"] for table in case["tables"]) for case in found.values())
    rows = {name: case["tables"][0]["rows"] for name, case in found.items()}
    # That all reach the same weights up to rounding is held to float64 below, where the processor does not matter.
    # In a server's many steps rounding turns decisions, so there the distance has no bound that fits every processor.
    for name, arms, seconds in (("client_round", "plain optimised fedtune", 4), ("methods", "plain fedtune", 3)):
        by = {row[seconds - 1]: row for row in rows[name]}
        assert {*by} == {*arms.split()} and all(row[seconds] > 0 and math.isfinite(row[-1]) for row in by.values())
        assert by["plain"][-1] == 0
    sizes = ((20, 2), (20, 16), (40, 2))
    assert [row[0] for row in rows["pages"]] == [f"{t} trials of 5 rounds, {n} parameters" for t, n in sizes]
    assert all(value > 0 for row in rows["pages"] for value in row[1:])
    saved, dealt, read = (table["rows"] for table in found["clients"]["tables"])
    assert all(0 < row[4] <= row[5] for row in saved), "two of four clients are written again"
    assert len(dealt) == 6 and all(row[3] == "refused" or int(row[3]) >= 10 for row in dealt)
    assert read[0][:2] == [200, 3]
    assert re.search("(?m)^ *LeNet-5 +digits +2 × 2 × 64 +plain ", done.stdout)
    assert not (tmp_path / "results.json").exists(), "a try is kept apart from figures"


def decided_round(values: dict[str, Any]) -> tuple[int, Simulation]:
    """The first seed for which no client's work in the first FedAvg round comes near a turn, and its float64 simulation
    after that round."""
    for seed in range(60):
        exact = wide("fedavg", values, seed)
        if all(exact_round(exact)[1].values()):
            return seed, exact
    raise AssertionError("every round comes near a turn")


@pytest.mark.numeric
@pytest.mark.parametrize(("model", "side", "batch"), [("lenet5", 28, 64), ("cnn", 16, 4)])
def test_the_reference_loops_reach_the_weights_of_fedtune(model: str, side: int, batch: int, tmp_path: Path) -> None:
    values = {
        "dataset": str(write_toy(tmp_path, classes=10, size=side)),
        "model": model,
        "clients": 2,
        "partition": "iid",
        "validation_fraction": 0.0,
        "local_steps": 1,
        "batch_size": batch,
        "lr": 0.05,
        "rounds": 4,
    }
    seed, exact = decided_round(values)
    loops = [Plain(values, seed), Optimised(values, seed)]
    fedtune = Simulation("fedavg", values, seed, torch.device("cpu"))
    for unit in (*loops, fedtune):
        unit.exchange() if isinstance(unit, Simulation) else unit.run()
    plain, by_hand = (named(loop.model().state_dict(), exact) for loop in loops)
    for fast in (by_hand, fedtune.global_model()):
        assert_as_exact(fast, plain, exact.global_model())
    with pytest.raises(AssertionError, match="from float64"):
        assert_as_exact(named(fedtune.fed.initial_params(), exact), plain, exact.global_model())


def named(state: Mapping[str, torch.Tensor], exact: Simulation) -> dict[str, torch.Tensor]:
    """A model's weights under the names of fedtune's, which stand in the same order, and in their shapes."""
    return {
        name: tensor.reshape(like.shape)
        for (name, like), tensor in zip((exact.global_model() or {}).items(), state.values(), strict=True)
    }


def test_without_a_gpu_it_is_said_in_one_sentence(tmp_path: Path) -> None:
    done = benchmarks(tmp_path, "gpu")
    assert done.returncode == 2
    assert re.search(r"^There is no GPU here [^\n]*\.$", done.stderr, re.MULTILINE)


def entry(case: Case) -> dict[str, Any]:
    from dataclasses import asdict

    from benchmarks.results import machine

    return asdict(case) | {"machine": machine()}


def test_the_page_has_goals_tables_and_drawings(tmp_path: Path) -> None:
    case = Case("scaling", "Scaling", "Text.")
    case.table("Clients", ("clients", "s"), [[10, 0.5], [200, 11.04]])
    case.curve("Seconds & clients", "clients", "s", {"round": [(10, 0.5), (200, 11.04)]})
    case.faster("twice as fast", 2.0, [4.0, 6.0, 9.0], [2.0, 2.0, 3.0])
    case.goals.append(Goal("memory", 450, 500.0, least=False, unit=" MiB"))
    page.write({"cases": {"scaling": entry(case)}}, tmp_path)
    text = (tmp_path / "performance.md").read_text()
    assert "| twice as fast | ≥ 2× | 3× (2 to 3) | yes |" in text
    assert "| memory | ≤ 450 MiB | 500 MiB | **no** |" in text
    assert "| 200 | 11.0 |" in text
    drawing = ElementTree.parse(tmp_path / "performance" / "scaling-1.svg").getroot()
    lines = drawing.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 1
    points = [tuple(map(float, point.split(","))) for point in lines[0].attrib["points"].split()]
    assert points[0][0] < points[1][0] and points[0][1] > points[1][1], "right is more clients, up is more seconds"


def test_the_page_names_goals_that_were_not_measured(tmp_path: Path) -> None:
    """Those on a GPU stand in no record until there is one, and must not be left out of what is counted."""
    case = Case("gpu", "On a GPU")
    for title in ("LeNet-5", "DFRD's CNN", "Steps"):
        case.table(title, ("executor", "s"), [["loop", 1.0]])
    case.goals.append(Goal(gpu.FOUR, 2.0, 3.0, unit="×"))
    page.write({"cases": {"gpu": entry(case)}}, tmp_path)
    text = (tmp_path / "performance.md").read_text()
    assert "Of 1 goals for speed that were measured 1 are reached." in text and "Missed" not in text
    others = [one for one in gpu.GOALS if one != gpu.FOUR]
    assert f"Not measured yet, as `make bench-gpu` needs a GPU: {'; '.join(others)}." in text
    assert f"| {gpu.FOUR} | ≥ 2× | 3× | yes |" in text
    assert f"| {gpu.WHOLE_ROUND} | ≥ 3× | not measured |  |" in text
    assert len(others) == 4 and text.count("| not measured |") == 4


def test_the_page_has_the_tables_that_are_asked_for_and_names_the_rest(tmp_path: Path) -> None:
    scaling, other = Case("scaling", "Scaling", "Text."), Case("methods", "Methods", "Text.")
    for place, title in enumerate(("Trials that compute nothing, two at once", "Clients")):
        scaling.table(title, ("clients", "s"), [[10, place + 0.5]])
    other.table("Of others", ("method", "s"), [["dfrd", 1.25]])
    other.goals += [Goal("time", 1, 0.5, least=False, unit=" s"), Goal("memory", 450, 500.0, least=False, unit=" MiB")]
    page.write({"cases": {"scaling": entry(scaling), "methods": entry(other)}}, tmp_path)
    text = (tmp_path / "performance.md").read_text()
    assert "Clients:" in text and "Trials that" not in text and "Of others" not in text
    assert "| memory |" in text and "| time |" not in text, "of other cases the goals that were missed"
    assert "- Methods (1 of 2 goals reached)" in text


def test_ratios_are_taken_within_a_turn() -> None:
    # The machine halves its speed in the second turn; the ratio stays.
    assert measure.ratio([1.0, 2.0, 1.0], [0.5, 1.0, 0.5]) == 2.0
    assert measure.spread([1.0, 3.0], [0.5, 1.0]) == (2.0, 3.0)


def test_fingerprints_tell_how_far_apart_models_are() -> None:
    a = {"w": torch.arange(600.0).view(20, 30), "b": torch.ones(10)}
    # The same values in another memory layout and another shape are the same model.
    assert (
        fingerprint.apart(fingerprint.fingerprint(a), fingerprint.fingerprint({"w": a["w"].view(600), "b": a["b"]}))
        == 0
    )
    found = []
    for seed in range(40):
        noise = torch.randn(20, 30, generator=torch.Generator().manual_seed(seed))
        other = {"w": a["w"] + 1e-3 * a["w"].norm() * noise / noise.norm(), "b": a["b"]}
        found.append(fingerprint.apart(fingerprint.fingerprint(a), fingerprint.fingerprint(other)))
    # Root mean square of 40 estimates of 0.001, each with a relative standard error of 1/sqrt(2 · 40).
    assert math.sqrt(sum(f * f for f in found) / len(found)) == pytest.approx(1e-3, rel=0.4)


@pytest.mark.parametrize(("side", "channels"), [(28, 1), (32, 3)])
def test_real_images_are_the_first_of_fashion_mnist_or_none(
    side: int, channels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is downloaded for a benchmark, and one that asks for more than there are is not given fewer."""
    monkeypatch.setattr(images, "OUT", tmp_path)
    monkeypatch.setattr("trainables.data.is_ready", lambda name: False)
    assert images.fashion(3, 2, side, channels) is None and not list(tmp_path.iterdir())
    x, y = (np.arange(5 * side * side) % 251).astype(np.uint8).reshape(5, 1, side, side), np.arange(5)
    there = SimpleNamespace(train_x=x, train_y=y, test_x=x[::-1], test_y=y[::-1])
    asked: list[str] = []
    monkeypatch.setattr("trainables.data.is_ready", lambda name: True)
    monkeypatch.setattr("trainables.data.load", lambda name: (asked.append(name), there)[1])
    with pytest.raises(ValueError, match="Fashion-MNIST has 5 test images, and 6 were asked for"):
        images.fashion(3, 6, side, channels)
    path = images.file(images.FASHION, 3, 2, side, channels)
    assert {*asked} == {{28: "fmnist", 32: "fmnist32"}[side]}
    with np.load(path) as found, np.load(images.npz(3, 2, side, channels)) as like:
        assert {name: (array.shape, array.dtype) for name, array in found.items() if name[0] == "x"} == {
            name: (array.shape, array.dtype) for name, array in like.items() if name[0] == "x"
        }
        grey = (lambda x: x) if channels == 1 else (lambda x: np.stack([x] * channels, axis=-1))
        assert np.array_equal(found["x_train"], grey(x[:3, 0])) and found["y_train"].tolist() == [0, 1, 2]
        assert np.array_equal(found["x_test"], grey(x[:2:-1, 0])) and found["y_test"].tolist() == [4, 3]


def test_real_images_stand_beside_digits_where_there_are_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """A try has digits alone, so that it stays quick."""
    monkeypatch.setattr("trainables.data.is_ready", lambda name: True)
    measured, tried, without = Case("c", "C"), Case("c", "C", quick=True), Case("c", "C")
    assert images.kinds(measured) == (images.DIGITS, images.FASHION) and images.kinds(tried) == (images.DIGITS,)
    monkeypatch.setattr("trainables.data.is_ready", lambda name: False)
    assert images.kinds(without) == (images.DIGITS,)
    assert [len(case.notes) for case in (measured, tried, without)] == [0, 0, 1]


@pytest.mark.parametrize("case", ["search", "reports"])
def test_searches_of_federations_can_be_planned(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of a benchmark are told their options as JSON, which no type checker reads."""
    asked: list[dict[str, Any]] = []

    def search(title: str, folder: Path, **task: Any) -> dict[str, Any]:
        asked.append({"sampler": "random", "scheduler": "none", "space": "default"} | task["options"])
        return {"seconds": 1.0, "memory": dict.fromkeys(("worker", "driver", "ray", "all"), 1.0)}

    processes = MagicMock()
    processes.return_value.__enter__.return_value.run.return_value = (1.0, [])
    monkeypatch.setattr(images, "OUT", tmp_path)
    monkeypatch.setattr(search_case, "Processes", processes)
    monkeypatch.setattr(search_case, "load_run", MagicMock())
    monkeypatch.setattr(search_case, "ratio", lambda one, other: 1.0)
    monkeypatch.setattr(f"benchmarks.cases.{case}.search", search)
    tried = Case(case, case, quick=True)
    if case == "search":
        search_case.trained(tried, tmp_path, images.DIGITS, trials=4, rounds=2, turns=1)
    else:
        reports.memory(tried, tmp_path, images.DIGITS, True)
    found = plan(SearchRequest(method="fedavg", **asked[0] | {"name": tmp_path / "run"}))
    assert (found.experiment.select_on, found.experiment.rounds) == ("test", asked[0]["rounds"])
    assert set(found.space.search) & {"local_steps", "dataset"} == set(), "every trial does the same work"


def test_dry_runs_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every request is one that the command line takes, and the goal is of the longest."""
    asked: list[list[str]] = []
    now = [0.0]

    def command(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(words[words.index("fedtune") + 1 :])
        now[0] += 12.0 if "dhf" in words and len(asked) % 4 != 1 else 3.0
        return subprocess.CompletedProcess(words, 0, '{"round_seconds": 40.5}', "")

    monkeypatch.setattr(dry_run, "kinds", lambda case: (images.DIGITS,))
    assert dry_run.run(False) is None and "make data" in capsys.readouterr().err
    monkeypatch.setattr(dry_run, "kinds", lambda case: (images.DIGITS, images.FASHION))
    monkeypatch.setattr(dry_run, "file", lambda *_: tmp_path / "own.npz")
    monkeypatch.setattr(dry_run.subprocess, "run", command)
    monkeypatch.setattr(dry_run.time, "time", lambda: now[0])
    found = dry_run.run(False)
    assert found is not None and [len(row) for row in found.tables[0]["rows"]] == [4] * len(dry_run.SEARCHES)
    assert {row[3] for row in found.tables[0]["rows"]} == {40.5}
    (goal,) = found.goals
    assert (goal.must, goal.got, goal.met) == (10.0, 12.0, False)
    for words in asked:
        given = command_of(words[0]).make_context(words[0], words[1:]).params
        assert given["dry_run"] and given["method"] in ("dfrd", "dhf", "fedkf", "fedavg")


def test_a_trial_that_was_begun_again_counts_once(tmp_path: Path) -> None:
    """As where Ray's servers were lost while it ran: its first seconds are not seconds of work."""
    lines = [["begin", 1.0, "a"], ["begin", 4.0, "b"], ["begin", 10.0, "c"], ["round", 11.0, "c"], ["end", 12.0, "c"]]
    (tmp_path / "diary").write_text("".join(json.dumps(line) + "\n" for line in [*lines, ["end", 5.5, "b"]]))
    assert search_case.under_way(tmp_path / "diary") == 2.0 + 1.5
    diary = tmp_path / "own"
    trials = [Standin("fedavg", {"rounds": 1}, (0,), diary=str(diary)) for _ in range(2)]
    trials[1].step()
    (_, first, _), (_, began, name), (what, ended, same) = map(json.loads, diary.read_text().splitlines())
    assert first <= began <= ended and (what, same) == ("end", name) and search_case.under_way(diary) == ended - began


def test_without_pfllib_one_sentence_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in no registry, so nothing installs it."""
    monkeypatch.setenv("PFLLIB", str(tmp_path))
    done = benchmarks(tmp_path, "pfllib", "--quick")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[1:] == [
        f"PFLLIB must be the folder of PFLlib, got {str(tmp_path)!r}. PFLlib is in no registry: clone "
        "github.com/TsingZ0/PFLlib and say `PFLLIB=FOLDER make bench-peers`."
    ]
    assert not list(tmp_path.glob("*.json"))


def test_every_case_is_there() -> None:
    import importlib

    for name in (*ORDER, *OTHERS):
        assert importlib.import_module(f"benchmarks.cases.{name}").TITLE
