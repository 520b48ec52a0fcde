"""The replay of what the defaults of `fedtune search` could be: one change each, scored and compared as it says."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from analysis.curve_table import save
from fedtune.planning.request import Request
from fedtune.record.experiment import Experiment
from fedtune.trials import queue, samplers
from tests.benchmarks.replay import __main__ as command
from tests.benchmarks.replay import defaults
from tests.benchmarks.replay.defaults import DECIDING, PRESENT, REPORTING, VARIANTS
from tests.benchmarks.replay.measures import Judged
from tests.benchmarks.replay.searchers.present import Present
from tests.benchmarks.replay.searchers.racing import Racing
from tests.benchmarks.tables.specs import SPECS
from tests.packaging.test_replay import Known, calling, recorded, setting


def made(variant: str) -> Any:
    return VARIANTS[variant](setting(Known(0)))


def test_a_variant_is_the_present_search_but_for_one_default() -> None:
    """What it changes is what its name says, by the names of `fedtune search`'s options."""
    present: Experiment = made(PRESENT).experiment
    request = Request("fedavg")
    assert present.reduction_factor == request.reduction_factor and present.lag == 4
    for variant in set(VARIANTS) - {PRESENT, "--race"}:
        searcher = made(variant)
        changed = {
            f.name: getattr(searcher.experiment, f.name)
            for f in dataclasses.fields(Experiment)
            if getattr(searcher.experiment, f.name) != getattr(present, f.name)
        }
        startup = re.fullmatch(r"(\d+) start-up trials", variant)
        if startup:
            assert not changed and searcher.startup == int(startup[1]) != samplers.STARTUP
        elif variant == "--seeds 3 --no-race":
            assert changed == {"seeds": (0, 1, 2)} and not searcher.experiment.races
        else:
            option, value = variant.removeprefix("--").split()
            assert {name: str(v) for name, v in changed.items()} == {option.replace("-", "_"): value}
    assert isinstance(made("--race"), Racing) and isinstance(made(PRESENT), Present)


def test_start_up_trials_are_those_of_the_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = samplers.make_sampler

    def spied(*given: Any, **named: Any) -> Any:
        asked.append(samplers.STARTUP)
        return real(*given, **named)

    monkeypatch.setattr(queue, "make_sampler", spied)
    searcher = made("12 start-up trials")
    first, second = searcher.propose(), searcher.propose()
    assert first is not None and second is not None and set(asked) == {12}
    assert samplers.STARTUP == 6, "it stays as it is for everybody else"


def judged(*regrets: float) -> list[Judged]:
    return [Judged(0, regret, 0.0, 0.0, None, 0.0) for regret in regrets]


def test_a_score_is_the_part_of_a_blind_choices_regret() -> None:
    """Over both repetitions a blind choice has a mean regret of 0.2."""
    episodes = [SimpleNamespace(best=0.9, blind=0.6), SimpleNamespace(best=0.8, blind=0.7)]
    given: Any = SimpleNamespace(episode=lambda repetition: episodes[repetition])
    scores = defaults._scores(given, [judged(0.2, 0.1), judged(0.1, 0.0)])
    assert scores == pytest.approx([0.15 / 0.2, 0.05 / 0.2])


def test_differences_are_taken_within_repetitions_and_averaged_over_tables() -> None:
    a, b, c = DECIDING[0], DECIDING[1], REPORTING[0]
    scores = {
        (a, PRESENT): np.array([0.5, 0.9]),
        (a, "x"): np.array([0.4, 0.8]),
        (b, PRESENT): np.array([0.2, 0.2]),
        (b, "x"): np.array([0.5, 0.3]),
        (c, PRESENT): np.array([0.3, 0.5]),
    }
    found = defaults._summary(scores, "x", [a, b, c])
    assert found["difference"][a] == {"value": -0.1, "low": -0.1, "high": -0.1, "n": 2}
    assert found["difference"][b]["value"] == pytest.approx(0.2)
    assert found["deciding"]["value"] == pytest.approx(0.05) and found["reporting"] is None
    assert (found["deciding"]["low"], found["deciding"]["high"]) == (0.0, 0.1)
    assert found["score"][a]["value"] == pytest.approx(0.6) and c not in found["score"]


def test_the_tables_are_declared_and_none_both_decides_and_reports() -> None:
    assert {*DECIDING, *REPORTING} == SPECS.keys() and not {*DECIDING} & {*REPORTING}


def test_the_command_adds_its_part_and_keeps_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (DECIDING[0], REPORTING[1]):
        save(recorded(np.tile(np.linspace(0, 1, 10)[:, None], (1, 6)), name), tmp_path / f"{name}.npz")
    monkeypatch.setattr(defaults, "VARIANTS", {n: VARIANTS[n] for n in (PRESENT, "--sampler random", "--race")})
    monkeypatch.setattr(command, "DOCS", tmp_path / "docs.json")
    call = calling(monkeypatch, tmp_path / "bench")
    asked = ("--folder", str(tmp_path), "--processes", "1", "--repetitions", "3")
    assert call("defaults", *asked) == 2, "there is nothing to add it to"
    assert call("run", *asked, "--clocks", "1", "--searchers", "random-1") == 0
    before = json.loads(command.RESULTS.read_text(encoding="utf-8"))
    assert call("defaults", *asked) == 0
    found = json.loads(command.RESULTS.read_text(encoding="utf-8"))
    assert {key: value for key, value in found.items() if key != "defaults"} == before
    part = found["defaults"]
    assert part["tables"] == [DECIDING[0], REPORTING[1]] and [*part["variants"]] == [*defaults.VARIANTS]
    assert part["variants"][PRESENT]["deciding"] == {"value": 0.0, "low": 0.0, "high": 0.0, "n": 3}
    text = command.RESULTS.with_suffix(".md").read_text(encoding="utf-8")
    assert "## Defaults" in text and "| `--sampler random` |" in text and "| as it is |" in text
    # Replaying searches anew keeps it.
    assert call("run", *asked, "--clocks", "1", "--searchers", "random-1") == 0
    assert json.loads(command.RESULTS.read_text(encoding="utf-8"))["defaults"] == part
