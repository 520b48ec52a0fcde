"""Requests whose space varies conditions of the experiment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedtune.options import SearchRequest
from fedtune.planning.plan import Plan, plan
from search_spaces.errors import UserError
from trainables import data

TEXT = """
method: fedavg
title: t
source: s
search: {lr: {low: 0.01, high: 0.1}}
vary: {omega: [1, 0.1, 0.01]}
profiles: {small: {dataset: digits, rounds: 2}}
"""


def made(tmp_path: Path, text: str = TEXT, **asked: Any) -> Plan:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    return plan(SearchRequest("fedavg", space=str(file), **{"name": tmp_path / "made", "slots": 1, **asked}))


def problems(tmp_path: Path, text: str = TEXT, **asked: Any) -> list[str]:
    with pytest.raises(UserError) as refused:
        made(tmp_path, text, **asked)
    return list(refused.value.problems)


def test_the_last_configuration_runs_under_every_condition_too(tmp_path: Path) -> None:
    text = TEXT.replace("omega: [1, 0.1, 0.01]", "omega: [10, 1, 0.1, 0.01]")
    found = made(tmp_path, text)
    assert found.experiment.trials == 32, "30 rounded up to whole blocks of 4"
    assert found.notes[1] == (
        "32 trials: 8 configurations under each of 4 conditions (omega 10, 1, 0.1, 0.01). The sampler looks for the "
        "configuration, never for a condition."
    )
    short = made(tmp_path, text, trials=6, name=tmp_path / "short")
    assert short.experiment.trials == 6 and "and one more under the first 2 of them" in short.notes[1]


def test_conditions_alone_are_a_grid(tmp_path: Path) -> None:
    text = TEXT.replace("search: {lr: {low: 0.01, high: 0.1}}\n", "")
    found = made(tmp_path, text).experiment
    assert (found.sampler, found.scheduler, found.trials) == ("grid", "none", 3)
    assert problems(tmp_path, text, sampler="tpe") == [
        "The space varies only conditions of the experiment (omega), so there is nothing for the sampler tpe to "
        "propose. Leave --sampler out."
    ]


def test_one_condition_is_an_ordinary_search(tmp_path: Path) -> None:
    found = made(tmp_path, set=("omega=0.1",))
    assert found.experiment.trials == 30 and found.space.vary == {} and found.experiment.values["omega"] == 0.1


def test_a_race_and_a_warm_start_need_one_condition(tmp_path: Path) -> None:
    one = "Choose one condition with --set, such as --set omega=1"
    assert problems(tmp_path, race=True) == [
        f"A race compares configurations under one condition. {one}, or leave --race out."
    ]
    text = TEXT.replace("omega: [1, 0.1, 0.01]", "omega: [1, 0.1, 0.01], rho: [0, 2]")
    assert problems(tmp_path, text, race=True)[0].endswith("--set omega=1 --set rho=0, or leave --race out.")


def test_rounds_are_no_condition(tmp_path: Path) -> None:
    assert problems(tmp_path, TEXT.replace("omega: [1, 0.1, 0.01]", "rounds: [1, 2]").replace(", rounds: 2", ""))[
        0
    ].startswith("rounds cannot be searched or varied, as trials are compared after the same number of rounds.")


def test_an_impossible_condition_is_named(tmp_path: Path) -> None:
    """1437 training images of digits cannot give each of 1000 clients ten of them."""
    found = problems(tmp_path, TEXT.replace("omega: [1, 0.1, 0.01]", "clients: [10, 20, 1000]"))
    assert len(found) == 1 and found[0].startswith("Under the condition clients=1000: ")


def test_every_data_set_is_recorded(tmp_path: Path) -> None:
    text = TEXT.replace("omega: [1, 0.1, 0.01]", "dataset: [digits, rotated_digits]").replace("dataset: digits, ", "")
    found = made(tmp_path, text).facts
    assert found["datasets"] == {name: data.load(name).hash for name in ("digits", "rotated_digits")}
    assert "datasets" not in made(tmp_path, name=tmp_path / "one").facts


def test_a_file_that_searches_a_condition_gets_a_hint(tmp_path: Path) -> None:
    old = TEXT.replace(
        "search: {lr: {low: 0.01, high: 0.1}}\nvary: {omega: [1, 0.1, 0.01]}", "search: {omega: {grid: [1, 0.1, 0.01]}}"
    )
    found = made(tmp_path, old)
    assert list(found.space.search) == ["omega"] and found.experiment.sampler == "ei"
    assert [note for note in found.notes if "vary" in note] == [
        f"omega is a condition of the experiment and stands under `search` of {tmp_path / 'mine.yaml'}, where the best "
        "value is looked for; put it under `vary`, and results are told for each condition."
    ]
    assert not [note for note in made(tmp_path, name=tmp_path / "new").notes if "`vary`" in note]
